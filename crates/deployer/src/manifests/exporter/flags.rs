//! Our exporter's command line in a pod, and the mounts that it needs.
//!
//! In: [`Options`]. Out: matching flags and mounts. Never: a mount of the socket alone, which the kubelet creates anew,
//! or of a directory that holds more than is read, unless the root directory is asked for.
//!
//! The configuration's mount is the file alone, because its directory has credentials. The exporter ends when the file
//! was replaced, and the restart of its container mounts the new one.

use api::goduration::GoDuration;
use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::account;
use crate::manifests::kubelet::{self, EXPORTER};
use crate::manifests::{Error, pod};
use crate::options::{Kubelet, KubeletConfig, Options};

/// The key in the ConfigMap, which is the file's name.
pub(super) const CONFIG_KEY: &str = "config.yaml";
/// The mount path of the ConfigMap.
const CONFIG: &str = "/etc/tholepin";
/// Mount paths of the node's directories.
const ROOT: &str = EXPORTER.root;
const SYS: &str = "/host/sys";

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
    flags.push(pod::health_flag());
    flags.push(format!("--v={}", updater.verbosity.clamp(0, 255)));
    Ok(flags)
}

fn config_flags(options: &Options, kubelet: &Kubelet) -> Result<Vec<String>, Error> {
    Ok(match &kubelet.config {
        KubeletConfig::File { .. } => EXPORTER.flags(kubelet),
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
    let read_only = |name: &str, path: &str, kind: &str, at: &str| {
        (pod::mount_read_only(name, at), pod::node_path(name, path, Some(kind)))
    };
    let mut mounts = vec![if updater.kubelet_root {
        let (mount, volume) = read_only("kubelet", &kubelet.root, "Directory", ROOT);
        // The directory contains the volumes of pods; without propagation their devices would stay busy after an
        // unmount.
        let mount_propagation = Some("HostToContainer".to_owned());
        (VolumeMount { mount_propagation, ..mount }, volume)
    } else {
        let path = format!("{}/pod-resources", kubelet.root);
        read_only("podresources", &path, "Directory", &format!("{ROOT}/pod-resources"))
    }];
    mounts.push(read_only("sys", "/sys", "Directory", SYS));
    mounts.extend(EXPORTER.mounts(&kubelet, updater.kubelet_root));
    mounts.extend(kubelet::authority_mount(&kubelet));
    if updater.config.is_some() {
        let volume = pod::config_directory("config", account(options).name, None);
        mounts.push((pod::mount_read_only("config", CONFIG), volume));
    }
    mounts
}
