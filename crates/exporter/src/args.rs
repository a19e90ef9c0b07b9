//! The command line.
//!
//! In: flags and the environment variable `NODE_NAME`. Out: [`Args`], in which every value has been checked. Never: I/O,
//! except for the host's name when nothing else names the node.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use api::goduration::GoDuration;
use node::podresources::socket_path;
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use crate::settings::{
    Accounting, Intervals, KubeletConfigAt, Mode, OwnerKind, PodResourcesAt, Publishing, Serving, Settings,
    Sources, StatusFiles,
};

/// Publishes this node's NUMA zones as a NodeResourceTopology object and keeps it true.
///
/// A flag given twice has its last value, as in the peers.
#[derive(Clone, Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    /// Name of the node, and so of the object [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub hostname: Option<String>,
    /// The kubelet's podresources socket
    #[arg(long, value_name = "URI", default_value = "unix:///var/lib/kubelet/pod-resources/kubelet.sock")]
    pub podresources_socket: String,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs: PathBuf,
    /// The kubelet's root directory, watched for changes of its state; empty: only the timer causes scans
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet", value_parser = path_or_nothing)]
    pub kubelet_state_dir: PathBuf,
    /// The kubelet's configuration file
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    pub kubelet_config_file: PathBuf,
    /// Instead of what the configuration file says: none, best-effort, restricted or single-numa-node
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub topology_manager_policy: Option<Policy>,
    /// Instead of what the configuration file says: container or pod
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    pub topology_manager_scope: Option<Scope>,
    /// Which pods enter the fingerprint: with-exclusive-resources or all
    #[arg(long, value_name = "METHOD", default_value = "with-exclusive-resources", value_parser = method)]
    pub pods_fingerprint_method: Method,
    /// Time between scans when nothing happens, a safety net; 0 turns it off
    #[arg(long, value_name = "DURATION", default_value = "60s", allow_hyphen_values = true, value_parser = duration)]
    pub sleep_interval: Duration,
    /// Time between looks for releases while pods hold exclusive resources (the kubelet writes nothing when they let go);
    /// 0 turns it off
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true, value_parser = duration)]
    pub release_interval: Duration,
    /// How to reach the API server [default: KUBECONFIG, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of metrics and health
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub metrics_ip: IpAddr,
    /// Port of metrics and health; 0 turns them off
    #[arg(long, value_name = "PORT", default_value_t = 2112)]
    pub metrics_port: u16,
    /// Scan, but do not contact the API server; zones are logged at level debug
    #[arg(long)]
    pub no_publish: bool,
    /// End after the first scan has been published
    #[arg(long)]
    pub oneshot: bool,
    /// Let the object be owned by the Node, so that it goes when the node does
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub add_nrt_owner: bool,
    /// Verbosity as in klog: 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
}

impl Args {
    /// The name of the node. The host's name is taken as the kubelet takes it: in lower case.
    ///
    /// # Errors
    /// When no object can have that name; it goes into paths and selectors of requests.
    pub fn node_name(&self) -> Result<String, NodeNameError> {
        let name = match self.hostname.as_deref() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => runtime::host::name().to_lowercase(),
        };
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let label = |label: &str| {
            let bytes = label.as_bytes();
            bytes.first().is_some_and(|first| inner(*first))
                && bytes.last().is_some_and(|last| inner(*last))
                && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
        };
        if name.len() <= 253 && name.split('.').all(label) { Ok(name) } else { Err(NodeNameError(name)) }
    }

    /// What they say, checked.
    ///
    /// # Errors
    /// When a value cannot be used; the error names the flag.
    pub fn settings(self) -> anyhow::Result<Settings> {
        let node = self.node_name()?;
        let podresources = socket_path(&self.podresources_socket).context("--podresources-socket")?;
        let serving = self.serving();
        let publishing = Publishing {
            mode: Mode::Patch,
            resync: None,
            owner: if self.add_nrt_owner { OwnerKind::Node } else { OwnerKind::Leave },
            timing: false,
        };
        Ok(Settings {
            node,
            sources: Sources {
                podresources: PodResourcesAt::Socket(podresources),
                sysfs: self.sysfs,
                kubelet_root: Some(self.kubelet_state_dir).filter(|dir| !dir.as_os_str().is_empty()),
                kubelet_config: KubeletConfigAt::File { path: self.kubelet_config_file, drop_ins: None },
                policy: self.topology_manager_policy,
                scope: self.topology_manager_scope,
            },
            accounting: Accounting {
                namespace: None,
                exclude: BTreeSet::new(),
                exclude_pods: Vec::new(),
                reference: None,
                fingerprint: Some(self.pods_fingerprint_method),
                topology_policies: false,
            },
            pace: Intervals {
                timer: self.sleep_interval,
                release: self.release_interval,
                least: Duration::ZERO,
            },
            notify_file: None,
            publishing: (!self.no_publish).then_some(publishing),
            kubeconfig: self.kubeconfig,
            readiness: None,
            status: StatusFiles::default(),
            serving,
            once: self.oneshot,
            dry_run: None,
            namespace: None,
        })
    }

    /// Where metrics and health are served, if at all.
    fn serving(&self) -> Option<Serving> {
        let address = SocketAddr::new(self.metrics_ip, self.metrics_port);
        (self.metrics_port != 0).then_some(Serving { address, tls: None })
    }
}

