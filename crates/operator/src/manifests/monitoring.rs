//! Monitors and alerts for Prometheus.
//!
//! In: [`Options`]. Out: objects of the Prometheus operator (`monitoring.coreos.com/v1`). Never: an alert about a state
//! that heals by itself.

use deployer::manifests::controller::monitoring::{self, monitor};
use deployer::manifests::exporter;
use deployer::manifests::meta::{labels, within};
use deployer::manifests::monitoring::{Alert, dashboard, rules};
use objects::Object;

use super::{OPERATOR, Options};
use crate::rbac::EXPORTER_SERVICE;

/// The name of the exporters' monitor and alerts.
const EXPORTERS: &str = "numaresources-rte";

/// The objects, in the order in which they are made.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    let mut objects = monitoring::objects(options, &OPERATOR, "numaresources.rules", &alerts());
    let exporters = labels([("name", "resource-topology")]);
    let monitor = monitor(options, EXPORTERS, &exporters, EXPORTER_SERVICE, "metrics-port");
    let namespace = &options.namespace;
    let alerts =
        rules(&within(namespace, EXPORTERS), (exporter::GROUP, &exporter_alerts()), &options.common.runbooks);
    // The alerts come last.
    objects.insert(objects.len() - 1, monitor);
    objects.push(alerts);
    objects.extend(dashboard(namespace, &options.common));
    objects
}

/// The alerts about the exporters that the operator makes.
#[must_use]
pub fn exporter_alerts() -> Vec<Alert> {
    exporter::alerts::alerts(EXPORTER_SERVICE)
}

/// The alerts about the operator and its objects.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    vec![
        Alert {
            name: "NUMAResourcesOperatorDown",
            expr: format!("absent(up{{job=\"{}\"}} == 1)", OPERATOR.service),
            lasting: "15m",
            summary: "The NUMA resources operator does not run.",
            description: "No metrics of it have been seen for 15 minutes. Exporters and scheduler go on as they are; nothing repairs or updates them.",
            causes: &[
                "the container ends again and again: its log names the flag or permission",
                "the pod is pending: no node that tolerates it, or an image that cannot be pulled",
                "a network policy of the cluster keeps Prometheus from the port of metrics",
            ],
            first: "tholepin status",
        },
        Alert {
            name: "NUMAResourcesDegraded",
            expr: "tholepin_operator_condition{condition=\"Degraded\"} == 1".to_owned(),
            lasting: "15m",
            summary: "{{ $labels.controller }} is degraded.",
            description: "What was asked for cannot be done. The condition Degraded of the object and its events say why.",
            causes: &[
                "the object asks for what contradicts itself or another object: the reason of the condition names it",
                "a permission of the operator's account was taken away",
                "an object that is needed belongs to another program",
            ],
            first: "kubectl describe numaresourcesoperators,numaresourcesschedulers",
        },
        Alert {
            name: "NUMAResourcesProgressingLong",
            expr: "tholepin_operator_condition{condition=\"Progressing\"} == 1".to_owned(),
            lasting: "1h",
            summary: "{{ $labels.controller }} has been progressing for an hour.",
            description: "Pods do not become ready, or a MachineConfigPool does not finish. The message of the condition Progressing names what is waited for.",
            causes: &[
                "pods cannot start: their image, or SecurityContextConstraints",
                "a MachineConfigPool is paused or degraded",
                "a node is not ready, so the exporter there is not either",
            ],
            first: "tholepin status",
        },
        Alert {
            name: "NUMAResourcesObjectUnreadable",
            expr: "tholepin_operator_unreadable_objects > 0".to_owned(),
            lasting: "5m",
            summary: "A {{ $labels.kind }} cannot be read.",
            description: "What was made for it stays as it is, and it is not looked after. The operator's events say what is wrong with it.",
            causes: &[
                "the object was written while a definition of another version was installed",
                "the definition was replaced by one with fewer checks",
            ],
            first: "kubectl get events -A --field-selector type=Warning",
        },
    ]
}
