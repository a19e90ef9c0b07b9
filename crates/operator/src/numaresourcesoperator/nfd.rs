//! nfd-topology-updater in the place of the exporter: what differs in its pods and rights.
//!
//! In: a request, the exporters of a pool. Out: parts of their container, from the deployer's builders, and rules.
//! Never: a setting that the program does not have; the API and [`crate::group`] refuse those.
//!
//! Our own image has the program too, with a port of its own choice and a check of kubelets' certificates. Other images
//! get flags that all versions of the program know, and have no known port.

use api::numaresources::Switch;
use api::rbac::rule;
use deployer::manifests::{nfd, pod};
use deployer::options::{KubeletCertificate, KubeletConfig, Options};
use exporter::rbac::{Needs, Rules};
use exporter::settings::{Mode, OwnerKind};
use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::args::has_fingerprint;
use super::daemonset::Exporters;
use super::desired::PORT;

/// The rights in a pool of any image: our own needs the first ones, others those of the deployer too.
pub(crate) fn rules(own: bool, configz: bool, options: &Options) -> Rules {
    let needs = Needs { mode: Some(Mode::Apply), owner: OwnerKind::Leave, conditions: false, configz };
    let mut rules = exporter::rbac::rules(needs, "");
    // Its own namespace is the owner of its reports. A Role gives access to the object of its namespace alone.
    rules.namespaced.push(rule("", &["namespaces"], &["get"]));
    if !own {
        rules.cluster.extend(nfd::rules(options));
        // Since 0.17 it watches the pods of its node.
        rules.cluster.push(rule("", &["pods"], &["list", "watch"]));
    }
    rules
}

/// The options of a pool's updaters.
pub(super) fn options(exporters: &Exporters<'_>) -> Options {
    let mut options = exporters.request.options();
    let config = &exporters.group.config;
    options.updater.kubelet = exporters.kubelet().cloned();
    options.updater.sync_period = config.info_refresh_period.and_then(api::goduration::GoDuration::to_std);
    options.updater.verbosity = exporters.request.operator.spec.log_level.verbosity();
    options.updater.fingerprint = has_fingerprint(config);
    options
}

/// The container, on top of what it shares with the exporter's.
pub(super) fn container(exporters: &Exporters<'_>, shared: Container) -> Container {
    let options = options(exporters);
    let own = exporters.own;
    let probe = |path: &str| pod::probe(path, IntOrString::String(PORT.to_owned()), None);
    let alive = || Probe { period_seconds: Some(20), timeout_seconds: Some(5), ..probe("/healthz") };
    Container {
        name: nfd::NAME.to_owned(),
        command: Some(vec![nfd::NAME.to_owned()]),
        args: Some(args(exporters, &options)),
        env: Some(nfd::variables(&options)),
        ports: own.then(|| vec![pod::port(PORT, options.updater.metrics_port)]),
        liveness_probe: own.then(alive),
        readiness_probe: own.then(|| probe("/readyz")),
        ..shared
    }
}

fn args(exporters: &Exporters<'_>, options: &Options) -> Vec<String> {
    // Settings that are stated, its only error, are refused before.
    let mut args = nfd::flags(options).unwrap_or_default();
    if exporters.group.config.info_refresh_pause == Some(Switch::Enabled) {
        args.push("--no-publish".to_owned());
    }
    if exporters.own {
        args.push(format!("--port={}", options.updater.metrics_port));
        let kubelet = exporters.kubelet().filter(|one| matches!(one.config, KubeletConfig::Configz { .. }));
        if kubelet.is_some_and(|one| one.certificate == KubeletCertificate::Unchecked) {
            args.push("--kubelet-config-insecure".to_owned());
        }
    }
    args
}
