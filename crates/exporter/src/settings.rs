//! All settings of an exporter, whichever command line they come from. Pure.
//!
//! In: nothing; the command lines (ours, RTE's, NFD's) build it. Out: [`Settings`], in which every value has been
//! checked, so that no other module knows which program it replaces. Never: text that has still to be parsed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use node::podresources::Address as PodResourcesAddress;
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use runtime::client::KubeletTrust;
use runtime::glob;

/// All settings of the exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The name of the node and of the object; a valid Kubernetes object name.
    pub node: String,
    /// Where the inputs are read.
    pub sources: Sources,
    /// Which pods and resources are accounted for, and how.
    pub accounting: Accounting,
    /// When to scan.
    pub intervals: Intervals,
    /// A file whose touch or write causes a scan.
    pub notify_file: Option<PathBuf>,
    /// How the object is written; `None`: it is not.
    pub publishing: Option<Publishing>,
    /// The kubeconfig file; `None`: `KUBECONFIG`, then the service account.
    pub kubeconfig: Option<PathBuf>,
    /// The exporter's own pod, if conditions are to be kept on it.
    pub readiness: Option<PodName>,
    /// Files for the pods behind the fingerprint.
    pub status: StatusFiles,
    /// The address of metrics and health, if they are served.
    pub serving: Option<Serving>,
    /// The address of health alone, in plain HTTP, if it has one.
    pub health: Option<SocketAddr>,
    /// End after the first success.
    pub once: bool,
    /// Print the object on standard output instead of writing it, each time it changes.
    pub dry_run: Option<Format>,
    /// The namespace the exporter runs in, if known: the owner for [`OwnerKind::Namespace`].
    pub namespace: Option<String>,
}

/// How an object is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As YAML, documents separated by `---`.
    Yaml,
    /// As JSON, one object a line.
    Json,
}

/// Where the inputs are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources {
    /// The podresources service of the kubelet.
    pub podresources: PodResourcesAddress,
    /// The path where sysfs is mounted.
    pub sysfs: PathBuf,
    /// The kubelet's root directory, watched for changes of its state; `None`: no file events.
    pub kubelet_root: Option<PathBuf>,
    /// The source of the kubelet's configuration.
    pub kubelet_config: KubeletConfigSource,
    /// Topology Manager policy that overrides the configured one.
    pub policy: Option<Policy>,
    /// Topology Manager scope that overrides the configured one.
    pub scope: Option<Scope>,
}

/// The source of the kubelet's configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeletConfigSource {
    /// The configuration file, and the directory of drop-ins if there is one (`--config-dir` of the kubelet: `*.conf`,
    /// in lexical order).
    File {
        /// The file.
        path: PathBuf,
        /// The drop-in directory.
        drop_ins: Option<PathBuf>,
    },
    /// The kubelet's own `/configz`.
    Configz {
        /// The URL, such as `https://10.0.0.5:10250/configz`.
        url: String,
        /// The file of the bearer token.
        token: Option<PathBuf>,
        /// The check of the kubelet's certificate.
        trust: KubeletTrust,
    },
}

impl KubeletConfigSource {
    /// Parses `https://host:port/configz` or `file:///path`; token and trust are for the former. `None`: neither form.
    #[must_use]
    pub fn parse(uri: &str, token: Option<PathBuf>, trust: KubeletTrust) -> Option<Self> {
        let path = uri.strip_prefix("file://").or_else(|| uri.strip_prefix("file:"));
        if let Some(path) = path.filter(|path| path.starts_with('/')) {
            return Some(Self::File { path: PathBuf::from(path), drop_ins: None });
        }
        let host = uri.strip_prefix("https://")?.split('/').next()?;
        let usable = !host.is_empty() && !uri.contains(|c: char| c.is_whitespace() || c.is_control());
        usable.then(|| Self::Configz { url: uri.to_owned(), token, trust })
    }
}

