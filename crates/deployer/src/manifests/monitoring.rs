//! Objects for the Prometheus operator, and the dashboard for Grafana.
//!
//! In: alerts, labels of pods, names of ports. Out: objects of `monitoring.coreos.com/v1`, a ConfigMap, and on
//! OpenShift the permission to discover targets. Never: an alert about a state that ends without help.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::access::{ServiceAccountRef, role};
use super::meta::{labels, selector, within};
use super::pod;
use crate::options::Options;
use crate::platform::Platform;
use objects::{Object, ObjectKind};

pub mod dashboard;

/// Group and version of the Prometheus operator's objects.
pub const API_VERSION: &str = "monitoring.coreos.com/v1";
/// The name of the dashboard's ConfigMap.
pub const DASHBOARD_NAME: &str = "tholepin-dashboard";
/// The dashboard's key there.
const DASHBOARD_KEY: &str = "tholepin.json";
/// The label by which Grafana's sidecar finds dashboards.
const DASHBOARD_LABEL: (&str, &str) = ("grafana_dashboard", "1");
/// The service account of OpenShift's Prometheus.
pub(super) const PROMETHEUS: ServiceAccountRef<'_> =
    ServiceAccountRef { namespace: "openshift-monitoring", name: "prometheus-k8s" };
/// The label of namespaces that OpenShift's Prometheus reads.
pub(super) const CLUSTER_MONITORING: (&str, &str) = ("openshift.io/cluster-monitoring", "true");

/// An alert, with its part of `docs/alerts.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The name.
    pub name: &'static str,
    /// The expression, in PromQL.
    pub expr: String,
    /// How long the expression has to hold, as Prometheus writes a duration.
    pub lasting: &'static str,
    /// The state in one sentence; may have labels, as `{{ $labels.node }}`.
    pub summary: &'static str,
    /// The meaning for the cluster.
    pub description: &'static str,
    /// Likely causes, the likeliest first.
    pub causes: &'static [&'static str],
    /// The command to run first.
    pub first: &'static str,
}

impl Alert {
    /// The id of its part of `docs/alerts.md`.
    #[must_use]
    pub fn id(&self) -> String {
        self.name.to_lowercase()
    }

    fn rule(&self, runbooks: &str) -> Value {
        json!({
            "alert": self.name,
            "expr": self.expr,
            "for": self.lasting,
            "labels": { "severity": "warning" },
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": format!("{runbooks}#{}", self.id()),
            },
        })
    }
}

/// The alerts as a PrometheusRule with one group. `runbooks`: the address of the page with a part for each.
#[must_use]
pub fn rules(metadata: &ObjectMeta, (group, alerts): (&str, &[Alert]), runbooks: &str) -> Object {
    let rules: Vec<Value> = alerts.iter().map(|alert| alert.rule(runbooks)).collect();
    object(
        "PrometheusRule",
        "prometheusrules",
        metadata,
        &json!({ "groups": [{ "name": group, "rules": rules }] }),
    )
}

/// The value of the label `job` for the targets of [`pod_monitor`].
#[must_use]
pub fn job(account: ServiceAccountRef<'_>) -> String {
    format!("{}/{}", account.namespace, account.name)
}

/// The PodMonitor of pods that serve metrics in plain HTTP at a port of this name.
#[must_use]
pub fn pod_monitor(metadata: &ObjectMeta, pods: &BTreeMap<String, String>, port: &str) -> Object {
    let endpoint = json!({ "port": port, "path": "/metrics", "scheme": "http" });
    let spec = json!({ "podMetricsEndpoints": [endpoint], "selector": selector(pods) });
    object("PodMonitor", "podmonitors", metadata, &spec)
}

/// The ServiceMonitor of Services with these labels.
#[must_use]
pub fn service_monitor(
    metadata: &ObjectMeta,
    services: &BTreeMap<String, String>,
    endpoint: &Value,
) -> Object {
    let spec = json!({ "endpoints": [endpoint], "selector": selector(services) });
    object("ServiceMonitor", "servicemonitors", metadata, &spec)
}

/// The permission of OpenShift's Prometheus to discover pods and the Services before them, as a role of this name;
/// elsewhere nothing.
#[must_use]
pub fn discovery(namespace: &str, name: &str, platform: Platform) -> Vec<Object> {
    if !platform.is_openshift() {
        return Vec::new();
    }
    let rules = vec![api::rbac::rule("", &["services", "endpoints", "pods"], &["get", "list", "watch"])];
    vec![
        Object::new(&role(namespace, name, rules)),
        Object::new(&PROMETHEUS.with_role(namespace, name, name)),
    ]
}

/// The namespace, with the label by which OpenShift's Prometheus reads it, if options ask for monitoring.
#[must_use]
pub(super) fn readable(mut namespace: Namespace, options: &Options) -> Namespace {
    if options.monitoring && options.platform.is_openshift() {
        namespace.metadata.labels.get_or_insert_default().extend(labels([CLUSTER_MONITORING]));
    }
    namespace
}

/// The dashboard for Grafana's sidecar, if options ask for monitoring. OpenShift has no Grafana.
#[must_use]
pub fn dashboard(namespace: &str, options: &Options) -> Option<Object> {
    let mut map = pod::config_map(namespace, DASHBOARD_NAME, DASHBOARD_KEY, &dashboard::text());
    map.metadata.labels = Some(labels([DASHBOARD_LABEL]));
    (options.monitoring && !options.platform.is_openshift()).then(|| Object::new(&map))
}

/// Monitor and alerts of one of our programs, if the options ask for them.
pub(super) fn of_pods(
    options: &Options,
    account: ServiceAccountRef<'_>,
    (pods, port): (&BTreeMap<String, String>, &str),
    (group, alerts): (&str, &[Alert]),
) -> Vec<Object> {
    if !options.monitoring {
        return Vec::new();
    }
    let metadata = within(account.namespace, account.name);
    // Each program has a role of its own: both may be in one namespace, and each may be removed.
    let name = format!("{}-{}", account.name, PROMETHEUS.name);
    let mut objects = discovery(account.namespace, &name, options.platform);
    objects
        .extend([pod_monitor(&metadata, pods, port), rules(&metadata, (group, alerts), &options.runbooks)]);
    objects
}

fn object(kind: &str, plural: &str, metadata: &ObjectMeta, spec: &Value) -> Object {
    let (group, version) = API_VERSION.split_once('/').unwrap_or_default();
    let kind = ObjectKind::new(group, version, kind, plural);
    Object::typed(kind, &json!({ "metadata": metadata, "spec": spec }))
}
