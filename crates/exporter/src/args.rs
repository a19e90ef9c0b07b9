//! Our own command line.
//!
//! In: flags, a few variables, the file of `--config`. Out: [`Args`], and of them [`Settings`], in which every value has been
//! checked. Never: I/O but what [`Surroundings`] do.

mod kinds;
mod to_settings;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::goduration::GoDuration;
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use crate::dialect::{Note, Problem, Surroundings};
use crate::settings::{
    ContainerName, Format, Mode, OwnerKind, PodName, PodPattern, PodResourcesAt, Settings,
};

/// Publishes this node's NUMA zones as a NodeResourceTopology object and keeps it true.
///
/// A flag given twice has its last value, unless it says that it may be repeated.
#[derive(Clone, Debug, clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  \
    tholepin exporter --hostname worker-0\n  \
    tholepin exporter --oneshot --dry-run -o yaml\n  \
    tholepin exporter --oneshot --dry-run --podresources-socket fake://recorded --sysfs recorded/sys \\\n      \
      --topology-manager-policy single-numa-node --topology-manager-scope container\n  \
    tholepin exporter --exclude-resource memory --exclude-pods 'kube-*/*' --owner none\n\n\
    As resource-topology-exporter, rte or nfd-topology-updater it takes those programs' flags: tholepin rte --help")]
pub struct Args {
    /// Verbosity as in klog: 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    accounting: Accounting,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    object: Object,
    #[command(flatten)]
    serving: Serving,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The node")]
struct Node {
    /// Name of the node, and so of the object [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    hostname: Option<String>,
    /// The kubelet's podresources socket, or fake://DIR with recorded answers (list.json, get_allocatable_resources.json)
    #[arg(long, value_name = "URI", default_value = "unix:///var/lib/kubelet/pod-resources/kubelet.sock",
          value_parser = PodResourcesAt::parse)]
    podresources_socket: PodResourcesAt,
    /// Where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// The kubelet's root directory, watched for changes of its state; empty: only pods' cgroups, the socket and time cause scans
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet", value_parser = kinds::path_or_nothing)]
    kubelet_state_dir: PathBuf,
    /// The kubelet's configuration file
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    kubelet_config_file: PathBuf,
    /// The directory of the kubelet's drop-ins (its --config-dir)
    #[arg(long, value_name = "DIR")]
    kubelet_config_dir: Option<PathBuf>,
    /// Instead of a file: https://HOST:PORT/configz of the kubelet, or file:///PATH
    #[arg(long, value_name = "URI", conflicts_with_all = ["kubelet_config_file", "kubelet_config_dir"])]
    kubelet_config_uri: Option<String>,
    /// The bearer token for --kubelet-config-uri
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token",
          value_parser = kinds::path_or_nothing)]
    kubelet_config_token: PathBuf,
    /// The authority that has signed the kubelet's certificate; without it the certificate is not checked
    #[arg(long, value_name = "FILE")]
    kubelet_config_ca: Option<PathBuf>,
    /// Instead of what the configuration says: none, best-effort, restricted or single-numa-node
    #[arg(long, value_name = "POLICY", value_parser = kinds::policy)]
    topology_manager_policy: Option<Policy>,
    /// Instead of what the configuration says: container or pod
    #[arg(long, value_name = "SCOPE", value_parser = kinds::scope)]
    topology_manager_scope: Option<Scope>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "What is accounted for")]
struct Accounting {
    /// A file as the peers have it: kubelet, resourceExclude, podExclude, excludeList; flags add to it, and win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A resource to leave out; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude_resource: Vec<String>,
    /// Pods to leave out, as two patterns with * ? [a-z] \; may be repeated
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = kinds::pod_pattern)]
    exclude_pods: Vec<PodPattern>,
    /// Only pods of this namespace; the fingerprint covers all the same
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Option<String>,
    /// The container whose CPUs are the shared pool
    #[arg(long, value_name = "NAMESPACE/POD/CONTAINER", value_parser = kinds::container)]
    reference_container: Option<ContainerName>,
    /// Publish the fingerprint of the pods
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pods_fingerprint: bool,
    /// Which pods enter it: with-exclusive-resources or all
    #[arg(long, value_name = "METHOD", default_value = "with-exclusive-resources", value_parser = kinds::method)]
    pods_fingerprint_method: Method,
    /// Write the pods behind the fingerprint into this file whenever they change
    #[arg(long, value_name = "FILE", env = "PFP_STATUS_FILE", value_parser = kinds::path_or_nothing)]
    pods_fingerprint_status_file: Option<PathBuf>,
    /// Write the last ten changes of them into this directory, every ten seconds at most
    #[arg(long, value_name = "DIR", env = "PFP_STATUS_DUMP", value_parser = kinds::path_or_nothing)]
    pods_fingerprint_status_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "When it looks")]
