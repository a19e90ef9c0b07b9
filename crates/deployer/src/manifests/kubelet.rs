//! How exporters read the configuration of their kubelet: flags of our exporter and of RTE, and the mounts for them.
//!
//! In: a [`Kubelet`]. Out: flags, mounts, notes for people. Never: a read of a node; a token for a server whose
//! certificate is not checked, unless that was requested.

use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::pod;
use crate::options::{Distribution, Kubelet, KubeletCertificate, KubeletConfig, Options, Updater};

/// The name and the mount path of the ConfigMap with the authority.
const AUTHORITY: (&str, &str) = ("kubelet-ca", "/etc/kubelet-ca");
/// RTE's mount path of the root directory.
pub const RTE_ROOT: &str = "/host-var-lib-kubelet";

/// Where an exporter's container has the kubelet's files. What is below the root directory on the node is below its
/// mount path here, mounted with it or alone.
#[derive(Clone, Copy, Debug)]
pub struct FileMounts {
    /// The mount path of the root directory.
    pub root: &'static str,
    /// Volume and mount path of a configuration file's directory elsewhere.
    config: (&'static str, &'static str),
    /// Volume and mount path of a directory of drop-ins elsewhere.
    drop_ins: (&'static str, &'static str),
}

/// Of our exporter as deploy installs it.
pub const EXPORTER: FileMounts = FileMounts {
    root: "/host/kubelet",
    config: ("kubelet-config", "/host/kubelet-config"),
    drop_ins: ("kubelet-config-drop-ins", "/host/kubelet-config.d"),
};

/// Of RTE, and of our exporter in its place.
const RTE: FileMounts = FileMounts {
    root: RTE_ROOT,
    config: ("host-kubelet-config", "/host-kubelet-config"),
    drop_ins: ("host-kubelet-config-d", "/host-kubelet-config.d"),
};

/// The flags with which our exporter asks its kubelet at this port. The variable `NODE_IP` has the address.
#[must_use]
pub fn configz_flags(kubelet: &Kubelet, port: u16) -> Vec<String> {
    let mut flags = vec![format!("--kubelet-config-uri=https://$(NODE_IP):{port}/configz")];
    match &kubelet.certificate {
        KubeletCertificate::Cluster => {}
        KubeletCertificate::ConfigMap(_) => {
            flags.push(format!("--kubelet-config-ca={}/ca.crt", AUTHORITY.1));
        }
        KubeletCertificate::Unchecked => flags.push("--kubelet-config-insecure".to_owned()),
    }
    flags
}

/// The ConfigMap with the authority, where the kubelet is asked and another than the cluster's signed.
#[must_use]
pub fn authority_mount(kubelet: &Kubelet) -> Option<(VolumeMount, Volume)> {
    let KubeletConfig::Configz { .. } = kubelet.config else { return None };
    let KubeletCertificate::ConfigMap(map) = &kubelet.certificate else { return None };
    let (name, path) = AUTHORITY;
    Some((pod::mount_read_only(name, path), pod::config_directory(name, map, None)))
}

impl FileMounts {
    /// The flags for the kubelet's file and its directory of drop-ins.
    #[must_use]
    pub fn flags(&self, kubelet: &Kubelet) -> Vec<String> {
        let KubeletConfig::File { path, drop_ins } = &kubelet.config else { return Vec::new() };
        let file = format!("--kubelet-config-file={}", self.place(kubelet, path, &self.alone(path)));
        let drop_ins = drop_ins.as_ref().map(|dir| self.place(kubelet, dir, self.drop_ins.1));
        let drop_ins = drop_ins.map(|dir| format!("--kubelet-config-dir={dir}"));
        std::iter::once(file).chain(drop_ins).collect()
    }

    /// The mounts of what the mount of the root directory does not have; without `has_root` there is no such mount. The
    /// file is mounted alone, because its directory may have credentials. An exporter ends when the file was replaced.
    #[must_use]
    pub fn mounts(&self, kubelet: &Kubelet, has_root: bool) -> Vec<(VolumeMount, Volume)> {
        let KubeletConfig::File { path, drop_ins } = &kubelet.config else { return Vec::new() };
        let mount = |path: &str, kind: &str, volume: &str, elsewhere: &str| {
            let is_there = has_root && kubelet.below_root(path).is_some();
            let at = self.place(kubelet, path, elsewhere);
            (!is_there).then(|| (pod::mount_read_only(volume, &at), pod::node_path(volume, path, Some(kind))))
        };
        let file = mount(path, "File", self.config.0, &self.alone(path));
        let drop_ins =
            drop_ins.as_ref().and_then(|dir| mount(dir, "Directory", self.drop_ins.0, self.drop_ins.1));
        file.into_iter().chain(drop_ins).collect()
    }

    /// The path in the container of a path on the node.
    fn place(&self, kubelet: &Kubelet, path: &str, elsewhere: &str) -> String {
        kubelet
            .below_root(path)
            .map_or_else(|| elsewhere.to_owned(), |below| format!("{}/{below}", self.root))
    }

    /// The path in the container of a configuration file that is not below the root directory.
    fn alone(&self, path: &str) -> String {
        format!("{}/{}", self.config.1, path.rsplit('/').next().unwrap_or_default())
    }
}

/// RTE's flags for the kubelet's file. Only our exporter knows a directory of drop-ins.
#[must_use]
pub fn rte_file_flags(kubelet: &Kubelet, own: bool) -> Vec<String> {
    let mut flags = RTE.flags(kubelet);
    flags.retain(|flag| own || !flag.starts_with("--kubelet-config-dir="));
    flags
}

/// RTE's mounts of the kubelet's files that the mount of its root directory does not have; without `has_root` there is
/// no such mount. Go's exporter gets the file's directory, because a file that is replaced would be stale there.
#[must_use]
pub fn rte_file_mounts(kubelet: &Kubelet, own: bool, has_root: bool) -> Vec<(VolumeMount, Volume)> {
    if own {
        return RTE.mounts(kubelet, has_root);
    }
    let KubeletConfig::File { path, .. } = &kubelet.config else { return Vec::new() };
    if kubelet.below_root(path).is_some() {
        return Vec::new();
    }
    let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
    let (volume, at) = RTE.config;
    let directory = pod::node_path(volume, parent.unwrap_or("/"), Some("Directory"));
    vec![(pod::mount_read_only(volume, at), directory)]
}

/// A warning about certificates that the chosen check may not accept, or about a missing check.
#[must_use]
pub fn certificate_note(options: &Options, profile: Option<Distribution>) -> Option<String> {
    let kubelet = options.kubelet();
    let KubeletConfig::Configz { .. } = kubelet.config else { return None };
    let unchecked = "any server at a node's address gets the exporter's token";
    match (options.updater.kind, &kubelet.certificate) {
        (Updater::Rte, _) | (_, KubeletCertificate::ConfigMap(_)) => None,
        (Updater::Nfd, _) => {
            Some(format!("nfd-topology-updater checks no kubelet's certificate: {unchecked}"))
        }
        (_, KubeletCertificate::Unchecked) => {
            Some(format!("--kubelet-insecure: kubelets' certificates are not checked: {unchecked}"))
        }
        (_, KubeletCertificate::Cluster) => {
            let profile = profile.unwrap_or_else(|| Distribution::usual(options.platform));
            (!profile.has_cluster_certificates()).then(|| {
                "kubelets here may have certificates that the cluster's authority did not sign; if exporters say so, \
                 give --kubelet-ca-config-map or --kubelet-insecure"
                    .to_owned()
            })
        }
    }
}
