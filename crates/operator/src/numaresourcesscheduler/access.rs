//! What the scheduler may do.
//!
//! In: whether it is ours. Out: rules. Never: one that nobody needs; nor a limit to names on `create`, which no request could meet.
//!
//! Who grants a right has to have it: the operator's own rules have these among them.

use api::numaresources::keys::SCHEDULER_LEASE;
use deployer::manifests::plugin;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// In the cluster; `own`: for our scheduler, else for kube-scheduler with the Go plugin.
#[must_use]
pub fn cluster(own: bool) -> Vec<PolicyRule> {
    if own { scheduler::rbac::cluster() } else { plugin::rules::with_zones() }
}

/// In the operator's namespace: its lease. (The Go operator adds the Endpoints that leases were before; no scheduler of a version with the
/// plugin's current arguments uses them.)
#[must_use]
pub fn lease() -> Vec<PolicyRule> {
    scheduler::rbac::lease(SCHEDULER_LEASE)
}
