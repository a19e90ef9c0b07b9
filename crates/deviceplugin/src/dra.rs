//! The same devices a second way: Dynamic Resource Allocation.
//!
//! In: the inventory, claims that the kubelet asks about, the API server. Out: ResourceSlices of this node ([`publish`]); for each claim on
//! the node a Container Device Interface file ([`claims`]). Never: an opinion about who gets a device, that is the scheduler's; and no hint for the
//! Topology Manager, which has none from here.

pub mod claim_file;
pub mod claims;
pub mod metrics;
pub mod offer;
pub mod policy;
pub mod publish;
pub mod rbac;
pub mod slices;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use cdi::Kind;
use kube::Client;
use node::draplugin::{self, Seat};
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
/// How long a request to the API server may take: the kubelet gives all of a call 45 s.
const REQUEST: Duration = Duration::from_secs(10);
/// Between looks for a way to the API server, at first and at most.
const CONNECT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Between tries to make a socket: the kubelet's folder may not be there yet.
const RETRY: Duration = Duration::from_secs(2);
/// How long to wait for resources of which nothing is known yet.
const PATIENCE: Duration = Duration::from_secs(30);
/// The kubelet tries again what failed after 60 to 90 s, and gives back what it knows of much sooner.
pub const LEFT_OVER: Duration = Duration::from_secs(45);
/// The class of the devices in files for claims.
const CLASS: &str = "claim";

/// The command line's part.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "dra")]
pub struct Args {
    /// Offer the devices by Dynamic Resource Allocation too, as the driver of this name (gpu.example.com)
    #[arg(long = "dra", value_name = "DRIVER")]
    driver: Option<String>,
    /// With --dra: how to reach the API server [default: KUBECONFIG, then the pod's service account]
    #[arg(long, value_name = "FILE", requires = "driver")]
    kubeconfig: Option<PathBuf>,
    /// With --dra: the kubelet's root folder
    #[arg(long, value_name = "DIR", requires = "driver", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
}

/// What is needed to offer devices this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The driver's name; the same on all nodes.
    pub driver: String,
    /// This node's name, which is its pool's too.
    pub node: String,
    /// How to reach the API server; none for what the environment says.
    pub kubeconfig: Option<PathBuf>,
    /// The folder in which drivers have theirs.
    pub plugins: PathBuf,
    /// The folder of sockets the kubelet looks through.
    pub registry: PathBuf,
    /// The folder of Container Device Interface files.
    pub cdi_dir: PathBuf,
    /// How long a claim that is gone keeps its devices, if the kubelet has not given them back: normally [`LEFT_OVER`].
    pub left_over: Duration,
}

impl Args {
    /// The settings, if it was asked for.
    ///
    /// # Errors
    /// When the driver's name is none or too long for a socket, or a path is not absolute.
    pub fn settings(&self, node: &str, cdi_dir: PathBuf) -> anyhow::Result<Option<Settings>> {
        let Some(driver) = &self.driver else { return Ok(None) };
        kind_of(driver).context("--dra")?;
        let root = &self.kubelet_dir;
        if !root.is_absolute() || root.to_str().is_none() {
            bail!("--kubelet-dir {root:?}: allowed are absolute paths of UTF-8");
        }
        let settings = Settings {
            driver: driver.clone(),
            node: node.to_owned(),
            kubeconfig: self.kubeconfig.clone(),
            plugins: root.join("plugins"),
            registry: root.join("plugins_registry"),
            cdi_dir,
            left_over: LEFT_OVER,
        };
        let excess = settings.seat().longest_socket().saturating_sub(socket::MAX_PATH);
        ensure!(
            excess == 0,
            "--dra {driver:?}: below --kubelet-dir {root:?} allowed are names of at most {} characters, because paths of sockets have at \
             most {} bytes",
            driver.len().saturating_sub(excess),
            socket::MAX_PATH
        );
        Ok(Some(settings))
    }
}

impl Settings {
    /// Where the driver sits.
    #[must_use]
    pub fn seat(&self) -> Seat {
        Seat { driver: self.driver.clone(), plugins: self.plugins.clone(), registry: self.registry.clone() }
    }
}

/// The kind of a driver's devices in files for claims.
///
/// # Errors
/// When it is no name of a driver.
pub fn kind_of(driver: &str) -> anyhow::Result<Kind> {
    let kind = Kind::new(driver, CLASS).ok().filter(|kind| cdi::name::strict_kind(kind).is_none());
    kind.filter(|_| driver.len() <= MAX_DRIVER).with_context(|| {
        format!(
            "\"{driver}\": allowed are DNS subdomains of at most {MAX_DRIVER} characters that begin with a letter"
        )
    })
}

/// Offers the devices of these resources until the future is dropped; what the kubelet says of the driver goes into `status`. The end
/// of the future ends the registration; ResourceSlices stay, and the kubelet removes them when the
/// driver does not come back within half a minute.
///
/// # Errors
/// When a path cannot be a socket. All else may pass, and the device plugin goes on meanwhile.
pub async fn run(
    settings: Settings,
    feed: Feed,
    resources: Vec<String>,
    status: watch::Sender<Status>,
    metrics: Metrics,
) -> anyhow::Result<()> {
    let kind = kind_of(&settings.driver)?;
    let said = status.subscribe();
    tokio::select! {
        error = drive(settings, kind, feed, resources, status, metrics) => Err(error.into()),
        never = tell(said) => match never {},
    }
}

