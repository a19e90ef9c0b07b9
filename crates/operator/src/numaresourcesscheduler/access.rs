//! The scheduler's rights.
//!
//! In: whether it is ours. Out: rules. Never: a right that it does not use; a limit to names on `create`, which no
//! request could meet.
//!
//! The API server lets only holders of a right grant it, so the operator's own rules include these.

use api::numaresources::keys::SCHEDULER_LEASE;
use deployer::manifests::plugin;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The rules in the cluster; `own`: of our scheduler, else of kube-scheduler with the Go plugin.
#[must_use]
pub fn cluster(own: bool) -> Vec<PolicyRule> {
    if own { scheduler::rbac::cluster() } else { plugin::rules::with_zones() }
}

/// The rules in the operator's namespace: its lease. The Go operator adds Endpoints, which were leases before; no
/// scheduler with the plugin's current arguments uses them.
#[must_use]
pub fn lease() -> Vec<PolicyRule> {
    scheduler::rbac::lease(SCHEDULER_LEASE)
}
