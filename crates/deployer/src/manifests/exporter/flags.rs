//! Our exporter's command line in a pod, and the mounts that it needs.
//!
//! In: [`Options`]. Out: matching flags and mounts. Never: a mount of a single file or socket; the kubelet replaces
//! these, and the mount would keep the old one.

use api::goduration::GoDuration;
use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::account;
use crate::manifests::{Error, kubelet, pod};
use crate::options::{Kubelet, KubeletConfig, Options};

/// The key in the ConfigMap, which is the file's name.
pub(super) const CONFIG_KEY: &str = "config.yaml";
/// The mount path of the ConfigMap.
const CONFIG: &str = "/etc/tholepin";
/// Mount paths of the node's directories.
const ROOT: &str = "/host/kubelet";
const SYS: &str = "/host/sys";
const KUBELET_CONFIG: &str = "/host/kubelet-config";
const DROP_INS: &str = "/host/kubelet-config.d";

/// The arguments of the image's entry point.
///
/// # Errors
/// When the kubelet's configuration cannot be read in the chosen way.
pub fn flags(options: &Options) -> Result<Vec<String>, Error> {
    let updater = &options.updater;
    let kubelet = options.kubelet();
    let period = updater.sync_period.map_or(0, |period| i64::try_from(period.as_nanos()).unwrap_or(i64::MAX));
    let state = if updater.kubelet_root { ROOT } else { "" };
    let mut flags = vec![
        "exporter".to_owned(),
        format!("--podresources-socket=unix://{ROOT}/pod-resources/kubelet.sock"),
        format!("--kubelet-state-dir={state}"),
        format!("--sysfs={SYS}"),
    ];
    flags.extend(config_flags(options, &kubelet)?);
    flags.push(format!("--sleep-interval={}", GoDuration(period)));
    if !updater.fingerprint {
        flags.push("--pods-fingerprint=false".to_owned());
    }
    if updater.config.is_some() {
        flags.push(format!("--config={CONFIG}/{CONFIG_KEY}"));
    }
    flags.push(format!("--metrics-port={}", updater.metrics_port));
    flags.push(format!("--v={}", updater.verbosity.clamp(0, 255)));
    Ok(flags)
}

fn config_flags(options: &Options, kubelet: &Kubelet) -> Result<Vec<String>, Error> {
    let place = |path: &str, elsewhere: &str| match kubelet.below_root(path) {
        Some(below) => format!("{ROOT}/{below}"),
        None => elsewhere.to_owned(),
    };
    Ok(match &kubelet.config {
        KubeletConfig::File { path, drop_ins } => {
            let unseen = |path: &str| !options.updater.kubelet_root && kubelet.below_root(path).is_some();
            if let Some(path) =
                [Some(path), drop_ins.as_ref()].into_iter().flatten().find(|path| unseen(path))
            {
                return Err(Error::Option {
                    option: "kubelet configuration",
                    value: path.clone(),
                    allowed: "outside of the kubelet's root directory, or configz, because that directory is not mounted",
                });
            }
            let name = path.rsplit('/').next().unwrap_or_default();
            let file = place(path, &format!("{KUBELET_CONFIG}/{name}"));
            let drop_ins = drop_ins.as_ref().map(|dir| place(dir, DROP_INS));
            let drop_ins = drop_ins.map(|dir| format!("--kubelet-config-dir={dir}"));
            [Some(format!("--kubelet-config-file={file}")), drop_ins].into_iter().flatten().collect()
        }
        KubeletConfig::Configz { port } => {
            if !options.kubernetes_at_least(33) {
                return Err(Error::Option {
                    option: "kubelet configuration",
                    value: "configz".to_owned(),
                    allowed: "a file or POLICY/SCOPE before Kubernetes 1.33 (OpenShift 4.20): there the permission to read \
                              configz permits to run commands in any pod of the node",
                });
            }
            kubelet::configz_flags(kubelet, *port)
        }
        KubeletConfig::Stated { policy, scope } => vec![
            format!("--topology-manager-policy={}", policy.as_str()),
            format!("--topology-manager-scope={}", scope.as_str()),
        ],
    })
}

/// Mounts with their volumes.
#[must_use]
pub fn mounts(options: &Options) -> Vec<(VolumeMount, Volume)> {
    let updater = &options.updater;
    let kubelet = options.kubelet();
    let directory = |name: &str, path: &str, at: &str| {
        (pod::mount_read_only(name, at), pod::node_directory(name, path, Some("Directory")))
    };
    let mut mounts = vec![if updater.kubelet_root {
        let (mount, volume) = directory("kubelet", &kubelet.root, ROOT);
        // The directory contains the volumes of pods; without propagation their devices would stay busy after an
        // unmount.
        let mount_propagation = Some("HostToContainer".to_owned());
        (VolumeMount { mount_propagation, ..mount }, volume)
    } else {
        let path = format!("{}/pod-resources", kubelet.root);
        directory("podresources", &path, &format!("{ROOT}/pod-resources"))
    }];
    mounts.push(directory("sys", "/sys", SYS));
    if let KubeletConfig::File { path, drop_ins } = &kubelet.config {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
        if kubelet.below_root(path).is_none() {
            mounts.push(directory("kubelet-config", parent.unwrap_or("/"), KUBELET_CONFIG));
        }
        if let Some(dir) = drop_ins.as_ref().filter(|dir| kubelet.below_root(dir).is_none()) {
            mounts.push(directory("kubelet-config-drop-ins", dir, DROP_INS));
        }
    }
    mounts.extend(kubelet::authority_mount(&kubelet));
    if updater.config.is_some() {
        let volume = pod::config_directory("config", account(options).name, None);
        mounts.push((pod::mount_read_only("config", CONFIG), volume));
    }
    mounts
}
