//! `cargo xtask bench binary`: how large the program of the image is, and how long it takes to say what it can do.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use sim::record::percentile;

use crate::image;

/// What `--help` may take, in milliseconds.
const HELP_LIMIT_MS: f64 = 10.0;

/// Size and start of the static program.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask bench binary --json --check")]
pub(crate) struct Args {
    /// How often `--help` is run
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Fail when the program is larger than 34 MiB or the median of `--help` is over 10 ms
    #[arg(long)]
    check: bool,
    /// The program to measure; built as for the image when not given
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The result.
#[derive(Debug, Serialize)]
struct Row {
    static_mib: f64,
    help_ms_p50: f64,
    help_ms_max: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => image::program()?,
    };
    let bytes = std::fs::metadata(&binary).with_context(|| format!("{}", binary.display()))?.len();
    let mut times = Vec::new();
    for _ in 0..args.runs {
        times.push(u64::try_from(help(&binary)?.as_micros())?);
    }
    times.sort_unstable();
    let ms = |percent| percentile(&times, percent) as f64 / 1e3;
    let row =
        Row { static_mib: bytes as f64 / f64::from(1 << 20), help_ms_p50: ms(50), help_ms_max: ms(100) };
    if args.json {
        println!("{}", serde_json::to_string(&row)?);
    } else {
        println!(
            "{:.1} MiB; --help takes {:.1} ms (median of {}; at most {:.1} ms)",
            row.static_mib, row.help_ms_p50, args.runs, row.help_ms_max
        );
    }
    if args.check {
        ensure!(bytes <= image::LIMIT, "the program has {bytes} bytes, more than {}", image::LIMIT);
        let p50 = row.help_ms_p50;
        ensure!(p50 <= HELP_LIMIT_MS, "--help takes {p50:.1} ms, more than {HELP_LIMIT_MS} ms");
    }
    Ok(())
}

/// From the start of the process to its end.
fn help(binary: &PathBuf) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let status = Command::new(binary).arg("--help").stdout(Stdio::null()).status();
    let took = began.elapsed();
    let status = status.with_context(|| format!("cannot run {}", binary.display()))?;
    ensure!(status.success(), "{} --help failed ({status})", binary.display());
    Ok(took)
}
