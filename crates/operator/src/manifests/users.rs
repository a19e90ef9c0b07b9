//! What people may be allowed to do with what the operator is asked for.
//!
//! In: nothing. Out: ClusterRoles, under the names the Go operator's sources have. Never: a binding: who gets them is the cluster's business.

use api::numaresources::{GROUP, operator, scheduler};
use api::rbac::rule;
use deployer::manifests::access::cluster_role;
use deployer::manifests::meta::labels;
use k8s_openapi::api::rbac::v1::ClusterRole;

/// For each kind a role that may change its objects and one that may look at them; whoever may do so with most things of a cluster may do so
/// with these.
#[must_use]
pub fn roles() -> Vec<ClusterRole> {
    let kinds = [(operator::PLURAL, "numaresourcesoperator"), (scheduler::PLURAL, "numaresourcesscheduler")];
    kinds
        .into_iter()
        .flat_map(|(plural, singular)| [editor(plural, singular), viewer(plural, singular)])
        .collect()
}

fn editor(plural: &str, singular: &str) -> ClusterRole {
    let all = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let rules = vec![rule(GROUP, &[plural], &all), rule(GROUP, &[&format!("{plural}/status")], &["get"])];
    named(&format!("{singular}-editor-role"), rules, &["admin", "edit"])
}

fn viewer(plural: &str, singular: &str) -> ClusterRole {
    let status = format!("{plural}/status");
    let rules = vec![rule(GROUP, &[plural], &["get", "list", "watch"]), rule(GROUP, &[&status], &["get"])];
    named(&format!("{singular}-viewer-role"), rules, &["view"])
}

fn named(name: &str, rules: Vec<k8s_openapi::api::rbac::v1::PolicyRule>, part_of: &[&str]) -> ClusterRole {
    let mut role = cluster_role(name, rules);
    let marks = part_of.iter().map(|role| format!("rbac.authorization.k8s.io/aggregate-to-{role}"));
    role.metadata.labels = Some(marks.flat_map(|mark| labels([(&mark, "true")])).collect());
    role
}
