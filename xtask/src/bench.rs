//! `cargo xtask bench`: figures from the real thing.

use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use serde::de::DeserializeOwned;

use crate::tree::root;

mod binary;
mod bound_pods;
mod chart;
mod cycle;
mod device_plugin;
mod exporter;
mod failover;
mod figures;
mod freshness;
mod model;
mod operator;
pub(crate) mod rig;
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
    /// Two replicas of our scheduler, of which the leader is killed again and again under load
    Failover(failover::Args),
    /// What the exporter costs a node and how fresh it is, beside a peer if one is given
    Exporter(exporter::Args),
    /// Time from an allocation (and a release) in the kubelet to the NRT object that shows it
    Freshness(freshness::Args),
    /// What one call of the model of the kubelet costs, by zones and CPUs
    Model(model::Args),
    /// What one scheduling cycle costs, by nodes, waiting classes and running pods
    Cycle(cycle::Args),
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
        Bench::Schedule(args) => rig::optimise().and_then(|()| schedule::run(&args)),
        Bench::Failover(args) => failover::run(&args),
        Bench::Exporter(args) => exporter::run(args),
        Bench::Freshness(args) => freshness::run(args),
        Bench::Model(args) => model::run(&args),
        Bench::Cycle(args) => cycle::run(&args),
        Bench::DevicePlugin(args) => device_plugin::run(&args),
        Bench::Operator(args) => operator::run(&args),
    }
}

/// The rows that a crate's benchmark prints, a JSON object a line, built with a profile.
fn cargo_bench<T: DeserializeOwned>(package: &str, name: &str, profile: &str) -> anyhow::Result<Vec<T>> {
    let output = Command::new("cargo")
        .args(["bench", "--quiet", "--profile", profile, "-p", package, "--bench", name])
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo bench")?;
    ensure!(output.status.success(), "the benchmark failed ({})", output.status);
    let text = String::from_utf8(output.stdout)?;
    let rows = text.lines().filter(|line| line.starts_with('{'));
    rows.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}
