//! The exporter's own command line.
//!
//! In: flags, a few variables, the file of `--config`. Out: [`Args`], and from them [`Settings`], in which every value
//! has been checked. Never: I/O except through [`Environment`].

mod parsers;
mod to_settings;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::goduration::GoDuration;
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use crate::compat::{Environment, Note, Problem};
use crate::settings::{
    ContainerName, Format, Mode, OwnerKind, PodName, PodPattern, PodResourcesAddress, Settings, Sources,
};

/// Publishes this node's NUMA zones as a NodeResourceTopology object and keeps it up to date.
///
/// The last value of a repeated flag counts, unless its help says that it may be repeated.
#[derive(Clone, Debug, clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  \
    tholepin exporter --hostname worker-0\n  \
    tholepin exporter --oneshot --dry-run -o yaml\n  \
    tholepin exporter --oneshot --dry-run --podresources-socket fake://recorded --sysfs recorded/sys \\\n      \
      --topology-manager-policy single-numa-node --topology-manager-scope container\n  \
    tholepin exporter --exclude-resource memory --exclude-pods 'kube-*/*' --owner none\n\n\
    Called as resource-topology-exporter, rte or nfd-topology-updater it takes their flags: tholepin rte --help")]
pub struct Args {
    /// Verbosity as in klog: 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    pub verbosity: u8,
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    accounting: Accounting,
    #[command(flatten)]
    scanning: Scanning,
    #[command(flatten)]
    object: Object,
    #[command(flatten)]
    serving: Serving,
}

/// The sources of a node's report.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct Node {
    /// Name of the node and of the object [default: the host's name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    hostname: Option<String>,
    /// The kubelet's podresources socket, or fake://DIR with recorded answers (list.json,
    /// get_allocatable_resources.json)
    #[arg(long, value_name = "URI", default_value = "unix:///var/lib/kubelet/pod-resources/kubelet.sock",
          value_parser = PodResourcesAddress::parse)]
    podresources_socket: PodResourcesAddress,
    /// Directory where sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs: PathBuf,
    /// The kubelet's root directory, watched for changes; empty: only the socket, pods' cgroups and timers cause scans
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet", value_parser = parsers::path_or_nothing)]
    kubelet_state_dir: PathBuf,
    /// The kubelet's configuration file
    #[arg(long, value_name = "FILE", default_value = "/var/lib/kubelet/config.yaml")]
    kubelet_config_file: PathBuf,
    /// The directory of the kubelet's configuration drop-ins (its --config-dir)
    #[arg(long, value_name = "DIR")]
    kubelet_config_dir: Option<PathBuf>,
    /// Source of the kubelet's configuration instead of a file: https://HOST:PORT/configz of the kubelet, or
    /// file:///PATH
    #[arg(long, value_name = "URI", conflicts_with_all = ["kubelet_config_file", "kubelet_config_dir"])]
    kubelet_config_uri: Option<String>,
    /// File with the bearer token for --kubelet-config-uri
    #[arg(long, value_name = "FILE", default_value = "/var/run/secrets/kubernetes.io/serviceaccount/token",
          value_parser = parsers::path_or_nothing)]
    kubelet_config_token: PathBuf,
    /// File with the authority that signed the kubelet's certificate [default: the service account's]
    #[arg(long, value_name = "FILE")]
    kubelet_config_ca: Option<PathBuf>,
    /// Do not check the kubelet's certificate: any server at its address gets the token
    #[arg(long, conflicts_with = "kubelet_config_ca")]
    kubelet_config_insecure: bool,
    /// Topology Manager policy instead of the configured one: none, best-effort, restricted or single-numa-node
    #[arg(long, value_name = "POLICY", value_parser = parsers::policy)]
    topology_manager_policy: Option<Policy>,
    /// Topology Manager scope instead of the configured one: container or pod
    #[arg(long, value_name = "SCOPE", value_parser = parsers::scope)]
    topology_manager_scope: Option<Scope>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Accounting")]
struct Accounting {
    /// A file as RTE and NFD read it: kubelet, resourceExclude, podExclude, excludeList; flags add to it and override
    /// it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A resource to leave out; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude_resource: Vec<String>,
    /// Pods to leave out: two patterns with * ? [a-z] \; may be repeated
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parsers::pod_pattern)]
    exclude_pods: Vec<PodPattern>,
    /// Account for pods of this namespace only; the fingerprint still covers all pods
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Option<String>,
    /// The container whose CPUs are the shared pool
    #[arg(long, value_name = "NAMESPACE/POD/CONTAINER", value_parser = parsers::container)]
    reference_container: Option<ContainerName>,
    /// Publish the fingerprint of the pods
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pods_fingerprint: bool,
    /// Pods that enter the fingerprint: with-exclusive-resources or all
    #[arg(long, value_name = "METHOD", default_value = "with-exclusive-resources", value_parser = parsers::method)]
    pods_fingerprint_method: Method,
    /// File for the pods behind the fingerprint, written whenever they change
    #[arg(long, value_name = "FILE", env = "PFP_STATUS_FILE", value_parser = parsers::path_or_nothing)]
    pods_fingerprint_status_file: Option<PathBuf>,
    /// Directory for the last ten changes of these pods, written at most every ten seconds
    #[arg(long, value_name = "DIR", env = "PFP_STATUS_DUMP", value_parser = parsers::path_or_nothing)]
    pods_fingerprint_status_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Schedule")]
