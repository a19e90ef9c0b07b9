//! `cargo xtask`: the chores of this repository.

mod bench;
mod browser;
mod bundle;
mod cargo;
mod chart;
mod cluster;
mod codegen;
mod differential;
mod features;
#[cfg(test)]
mod forge;
mod gotool;
mod image;
#[cfg(test)]
mod interop;
mod manifests;
#[cfg(test)]
mod monitoring;
mod readme;
#[cfg(test)]
mod register;
mod release;
mod test;
mod testenv;
mod tidy;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

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
    /// Measure on the real thing.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write the operators' OLM bundles and their catalog.
    Bundle(bundle::Args),
    /// Write the chart for Helm.
    Chart(chart::Args),
    /// Regenerate the Rust modules made from `proto/`.
    Codegen {
        /// Only fail when a committed module is stale.
        #[arg(long)]
        check: bool,
    },
    /// Compare the model of the kubelet's admission with the kubelet's own packages, on random machines and pods.
    #[command(disable_help_flag = true)]
    Differential {
        /// Its arguments; --help lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Check that the crate `api` compiles without features, and with each of them alone.
    Features,
    /// Build a container image with nothing in it but the program: an OCI archive, with its SBOM.
    Image(image::Args),
    /// Run the long versions of tests that are short in `test`, for an hour or two, and record them in docs/figures.md.
    Nightly {
        /// Names of long versions [default: all]
        names: Vec<String>,
    },
    /// Write the operator's manifests, for kubectl and kustomize.
    Manifests(manifests::Args),
    /// Run the commands of README and quick start in their order, in a fresh clone with cold caches.
    Readme(readme::Args),
    /// Make every file of a release: programs, image, chart, manifests, bundles, SBOMs, checksums.
    Release(release::Args),
    /// Find the Kubernetes programs the tests run, or build them from Go modules, and print where they are.
    Testenv(testenv::Args),
    /// Run a cluster like the tests' for yourself.
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Run all tests, those on real kubelets included.
    Test {
        /// Arguments for `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Check the rules of CONTRIBUTING.md that a program can check, and that generated files are fresh.
    Tidy,
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Bench(what) => bench::run(what),
        Task::Bundle(args) => bundle::run(&args),
        Task::Chart(args) => chart::run(&args),
        Task::Codegen { check } => codegen::run(check),
        Task::Differential { args } => differential::run(&args),
        Task::Features => features::run(),
        Task::Image(args) => image::run(&args),
        Task::Nightly { names } => test::nightly::run(&names),
        Task::Manifests(args) => manifests::run(&args),
        Task::Readme(args) => readme::run(&args),
        Task::Release(args) => release::run(&args),
        Task::Testenv(args) => testenv::run(&args),
        Task::Cluster(action) => cluster::run(action),
        Task::Test { args } => test::run(&args),
        Task::Tidy => tidy::run(),
    };
    // Not returned: `main` would print it with a backtrace, which says nothing about a missing tool or a bad flag.
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