/// Publishes and serves, whatever fails; returns why that can never be.
async fn drive(
    settings: Settings,
    kind: Kind,
    feed: Feed,
    resources: Vec<String>,
    status: watch::Sender<Status>,
    metrics: Metrics,
) -> socket::Error {
    let (client, watching) = connect(settings.kubeconfig.clone(), &status).await;
    known(feed.clone(), &resources).await;
    let seat = settings.seat();
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
        left_over: settings.left_over,
        gone: tokio::sync::Mutex::default(),
        metrics,
    });
    // What is offered first must be there to be prepared.
    tokio::select! {
        error = serve(&seat, claims, status) => error,
        never = publishing => match never {},
    }
}

/// Clients of the API server for calls and for watches, as soon as there is what they take: a kubeconfig or a token may come later.
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

/// Waits until something is known of each of these resources, or half a minute has gone by: half of the devices would look like the loss of
/// the others, and a claim that a kubelet cannot have prepared waits for a minute or more. But it must be able to give claims back, even if
/// devices are never found again.
async fn known(mut feed: Feed, resources: &[String]) {
    let all =
        |inventory: &Arc<Inventory>| resources.iter().all(|name| inventory.resources.contains_key(name));
    if tokio::time::timeout(PATIENCE, feed.wait_for(all)).await.is_err() {
        warn!("not all resources have been found yet; offering what there is");
    }
}

/// Serves claims, whatever fails; returns why that can never be.
async fn serve(
    seat: &Seat,
    claims: Arc<impl draplugin::Driver>,
    status: watch::Sender<Status>,
) -> socket::Error {
    loop {
        let Err(error) = draplugin::run(seat, Arc::clone(&claims), status.clone()).await;
        if matches!(error, socket::Error::Path(_)) {
            return error;
        }
        Status::away(&status, error.to_string());
        tokio::time::sleep(RETRY).await;
    }
}

/// Says what became of the registration.
async fn tell(mut said: watch::Receiver<Status>) -> std::convert::Infallible {
    loop {
        match said.borrow_and_update().clone() {
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
        if said.changed().await.is_err() {
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
    async fn a_folder_that_is_missing_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let registry = root.path().join("registry");
        let seat = Seat {
            driver: "d.example".to_owned(),
            plugins: root.path().join("p"),
            registry: registry.clone(),
        };
        let status = watch::Sender::new(Status::Registered);
        let mut said = status.subscribe();
        let serving = tokio::spawn(async move { serve(&seat, Arc::new(Idle), status).await });
        let mut told = async |wanted: fn(&Status) -> bool| {
            tokio::time::timeout(PATIENCE, said.wait_for(wanted)).await.unwrap().map(drop).unwrap();
        };
        told(|status| matches!(status, Status::Away(_))).await;
        std::fs::create_dir(&registry).unwrap();
        told(|status| *status == Status::Unseen).await;
        assert_eq!(std::fs::read_dir(&registry).unwrap().count(), 1);
        serving.abort();

        // What can never be is not tried again.
        let seat =
            Seat { driver: "d".repeat(63), plugins: root.path().join("p"), registry: root.path().into() };
        let seat = Seat { plugins: seat.plugins.join("p".repeat(60)), ..seat };
        let error = serve(&seat, Arc::new(Idle), watch::Sender::default()).await;
        assert!(matches!(error, socket::Error::Path(_)), "{error}");
    }

    #[tokio::test]
    async fn a_way_to_the_api_server_is_waited_for() {
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
            left_over: LEFT_OVER,
        };
        let (_inventory, feed) = crate::inventory::channel();
        let status = watch::Sender::default();
        let mut said = status.subscribe();
        let running = tokio::spawn(run(settings, feed, Vec::new(), status, Metrics::default()));
        let mut told = async |wanted: &str| {
            let is = |status: &Status| format!("{status:?}").contains(wanted);
            let told = tokio::time::timeout(PATIENCE, said.wait_for(is)).await.map(drop);
            assert!(told.is_ok(), "{wanted:?}: still {:?}", *said.borrow());
        };
        // A file that is not there, and one that is none yet, are said and looked at again.
        told("No such file").await;
        std::fs::write(&kubeconfig, "clusters: 1").unwrap();
        told("failed to parse").await;
        let text = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], \
                    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}";
        std::fs::write(&kubeconfig, text).unwrap();
        told("Unseen").await;
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
        // What the longest registration is called: /var/lib/kubelet/plugins_registry/<driver>@localhost-reg.sock.
        let driver = |length: usize| format!("{}.example", "d".repeat(length - 8));
        let plain = settings(&["--dra", &driver(54)]).unwrap().unwrap();
        assert_eq!(plain.seat().registration().path().as_os_str().len(), 107);
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
