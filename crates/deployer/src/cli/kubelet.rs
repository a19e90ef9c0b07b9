//! The flags about kubelets: paths, the source of their configuration, the check of their certificates.
//!
//! In: flags. Out: a [`Kubelet`] over the profile of a distribution. Never: a read of a node.

use super::values::{folder, object_name};
use crate::options::{Distribution, Kubelet, KubeletCertificate, KubeletConfig};
use crate::platform::Platform;

/// The kubelets of an installation. The comments of its fields are the help of the flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct KubeletLayoutFlags {
    /// Paths of the distribution: kubeadm, k3s, rke2, microk8s, talos, kind, eks, gke, aks or openshift [default: from
    /// the platform]
    #[arg(long, value_name = "DISTRIBUTION", env = "THOLEPIN_KUBELET_PROFILE", value_parser = str::parse::<Distribution>)]
    pub kubelet_profile: Option<Distribution>,
    /// Root directory of the kubelets
    #[arg(long, hide_short_help = true, value_name = "DIR", env = "THOLEPIN_KUBELET_ROOT", value_parser = folder)]
    pub kubelet_root: Option<String>,
    /// Source of their configuration: a file, configz or configz:PORT (asks the kubelet), or POLICY/SCOPE (stated here)
    #[arg(long, value_name = "SOURCE", env = "THOLEPIN_KUBELET_CONFIG", value_parser = str::parse::<KubeletConfig>)]
    pub kubelet_config: Option<KubeletConfig>,
    /// ConfigMap in the exporters' namespace with the authority of kubelets' certificates in its key ca.crt, for
    /// configz [default: the cluster's authority]
    #[arg(
        long,
        hide_short_help = true,
        value_name = "NAME",
        env = "THOLEPIN_KUBELET_CA_CONFIG_MAP",
        value_parser = object_name,
        conflicts_with = "kubelet_insecure"
    )]
    pub kubelet_ca_config_map: Option<String>,
    /// Do not check kubelets' certificates: any server at a node's address gets the token (configz)
    #[arg(long, hide_short_help = true, env = "THOLEPIN_KUBELET_INSECURE")]
    pub kubelet_insecure: bool,
}

impl KubeletLayoutFlags {
    /// The kubelets; `None` if no flag states anything about them.
    #[must_use]
    pub fn kubelet(&self, platform: Platform) -> Option<Kubelet> {
        if *self == Self::default() {
            return None;
        }
        let profile = self.kubelet_profile.unwrap_or_else(|| Distribution::usual(platform));
        let kubelet = profile.kubelet().changed(self.kubelet_root.as_deref(), self.kubelet_config.clone());
        let certificate = match &self.kubelet_ca_config_map {
            _ if self.kubelet_insecure => KubeletCertificate::Unchecked,
            Some(name) => KubeletCertificate::ConfigMap(name.clone()),
            None => KubeletCertificate::Cluster,
        };
        Some(Kubelet { certificate, ..kubelet })
    }
}
