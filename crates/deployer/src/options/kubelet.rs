//! Where kubelets keep their things, by distribution.
//!
//! In: a distribution's name. Out: paths on the node. Never: a look at a node. docs/platforms.md has the sources.

use std::fmt;
use std::str::FromStr;

use topology::policy::{Policy, Scope};

/// Where one kubelet keeps its things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    /// Its root directory, without a slash at the end.
    pub root: String,
    /// How its configuration is learned.
    pub config: KubeletConfig,
}

/// How a kubelet's configuration is learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletConfig {
    /// From its file and the directory of its drop-ins, if it has one.
    File {
        /// The file.
        path: String,
        /// The drop-in directory.
        drop_ins: Option<String>,
    },
    /// From the kubelet itself, which needs Kubernetes 1.33 (OpenShift 4.20): before, who may read this may do anything on the node.
    Configz {
        /// The kubelet's port.
        port: u16,
    },
    /// Said by whoever installs.
    Stated {
        /// The Topology Manager's policy.
        policy: Policy,
        /// The Topology Manager's scope.
        scope: Scope,
    },
}

/// Distributions whose kubelets keep their things in known places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// kubeadm, and what is made with it (minikube, Cluster API).
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

/// Not a distribution we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("distribution {0:?} is none of kubeadm, k3s, rke2, microk8s, talos, kind, eks, gke, aks, openshift")]
pub struct Unknown(String);

impl Distribution {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Kubeadm,
        Self::K3s,
        Self::Rke2,
        Self::Microk8s,
        Self::Talos,
        Self::Kind,
        Self::Eks,
        Self::Gke,
        Self::Aks,
        Self::OpenShift,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
            Self::Microk8s => "microk8s",
            Self::Talos => "talos",
            Self::Kind => "kind",
            Self::Eks => "eks",
            Self::Gke => "gke",
            Self::Aks => "aks",
            Self::OpenShift => "openshift",
        }
    }

    /// Where its kubelets keep their things.
    ///
    /// The configuration comes from a file where one below the root directory is all there is to it; elsewhere from the kubelet
    /// itself, since the file's directory has credentials in it that an exporter has no business with, or flags override the file.
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
        Kubelet { root: root.to_owned(), config }
    }
}

impl Kubelet {
    /// A path below the root directory, relative to it.
    #[must_use]
    pub fn below_root<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.root)?.strip_prefix('/').filter(|rest| !rest.is_empty())
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Distribution {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |one: &Self| one.name().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(named).ok_or_else(|| Unknown(text.to_owned()))
    }
}