/// A name no node has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a node name: allowed are lower-case letters, digits, `-` and `.`, at most 253; see --hostname"
)]
pub struct NodeNameError(String);

fn path_or_nothing(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

fn policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text)
        .ok_or_else(|| "allowed are none, best-effort, restricted, single-numa-node".to_owned())
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).ok_or_else(|| "allowed are container, pod".to_owned())
}

/// As the peer does, in any case of letters.
fn method(text: &str) -> Result<Method, String> {
    Method::parse(&text.to_ascii_lowercase())
        .ok_or_else(|| "allowed are with-exclusive-resources, all".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = GoDuration::parse(text).map_err(|error| error.to_string())?;
    duration.to_std().ok_or_else(|| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("exporter").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults() {
        let args = parse("--hostname n1").unwrap();
        assert_eq!(args.node_name().as_deref(), Ok("n1"));
        assert_eq!(args.sleep_interval, Duration::from_secs(60));
        assert_eq!(args.release_interval, Duration::from_secs(1));
        assert_eq!(args.pods_fingerprint_method, Method::WithExclusiveResources);
        let address = "0.0.0.0:2112".parse().unwrap();
        assert_eq!(args.serving(), Some(Serving { address, tls: None }));
        assert!(args.add_nrt_owner && !args.no_publish && !args.oneshot);
    }

    #[test]
    fn values() {
        let args = parse(
            "--sleep-interval=0 --release-interval 1m30s --pods-fingerprint-method ALL --add-nrt-owner=false \
             --topology-manager-policy restricted --topology-manager-scope=pod --metrics-ip ::1 --metrics-port 0 -v 4",
        )
        .unwrap();
        assert_eq!((args.sleep_interval, args.release_interval), (Duration::ZERO, Duration::from_secs(90)));
        assert_eq!(args.pods_fingerprint_method, Method::All);
        assert_eq!(
            (args.topology_manager_policy, args.topology_manager_scope),
            (Some(Policy::Restricted), Some(Scope::Pod))
        );
        assert!(!args.add_nrt_owner);
        assert_eq!((args.serving(), args.verbosity), (None, 4));
        assert!(parse("--add-nrt-owner").unwrap().add_nrt_owner);
        assert_eq!(parse("--hostname a --hostname b").unwrap().node_name().as_deref(), Ok("b"));
        assert_eq!(parse("--kubelet-state-dir=").unwrap().kubelet_state_dir, PathBuf::new());
    }

    #[test]
    fn node_names_are_checked() {
        let name = |name: &str| Args { hostname: Some(name.to_owned()), ..parse("").unwrap() }.node_name();
        let long = "a".repeat(254);
        for good in ["n", "worker-0", "10.0.0.1", "a.b-c.d", &long[..253]] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["N1", "a,metadata.name=b", "-a", "a-", "a..b", ".", "a/b", "a b", "\u{e4}", &long] {
            assert_eq!(name(bad), Err(NodeNameError(bad.to_owned())), "{bad}");
        }
        assert!(name("").is_ok(), "empty means the host's name");
    }

    #[test]
    fn bad_values_say_what_is_allowed() {
        for (line, wanted) in [
            (
                "--topology-manager-policy strict",
                "allowed are none, best-effort, restricted, single-numa-node",
            ),
            ("--topology-manager-scope node", "allowed are container, pod"),
            ("--pods-fingerprint-method some", "allowed are with-exclusive-resources, all"),
            ("--sleep-interval -1s", "must not be negative"),
            ("--sleep-interval 60", "missing unit in duration"),
            ("--metrics-port 70000", "70000 is not in 0..=65535"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(wanted), "{line}: {error}");
        }
    }
}
