//! The exporters' arguments.
//!
//! In: the configuration of a node group's exporters. Out: flags of resource-topology-exporter, which ours has too.
//! Never: a flag twice, or one that the Go exporter does not have, unless the image is ours.

use api::numaresources::{InfoRefreshMode, NodeGroupConfig, PodsFingerprinting, Switch};

use deployer::manifests::kubelet::{self, RTE_ROOT};
use deployer::manifests::pod;
use deployer::options::{Kubelet, KubeletConfig};

use super::daemonset::Exporters;
use crate::cluster_state::TlsProfile;

/// The arguments of a pool's exporters.
pub(super) fn args(exporters: &Exporters<'_>) -> Vec<String> {
    let config = &exporters.group.config;
    let mode = config.info_refresh_mode.unwrap_or(InfoRefreshMode::PeriodicAndEvents);
    let period = match mode {
        InfoRefreshMode::Events => "0s".to_owned(),
        _ => config.info_refresh_period.unwrap_or_default().to_string(),
    };
    let mut args = vec![
        format!("--sleep-interval={period}"),
        "--sysfs=/host-sys".to_owned(),
        "--podresources-socket=unix:///host-podresources/kubelet.sock".to_owned(),
        format!("-v={}", exporters.request.operator.spec.log_level.verbosity()),
    ];
    args.extend(fingerprint(config).iter().map(|arg| (*arg).to_owned()));
    args.push("--refresh-node-resources".to_owned());
    args.push("--add-nrt-owner=false".to_owned());
    args.extend(metrics(exporters.tls.as_ref()));
    if config.info_refresh_pause == Some(Switch::Enabled) {
        args.push("--no-publish".to_owned());
    }
    let events = mode != InfoRefreshMode::Periodic;
    if events {
        args.push("--notify-file=/run/rte/notify".to_owned());
    }
    if exporters.own {
        // An empty path: the directory is not mounted, or only the period was requested.
        let watched = events && exporters.environment().kubelet_root_mount;
        args.push(format!("--kubelet-state-dir={}", if watched { RTE_ROOT } else { "" }));
        args.push(pod::health_flag());
    }
    args.extend(exporters.kubelet().into_iter().flat_map(|kubelet| kubelet_config(kubelet, exporters.own)));
    args
}

/// The source of the kubelet's configuration. The file of `--config` has the settings of a kubelet that the Go exporter
/// cannot ask, and those that users state.
fn kubelet_config(kubelet: &Kubelet, own: bool) -> Vec<String> {
    match kubelet.config {
        KubeletConfig::Configz { port } if own => kubelet::configz_flags(kubelet, port),
        _ => kubelet::rte_file_flags(kubelet, own),
    }
}

/// Whether the pods' fingerprint is published.
pub(super) fn has_fingerprint(config: &NodeGroupConfig) -> bool {
    config.pods_fingerprinting != Some(PodsFingerprinting::Disabled)
}

fn fingerprint(config: &NodeGroupConfig) -> &'static [&'static str] {
    match config.pods_fingerprinting {
        Some(PodsFingerprinting::Disabled) => &["--pods-fingerprint=false"],
        Some(PodsFingerprinting::Enabled) => &["--pods-fingerprint", "--pods-fingerprint-method=all"],
        Some(PodsFingerprinting::EnabledExclusiveResources) | None => {
            &["--pods-fingerprint", "--pods-fingerprint-method=with-exclusive-resources"]
        }
    }
}

fn metrics(tls: Option<&TlsProfile>) -> Vec<String> {
    let Some(tls) = tls else { return vec!["--metrics-mode=http".to_owned()] };
    let stated = |flag: &str, value: &str| (!value.is_empty()).then(|| format!("--{flag}={value}"));
    let version = stated("metrics-tls-min-version", &tls.min_version);
    let suites = stated("metrics-tls-cipher-suites", &tls.cipher_suites);
    ["--metrics-mode=httptls".to_owned()].into_iter().chain(version).chain(suites).collect()
}
