//! Monitoring of a controller manager.
//!
//! In: [`Options`], alerts. Out: a ServiceMonitor and a PrometheusRule, and what [`monitoring`] adds on OpenShift.
//! Never: an alert of its own.

use std::collections::BTreeMap;

use objects::Object;
use serde_json::json;

use super::{Options, Program, port_name};
use crate::manifests::meta::within;
use crate::manifests::monitoring::{self, Alert, PROMETHEUS};

/// The file in OpenShift's Prometheus with the authority of Service certificates.
const AUTHORITY: &str = "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt";

/// The objects for metrics and alerts of one process.
#[must_use]
pub fn objects(options: &Options, program: &Program, group: &str, alerts: &[Alert]) -> Vec<Object> {
    let namespace = &options.namespace;
    let mut objects = monitoring::discovery(namespace, PROMETHEUS.name, options.common.platform);
    let labels = program.pod_labels();
    objects.push(monitor(options, program.name, &labels, program.service, port_name(options)));
    objects.push(monitoring::rules(
        &within(namespace, program.name),
        (group, alerts),
        &options.common.runbooks,
    ));
    objects
}

/// The ServiceMonitor of a Service.
#[must_use]
pub fn monitor(
    options: &Options,
    name: &str,
    labels: &BTreeMap<String, String>,
    service: &str,
    port: &str,
) -> Object {
    let certificate = options.common.platform.is_openshift();
    let scheme = if certificate { "https" } else { "http" };
    // Metrics of DeviceConfigs have a label `namespace` of their own, which must not become that of the pod.
    let mut endpoint = json!({ "port": port, "path": "/metrics", "scheme": scheme, "honorLabels": true });
    if certificate {
        let server = format!("{service}.{}.svc", options.namespace);
        endpoint["tlsConfig"] = json!({ "caFile": AUTHORITY, "serverName": server });
    }
    monitoring::service_monitor(&within(&options.namespace, name), labels, &endpoint)
}
