//! What the device plugin's service account must be allowed to do for resource claims. Next to the code that needs it.
//!
//! In: nothing. Out: the rules of a ClusterRole. Never: more than is used; without `--dra` nothing at all is needed.
//!
//! RBAC cannot tie slices to the writer's own node: [`policy`](super::policy) does.

use api::rbac::rule;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The group of claims and slices.
pub const GROUP: &str = "resource.k8s.io";

/// The rules.
#[must_use]
pub fn rules() -> Vec<PolicyRule> {
    vec![
        // The UID of its Node, for the owner reference.
        rule("", &["nodes"], &["get"]),
        // What a claim was given.
        rule(GROUP, &["resourceclaims"], &["get"]),
        // What the node offers.
        rule(GROUP, &["resourceslices"], &["list", "watch", "create", "update", "delete"]),
    ]
}
