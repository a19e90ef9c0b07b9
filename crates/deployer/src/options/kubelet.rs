//! Paths of kubelets by distribution.
//!
//! In: a distribution's name. Out: paths on a node. Never: a read of a node. docs/platforms.md has the sources.

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
    pub(crate) fn usual(platform: Platform) -> Self {
        if platform.is_openshift() { Self::OpenShift } else { Self::Kubeadm }
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
        Kubelet { root: root.to_owned(), config }
    }
}

impl Kubelet {
    /// The path relative to the root directory; `None` if it is not below it.
    #[must_use]
    pub fn below_root<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.root)?.strip_prefix('/').filter(|rest| !rest.is_empty())
    }
}
