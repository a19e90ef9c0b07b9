//! Paths of kubelets by distribution.
//!
//! In: a distribution's name. Out: paths on a node. Never: a read of a node. docs/platforms.md has the sources.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use topology::policy::{Policy, Scope};

use crate::platform::Platform;

/// The paths of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    /// The root directory, without a trailing slash.
    pub root: String,
    /// The source of its configuration.
    pub config: KubeletConfig,
    /// The check of its certificate, where it is asked.
    pub certificate: KubeletCertificate,
}

/// The check of a kubelet's certificate before it gets a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KubeletCertificate {
    /// The cluster's authority signed it.
    #[default]
    Cluster,
    /// An authority in the key `ca.crt` of the ConfigMap of this name, in the exporters' namespace, signed it.
    ConfigMap(String),
    /// None: any server at the node's address gets the token.
    Unchecked,
}

/// The source of a kubelet's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletConfig {
    /// A file, and a drop-in directory if there is one.
    File {
        /// The file.
        path: String,
        /// The drop-in directory.
        drop_ins: Option<String>,
    },
    /// The kubelet's endpoint `/configz`. Needs Kubernetes 1.33 (OpenShift 4.20): in earlier versions the permission to
    /// read it also permits to run commands in any pod of the node.
    Configz {
        /// The kubelet's port.
        port: u16,
    },
    /// Stated by the user.
    Stated {
        /// The Topology Manager's policy.
        policy: Policy,
        /// The Topology Manager's scope.
        scope: Scope,
    },
}

/// Distributions with known kubelet paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Distribution {
    /// kubeadm, and distributions that use it (minikube, Cluster API).
    Kubeadm,
    /// K3s.
    K3s,
    /// RKE2.
    Rke2,
    /// MicroK8s.
    Microk8s,
    /// Talos Linux.
    Talos,
    /// kind.
    Kind,
    /// Amazon EKS with Amazon Linux 2023 or Bottlerocket.
    Eks,
    /// Google Kubernetes Engine.
    Gke,
    /// Azure Kubernetes Service.
    Aks,
    /// OpenShift, also with a hosted control plane.
    OpenShift,
}

impl Distribution {
    /// The distribution that a platform has unless the user names another.
    #[must_use]
    pub fn usual(platform: Platform) -> Self {
        if platform.is_openshift() { Self::OpenShift } else { Self::Kubeadm }
    }

    /// Whether the cluster's authority signs the certificates of its kubelets. Elsewhere kubelets sign their own, have
    /// another authority, or it depends on the version.
    #[must_use]
    pub fn has_cluster_certificates(self) -> bool {
        matches!(self, Self::K3s | Self::Rke2 | Self::Eks)
    }

    /// The names, for messages.
    #[must_use]
    pub fn names() -> String {
        let values = Self::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        values.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    }

    /// The paths of its kubelets.
    ///
    /// The configuration comes from a file if a file below the root directory is complete. Otherwise it comes from the
    /// kubelet, because the file's directory has credentials or flags override the file.
    #[must_use]
    pub fn kubelet(self) -> Kubelet {
        let config = match self {
            Self::Kubeadm | Self::Kind => {
                KubeletConfig::File { path: "/var/lib/kubelet/config.yaml".to_owned(), drop_ins: None }
            }
            _ => KubeletConfig::Configz { port: 10250 },
        };
        let root = match self {
            Self::Microk8s => "/var/snap/microk8s/common/var/lib/kubelet",
            _ => "/var/lib/kubelet",
        };
        Kubelet { root: root.to_owned(), config, certificate: KubeletCertificate::Cluster }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, true)
            .map_err(|_| format!("distribution {text:?} is none of {}", Self::names()))
    }
}

impl fmt::Display for KubeletConfig {
    /// The text that is read back, without drop-ins.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => f.write_str(path),
            Self::Configz { port } => write!(f, "configz:{port}"),
            Self::Stated { policy, scope } => write!(f, "{}/{}", policy.as_str(), scope.as_str()),
        }
    }
}

impl FromStr for KubeletConfig {
    type Err = String;

    /// A path, `configz[:PORT]`, or `POLICY/SCOPE`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::File { path: text.to_owned(), drop_ins: None });
        }
        if let Some(port) = text.strip_prefix("configz") {
            let port = match port.strip_prefix(':') {
                Some(port) => port.parse().ok().filter(|port| *port > 0),
                None => Some(10250).filter(|_| port.is_empty()),
            };
            return port
                .map(|port| Self::Configz { port })
                .ok_or_else(|| "it must be configz:PORT".to_owned());
        }
        let stated = text.split_once('/').and_then(|(policy, scope)| {
            Some(Self::Stated { policy: Policy::parse(policy)?, scope: Scope::parse(scope)? })
        });
        stated.ok_or_else(|| {
            "it must be a path that begins with /, configz[:PORT], or a policy and a scope such as single-numa-node/pod"
                .to_owned()
        })
    }
}

impl Kubelet {
    /// The same with what differs from it. A file below the root directory moves with it.
    #[must_use]
    pub fn changed(mut self, root: Option<&str>, config: Option<KubeletConfig>) -> Self {
        if let Some(root) = root {
            let root = root.trim_end_matches('/').to_owned();
            let below = match &self.config {
                KubeletConfig::File { path, .. } => self.below_root(path).map(str::to_owned),
                _ => None,
            };
            if let (KubeletConfig::File { path, .. }, Some(below)) = (&mut self.config, below) {
                *path = format!("{root}/{below}");
            }
            self.root = root;
        }
        Self { config: config.unwrap_or(self.config), ..self }
    }

    /// The path relative to the root directory; `None` if it is not below it.
    #[must_use]
    pub fn below_root<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.root)?.strip_prefix('/').filter(|rest| !rest.is_empty())
    }
}
