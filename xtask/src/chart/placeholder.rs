//! What stands in manifests for values that a template fills in.
//!
//! In: options whose values are marks. Out: which expression a mark stands for. Never: a mark that manifests have
//! anyway.

use std::time::Duration;

use deployer::options::{Kubelet, KubeletCertificate, KubeletConfig, LeaseName, Options};
use k8s_openapi::api::core::v1::Toleration;

/// A part of a manifest that a template fills in.
#[derive(Clone, Debug)]
pub(super) struct Placeholder {
    /// The text or the digits of a number.
    pub(super) mark: &'static str,
    /// What a template says instead.
    pub(super) expression: String,
    pub(super) form: Form,
}

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A text, or a part of one.
    Text,
    /// A number, also within a text.
    Number,
    /// A part of the only element of a list; there is such an element for each of the values.
    Each,
    /// A key of a map; all values are entries of the map.
    Entries,
    /// The key of a toleration, in the place of which all values are.
    Elements,
    /// A map or list.
    Whole,
}

// Marks that objects get after they were made.
pub(super) const SERVICE: &str = "chart-service";
pub(super) const CONFIG: &str = "chart-config";
pub(super) const CONFIG_HASH: &str = "chart-config-hash";
pub(super) const RESOURCES: &str = "chart-resources";

// Marks in options. Each is as long as it must be to be found nowhere else.
pub(super) const NAMESPACE: &str = "chart-namespace";
const IMAGE: &str = "chart-image";
const PULL_POLICY: &str = "IfNotPresent";
pub(super) const PULL_SECRET: &str = "chart-pull-secret";
pub(super) const ARCHITECTURE: &str = "chart-architecture";
const API_PORT: &str = "61001";
pub(super) const API_CIDR: &str = "192.0.2.77/32";
const PERIOD: &str = "12345h0m0s";
const VERBOSITY: &str = "239";
pub(super) const EXPORTER_CONFIG: &str = "chart-exporter-config";
const SELECTOR: &str = "chart-node-selector";
pub(super) const TOLERATION: &str = "chart-toleration";
pub(super) const PRIORITY: &str = "chart-priority-class";
const METRICS_PORT: &str = "61002";
const ROOT: &str = "/chart-root";
const BELOW_ROOT: &str = "chart-below-root";
const ELSEWHERE: &str = "/chart-elsewhere/chart-file";
const FILE: &str = "chart-file";
const KUBELET_PORT: &str = "61003";
pub(super) const AUTHORITY: &str = "chart-authority";
pub(super) const REPLICAS: &str = "6007";
const SCHEDULER_NAME: &str = "chart-scheduler-name";
const RUNBOOKS: &str = "chart-runbooks";
// Words of the kubelet that stand for whichever is stated.
const POLICY: &str = "topology-manager-policy=single-numa-node";
const SCOPE: &str = "topology-manager-scope=container";

