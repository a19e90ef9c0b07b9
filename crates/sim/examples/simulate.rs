//! `tholepin simulate` before there is a `tholepin`.
use clap::Parser;
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: sim::cli::Args,
}
fn main() -> anyhow::Result<std::process::ExitCode> {
    sim::cli::run(&Command::parse().args)
}
