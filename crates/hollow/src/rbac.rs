//! The permissions of hollow nodes, next to the code that needs them.
//!
//! In: nothing. Out: the rules of a ClusterRole. Never: a permission that is not used.

use api::nrt;
use api::rbac::rule;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Rules of the ClusterRole: nodes and their leases, statuses of pods and their deletion at the end, reports. `cleanup`
/// adds the deletion of the nodes.
#[must_use]
pub fn cluster(cleanup: bool) -> Vec<PolicyRule> {
    let mut rules = vec![
        rule("", &["nodes"], &["create", "list", "patch"]),
        rule("", &["nodes/status"], &["patch"]),
        rule("coordination.k8s.io", &["leases"], &["create", "patch"]),
        rule("", &["pods"], &["delete", "list", "watch"]),
        rule("", &["pods/status"], &["patch"]),
        rule(nrt::GROUP, &[nrt::PLURAL], &["create", "get", "patch"]),
    ];
    if cleanup {
        rules.push(rule("", &["nodes"], &["delete"]));
        rules.push(rule("coordination.k8s.io", &["leases"], &["delete"]));
        rules.push(rule(nrt::GROUP, &[nrt::PLURAL], &["delete"]));
    }
    rules
}
