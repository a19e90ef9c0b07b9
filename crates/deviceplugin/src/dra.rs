//! The same devices a second way: Dynamic Resource Allocation.
//!
//! In: the inventory, claims the kubelet asks about, the API server. Out: ResourceSlices of this node ([`publish`]);
//! for each claim on the node a Container Device Interface file ([`claims`]). Never: an opinion about which pod gets a
//! device, which is the scheduler's; nor a hint for the Topology Manager, which takes none from here.

pub mod claim_file;
pub mod claims;
pub mod metrics;
pub mod policy;
pub mod publish;
pub mod rbac;
pub mod slice_devices;
pub mod slices;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use cdi::Kind;
use kube::Client;
use node::draplugin::{self, SocketPaths};
use node::pluginwatcher::{self, Status};
use node::socket;
use runtime::backoff::Backoff;
use runtime::client::{self, Connection, Options};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::inventory::{Feed, Inventory};
use metrics::Metrics;

/// The longest name of a driver; sockets below the kubelet's usual folder allow less.
const MAX_DRIVER: usize = 63;
/// The timeout of a request to the API server. The kubelet allows 45 s for a call.
const REQUEST: Duration = Duration::from_secs(10);
/// The time between attempts to connect to the API server, at first and at most.
const CONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// The time between attempts to make a socket: the kubelet's folder may not exist yet.
const RETRY: Duration = Duration::from_secs(2);
/// How long to wait for resources whose devices are unknown.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a deleted claim keeps its devices by default. The kubelet retries a failed preparation after 60 to 90 s,
/// and gives back the claims it knows much sooner.
pub const ORPHANED_AFTER: Duration = Duration::from_secs(45);
/// The class of the devices in files for claims.
const CLASS: &str = "claim";

/// The flags for resource claims.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "dra")]
pub struct Args {
    /// Offer the devices by Dynamic Resource Allocation too, as the driver of this name (gpu.example.com)
    #[arg(long = "dra", value_name = "DRIVER")]
    driver: Option<String>,
    /// With --dra: the kubeconfig file for the API server [default: KUBECONFIG, then the pod's service account]
    #[arg(long, value_name = "FILE", requires = "driver")]
    kubeconfig: Option<PathBuf>,
    /// With --dra: the kubelet's root folder
    #[arg(long, value_name = "DIR", requires = "driver", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
}

/// The settings for resource claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The driver's name; the same on all nodes.
    pub driver: String,
    /// This node's name, which is also its pool's.
    pub node: String,
    /// The kubeconfig file; none for what the environment says.
    pub kubeconfig: Option<PathBuf>,
    /// The folder in which each driver has a folder of its own.
    pub plugins: PathBuf,
    /// The folder in which the kubelet looks for sockets.
    pub registry: PathBuf,
    /// The folder of Container Device Interface files.
    pub cdi_dir: PathBuf,
    /// How long a deleted claim keeps its devices if the kubelet has not given them back; [`ORPHANED_AFTER`] by
    /// default.
    pub orphaned_after: Duration,
}

impl Args {
    /// The settings; none when resource claims were not asked for.
    ///
    /// # Errors
    /// When the driver's name is invalid or too long for a socket, or a path is not absolute.
    pub fn settings(&self, node: &str, cdi_dir: PathBuf) -> anyhow::Result<Option<Settings>> {
        let Some(driver) = &self.driver else { return Ok(None) };
        kind_of(driver).context("--dra")?;
        let root = &self.kubelet_dir;
        if !root.is_absolute() || root.to_str().is_none() {
            bail!("--kubelet-dir {root:?}: allowed are absolute UTF-8 paths");
        }
        let settings = Settings {
            driver: driver.clone(),
            node: node.to_owned(),
            kubeconfig: self.kubeconfig.clone(),
            plugins: root.join("plugins"),
            registry: root.join("plugins_registry"),
            cdi_dir,
            orphaned_after: ORPHANED_AFTER,
        };
        let excess = settings.socket_paths().longest_socket().saturating_sub(socket::MAX_PATH);
        ensure!(
            excess == 0,
            "--dra {driver:?}: below --kubelet-dir {root:?} allowed are names of at most {} characters, because paths \
             of sockets have at most {} bytes",
            driver.len().saturating_sub(excess),
            socket::MAX_PATH
        );
        Ok(Some(settings))
    }
}

impl Settings {
    /// The paths of the driver's sockets.
    #[must_use]
    pub fn socket_paths(&self) -> SocketPaths {
        SocketPaths {
            driver: self.driver.clone(),
            plugins: self.plugins.clone(),
            registry: self.registry.clone(),
        }
    }
}

/// The kind of a driver's devices in files for claims.
///
/// # Errors
/// When the driver's name is invalid.
pub fn kind_of(driver: &str) -> anyhow::Result<Kind> {
    let kind = Kind::new(driver, CLASS).ok().filter(|kind| cdi::name::strict_kind(kind).is_none());
    kind.filter(|_| driver.len() <= MAX_DRIVER).with_context(|| {
        format!(
            "\"{driver}\": allowed are DNS subdomains of at most {MAX_DRIVER} characters that begin with a letter"
        )
    })
}

