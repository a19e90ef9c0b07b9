//! Monitors and alerts for Prometheus.
//!
//! In: [`Options`]. Out: objects of the Prometheus operator (`monitoring.coreos.com/v1`). Never: an alert about a state
//! that heals by itself.

use deployer::manifests::controller::monitoring::{self, Alert, alert, monitor};
use deployer::manifests::meta::labels;
use objects::Object;

use super::{OPERATOR, Options};
use crate::rbac::EXPORTER_SERVICE;

/// The objects, in the order in which they are made.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let mut objects = monitoring::objects(options, &OPERATOR, "numaresources.rules", alerts());
    let exporters = labels([("name", "resource-topology")]);
    let monitor = monitor(options, "numaresources-rte", &exporters, EXPORTER_SERVICE, "metrics-port");
    // The alerts come last.
    objects.insert(objects.len() - 1, monitor);
    objects
}

fn alerts() -> Vec<Alert> {
    vec![
        alert(
            "NUMAResourcesOperatorDown",
            format!("absent(up{{job=\"{}\"}} == 1)", OPERATOR.service),
            "15m",
            "The NUMA resources operator does not run.",
            "No metrics of it have been seen for 15 minutes. Exporters and scheduler go on as they are; nothing repairs or updates them.",
        ),
        alert(
            "NUMAResourcesDegraded",
            "tholepin_operator_condition{condition=\"Degraded\"} == 1".to_owned(),
            "15m",
            "{{ $labels.controller }} is degraded.",
            "What was asked for cannot be done. The condition Degraded of the object and its events say why.",
        ),
        alert(
            "NUMAResourcesProgressingLong",
            "tholepin_operator_condition{condition=\"Progressing\"} == 1".to_owned(),
            "1h",
            "{{ $labels.controller }} has been progressing for an hour.",
            "Pods do not become ready, or a MachineConfigPool does not finish. The message of the condition Progressing names what is waited for.",
        ),
        alert(
            "NUMAResourcesObjectUnreadable",
            "tholepin_operator_unreadable_objects > 0".to_owned(),
            "5m",
            "A {{ $labels.kind }} cannot be read.",
            "What was made for it stays as it is, and it is not looked after. The operator's events say what is wrong with it.",
        ),
    ]
}
