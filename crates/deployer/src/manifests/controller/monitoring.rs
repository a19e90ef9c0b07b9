//! Monitoring: metrics of operator and exporters for Prometheus, and alerts.
//!
//! In: [`Options`]. Out: objects of the Prometheus operator (`monitoring.coreos.com/v1`), and on OpenShift the
//! permission to discover targets. Never: an alert about a state that ends without help.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Serialize;

use super::{Options, Program, port_name};
use crate::manifests::Error;
use crate::manifests::access::role;
use crate::manifests::meta::{selector, within};
use objects::{Object, ObjectKind};

/// The service account of OpenShift's Prometheus.
const PROMETHEUS: (&str, &str) = ("openshift-monitoring", "prometheus-k8s");
/// The file in OpenShift's Prometheus with the authority of Service certificates.
const AUTHORITY: &str = "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt";

#[derive(Serialize)]
struct ServiceMonitor {
    metadata: ObjectMeta,
    spec: ServiceMonitorSpec,
}

#[derive(Serialize)]
struct ServiceMonitorSpec {
    endpoints: Vec<Endpoint>,
    selector: LabelSelector,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    port: String,
    path: &'static str,
    scheme: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_config: Option<TlsConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TlsConfig {
    ca_file: &'static str,
    server_name: String,
}

#[derive(Serialize)]
struct PrometheusRule {
    metadata: ObjectMeta,
    spec: PrometheusRuleSpec,
}

#[derive(Serialize)]
struct PrometheusRuleSpec {
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    name: &'static str,
    rules: Vec<Alert>,
}

/// The alerts.
#[derive(Serialize)]
pub struct Alert {
    alert: &'static str,
    expr: String,
    #[serde(rename = "for")]
    lasting: &'static str,
    labels: Severity,
    annotations: Words,
}

#[derive(Serialize)]
struct Severity {
    severity: &'static str,
}

#[derive(Serialize)]
struct Words {
    summary: &'static str,
    description: &'static str,
}

/// The objects for metrics and alerts of one process.
///
/// # Errors
/// When an object has no JSON form; our types always have one.
pub fn objects(
    options: &Options,
    program: &Program,
    group: &'static str,
    alerts: Vec<Alert>,
) -> Result<Vec<Object>, Error> {
    let mut objects = prometheus(options)?;
    let labels = program.pod_labels();
    objects.push(monitor(options, program.name, &labels, program.service, port_name(options))?);
    objects.push(rules(options, program.name, group, alerts)?);
    Ok(objects)
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
    let (labels, annotations) = (Severity { severity: "warning" }, Words { summary, description });
    Alert { alert, expr, lasting, labels, annotations }
}

fn rules(options: &Options, name: &str, group: &'static str, alerts: Vec<Alert>) -> Result<Object, Error> {
    let spec = PrometheusRuleSpec { groups: vec![Group { name: group, rules: alerts }] };
    let rule = PrometheusRule { metadata: within(&options.namespace, name), spec };
    object("PrometheusRule", "prometheusrules", &rule)
}

/// The Role with which OpenShift's Prometheus discovers pods.
fn prometheus(options: &Options) -> Result<Vec<Object>, Error> {
    if !options.common.platform.is_openshift() {
        return Ok(Vec::new());
    }
    let (_, name) = PROMETHEUS;
    Ok(vec![
        Object::new(&role(&options.namespace, name, discovery()))?,
        Object::new(&discovery_binding(options))?,
    ])
}

/// The permissions with which Prometheus discovers pods behind a Service.
fn discovery() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    vec![api::rbac::rule("", &["services", "endpoints", "pods"], &["get", "list", "watch"])]
}

fn discovery_binding(options: &Options) -> RoleBinding {
    let (namespace, name) = PROMETHEUS;
    RoleBinding {
        metadata: within(&options.namespace, name),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: name.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            namespace: Some(namespace.to_owned()),
            api_group: None,
        }]),
    }
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
) -> Result<Object, Error> {
    let certificate = options.common.platform.is_openshift();
    let endpoint = Endpoint {
        port: port.to_owned(),
        path: "/metrics",
        scheme: if certificate { "https" } else { "http" },
        tls_config: certificate.then(|| TlsConfig {
            ca_file: AUTHORITY,
            server_name: format!("{service}.{}.svc", options.namespace),
        }),
    };
    let spec = ServiceMonitorSpec { endpoints: vec![endpoint], selector: selector(labels) };
    let monitor = ServiceMonitor { metadata: within(&options.namespace, name), spec };
    object("ServiceMonitor", "servicemonitors", &monitor)
}

fn object(kind: &str, plural: &str, value: &impl Serialize) -> Result<Object, Error> {
    let body = serde_json::to_value(value)
        .map_err(|error| objects::object::Error::NotJson(kind.to_owned(), error.to_string()))?;
    Ok(Object::from_value(ObjectKind::new("monitoring.coreos.com", "v1", kind, plural), body)?)
}
