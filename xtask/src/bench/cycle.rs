//! `cargo xtask bench cycle`: what a scheduling cycle costs, and how that grows.
//!
//! The figures come from `crates/scheduler/benches/cycle.rs`, optimised, but not across crates as what is shipped,
//! which takes long to build and changes no growth; and from `crates/hollow/benches/numa.rs`, as it is shipped: the
//! price of zones is nanoseconds. Each is the median of many cycles.

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::cargo_bench;
use super::chart::{self, Line, Panel, time};
use crate::cargo::{CLIENT, DIST};
use crate::tree::root;

/// The chart of growth in the documentation.
const CHART: &str = "docs/scheduler-growth.svg";

/// Time of one scheduling cycle.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask bench cycle --json --chart")]
pub(crate) struct Args {
    /// A JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Write the chart into the documentation
    #[arg(long)]
    chart: bool,
}

/// One figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    what: String,
    unit: String,
    size: u32,
    ns: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut rows: Vec<Row> = cargo_bench("scheduler", "cycle", CLIENT)?;
    rows.extend(cargo_bench::<Row>("hollow", "numa", DIST)?);
    for row in &rows {
        if args.json {
            println!("{}", serde_json::to_string(row)?);
        } else {
            let Row { what, unit, size, ns } = row;
            println!("{what:50} {size:6} {unit:16} {:>9}", time(*ns));
        }
    }
    if args.chart {
        let title = "Time of one scheduling cycle";
        std::fs::write(root().join(CHART), chart::svg(title, &panels(&rows))).context(CHART)?;
    }
    Ok(())
}

/// Cycles by nodes, and events by what waits and runs.
fn panels(rows: &[Row]) -> [Panel; 2] {
    let line = |name| {
        let points = rows.iter().filter(|row| row.what == name).map(|row| (row.size, row.ns));
        Line { name, points: points.collect() }
    };
    let panel = |title, lines| Panel { title, unit: "", powers: (3, 8), lines };
    [
        panel(
            "A pod comes and is placed, by nodes",
            vec![
                line("equal pods"),
                line("pods of a class each"),
                line("aligned pods"),
                line("pods that spread over zones"),
            ],
        ),
        panel(
            "Events by waiting classes and by running pods",
            vec![
                line("a small pod ends, which helps none"),
                line("a small pod comes"),
                line("a pod of a Job ends and the next comes"),
            ],
        ),
    ]
}
