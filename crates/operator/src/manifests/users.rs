//! ClusterRoles for users of the operator's objects.
//!
//! In: nothing. Out: ClusterRoles, with the names of the Go operator. Never: a binding; the cluster's administrator
//! makes those.

use api::numaresources::{GROUP, operator, scheduler};
use api::rbac::rule;
use deployer::manifests::access::cluster_role;
use deployer::manifests::meta::labels;
use k8s_openapi::api::rbac::v1::ClusterRole;

/// An editor and a viewer of each kind. They are added to the cluster's roles `admin`, `edit` and `view`.
#[must_use]
pub fn roles() -> Vec<ClusterRole> {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let kinds = [(operator::PLURAL, "numaresourcesoperator"), (scheduler::PLURAL, "numaresourcesscheduler")];
    let roles = kinds.into_iter().flat_map(|(plural, singular)| {
        [
            user_role(format!("{singular}-editor-role"), plural, &all, &["admin", "edit"]),
            user_role(format!("{singular}-viewer-role"), plural, &all[..3], &["view"]),
        ]
    });
    roles.collect()
}

fn user_role(name: String, plural: &str, verbs: &[&str], part_of: &[&str]) -> ClusterRole {
    let status = format!("{plural}/status");
    let rules = vec![rule(GROUP, &[plural], verbs), rule(GROUP, &[&status], &["get"])];
    let mut role = cluster_role(&name, rules);
    let marks = part_of.iter().map(|role| format!("rbac.authorization.k8s.io/aggregate-to-{role}"));
    role.metadata.labels = Some(marks.flat_map(|mark| labels([(&mark, "true")])).collect());
    role
}
