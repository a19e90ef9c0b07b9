//! What the scheduler's service account must be allowed to do. Next to the code that needs it.
//!
//! In: a lease's name. Out: the rules of a ClusterRole, and of a Role in the lease's namespace. Never: more than is used.

use api::nrt;
use api::rbac::{rule, rule_for};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Of the ClusterRole: what is watched, and what a decision becomes ([`crate::shell`]).
#[must_use]
pub fn cluster() -> Vec<PolicyRule> {
    let watch = ["get", "list", "watch"];
    vec![
        rule("", &["nodes", "pods"], &watch),
        rule(nrt::GROUP, &[nrt::PLURAL], &watch),
        rule("", &["pods/binding"], &["create"]),
        rule("", &["pods/status"], &["patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// Of the Role in the lease's namespace ([`runtime::lease`]).
#[must_use]
pub fn lease(name: &str) -> Vec<PolicyRule> {
    const GROUP: &str = "coordination.k8s.io";
    vec![rule(GROUP, &["leases"], &["create"]), rule_for(GROUP, &["leases"], name, &["get", "update"])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_what_the_shell_does() {
        assert_eq!(
            api::rbac::show(&cluster()),
            "nodes pods: get list watch; noderesourcetopologies: get list watch; pods/binding: create; \
             pods/status: patch; events: create patch"
        );
        assert_eq!(api::rbac::show(&lease("mine")), "leases: create; leases[mine]: get update");
    }
}