/// Which pods and resources are accounted for.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounting {
    /// Only pods of this namespace; `None`: all. The fingerprint covers all pods in any case.
    pub namespace: Option<String>,
    /// Resources to leave out, those for all nodes and for this one together.
    pub exclude: BTreeSet<String>,
    /// Pods to leave out everywhere.
    pub exclude_pods: Vec<PodPattern>,
    /// The container whose CPUs are the shared pool and exclusive to none (kubelets before 1.20 listed the pool's
    /// CPUs).
    pub reference: Option<ContainerName>,
    /// Which pods enter the fingerprint; `None`: there is no fingerprint.
    pub fingerprint: Option<Method>,
    /// Whether the deprecated `topologyPolicies` is written too.
    pub topology_policies: bool,
}

impl Default for Accounting {
    /// All pods and resources, with a fingerprint.
    fn default() -> Self {
        Self {
            namespace: None,
            exclude: BTreeSet::new(),
            exclude_pods: Vec::new(),
            reference: None,
            fingerprint: Some(Method::default()),
            topology_policies: false,
        }
    }
}

/// Two globs (`*`, `?`, `[a-z]`, `\`) that both have to match. A malformed one never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPattern {
    /// The pattern for the namespace.
    pub namespace: String,
    /// The pattern for the name.
    pub name: String,
}

impl PodPattern {
    /// Whether both patterns match the whole text.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        glob::matches(&self.namespace, namespace) && glob::matches(&self.name, name)
    }
}

/// The name of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
}

/// The name of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    /// The pod of the container.
    pub pod: PodName,
    /// The name of the container.
    pub container: String,
}

/// Configured intervals between scans; zero turns each off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// The interval of scans without an event.
    pub timer: Duration,
    /// The interval of scans for releases, while pods hold exclusive resources.
    pub release: Duration,
    /// The least time between two scans on average, if more than the built-in limits is wanted; zero: built-in limits.
    pub min_gap: Duration,
}

/// How the object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publishing {
    /// The mode, as far as permissions allow.
    pub mode: Mode,
    /// After this many writes the object is read again before the next one; `None`: only when there is a reason.
    pub resync: Option<u32>,
    /// The owner of the object.
    pub owner: OwnerKind,
    /// Whether annotations show how long the exporter slept.
    pub timing: bool,
}

/// The way of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A patch of the values that differ, conditional on the version read.
    Patch,
    /// A whole update, conditional on the version read.
    Update,
    /// Server-side apply, which needs no read.
    Apply,
}

/// The kind of the object's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// Owner references are not touched.
    Leave,
    /// The Node, as with RTE.
    Node,
    /// The namespace the exporter runs in, as with NFD.
    Namespace,
}

/// Files for the pods behind the fingerprint; each is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusFiles {
    /// A file for the present status, written whenever it changes (RTE's `--pods-fingerprint-status-file`).
    pub file: Option<PathBuf>,
    /// A directory for the last ten statuses, written every ten seconds (`PFP_STATUS_DUMP`).
    pub dump: Option<PathBuf>,
}

/// The address of metrics and health.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Address and port.
    pub address: SocketAddr,
    /// TLS settings; `None`: plain HTTP.
    pub tls: Option<runtime::tls::Settings>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_patterns_must_match() {
        let table = [
            ("kube-system", "coredns-0", "kube-system", "coredns-0", true),
            ("kube-system", "coredns-0", "kube-system", "coredns-1", false),
            ("kube-system", "coredns-0", "default", "coredns-0", false),
            ("kube-*", "coredns-0", "kube-public", "coredns-0", true),
            ("*-system", "*", "kube-system", "any", true),
            ("*", "coredns-*", "default", "coredns-0", true),
            ("*", "*-0", "default", "coredns-1", false),
            ("*", "*", "default", "any", true),
            ("", "any", "default", "any", false),
            ("*", "[", "default", "[", false),
        ];
        for (namespace, name, pod_namespace, pod_name, wanted) in table {
            let pattern = PodPattern { namespace: namespace.to_owned(), name: name.to_owned() };
            assert_eq!(
                pattern.matches(pod_namespace, pod_name),
                wanted,
                "{pattern:?} on {pod_namespace}/{pod_name}"
            );
        }
    }
}
