//! The namespace of a controller manager.
//!
//! In: [`Options`], the Pod Security level. Out: the Namespace. Never: a choice of the level.

use k8s_openapi::api::core::v1::Namespace;

use super::Options;
use crate::manifests::meta::{self, PodSecurityLevel};
use crate::manifests::monitoring::CLUSTER_MONITORING;

/// The annotation with which pods may use CPUs that OpenShift nodes reserve for management.
const WORKLOAD: (&str, &str) = ("workload.openshift.io/allowed", "management");

/// The namespace, which enforces the level.
#[must_use]
pub fn namespace(level: PodSecurityLevel, options: &Options) -> Namespace {
    let platform = options.common.platform;
    let mut namespace = meta::namespace(&options.namespace, level, platform);
    if platform.is_openshift() {
        namespace.metadata.labels.get_or_insert_default().extend(meta::labels([CLUSTER_MONITORING]));
        namespace.metadata.annotations = Some(meta::labels([WORKLOAD]));
    }
    namespace
}
