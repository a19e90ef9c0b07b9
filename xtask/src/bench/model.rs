//! `cargo xtask bench model`: what the model of the kubelet costs, and how that grows with zones and CPUs.
//!
//! The figures come from `crates/topology/benches/model.rs`, built like what is shipped. Each is the least of many
//! rounds.

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::tree::root;

mod chart;

/// The chart of growth in the documentation.
const CHART: &str = "docs/model-growth.svg";

/// Time of one call of the model.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask bench model --json --check --chart")]
pub(crate) struct Args {
    /// A JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Fail when a figure is over its limit
    #[arg(long)]
    check: bool,
    /// Write the chart into the documentation
    #[arg(long)]
    chart: bool,
}

/// One figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    what: String,
    zones: u32,
    cpus: u32,
    policy: String,
    pod: String,
    answer: String,
    ns: f64,
}

/// What `fits` may take, by zones, and `admit` on 512 CPUs, in nanoseconds. The last one is for pods of one zone.
const LIMITS: [(&str, u32, &str, f64); 5] = [
    ("fits", 2, "single-numa-node", 150.0),
    ("fits", 2, "restricted", 150.0),
    ("fits", 8, "restricted", 2_000.0),
    ("fits", 32, "", 20_000.0),
    ("admit", 2, "", 100_000.0),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let output = Command::new("cargo")
        .args(["bench", "--quiet", "--profile", "dist", "-p", "topology", "--bench", "model"])
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo bench")?;
    ensure!(output.status.success(), "the benchmark failed ({})", output.status);
    let text = String::from_utf8(output.stdout)?;
    let rows: Vec<Row> = text
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect::<anyhow::Result<_>>()?;
    for row in &rows {
        if args.json {
            println!("{}", serde_json::to_string(row)?);
        } else {
            let Row { what, zones, cpus, policy, pod, answer, ns } = row;
            println!(
                "{what:7} {zones:2} zones {cpus:3} CPUs  {policy:17} {pod:26} {answer:13} {:>9}",
                time(*ns)
            );
        }
    }
    if args.chart {
        std::fs::write(root().join(CHART), chart::svg(&rows)).context(CHART)?;
    }
    if args.check {
        let slow: Vec<String> = rows.iter().filter_map(over).collect();
        ensure!(slow.is_empty(), "over the limit: {}", slow.join("; "));
    }
    Ok(())
}

/// Says if a figure is over its limit. Limits of `fits` are for pods of one container.
fn over(row: &Row) -> Option<String> {
    let limited = |limit: &&(&str, u32, &str, f64)| {
        let (what, zones, policy, _) = **limit;
        row.what == what && row.zones == zones && (policy.is_empty() || row.policy == policy)
    };
    let (.., limit) = LIMITS.iter().find(limited)?;
    let is_over = row.ns > *limit && row.pod != "two containers";
    is_over
        .then(|| format!("{} {} zones {} {:?}: {}", row.what, row.zones, row.policy, row.pod, time(row.ns)))
}

fn time(ns: f64) -> String {
    if ns < 1_000.0 { format!("{ns:.0} ns") } else { format!("{:.1} us", ns / 1_000.0) }
}