struct Pace {
    /// Time between scans when nothing happens, a safety net; 0 turns it off
    #[arg(long, value_name = "DURATION", default_value = "60s", allow_hyphen_values = true, value_parser = GoDuration::parse_std)]
    sleep_interval: Duration,
    /// Time between looks for releases while pods hold exclusive resources (the kubelet writes nothing when they let go);
    /// rarer while nothing happens; 0 turns it off
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true, value_parser = GoDuration::parse_std)]
    release_interval: Duration,
    /// At most so many looks a second; 0: our own bounds
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    max_events_per_second: u32,
    /// A file that others touch to cause a look; it is made
    #[arg(long, value_name = "FILE")]
    notify_file: Option<PathBuf>,
    /// End after the first scan has been published
    #[arg(long)]
    oneshot: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The object")]
struct Object {
    /// How to reach the API server [default: KUBECONFIG, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Scan, but do not contact the API server; zones are logged at level debug
    #[arg(long)]
    no_publish: bool,
    /// Print the object instead of publishing it; nothing is served unless --metrics-port says so
    #[arg(long)]
    dry_run: bool,
    /// How it is printed
    #[arg(short, long, value_name = "yaml|json", default_value = "yaml", requires = "dry_run", value_parser = kinds::format)]
    output: Format,
    /// How it is written: patch (what differs), update (whole), apply (server-side)
    #[arg(long, value_name = "MODE", default_value = "patch", value_parser = kinds::mode)]
    write_mode: Mode,
    /// Read it anew after so many writes; 0: when there is a reason
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    write_resync: u32,
    /// Who owns it, so that it goes when the owner goes: node, namespace (the exporter's) or none
    #[arg(long, value_name = "OWNER", value_parser = kinds::owner, conflicts_with = "add_nrt_owner")]
    owner: Option<OwnerKind>,
    /// Short for --owner node; =false for --owner none
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    add_nrt_owner: bool,
    /// The exporter's namespace, for --owner namespace [default: the service account's, then KUBERNETES_NAMESPACE]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Write the deprecated topologyPolicies too
    #[arg(long)]
    topology_policies: bool,
    /// Annotate it with how long the exporter slept
    #[arg(long)]
    expose_timing: bool,
    /// Keep the conditions PodresourcesFetched and NodeTopologyUpdated on this pod, the exporter's own
    #[arg(long, value_name = "NAMESPACE/POD", value_parser = kinds::pod)]
    readiness_conditions: Option<PodName>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Metrics and health")]
struct Serving {
    /// Address of metrics and health
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    metrics_ip: IpAddr,
    /// Port of metrics and health; 0 turns them off [default: 2112]
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    /// Serve them over TLS with this certificate; it may change while we run
    #[arg(long, value_name = "FILE", requires = "metrics_tls_key")]
    metrics_tls_cert: Option<PathBuf>,
    /// The key of the certificate
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    metrics_tls_key: Option<PathBuf>,
    /// Clients must show a certificate that one of these authorities has signed
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    metrics_tls_client_ca: Option<PathBuf>,
    /// VersionTLS12 or VersionTLS13
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true,
        requires = "metrics_tls_cert"
    )]
    metrics_tls_min_version: String,
    /// Cipher suites of TLS 1.2 by their IANA names, with commas between
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true,
        requires = "metrics_tls_cert"
    )]
    metrics_tls_cipher_suites: String,
}

impl Args {
    /// What they say, checked, in this process's surroundings; what is odd goes to the log.
    ///
    /// # Errors
    /// When something cannot be used; all of it is named.
    pub fn settings(self) -> anyhow::Result<Settings> {
        let (settings, notes) = self.settings_in(&Surroundings::real()).map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow::Error::msg(problems.join("; "))
        })?;
        notes.iter().for_each(Note::log);
        Ok(settings)
    }

    /// What they say, checked.
    ///
    /// # Errors
    /// Everything that cannot be used.
    pub fn settings_in(self, around: &Surroundings) -> Result<(Settings, Vec<Note>), Vec<Problem>> {
        to_settings::settings(self, around)
    }
}

#[cfg(test)]
mod tests;
