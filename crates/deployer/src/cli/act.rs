//! What both command lines do with a cluster.
//!
//! In: choices, a connection, whoever is told. Out: a changed cluster. Never: text on standard output, a flag's name but in errors.

use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use runtime::client::{Connection, Options as Cluster};

use crate::detect::{self, Given};
use crate::options::Options;

/// How long a question about the cluster may take.
const QUESTION: Duration = Duration::from_secs(15);

/// Clients of a cluster: for questions, which are answered soon, and for work, which takes its time.
pub struct Clients {
    /// For questions.
    pub ask: Client,
    /// For work; the engine bounds each call itself.
    pub work: Client,
}

/// Connects to a cluster; nothing is sent yet.
///
/// # Errors
/// When there is no usable kubeconfig.
pub async fn connect(cluster: &Cluster) -> anyhow::Result<Clients> {
    let connection = Connection::open(cluster).await?;
    Ok(Clients { ask: connection.client_with_timeout(QUESTION)?, work: connection.watch_client()? })
}

/// Fills in what only the cluster knows: its kind, its version, and how many schedulers if there shall be one for each control
/// plane node.
///
/// # Errors
/// When it cannot be found out and the user did not say it.
pub async fn resolve(
    client: &Client,
    given: &Given,
    replicas_of_control_plane: bool,
    mut options: Options,
) -> anyhow::Result<Options> {
    let found = detect::cluster(client, given).await;
    options.platform =
        *found.platform.get().context("cannot autodetect the platform, and no platform given")?;
    let version = found.version.get();
    let version = version.context("cannot autodetect the platform version, and no version given")?;
    options.version = Some(version.clone());
    if replicas_of_control_plane {
        options.scheduler.replicas = control_plane(client).await?;
    }
    Ok(options)
}

/// As many replicas as there are control plane nodes.
///
/// # Errors
/// When they cannot be counted.
pub async fn control_plane(client: &Client) -> anyhow::Result<i32> {
    let nodes = detect::control_plane_nodes(client).await?;
    i32::try_from(nodes).context("too many control plane nodes")
}
