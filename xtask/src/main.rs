//! `cargo xtask`: the chores of this repository.

mod codegen;
mod testenv;

use clap::{Parser, Subcommand};

/// The chores of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Regenerate the Rust modules made from `proto/`.
    Codegen {
        /// Only fail when a committed module is stale.
        #[arg(long)]
        check: bool,
    },
    /// Find the Kubernetes programs the tests run, or build them from Go modules, and print where they are.
    Testenv,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().task {
        Task::Codegen { check } => codegen::run(check),
        Task::Testenv => testenv::run(),
    }
}
