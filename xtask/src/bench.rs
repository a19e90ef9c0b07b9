//! `cargo xtask bench`: figures from the real thing.

use clap::Subcommand;

mod binary;
mod device_plugin;
mod exporter;
mod freshness;
mod model;
mod operator;
mod rig;
mod schedule;
mod scheduler_perf;
mod tae;

/// The benchmarks.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Size of the static program, and how long `--help` takes
    Binary(binary::Args),
    /// Pods lost to TopologyAffinityError and time to Running, on real kubelets: stock kube-scheduler,
    /// tholepin, the ideal
    Tae(tae::Args),
    /// Pods a second of stock kube-scheduler and tholepin, on a real API server without kubelets
    Schedule(schedule::Args),
    /// What the exporter costs a node and how fresh it is, beside a peer if one is given
    Exporter(exporter::Args),
    /// Time from an allocation (and a release) in the kubelet to the NRT object that shows it
    Freshness(freshness::Args),
    /// What one call of the model of the kubelet costs, by zones and CPUs
    Model(model::Args),
    /// How fast the device plugin answers, how long a list the kubelet takes at once, what it costs
    DevicePlugin(device_plugin::Args),
    /// What the operator costs in a cluster of many nodes
    Operator(operator::Args),
}

/// Runs a benchmark.
pub(crate) fn run(bench: Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Binary(args) => binary::run(&args),
        Bench::Tae(args) => tae::run(args),
        Bench::Schedule(args) => schedule::run(&args),
        Bench::Exporter(args) => exporter::run(args),
        Bench::Freshness(args) => freshness::run(args),
        Bench::Model(args) => model::run(&args),
        Bench::DevicePlugin(args) => device_plugin::run(&args),
        Bench::Operator(args) => operator::run(&args),
    }
}
