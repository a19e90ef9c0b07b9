//! The exporters' arguments.
//!
//! In: how a node group's exporters work. Out: arguments in the words of resource-topology-exporter, which ours understands. Never: a flag twice,
//! nor one that the Go exporter does not have, unless the image is ours.

use api::numaresources::{InfoRefreshMode, LogLevel, NodeGroupConfig, PodsFingerprinting, Switch};

use crate::world::TlsProfile;

/// Where the kubelet's root directory is mounted.
pub(super) const KUBELET: &str = "/host-var-lib-kubelet";

/// What arguments depend on.
pub(super) struct Wishes<'a> {
    /// How the exporters work, with nothing left open.
    pub(super) config: &'a NodeGroupConfig,
    /// How much they tell.
    pub(super) log_level: LogLevel,
    /// Whether metrics are served over TLS, and how.
    pub(super) tls: Option<&'a TlsProfile>,
    /// Where the kubelet's configuration is, if its file is to be read.
    pub(super) kubelet_config: Option<String>,
    /// Whether it is our exporter.
    pub(super) own: bool,
}

/// The arguments.
pub(super) fn args(wishes: &Wishes<'_>) -> Vec<String> {
    let mode = wishes.config.info_refresh_mode.unwrap_or(InfoRefreshMode::PeriodicAndEvents);
    let period = match mode {
        InfoRefreshMode::Events => "0s".to_owned(),
        _ => wishes.config.info_refresh_period.unwrap_or_default().to_string(),
    };
    let mut args = vec![
        format!("--sleep-interval={period}"),
        "--sysfs=/host-sys".to_owned(),
        "--podresources-socket=unix:///host-podresources/kubelet.sock".to_owned(),
        format!("-v={}", wishes.log_level.verbosity()),
    ];
    args.extend(fingerprint(wishes.config).iter().map(|arg| (*arg).to_owned()));
    args.push("--refresh-node-resources".to_owned());
    args.push("--add-nrt-owner=false".to_owned());
    args.extend(metrics(wishes.tls));
    if wishes.config.info_refresh_pause == Some(Switch::Enabled) {
        args.push("--no-publish".to_owned());
    }
    let events = mode != InfoRefreshMode::Periodic;
    if events {
        args.push("--notify-file=/run/rte/notify".to_owned());
    }
    if wishes.own {
        // Said to be nowhere, it is not looked for either: a timer alone is what was asked for.
        args.push(format!("--kubelet-state-dir={}", if events { KUBELET } else { "" }));
    }
    args.extend(wishes.kubelet_config.iter().map(|path| format!("--kubelet-config-file={path}")));
    args
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
