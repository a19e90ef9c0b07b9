//! The commands of `tholepin` that install, remove and check.
//!
//! In: flags and a few environment variables. Out: data on standard output, everything else on standard error, an exit
//! code. Never: a question to the user.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong command line or unanswered question. With `--diff`, as with `kubectl diff`: 0
//! no differences, 1 differences, 2 failed.

mod deploy;
mod detect;
mod flags;
pub mod kubelet;
pub mod render;
mod status;
mod values;

pub use values::cidr;

use std::process::ExitCode;

use clap::Subcommand;
use tokio_util::sync::CancellationToken;

use crate::part::Component;
use crate::validate;

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print the manifests that deploy would install; needs no cluster
    Render(Box<render::Args>),
    /// Install or update exporter and scheduler
    #[command(visible_alias = "install")]
    Deploy(Box<deploy::Args>),
    /// Remove everything that deploy made, and nothing else
    #[command(visible_alias = "uninstall")]
    Remove(Box<deploy::RemoveArgs>),
    /// Check the cluster, install, wait, and check again
    Setup(Box<deploy::SetupArgs>),
    /// Print how the installation is, and what to type next
    Status(Box<status::Args>),
    /// Diagnose a cluster and explain every problem
    #[command(visible_aliases = ["check", "doctor"])]
    Validate(Box<validate::cli::Args>),
    /// Print the platform and version of a cluster
    Detect(Box<detect::Args>),
    /// Print the images that deploy uses
    Images(Box<render::ImagesArgs>),
    /// Print our CustomResourceDefinitions
    Crds,
    /// Print the version
    Version(render::VersionArgs),
}

/// The flags that choose pods by their namespace.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NamespaceArgs {
    /// Namespace of the pods that are looked at [default: all]
    #[arg(short, long, value_name = "NAME", value_parser = values::namespace)]
    pub namespace: Option<String>,
    /// Look at pods of all namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
}

/// The components that were named; all of them if none was.
fn components(named: &[Component]) -> &[Component] {
    if named.is_empty() { &Component::ALL } else { named }
}

impl Command {
    /// Runs the command. Cancelling `token` stops it at the next safe point.
    ///
    /// # Errors
    /// When the command failed; the error is one line.
    pub async fn run(self, token: CancellationToken) -> anyhow::Result<ExitCode> {
        match self {
            Self::Render(args) => render::run(&args).await,
            Self::Deploy(args) => deploy::run(*args, &token).await,
            Self::Remove(args) => deploy::remove(&args, &token).await,
            Self::Setup(args) => deploy::setup(*args, &token).await,
            Self::Status(args) => status::run(&args, &token).await,
            Self::Validate(args) => validate::cli::run(*args).await,
            Self::Detect(args) => detect::run(&args).await,
            Self::Images(args) => render::images(&args),
            Self::Crds => render::crds(),
            Self::Version(args) => render::version(&args),
        }
    }
}
