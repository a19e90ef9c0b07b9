//! The namespace of a controller manager.
//!
//! In: [`Options`], the Pod Security level. Out: the Namespace. Never: a choice of the level.

use k8s_openapi::api::core::v1::Namespace;

use super::Options;
use crate::manifests::meta::{self, PodSecurityLevel};

/// The label of namespaces whose metrics OpenShift's Prometheus reads.
const MONITORING: (&str, &str) = ("openshift.io/cluster-monitoring", "true");
/// The annotation with which pods may use CPUs that OpenShift nodes reserve for management.
const WORKLOAD: (&str, &str) = ("workload.openshift.io/allowed", "management");

/// The namespace, which enforces the level.
#[must_use]
pub fn namespace(level: PodSecurityLevel, options: &Options) -> Namespace {
    let mut namespace = meta::namespace(&options.namespace, level, options.common.platform);
    if options.common.platform.is_openshift() {
        namespace.metadata.labels.get_or_insert_default().extend(meta::labels([MONITORING]));
        namespace.metadata.annotations = Some(meta::labels([WORKLOAD]));
    }
    namespace
}
