//! The namespace of a controller manager.
//!
//! In: [`Options`], the level of pod security. Out: the Namespace. Never: a choice of the level.

use k8s_openapi::api::core::v1::Namespace;

use super::Options;
use crate::manifests::meta::{self, Level};

/// What Prometheus reads the metrics of a namespace for, on OpenShift.
const MONITORING: (&str, &str) = ("openshift.io/cluster-monitoring", "true");
/// Lets pods of the namespace onto CPUs kept for management, on OpenShift nodes that keep some.
const WORKLOAD: (&str, &str) = ("workload.openshift.io/allowed", "management");

/// The namespace: no pod in it gets more than the level allows.
#[must_use]
pub fn namespace(level: Level, options: &Options) -> Namespace {
    let mut namespace = meta::namespace(&options.namespace, level, options.common.platform);
    if options.common.platform.is_openshift() {
        namespace.metadata.labels.get_or_insert_default().extend(meta::labels([MONITORING]));
        namespace.metadata.annotations = Some(meta::labels([WORKLOAD]));
    }
    namespace
}
