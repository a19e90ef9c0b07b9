//! Monitoring: metrics of operator and exporters for Prometheus, and alerts.
//!
//! In: [`Options`]. Out: objects of the Prometheus operator (`monitoring.coreos.com/v1`), and on OpenShift the
//! permission to discover targets. Never: an alert about a state that ends without help.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{Options, Program, port_name};
use crate::manifests::access::{ServiceAccountRef, role};
use crate::manifests::meta::{selector, within};
use objects::{Object, ObjectKind};

/// The service account of OpenShift's Prometheus.
const PROMETHEUS: ServiceAccountRef<'_> =
    ServiceAccountRef { namespace: "openshift-monitoring", name: "prometheus-k8s" };
/// The file in OpenShift's Prometheus with the authority of Service certificates.
const AUTHORITY: &str = "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt";

/// An alert, as a rule of Prometheus.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert(Value);

/// The objects for metrics and alerts of one process.
#[must_use]
pub fn objects(options: &Options, program: &Program, group: &'static str, alerts: Vec<Alert>) -> Vec<Object> {
    let namespace = &options.namespace;
    let mut objects = Vec::new();
    if options.common.platform.is_openshift() {
        // Prometheus discovers the pods behind a Service.
        let rules = vec![api::rbac::rule("", &["services", "endpoints", "pods"], &["get", "list", "watch"])];
        objects.push(Object::new(&role(namespace, PROMETHEUS.name, rules)));
        objects.push(Object::new(&PROMETHEUS.with_role(namespace, PROMETHEUS.name, PROMETHEUS.name)));
    }
    let labels = program.pod_labels();
    objects.push(monitor(options, program.name, &labels, program.service, port_name(options)));
    let rules: Vec<Value> = alerts.into_iter().map(|Alert(rule)| rule).collect();
    let spec = json!({ "groups": [{ "name": group, "rules": rules }] });
    objects.push(object("PrometheusRule", "prometheusrules", &within(namespace, program.name), &spec));
    objects
}

/// An alert.
#[must_use]
pub fn alert(
    alert: &'static str,
    expr: String,
    lasting: &'static str,
    summary: &'static str,
    description: &'static str,
) -> Alert {
    Alert(json!({
        "alert": alert,
        "expr": expr,
        "for": lasting,
        "labels": { "severity": "warning" },
        "annotations": { "summary": summary, "description": description },
    }))
}

/// The ServiceMonitor of a Service.
///
/// # Errors
/// As [`Object::new`].
pub fn monitor(
    options: &Options,
    name: &str,
    labels: &std::collections::BTreeMap<String, String>,
    service: &str,
    port: &str,
) -> Object {
    let certificate = options.common.platform.is_openshift();
    let scheme = if certificate { "https" } else { "http" };
    let mut endpoint = json!({ "port": port, "path": "/metrics", "scheme": scheme });
    if certificate {
        let server = format!("{service}.{}.svc", options.namespace);
        endpoint["tlsConfig"] = json!({ "caFile": AUTHORITY, "serverName": server });
    }
    let spec = json!({ "endpoints": [endpoint], "selector": selector(labels) });
    object("ServiceMonitor", "servicemonitors", &within(&options.namespace, name), &spec)
}

fn object(kind: &str, plural: &str, metadata: &ObjectMeta, spec: &Value) -> Object {
    let kind = ObjectKind::new("monitoring.coreos.com", "v1", kind, plural);
    Object::typed(kind, &json!({ "metadata": metadata, "spec": spec }))
}
