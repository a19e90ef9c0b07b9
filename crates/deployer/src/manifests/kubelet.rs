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
/// RTE's mount paths of files elsewhere.
const RTE_CONFIG: &str = "/host-kubelet-config";
const RTE_DROP_INS: &str = "/host-kubelet-config.d";

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

/// RTE's flags for the kubelet's file. Only our exporter knows a directory of drop-ins.
#[must_use]
pub fn rte_file_flags(kubelet: &Kubelet, own: bool) -> Vec<String> {
    let KubeletConfig::File { path, drop_ins } = &kubelet.config else { return Vec::new() };
    let file = match kubelet.below_root(path) {
        Some(below) => format!("{RTE_ROOT}/{below}"),
        None => format!("{RTE_CONFIG}/{}", path.rsplit('/').next().unwrap_or_default()),
    };
    let below = |dir: &str| kubelet.below_root(dir).map(|below| format!("{RTE_ROOT}/{below}"));
    let drop_ins = drop_ins.as_ref().filter(|_| own);
    let drop_ins = drop_ins.map(|dir| below(dir).unwrap_or_else(|| RTE_DROP_INS.to_owned()));
    let drop_ins = drop_ins.map(|dir| format!("--kubelet-config-dir={dir}"));
    [Some(format!("--kubelet-config-file={file}")), drop_ins].into_iter().flatten().collect()
}

/// RTE's mounts of the kubelet's files that the mount of its root directory does not have; without `has_root` there is
/// no such mount. Our exporter gets the file alone, because its directory may have credentials. It ends when the file
/// was replaced.
#[must_use]
pub fn rte_file_mounts(kubelet: &Kubelet, own: bool, has_root: bool) -> Vec<(VolumeMount, Volume)> {
    let KubeletConfig::File { path, drop_ins } = &kubelet.config else { return Vec::new() };
    let mount = |path: &str, kind: &str, name: &str, at: String| {
        (pod::mount_read_only(name, &at), pod::node_path(name, path, Some(kind)))
    };
    // `None`: the mount of the root directory has it.
    let place = |path: &str, elsewhere: String| match kubelet.below_root(path) {
        Some(_) if has_root => None,
        Some(below) => Some(format!("{RTE_ROOT}/{below}")),
        None => Some(elsewhere),
    };
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    let file = if own {
        place(path, format!("{RTE_CONFIG}/{name}")).map(|at| mount(path, "File", &RTE_CONFIG[1..], at))
    } else {
        let parent = if parent.is_empty() { "/" } else { parent };
        let elsewhere = kubelet.below_root(path).is_none();
        elsewhere.then(|| mount(parent, "Directory", &RTE_CONFIG[1..], RTE_CONFIG.to_owned()))
    };
    let drop_ins = drop_ins.as_ref().filter(|_| own).and_then(|dir| {
        let at = place(dir, RTE_DROP_INS.to_owned())?;
        Some(mount(dir, "Directory", &RTE_DROP_INS[1..].replace('.', "-"), at))
    });
    file.into_iter().chain(drop_ins).collect()
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
