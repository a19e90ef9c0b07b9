//! The namespace of the operator and of its operands.
//!
//! In: [`Options`]. Out: the Namespace. Never: a level that forbids what the exporters need of their nodes.

use deployer::manifests::meta::{self, Level};
use k8s_openapi::api::core::v1::Namespace;

use super::Options;

/// What Prometheus reads the metrics of a namespace for, on OpenShift.
const MONITORING: (&str, &str) = ("openshift.io/cluster-monitoring", "true");
/// Lets pods of the namespace onto CPUs kept for management, on OpenShift nodes that keep some.
const WORKLOAD: (&str, &str) = ("workload.openshift.io/allowed", "management");

/// The namespace. Exporters need directories of their nodes, which only the level `privileged` allows.
#[must_use]
pub fn namespace(options: &Options) -> Namespace {
    at(Level::Privileged, options)
}

/// The namespace of an operator whose operands are elsewhere: no pod in it gets more than the level allows.
#[must_use]
pub fn at(level: Level, options: &Options) -> Namespace {
    let mut namespace = meta::namespace(&options.namespace, level, options.common.platform);
    if options.common.platform.is_openshift() {
        namespace.metadata.labels.get_or_insert_default().extend(meta::labels([MONITORING]));
        namespace.metadata.annotations = Some(meta::labels([WORKLOAD]));
    }
    namespace
}
