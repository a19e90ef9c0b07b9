//! The start of every command that needs a cluster: connecting, and completing the options from the cluster.
//!
//! In: a kubeconfig, the platform as the user states it, options. Out: clients, options without open questions. Never:
//! a write to the cluster, a word on standard output.

use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use runtime::client::{Connection, Options as ConnectionOptions, brief, is_not_found, is_retryable};

use crate::detect::{self, PlatformSpec};
use crate::manifests::monitoring::API_VERSION;
use crate::options::Options;

/// The time limit of one read that answers a question about the cluster.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The kinds of the Prometheus operator that `deploy --monitoring` makes.
const MONITORS: [&str; 2] = ["PodMonitor", "PrometheusRule"];

/// Two clients of one cluster.
pub(crate) struct Clients {
    /// For questions about the cluster; a request ends after 15 seconds.
    pub(crate) reads: Client,
    /// For installing and removing; has no time limit of its own, the installer limits each call.
    pub(crate) changes: Client,
}

/// Our name in the `User-Agent` of requests.
pub(crate) const PROGRAM: &str = "deployer";

/// Prepares clients; nothing is sent yet.
///
/// # Errors
/// When there is no usable kubeconfig.
pub(crate) async fn connect(options: &ConnectionOptions) -> anyhow::Result<Clients> {
    let connection = Connection::open(options).await?;
    Ok(Clients { reads: connection.client_with_timeout(READ_TIMEOUT)?, changes: connection.watch_client()? })
}

/// Asks the API server for its version, which every user may read.
///
/// # Errors
/// When it does not answer.
pub(crate) async fn reach(client: &Client) -> anyhow::Result<()> {
    match client.apiserver_version().await {
        Err(error) if is_retryable(&error) => bail!("the API server cannot be reached: {}", brief(&error)),
        _ => Ok(()),
    }
}

/// Requires the kinds of the Prometheus operator, which every user may discover.
///
/// # Errors
/// When the API server does not serve them, or does not answer.
pub(crate) async fn require_prometheus(client: &Client) -> anyhow::Result<()> {
    let served = match client.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.kind).collect(),
        Err(error) if is_not_found(&error) => Vec::new(),
        Err(error) => bail!("asking for {API_VERSION}: {}", brief(&error)),
    };
    let absent: Vec<&str> =
        MONITORS.into_iter().filter(|kind| !served.iter().any(|one| one == kind)).collect();
    if !absent.is_empty() {
        bail!(
            "--monitoring: the cluster does not serve {} of {API_VERSION}: install the Prometheus operator, or leave the \
             flag out",
            absent.join(" and ")
        );
    }
    Ok(())
}

/// Completes options with platform, version and, if `replicas_of_control_plane`, the number of control plane nodes.
/// What `stated` says is not asked of the cluster.
///
/// # Errors
/// When the cluster does not answer a question that `stated` leaves open.
pub(crate) async fn resolve(
    client: &Client,
    stated: &PlatformSpec,
    replicas_of_control_plane: bool,
    mut options: Options,
) -> anyhow::Result<Options> {
    let found = detect::cluster(client, stated).await;
    options.platform =
        *found.platform.get().context("cannot autodetect the platform, and no platform given")?;
    let version = found.version.get();
    let version = version.context("cannot autodetect the platform version, and no version given")?;
    options.version = Some(version.clone());
    if replicas_of_control_plane {
        options.scheduler.replicas = control_plane_replicas(client).await?;
    }
    Ok(options)
}

/// One replica for each control plane node.
///
/// # Errors
/// When the nodes cannot be listed.
pub(crate) async fn control_plane_replicas(client: &Client) -> anyhow::Result<i32> {
    let nodes = detect::control_plane_nodes(client).await?;
    i32::try_from(nodes).context("too many control plane nodes")
}