/// Offers the devices of these resources until the future is dropped; `status` holds the state of the registration.
/// Dropping the future ends the registration. ResourceSlices stay; the kubelet removes them when the driver does not
/// come back within half a minute.
///
/// # Errors
/// When a path cannot be a socket. All other failures are retried, and the device plugin goes on meanwhile.
pub async fn run(
    settings: Settings,
    feed: Feed,
    resources: Vec<String>,
    status: watch::Sender<Status>,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let kind = kind_of(&settings.driver)?;
    let statuses = status.subscribe();
    tokio::select! {
        error = run_driver(settings, kind, feed, resources, status, metrics) => Err(error.into()),
        never = log_status(statuses) => match never {},
    }
}

/// Publishes and serves, and retries what fails; returns an error that no retry can mend.
async fn run_driver(
    settings: Settings,
    kind: Kind,
    feed: Feed,
    resources: Vec<String>,
    status: watch::Sender<Status>,
    metrics: Metrics,
) -> socket::Error {
    let (client, watching) = connect(settings.kubeconfig.clone(), &status).await;
    wait_for_resources(feed.clone(), &resources).await;
    let paths = settings.socket_paths();
    let publisher =
        publish::Publisher::new(&settings.driver, &settings.node, client.clone(), metrics.clone());
    let publishing = publisher.run(watching, feed.clone());
    let claims = Arc::new(claims::Claims {
        driver: settings.driver,
        node: settings.node,
        kind,
        cdi_dir: settings.cdi_dir,
        feed,
        client,
        orphaned_after: settings.orphaned_after,
        gone: tokio::sync::Mutex::default(),
        metrics,
    });
    // Devices must be publishable and claims preparable at the same time, so both tasks run together.
    tokio::select! {
        error = serve(&paths, claims, status) => error,
        never = publishing => match never {},
    }
}

