//! Permissions of kube-scheduler with scheduler-plugins and of their controller.
//!
//! In: a lease's name. Out: rules. Never: resource names on `create`, which no request could match. The operator gives
//! its scheduler, which has only one of the plugins, the rules [`with_zones`].

use api::nrt;
use api::rbac::{rule, rule_for};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::manifests::podgroups;

const READ: [&str; 3] = ["get", "list", "watch"];
const GROUPS: [&str; 2] = ["podgroups", "elasticquotas"];
const ALL: [&str; 7] = ["get", "list", "watch", "create", "delete", "update", "patch"];

/// ClusterRole rules of the scheduler with all plugins.
#[must_use]
pub fn scheduler() -> Vec<PolicyRule> {
    let mut rules = with_zones();
    // The other plugins write pods and pod groups.
    rules.extend([rule("", &["pods"], &["update"]), rule(podgroups::GROUP, &GROUPS, &ALL)]);
    rules
}

/// ClusterRole rules of the scheduler with only the NUMA plugin.
#[must_use]
pub fn with_zones() -> Vec<PolicyRule> {
    let storage = ["csinodes", "storageclasses", "csidrivers", "csistoragecapacities", "volumeattachments"];
    let claims = ["persistentvolumeclaims", "persistentvolumes"];
    vec![
        in_groups(&["", "events.k8s.io"], rule("", &["events"], &["create", "patch", "update"])),
        rule("", &["nodes"], &READ),
        rule("", &["pods"], &["delete", "get", "list", "watch"]),
        rule("", &["bindings", "pods/binding"], &["create"]),
        rule("", &["pods/status"], &["patch", "update"]),
        rule("", &["replicationcontrollers", "services", "namespaces"], &READ),
        in_groups(&["apps", "extensions"], rule("", &["replicasets"], &READ)),
        rule("apps", &["statefulsets"], &READ),
        rule("policy", &["poddisruptionbudgets"], &READ),
        rule("", &claims, &["get", "list", "watch", "patch", "update"]),
        rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
        rule("storage.k8s.io", &storage, &READ),
        // kube-scheduler since 1.34 waits at its start until these are listed.
        rule("resource.k8s.io", &["deviceclasses", "resourceclaims", "resourceslices"], &READ),
        rule(nrt::GROUP, &[nrt::PLURAL], &READ),
    ]
}

/// Role rules of the scheduler in the namespace of its lease. Older versions use Endpoints instead of Leases.
#[must_use]
pub fn lease(name: &str) -> Vec<PolicyRule> {
    let of = |group: &str, resource: &str| {
        [rule(group, &[resource], &["create"]), rule_for(group, &[resource], name, &["get", "update"])]
    };
    [of("coordination.k8s.io", "leases"), of("", "endpoints")].concat()
}

/// ClusterRole rules of the controller.
#[must_use]
pub fn controller() -> Vec<PolicyRule> {
    vec![rule("", &["pods"], &READ), rule(podgroups::GROUP, &GROUPS, &ALL)]
}

fn in_groups(groups: &[&str], rule: PolicyRule) -> PolicyRule {
    PolicyRule { api_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()), ..rule }
}