/// All placeholders of the templates of a component, `exporter` or `scheduler`; of several that begin alike the longest
/// is first.
pub(super) fn all(component: &str) -> Vec<Placeholder> {
    let own = |key: &str| format!("$.Values.{component}.{key}");
    let config = format!("include \"tholepin.{component}.config\" $");
    let kubelet = |name: &str| format!("include \"tholepin.kubelet.{name}\" $");
    let stated = |flag: &str, at: usize| {
        let part = format!("index (splitList \"/\" $.Values.kubelet.config) {at}");
        format!("printf \"topology-manager-{flag}=%s\" ({part})")
    };
    let text = |mark, expression: &str| (mark, expression.to_owned(), Form::Text);
    let each = |mark, values: &str| (mark, values.to_owned(), Form::Each);
    let mut all = vec![
        text(SERVICE, "$.Release.Service"),
        (CONFIG_HASH, format!("{config} | sha256sum | trunc 16"), Form::Text),
        (CONFIG, config, Form::Text),
        (RESOURCES, own("resources"), Form::Whole),
        text(NAMESPACE, "$.Release.Namespace"),
        text(IMAGE, "include \"tholepin.image\" $"),
        text(PULL_POLICY, "$.Values.image.pullPolicy"),
        each(PULL_SECRET, "$.Values.image.pullSecrets"),
        each(ARCHITECTURE, "$.Values.architectures"),
        each(API_PORT, "$.Values.apiServer.ports"),
        each(API_CIDR, "$.Values.apiServer.cidrs"),
        (PERIOD, own("syncPeriod"), Form::Text),
        (VERBOSITY, format!("int {}", own("verbosity")), Form::Number),
        (EXPORTER_CONFIG, own("config"), Form::Text),
        (SELECTOR, own("nodeSelector"), Form::Entries),
        (TOLERATION, own("tolerations"), Form::Elements),
        (PRIORITY, own("priorityClassName"), Form::Text),
        (METRICS_PORT, format!("int {}", own("metricsPort")), Form::Number),
        (POLICY, stated("policy", 0), Form::Text),
        (SCOPE, stated("scope", 1), Form::Text),
        (ROOT, kubelet("root"), Form::Text),
        (BELOW_ROOT, kubelet("belowRoot"), Form::Text),
        (ELSEWHERE, kubelet("config"), Form::Text),
        (FILE, "base $.Values.kubelet.config".to_owned(), Form::Text),
        (KUBELET_PORT, format!("{} | int", kubelet("port")), Form::Number),
        text(AUTHORITY, "$.Values.kubelet.caConfigMap"),
        (REPLICAS, format!("int {}", own("replicas")), Form::Number),
        (SCHEDULER_NAME, own("schedulerName"), Form::Text),
        text(RUNBOOKS, "$.Values.runbookUrl"),
    ];
    all.sort_by_key(|(mark, ..)| std::cmp::Reverse(mark.len()));
    all.into_iter().map(|(mark, expression, form)| Placeholder { mark, expression, form }).collect()
}

/// Options with a mark for each value that a template fills in.
pub(super) fn options() -> anyhow::Result<Options> {
    let mut options = Options::default();
    let selector = || [(SELECTOR.to_owned(), String::new())].into();
    let toleration = Toleration { key: Some(TOLERATION.to_owned()), ..Toleration::default() };
    IMAGE.clone_into(&mut options.images.tholepin);
    options.pull_secrets = vec![PULL_SECRET.to_owned()];
    options.architectures = vec![ARCHITECTURE.to_owned()];
    options.api_server_ports = vec![API_PORT.parse()?];
    options.api_server_cidrs = vec![API_CIDR.to_owned()];
    RUNBOOKS.clone_into(&mut options.runbooks);
    let updater = &mut options.updater;
    updater.sync_period = Some(Duration::from_secs(12345 * 3600));
    updater.verbosity = VERBOSITY.parse()?;
    updater.config = Some(EXPORTER_CONFIG.to_owned());
    updater.node_selector = selector();
    updater.tolerations = Some(vec![toleration.clone()]);
    updater.priority_class = Some(PRIORITY.to_owned());
    updater.metrics_port = METRICS_PORT.parse()?;
    updater.kubelet = Some(Kubelet {
        root: ROOT.to_owned(),
        config: below_root(),
        certificate: KubeletCertificate::Cluster,
    });
    let scheduler = &mut options.scheduler;
    scheduler.replicas = REPLICAS.parse()?;
    scheduler.profile_name = Some(SCHEDULER_NAME.to_owned());
    scheduler.lease = LeaseName::default();
    scheduler.verbosity = VERBOSITY.parse()?;
    scheduler.node_selector = selector();
    scheduler.tolerations = vec![toleration];
    scheduler.priority_class = Some(PRIORITY.to_owned());
    Ok(options)
}

/// A kubelet's file below its root directory.
pub(super) fn below_root() -> KubeletConfig {
    KubeletConfig::File { path: format!("{ROOT}/{BELOW_ROOT}"), drop_ins: None }
}

/// A kubelet's file elsewhere.
pub(super) fn elsewhere() -> KubeletConfig {
    KubeletConfig::File { path: ELSEWHERE.to_owned(), drop_ins: None }
}

/// The kubelet itself, at a port.
pub(super) fn configz() -> KubeletConfig {
    KubeletConfig::Configz { port: KUBELET_PORT.parse().unwrap_or_default() }
}
