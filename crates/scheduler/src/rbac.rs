//! The permissions of the scheduler's service account, next to the code that needs them.
//!
//! In: a lease's name. Out: the rules of ClusterRoles, and of a Role in the lease's namespace. Never: a permission
//! that is not used.

use api::nrt;
use api::rbac::{rule, rule_for};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// Rules of the ClusterRole: to watch objects, to write bindings, conditions and events, to bind volumes to claims,
/// to give claims devices and make some for extended resources, and to evict pods for more important ones
/// ([`crate::shell`]).
#[must_use]
pub fn cluster() -> Vec<PolicyRule> {
    let watch = ["get", "list", "watch"];
    vec![
        rule("", &["nodes", "pods"], &watch),
        rule(nrt::GROUP, &[nrt::PLURAL], &watch),
        rule("", &["namespaces", "services", "replicationcontrollers"], &["list", "watch"]),
        rule("apps", &["replicasets", "statefulsets"], &["list", "watch"]),
        rule("policy", &["poddisruptionbudgets"], &["list", "watch"]),
        rule("scheduling.k8s.io", &["podgroups"], &["list", "watch"]),
        rule("", &["persistentvolumeclaims", "persistentvolumes"], &["list", "patch", "watch"]),
        rule("storage.k8s.io", &STORAGE, &["list", "watch"]),
        rule(DEVICES, &["deviceclasses", "resourceslices"], &["list", "watch"]),
        rule(DEVICES, &["resourceclaims"], &["create", "delete", "list", "patch", "watch"]),
        rule(DEVICES, &["resourceclaims/binding", "resourceclaims/status"], &["patch"]),
        rule("", &["pods"], &["delete"]),
        rule("", &["pods/binding"], &["create"]),
        rule("", &["pods/status"], &["patch"]),
        rule("scheduling.k8s.io", &["podgroups/status"], &["patch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// Rules of the ClusterRole of what follows a cluster and decides nothing: to watch all that the scheduler does, and to
/// read a pod that waits ([`crate::shell::observer`]).
#[must_use]
pub fn observer() -> Vec<PolicyRule> {
    let watch = ["list", "watch"];
    vec![
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["nodes", "namespaces", "services", "replicationcontrollers"], &watch),
        rule("", &["persistentvolumeclaims", "persistentvolumes"], &watch),
        rule(nrt::GROUP, &[nrt::PLURAL], &watch),
        rule("apps", &["replicasets", "statefulsets"], &watch),
        rule("policy", &["poddisruptionbudgets"], &watch),
        rule("scheduling.k8s.io", &["podgroups"], &watch),
        rule("storage.k8s.io", &STORAGE, &watch),
        rule(DEVICES, &["deviceclasses", "resourceclaims", "resourceslices"], &watch),
    ]
}

/// Rules of the ClusterRole of `tholepin defrag`: to list all that decides about nodes. With `--apply` also to cordon
/// nodes and to evict pods ([`crate::defrag`]).
#[must_use]
pub fn defrag(applies: bool) -> Vec<PolicyRule> {
    let mut rules = observer();
    if applies {
        rules.push(rule("", &["nodes"], &["get", "patch"]));
        rules.push(rule("", &["pods/eviction"], &["create"]));
    }
    rules
}

/// Rules of the ClusterRole of `tholepin extender`: to watch what decides about zones, and to bind pods
/// ([`crate::shell::extender_server`]).
#[must_use]
pub fn extender() -> Vec<PolicyRule> {
    let watch = ["list", "watch"];
    vec![
        rule("", &["nodes"], &watch),
        rule("", &["pods"], &["get", "list", "watch"]),
        rule(nrt::GROUP, &[nrt::PLURAL], &watch),
        rule("policy", &["poddisruptionbudgets"], &watch),
        rule("", &["pods/binding"], &["create"]),
    ]
}

/// Rules of the ClusterRole for the secure port of kube-scheduler's command line: to ask who reads it, and whether they
/// may ([`runtime::delegated_auth`]).
#[must_use]
pub fn reviews() -> Vec<PolicyRule> {
    vec![
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
    ]
}

/// Kinds of storage that are only watched ([`crate::volumes`]).
const STORAGE: [&str; 5] =
    ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"];

/// The group of claims for devices, slices and classes ([`crate::devices`]). `resourceclaims/binding` is no resource:
/// the API server asks for it when a status changes the devices or the users of a claim.
const DEVICES: &str = "resource.k8s.io";

/// Rules of the Role in the namespace of the lease `name` ([`runtime::lease`]).
#[must_use]
pub fn lease(name: &str) -> Vec<PolicyRule> {
    const GROUP: &str = "coordination.k8s.io";
    vec![rule(GROUP, &["leases"], &["create"]), rule_for(GROUP, &["leases"], name, &["get", "update"])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_that_the_shell_needs() {
        assert_eq!(
            api::rbac::show(&cluster()),
            "nodes pods: get list watch; noderesourcetopologies: get list watch; namespaces services replicationcontrollers: list watch; replicasets statefulsets: list watch; \
             poddisruptionbudgets: list watch; podgroups: list watch; persistentvolumeclaims persistentvolumes: list patch watch; \
             csidrivers csinodes csistoragecapacities storageclasses volumeattachments: list watch; \
             deviceclasses resourceslices: list watch; resourceclaims: create delete list patch watch; \
             resourceclaims/binding resourceclaims/status: patch; pods: delete; pods/binding: create; pods/status: patch; podgroups/status: patch; \
             events: create patch"
        );
        assert_eq!(api::rbac::show(&reviews()), "tokenreviews: create; subjectaccessreviews: create");
        assert_eq!(api::rbac::show(&lease("mine")), "leases: create; leases[mine]: get update");
    }
}
