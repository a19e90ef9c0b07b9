//! The same devices a second way: Dynamic Resource Allocation.
//!
//! In: the inventory, claims that the kubelet asks about, the API server. Out: ResourceSlices of this node ([`publish`]); for each claim on
//! the node a Container Device Interface file ([`claims`]). Never: an opinion about who gets a device, that is the scheduler's; and no hint for the
//! Topology Manager, which has none from here.

pub mod claim_file;
pub mod claims;
pub mod offer;
pub mod publish;
pub mod rbac;
pub mod slices;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use cdi::Kind;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use node::draplugin::{self, Seat};
use node::pluginwatcher::{self, Status};
use runtime::backoff::Backoff;
use runtime::client::{Connection, Options, brief};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::inventory::Feed;

/// The longest name of a driver.
const MAX_DRIVER: usize = 63;
/// How long a request to the API server may take: the kubelet gives all of a call 45 s.
const REQUEST: Duration = Duration::from_secs(10);
/// Between tries of what fails.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
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
    /// When the driver's name is none, or a path is not absolute.
    pub fn settings(&self, node: &str, cdi_dir: PathBuf) -> anyhow::Result<Option<Settings>> {
        let Some(driver) = &self.driver else { return Ok(None) };
        kind_of(driver).context("--dra")?;
        if !self.kubelet_dir.is_absolute() {
            bail!("--kubelet-dir {:?}: allowed are absolute paths", self.kubelet_dir.display().to_string());
        }
        Ok(Some(Settings {
            driver: driver.clone(),
            node: node.to_owned(),
            kubeconfig: self.kubeconfig.clone(),
            plugins: self.kubelet_dir.join("plugins"),
            registry: self.kubelet_dir.join("plugins_registry"),
            cdi_dir,
            left_over: LEFT_OVER,
        }))
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
/// When there is no way to an API server, or no socket can be made.
pub async fn run(
    settings: Settings,
    feed: Feed,
    resources: Vec<String>,
    status: watch::Sender<Status>,
) -> anyhow::Result<()> {
    let user_agent = format!("tholepin-device-plugin/{}", env!("CARGO_PKG_VERSION"));
    let options = Options { kubeconfig: settings.kubeconfig.clone(), user_agent, ..Options::default() };
    let connection = Connection::open(&options).await?;
    let client = connection.strict(REQUEST)?;
    let kind = kind_of(&settings.driver)?;
    let owner = owner(&client, &settings.node).await;
    let claims = Arc::new(claims::Claims {
        driver: settings.driver.clone(),
        node: settings.node.clone(),
        kind,
        cdi_dir: settings.cdi_dir,
        feed: feed.clone(),
        client: client.clone(),
        left_over: settings.left_over,
        gone: tokio::sync::Mutex::default(),
    });
    let seat =
        Seat { driver: settings.driver.clone(), plugins: settings.plugins, registry: settings.registry };
    let said = status.subscribe();
    let pool = slices::Pool { driver: settings.driver, node: settings.node, owner };
    tokio::select! {
        // What is offered first must be there to be prepared.
        end = draplugin::run(&seat, claims, status) => match end {
            Ok(never) => match never {},
            Err(error) => Err(error.into()),
        },
        never = tell(said) => match never {},
        never = publish::run(pool, connection.watching()?, client, feed, &resources) => match never {},
    }
}

/// Our Node's UID, for the slices' owner; asked for until it is there.
async fn owner(client: &Client, name: &str) -> String {
    let nodes = Api::<Node>::all(client.clone());
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        let reason = match nodes.get_metadata(name).await {
            Ok(node) => match node.metadata.uid {
                Some(uid) => return uid,
                None => "it has no UID".to_owned(),
            },
            Err(error) => brief(&error),
        };
        warn!(
            node = name,
            reason, "cannot read this node's object; without it no devices are offered by claims"
        );
        tokio::time::sleep(backoff.next_delay()).await;
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

    #[test]
    fn the_command_line() {
        assert_eq!(settings(&[]), Ok(None));
        let plain = settings(&["--dra", "nic.vendor.example"]).unwrap().unwrap();
        assert_eq!(plain.plugins, PathBuf::from("/var/lib/kubelet/plugins"));
        assert_eq!(plain.registry, PathBuf::from(pluginwatcher::FOLDER));
        let other = settings(&["--dra=d.example", "--kubelet-dir=/k", "--kubeconfig=/c"]).unwrap().unwrap();
        assert_eq!((other.registry, other.kubeconfig), ("/k/plugins_registry".into(), Some("/c".into())));
        let long = format!("{}.example", "d".repeat(60));
        for driver in ["", "0d.example", "D.example", "d_x.example", "d/x", &long] {
            let error = settings(&["--dra", driver]).unwrap_err();
            assert!(error.starts_with("--dra: ") && error.contains("at most 63 characters"), "{error}");
        }
        assert!(settings(&["--dra=d.example", "--kubelet-dir=k"]).unwrap_err().contains("absolute"));
        assert!(settings(&["--kubeconfig=/c"]).is_err(), "it would have no effect");
    }
}
