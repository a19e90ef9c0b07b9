//! The flags that name a cluster, the same for all commands that people run.
//!
//! In: flags. Out: [`Options`]. Never: a default that hides which cluster is meant.

use std::path::PathBuf;
use std::time::Duration;

use api::goduration::GoDuration;

use super::Options;

/// The flags that name a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Kubeconfig [default: KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Longest time of one request, such as 30s [default: each command's own]
    #[arg(long, value_name = "DURATION", value_parser = GoDuration::positive)]
    pub request_timeout: Option<Duration>,
}

impl ClusterArgs {
    /// The same for [`Connection::open`](super::Connection::open); `command` is part of the `User-Agent`.
    #[must_use]
    pub fn options(&self, command: &str) -> Options {
        Options {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            request_timeout: self.request_timeout,
            user_agent: format!("tholepin-{command}/{}", env!("CARGO_PKG_VERSION")),
        }
    }
}
