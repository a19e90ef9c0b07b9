//! Our own command line.
//!
//! In: flags and a few variables. Out: what was asked for, done; data on standard output, everything else on standard error, and an exit
//! code that says how it went. Never: a question to whoever sits there.
//!
//! Exit codes: 0 it is done, 1 it failed, 2 the command line is wrong or a question could not be answered. With `--diff`, as with
//! `kubectl diff`: 0 nothing differs, 1 something does, 2 it failed.

pub mod act;
pub mod choices;
pub mod deploy;
pub mod detect;
pub mod output;
pub mod params;
pub mod render;
pub mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use tokio_util::sync::CancellationToken;

use crate::part::Component;
use crate::validate;

/// What can be asked for.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print the manifests of what deploy would install; needs no cluster
    Render(Box<render::Args>),
    /// Install exporter and scheduler, or bring them up to date
    Deploy(Box<deploy::Args>),
    /// Remove all that deploy made, and nothing else
    Remove(Box<deploy::RemoveArgs>),
    /// Check the cluster, install, wait, and check again
    Setup(Box<deploy::SetupArgs>),
    /// Tell what is wrong with a cluster
    #[command(visible_alias = "doctor")]
    Validate(Box<validate::cli::Args>),
    /// Tell what kind of cluster it is
    Detect(Box<detect::Args>),
    /// Print the images that deploy uses
    Images(Box<render::ImagesArgs>),
    /// Print every CustomResourceDefinition of ours
    Crds,
    /// Print the version
    Version(render::VersionArgs),
}

/// Which cluster.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Kubeconfig; without it KUBECONFIG, ~/.kube/config, then the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ClusterArgs {
    /// As clients are made from.
    #[must_use]
    pub fn options(&self) -> runtime::client::Options {
        runtime::client::Options {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            user_agent: user_agent(),
        }
    }
}

/// Something that can be installed on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// The NodeResourceTopology definition.
    Api,
    /// What publishes NodeResourceTopology objects.
    TopologyUpdater,
    /// What schedules by them.
    SchedulerPlugin,
}

/// The components that were named; all, if none was.
#[must_use]
pub fn components(named: &[Which]) -> Vec<Component> {
    let which = |which: &Which| match which {
        Which::Api => Component::Api,
        Which::TopologyUpdater => Component::TopologyUpdater,
        Which::SchedulerPlugin => Component::SchedulerPlugin,
    };
    if named.is_empty() { Component::ALL.to_vec() } else { named.iter().map(which).collect() }
}

impl Command {
    /// Whether it talks to a cluster.
    #[must_use]
    pub fn needs_cluster(&self) -> bool {
        match self {
            Self::Render(args) => args.choices.needs_cluster(),
            Self::Images(_) | Self::Crds | Self::Version(_) => false,
            _ => true,
        }
    }

    /// Does it. Cancelling `token` ends it at the next safe place.
    ///
    /// # Errors
    /// When it failed, in one line.
    pub async fn run(self, token: CancellationToken) -> anyhow::Result<ExitCode> {
        match self {
            Self::Render(args) => render::run(&args).await,
            Self::Deploy(args) => deploy::run(*args, &token).await,
            Self::Remove(args) => deploy::remove(&args, &token).await,
            Self::Setup(args) => deploy::setup(*args, &token).await,
            Self::Validate(args) => validate::cli::run(*args).await,
            Self::Detect(args) => detect::run(&args).await,
            Self::Images(args) => render::images(&args),
            Self::Crds => render::crds(),
            Self::Version(args) => render::version(&args),
        }
    }
}

/// What API servers are told about us.
#[must_use]
pub fn user_agent() -> String {
    format!("tholepin-deployer/{}", env!("CARGO_PKG_VERSION"))
}
