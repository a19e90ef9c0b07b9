//! Everything an exporter was told, whoever's flags said it. Pure.
//!
//! In: nothing; the dialects (our flags, RTE's, NFD's) build it. Out: [`Settings`], in which every value has been checked,
//! so that no other module knows which program it stands in for. Never: text that has still to be parsed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use node::podresources::Address as PodResourcesAt;
use topology::fingerprint::Method;
use topology::policy::{Policy, Scope};

use runtime::glob;

/// What to do, completely.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The node's name, and so the object's; a valid Kubernetes object name.
    pub node: String,
    /// Where the kubelet and the kernel are asked.
    pub sources: Sources,
    /// What is accounted for, and how.
    pub accounting: Accounting,
    /// When to look.
    pub pace: Intervals,
    /// A file whose touch or write causes a look.
    pub notify_file: Option<PathBuf>,
    /// How the object is written; `None`: the API server is not contacted for it.
    pub publishing: Option<Publishing>,
    /// How to reach the API server; `None`: `KUBECONFIG`, then the service account.
    pub kubeconfig: Option<PathBuf>,
    /// The pod that runs us, if conditions are to be kept on it.
    pub readiness: Option<PodName>,
    /// Where the pods behind the fingerprint are written down.
    pub status: StatusFiles,
    /// Where metrics and health are served, if at all.
    pub serving: Option<Serving>,
    /// End after the first success.
    pub once: bool,
    /// Print the object on standard output instead of writing it, each time it changes.
    pub dry_run: Option<Format>,
    /// The namespace the exporter runs in, where something says so: the owner for [`OwnerKind::Namespace`].
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

/// Where things are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Sources {
    /// The kubelet's list of pods and what they hold.
    pub podresources: PodResourcesAt,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// The kubelet's root directory, watched for changes of its state; `None`: no file events.
    pub kubelet_root: Option<PathBuf>,
    /// The kubelet's configuration.
    pub kubelet_config: KubeletConfigAt,
    /// Topology Manager policy to state instead of the configured one.
    pub policy: Option<Policy>,
    /// Topology Manager scope to state instead of the configured one.
    pub scope: Option<Scope>,
}

/// Where the kubelet's configuration is read.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeletConfigAt {
    /// Its file, and the directory of its drop-ins if it has one (`--config-dir` of the kubelet: `*.conf`, in lexical order).
    File {
        /// The file.
        path: PathBuf,
        /// The drop-in directory.
        drop_ins: Option<PathBuf>,
    },
    /// The kubelet's own `/configz`.
    Configz {
        /// Its address, such as `https://10.0.0.5:10250/configz`.
        url: String,
        /// The bearer token's file.
        token: Option<PathBuf>,
        /// The authority its certificate is checked with; `None`: not checked, as in NFD.
        ca: Option<PathBuf>,
    },
}

impl KubeletConfigAt {
    /// Reads `https://host:port/configz` or `file:///path`; token and authority are for the former. `None`: neither.
    #[must_use]
    pub fn parse(uri: &str, token: Option<PathBuf>, ca: Option<PathBuf>) -> Option<Self> {
        let path = uri.strip_prefix("file://").or_else(|| uri.strip_prefix("file:"));
        if let Some(path) = path.filter(|path| path.starts_with('/')) {
            return Some(Self::File { path: PathBuf::from(path), drop_ins: None });
        }
        let host = uri.strip_prefix("https://")?.split('/').next()?;
        let usable = !host.is_empty() && !uri.contains(|c: char| c.is_whitespace() || c.is_control());
        usable.then(|| Self::Configz { url: uri.to_owned(), token, ca })
    }
}

/// What is accounted for.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounting {
    /// Only pods of this namespace; all, if `None`. The fingerprint covers all the same.
    pub namespace: Option<String>,
    /// Resources left out, those for all nodes and for this one together.
    pub exclude: BTreeSet<String>,
    /// Pods that are left out everywhere.
    pub exclude_pods: Vec<PodPattern>,
    /// The container whose CPUs are the shared pool and nobody's own (kubelets before 1.20 listed the pool's CPUs).
    pub reference: Option<ContainerName>,
    /// Which pods enter the fingerprint; `None`: there is none.
    pub fingerprint: Option<Method>,
    /// The deprecated `topologyPolicies` is written too.
    pub topology_policies: bool,
}

/// Two globs (`*`, `?`, `[a-z]`, `\`) that both have to match. One that is malformed never does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPattern {
    /// For the namespace.
    pub namespace: String,
    /// For the name.
    pub name: String,
}

impl PodPattern {
    /// Whether both match, all of them.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        glob::matches(&self.namespace, namespace) && glob::matches(&self.name, name)
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    /// The pod.
    pub pod: PodName,
    /// The container's name.
    pub container: String,
}

/// Configured distances between looks; zero turns each off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// When nothing happens.
    pub timer: Duration,
    /// While pods hold something that they could let go.
    pub release: Duration,
    /// The least between two looks, on average, when somebody wants fewer than we think right; zero: our own bounds.
    pub least: Duration,
}

/// How the object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publishing {
    /// The verb, as far as permissions allow.
    pub mode: Mode,
    /// After this many writes the object is read anew before the next one; `None`: only when there is a reason.
    pub resync: Option<u32>,
    /// Who owns the object.
    pub owner: OwnerKind,
    /// Annotations tell how long the exporter slept.
    pub timing: bool,
}

/// The verb of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Patch of what differs, conditional on the version seen.
    Patch,
    /// Whole updates, conditional on the version seen.
    Update,
    /// Server-side apply, which needs no reading.
    Apply,
}

/// Who owns the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// Owner references are not touched.
    Leave,
    /// The Node, as with RTE.
    Node,
    /// The namespace the exporter runs in, as with NFD.
    Namespace,
}

/// Where the pods behind the fingerprint are written down; each is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusFiles {
    /// One status, written whenever it changes (RTE's `--pods-fingerprint-status-file`).
    pub file: Option<PathBuf>,
    /// A directory for the last ten statuses, written every ten seconds (`PFP_STATUS_DUMP`).
    pub dump: Option<PathBuf>,
}

/// Where metrics and health are served.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Address and port.
    pub address: SocketAddr,
    /// Over TLS.
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
