//! `cargo xtask bench model`: what the model of the kubelet costs, and how that grows with zones and CPUs.
//!
//! The figures come from `crates/topology/benches/model.rs`, built like what is shipped. Each is the least of many
//! rounds.

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::cargo_bench;
use super::chart::{self, Line, Panel, time};
use crate::cargo::DIST;
use crate::tree::root;

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
    let rows: Vec<Row> = cargo_bench("topology", "model", DIST)?;
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
        std::fs::write(
            root().join(CHART),
            chart::svg("Time of one call of the model of the kubelet", &panels(&rows)),
        )
        .context(CHART)?;
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

/// The growth of `fits` with zones and that of `admit` with CPUs and zones.
fn panels(rows: &[Row]) -> [Panel; 2] {
    let points = |what: &str, policy: &str, pod: &str, of: &dyn Fn(&Row) -> Option<u32>| {
        let wanted = rows.iter().filter(|row| row.what == what && row.policy == policy && row.pod == pod);
        wanted.filter_map(|row| Some((of(row)?, row.ns))).collect::<Vec<_>>()
    };
    let zones = |row: &Row| Some(row.zones);
    let cpus = |row: &Row| (row.zones == 2).then_some(row.cpus);
    let zones_of_512 = |row: &Row| (row.cpus == 512).then_some(row.zones);
    let (single, restricted) = ("single-numa-node", "restricted");
    let line = |name, points| Line { name, points };
    [
        Panel {
            title: "fits() over zones of 16 CPUs",
            unit: "zones",
            powers: (1, 5),
            lines: vec![
                line("single-numa-node, small pod", points("fits", single, "small", &zones)),
                line("restricted, small pod", points("fits", restricted, "small", &zones)),
                line("restricted, pod of several zones", points("fits", restricted, "several zones", &zones)),
                line("single-numa-node, two containers", points("fits", single, "two containers", &zones)),
            ],
        },
        Panel {
            title: "admit() by CPUs (2 zones) and by zones (512 CPUs)",
            unit: "",
            powers: (3, 6),
            lines: vec![
                line("by CPUs, small pod", points("admit", restricted, "small", &cpus)),
                line("by CPUs, half a zone", points("admit", restricted, "half a zone", &cpus)),
                line("by zones, small pod", points("admit", restricted, "small", &zones_of_512)),
                line("by zones, half a zone", points("admit", restricted, "half a zone", &zones_of_512)),
            ],
        },
    ]
}