struct Scanning {
    /// Time between scans without events, as a safety net; 0 turns it off
    #[arg(long, value_name = "DURATION", default_value = "60s", allow_hyphen_values = true,
          value_parser = GoDuration::parse_std)]
    sleep_interval: Duration,
    /// Time between scans for releases while pods hold exclusive resources (the kubelet reports no release); longer
    /// while nothing changes; 0 turns it off
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true,
          value_parser = GoDuration::parse_std)]
    release_interval: Duration,
    /// Highest rate of scans; 0: built-in limits
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    max_events_per_second: u32,
    /// File that others touch to cause a scan; it is created
    #[arg(long, value_name = "FILE")]
    notify_file: Option<PathBuf>,
    /// Exit after the first scan has been published
    #[arg(long)]
    oneshot: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Object")]
struct Object {
    /// The kubeconfig file [default: KUBECONFIG, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Scan, but do not contact the API server; zones are logged at level debug
    #[arg(long)]
    no_publish: bool,
    /// Print the object instead of publishing it; nothing is served unless --metrics-port says so
    #[arg(long)]
    dry_run: bool,
    /// Format of the printed object
    #[arg(short, long, value_name = "yaml|json", default_value = "yaml", requires = "dry_run",
          value_parser = parsers::format)]
    output: Format,
    /// How the object is written: patch (the values that differ), update (whole) or apply (server-side)
    #[arg(long, value_name = "MODE", default_value = "patch", value_parser = parsers::mode)]
    write_mode: Mode,
    /// Read the object again after this number of writes; 0: only when there is a reason
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    write_resync: u32,
    /// Owner of the object, which is deleted with its owner: node, namespace (the exporter's) or none
    #[arg(long, value_name = "OWNER", value_parser = parsers::owner, conflicts_with = "add_nrt_owner")]
    owner: Option<OwnerKind>,
    /// The same as --owner node; =false: --owner none
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    add_nrt_owner: bool,
    /// The exporter's namespace, for --owner namespace [default: the service account's, then KUBERNETES_NAMESPACE]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Write the deprecated topologyPolicies too
    #[arg(long)]
    topology_policies: bool,
    /// Annotate the object with the time the exporter slept
    #[arg(long)]
    expose_timing: bool,
    /// Keep the conditions PodresourcesFetched and NodeTopologyUpdated on this pod, which must be the exporter's own
    #[arg(long, value_name = "NAMESPACE/POD", value_parser = parsers::pod)]
    readiness_conditions: Option<PodName>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Metrics and health")]
struct Serving {
    /// IP address of metrics and health
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    metrics_ip: IpAddr,
    /// Port of metrics and health; 0 turns them off [default: 2112]
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    /// Address of health alone, always in plain HTTP: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = parsers::listen)]
    health_probe_bind_address: runtime::http::Listen,
    /// Serve metrics and health over TLS with this certificate; it is read again when it changes
    #[arg(long, value_name = "FILE", requires = "metrics_tls_key")]
    metrics_tls_cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    metrics_tls_key: Option<PathBuf>,
    /// Require client certificates that one of these authorities has signed
    #[arg(long, value_name = "FILE", requires = "metrics_tls_cert")]
    metrics_tls_client_ca: Option<PathBuf>,
    /// Oldest TLS version: VersionTLS12 or VersionTLS13
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "",
        hide_default_value = true,
        requires = "metrics_tls_cert"
    )]
    metrics_tls_min_version: String,
    /// Cipher suites of TLS 1.2 by their IANA names, separated by commas
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
    /// The checked settings, in the environment of this process; notes go to the log.
    ///
    /// # Errors
    /// When values cannot be used; the error names all of them.
    pub fn settings(self) -> anyhow::Result<Settings> {
        let (settings, notes) = self.settings_in(&Environment::real()).map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow::Error::msg(problems.join("; "))
        })?;
        notes.iter().for_each(Note::log);
        Ok(settings)
    }

    /// The checked settings, and notes for the log.
    ///
    /// # Errors
    /// All values that cannot be used.
    pub fn settings_in(self, env: &Environment) -> Result<(Settings, Vec<Note>), Vec<Problem>> {
        to_settings::settings(self, env)
    }
}

impl Node {
    /// The name of the node, and the checked sources.
    ///
    /// # Errors
    /// All values that cannot be used.
    pub(crate) fn sources_in(self, env: &Environment) -> Result<(String, Sources), Vec<Problem>> {
        to_settings::of_node(self, env)
    }
}

#[cfg(test)]
mod tests;
