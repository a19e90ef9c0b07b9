//! `cargo xtask bench`: figures from the real thing.

use clap::Subcommand;

mod rig;
mod tae;

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Pods lost to TopologyAffinityError and time to Running, on real kubelets: stock kube-scheduler, tholepin, the ideal
    Tae(tae::Args),
}

/// Runs a benchmark.
pub(crate) fn run(bench: Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Tae(args) => tae::run(args),
    }
}
