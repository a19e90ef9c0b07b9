//! The permissions of the device plugin's service account for resource claims, next to the code that needs them.
//!
//! In: nothing. Out: the rules of a ClusterRole. Never: more than is used; without `--dra` no permission is needed.
//!
//! RBAC cannot tie slices to the writer's own node; [`policy`](super::policy) does.

use api::rbac::rule;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The API group of claims and slices.
pub const GROUP: &str = "resource.k8s.io";

/// The rules of the ClusterRole.
#[must_use]
pub fn rules() -> Vec<PolicyRule> {
    vec![
        // The UID of the plugin's Node, for the owner reference.
        rule("", &["nodes"], &["get"]),
        // The devices allocated to a claim.
        rule(GROUP, &["resourceclaims"], &["get"]),
        // The devices the node offers.
        rule(GROUP, &["resourceslices"], &["list", "watch", "create", "update", "delete"]),
    ]
}