/// Clients of the API server, one for calls and one for watches. Retries: a kubeconfig or a token may appear later.
async fn connect(kubeconfig: Option<PathBuf>, status: &watch::Sender<Status>) -> (Client, Client) {
    let user_agent = format!("tholepin-device-plugin/{}", env!("CARGO_PKG_VERSION"));
    let options = Options { kubeconfig, user_agent, ..Options::default() };
    let open = async || {
        let connection = Connection::open(&options).await?;
        Ok::<_, client::Error>((connection.client_with_timeout(REQUEST)?, connection.watch_client()?))
    };
    let mut backoff = Backoff::new(CONNECT.0, CONNECT.1);
    loop {
        match open().await {
            Ok(clients) => {
                status.send_replace(Status::Unseen);
                return clients;
            }
            Err(error) => Status::away(status, error.to_string()),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Waits until the devices of each resource are known, or half a minute has passed. With half of the devices, the
/// others would look lost, and a claim that cannot be prepared waits for a minute or more. But the kubelet must be able
/// to give claims back, even if devices are never found again.
async fn wait_for_resources(mut feed: Feed, resources: &[String]) {
    let all =
        |inventory: &Arc<Inventory>| resources.iter().all(|name| inventory.resources.contains_key(name));
    if tokio::time::timeout(PATIENCE, feed.wait_for(all)).await.is_err() {
        warn!("the devices of some resources are unknown; offering the others");
    }
}

/// Serves claims and retries what fails; returns an error that no retry can mend.
async fn serve(
    paths: &SocketPaths,
    claims: Arc<impl draplugin::Driver>,
    status: watch::Sender<Status>,
) -> socket::Error {
    loop {
        let Err(error) = draplugin::run(paths, Arc::clone(&claims), status.clone()).await;
        if matches!(error, socket::Error::Path(_)) {
            return error;
        }
        Status::away(&status, error.to_string());
        tokio::time::sleep(RETRY).await;
    }
}

/// Logs each change of the registration.
async fn log_status(mut statuses: watch::Receiver<Status>) -> std::convert::Infallible {
    loop {
        match statuses.borrow_and_update().clone() {
            Status::Unseen | Status::Asked => {}
            Status::Away(reason) => warn!(reason, "cannot serve resource claims; trying again"),
            Status::Registered => info!("the kubelet has registered the driver of resource claims"),
            Status::Refused(reason) => {
                warn!(
                    reason,
                    folder = pluginwatcher::FOLDER,
                    "the kubelet refused the driver of resource claims"
                );
            }
        }
        if statuses.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn settings(words: &[&str]) -> Result<Option<Settings>, String> {
        let cli = Cli::try_parse_from(["plugin"].iter().chain(words)).map_err(|error| error.to_string())?;
        cli.args.settings("node-0", "/cdi".into()).map_err(|error| format!("{error:#}"))
    }

    struct Idle;

    impl draplugin::Driver for Idle {
        async fn prepare(&self, _: &draplugin::wire::Claim) -> Result<Vec<draplugin::wire::Device>, String> {
            Ok(Vec::new())
        }

        async fn unprepare(&self, _: &draplugin::wire::Claim) -> Result<(), String> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_missing_folder_is_retried() {
        let root = tempfile::tempdir().unwrap();
        let registry = root.path().join("registry");
        let paths = SocketPaths {
            driver: "d.example".to_owned(),
            plugins: root.path().join("p"),
            registry: registry.clone(),
        };
        let status = watch::Sender::new(Status::Registered);
        let mut statuses = status.subscribe();
        let serving = tokio::spawn(async move { serve(&paths, Arc::new(Idle), status).await });
        let mut reached = async |wanted: fn(&Status) -> bool| {
            tokio::time::timeout(PATIENCE, statuses.wait_for(wanted)).await.unwrap().map(drop).unwrap();
        };
        reached(|status| matches!(status, Status::Away(_))).await;
        std::fs::create_dir(&registry).unwrap();
        reached(|status| *status == Status::Unseen).await;
        assert_eq!(std::fs::read_dir(&registry).unwrap().count(), 1);
        serving.abort();

        // A path that is too long is not retried.
        let paths = SocketPaths {
            driver: "d".repeat(63),
            plugins: root.path().join("p"),
            registry: root.path().into(),
        };
        let paths = SocketPaths { plugins: paths.plugins.join("p".repeat(60)), ..paths };
        let error = serve(&paths, Arc::new(Idle), watch::Sender::default()).await;
        assert!(matches!(error, socket::Error::Path(_)), "{error}");
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_retried() {
        let root = tempfile::tempdir().unwrap();
        let [registry, kubeconfig] = ["registry", "kubeconfig"].map(|name| root.path().join(name));
        std::fs::create_dir(&registry).unwrap();
        let settings = Settings {
            driver: "d.example".to_owned(),
            node: "node-0".to_owned(),
            kubeconfig: Some(kubeconfig.clone()),
            plugins: root.path().join("plugins"),
            registry: registry.clone(),
            cdi_dir: root.path().join("cdi"),
            orphaned_after: ORPHANED_AFTER,
        };
        let (_inventory, feed) = crate::inventory::channel();
        let status = watch::Sender::default();
        let mut statuses = status.subscribe();
        let running = tokio::spawn(run(settings, feed, Vec::new(), status, Metrics::default()));
        let mut reached = async |wanted: &str| {
            let is = |status: &Status| format!("{status:?}").contains(wanted);
            let reached = tokio::time::timeout(PATIENCE, statuses.wait_for(is)).await.map(drop);
            assert!(reached.is_ok(), "{wanted:?}: still {:?}", *statuses.borrow());
        };
        // A missing file and a malformed one are reported and read again.
        reached("there is no such file").await;
        std::fs::write(&kubeconfig, "clusters: 1").unwrap();
        reached("failed to parse").await;
        let text = "{apiVersion: v1, kind: Config, current-context: c, \
                    contexts: [{name: c, context: {cluster: c, user: u}}], \
                    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}";
        std::fs::write(&kubeconfig, text).unwrap();
        reached("Unseen").await;
        let served = async {
            while std::fs::read_dir(&registry).unwrap().count() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, served).await.unwrap();
        running.abort();
    }

    #[test]
    fn the_command_line() {
        assert_eq!(settings(&[]), Ok(None));
        let plain = settings(&["--dra", "nic.vendor.example"]).unwrap().unwrap();
        assert_eq!(plain.plugins, PathBuf::from("/var/lib/kubelet/plugins"));
        assert_eq!(plain.registry, PathBuf::from(pluginwatcher::FOLDER));
        let other = settings(&["--dra=d.example", "--kubelet-dir=/k", "--kubeconfig=/c"]).unwrap().unwrap();
        assert_eq!((other.registry, other.kubeconfig), ("/k/plugins_registry".into(), Some("/c".into())));
        let long = format!("{}.example", "d".repeat(56));
        for driver in ["", "0d.example", "D.example", "d_x.example", "d/x", &long] {
            let error = settings(&["--dra", driver]).unwrap_err();
            assert!(error.starts_with("--dra: ") && error.contains("at most 63 characters"), "{error}");
        }
        // The longest path: /var/lib/kubelet/plugins_registry/<driver>@localhost-reg.sock.
        let driver = |length: usize| format!("{}.example", "d".repeat(length - 8));
        let plain = settings(&["--dra", &driver(54)]).unwrap().unwrap();
        assert_eq!(plain.socket_paths().registration().path().as_os_str().len(), 107);
        for length in [55, 63] {
            let error = settings(&["--dra", &driver(length)]).unwrap_err();
            assert!(error.starts_with("--dra ") && error.contains("at most 54 characters"), "{error}");
        }
        assert!(settings(&["--kubelet-dir=/k", "--dra", &driver(63)]).is_ok());
        let deep = format!("--kubelet-dir=/{}", "k".repeat(80));
        assert!(settings(&[&deep, "--dra=d.example"]).unwrap_err().contains("at most 0 characters"));
        assert!(settings(&["--dra=d.example", "--kubelet-dir=k"]).unwrap_err().contains("absolute"));
        assert!(settings(&["--kubeconfig=/c"]).is_err(), "it would have no effect");
    }
}
