//! Rights of the controller's service account.
//!
//! In: a platform. Out: the rules of a ClusterRole, and of a Role in the operator's namespace. Never: a right without a
//! use; requests to the API server are listed in [`super::execute`] and [`super::watch`].
//!
//! DeviceConfigs are in any namespace, and their objects beside them. So service accounts and ConfigMaps are in the
//! ClusterRole, whatever their names. Of roles the account may bind only OpenShift's one for privileged pods.

use api::hardware::{GROUP, PLURAL, keys};
use api::kmm;
use api::rbac::{Rules, rule, rule_for};
use deployer::manifests::controller::openshift_rules;
use deployer::platform::Platform;
use k8s_openapi::api::rbac::v1::PolicyRule;

use super::claims_in_use;
use super::module::SCC_ROLE;
use super::watch::DEFINITION;

/// Verbs for objects that are watched and changed.
const ALL: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// Verbs for objects that are created and deleted by name.
const NAMED: [&str; 4] = ["get", "create", "patch", "delete"];
/// Verbs for objects that are watched only.
const WATCHED: [&str; 2] = ["list", "watch"];

const RBAC: &str = "rbac.authorization.k8s.io";
const LEASES: &str = "coordination.k8s.io";

/// The rules of the ClusterRole without which no DeviceConfig can be reconciled.
#[must_use]
pub fn required(openshift: bool) -> Vec<PolicyRule> {
    let mut rules = everywhere();
    if openshift {
        rules.extend(on_openshift());
    }
    rules
}

/// The rules on a platform.
#[must_use]
pub fn rules(platform: Platform) -> Rules {
    let mut cluster = everywhere();
    cluster.extend([
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        // Detection of the platform: on others the answer is that the kind does not exist, given the right to ask.
        rule("config.openshift.io", &["clusterversions"], &["list"]),
    ]);
    if platform.is_openshift() {
        cluster.extend(openshift_rules());
        cluster.extend(on_openshift());
    }
    let namespaced = vec![
        // The pod of this process, whose image is that of the device plugin.
        rule("", &["pods"], &["get"]),
        rule(LEASES, &["leases"], &["create"]),
        rule_for(LEASES, &["leases"], keys::LEASE, &["get", "update"]),
    ];
    Rules { cluster, namespaced, config_managed: Vec::new() }
}

fn everywhere() -> Vec<PolicyRule> {
    vec![
        // The finalizer is part of the object.
        rule(GROUP, &[PLURAL], &["list", "watch", "patch"]),
        rule(GROUP, &[&format!("{PLURAL}/status")], &["patch"]),
        // Availability of KMM.
        rule_for("apiextensions.k8s.io", &["customresourcedefinitions"], DEFINITION, &WATCHED),
        rule(kmm::GROUP, &[kmm::MODULES], &ALL),
        rule(kmm::GROUP, &[kmm::node::PLURAL, kmm::image::PLURAL], &WATCHED),
        // Claims and versions are labels.
        rule("", &["nodes"], &["list", "watch", "patch"]),
        // Pods that use devices, by resources or by claims.
        rule("", &["pods"], &WATCHED),
        rule(claims_in_use::GROUP, &[claims_in_use::PLURAL], &WATCHED),
        rule("", &["pods/eviction"], &["create"]),
        rule("", &["serviceaccounts", "configmaps"], &NAMED),
    ]
}

/// Rules for the accounts of KMM's pods and of the device plugin.
fn on_openshift() -> [PolicyRule; 2] {
    [rule(RBAC, &["rolebindings"], &NAMED), rule_for(RBAC, &["clusterroles"], SCC_ROLE, &["bind"])]
}

#[cfg(test)]
mod tests {
    use api::rbac::{covers, missing};

    use super::*;

    /// Rights that are verified before work begins are granted.
    #[test]
    fn required_rights_are_granted() {
        for platform in Platform::ALL {
            let (rules, required) = (rules(platform).cluster, required(platform.is_openshift()));
            assert!(covers(&rules, &required), "{platform}: {:?}", missing(&rules, &required));
            let binds = required.iter().any(|rule| rule.verbs == ["bind"]);
            assert_eq!(binds, platform.is_openshift(), "{platform}");
        }
    }

    /// No rights of an administrator: no secrets, no arbitrary roles, no pods of its own, no deletion of nodes or pods.
    #[test]
    fn powerful_rights_are_not_granted() {
        for platform in Platform::ALL {
            let rules = rules(platform);
            let all = [rules.cluster, rules.namespaced].concat();
            for (group, resource, verb) in [
                ("", "secrets", "get"),
                ("", "pods", "create"),
                ("", "pods", "delete"),
                ("", "nodes", "delete"),
                ("", "namespaces", "patch"),
                (RBAC, "clusterroles", "bind"),
                (RBAC, "clusterroles", "escalate"),
                (RBAC, "clusterrolebindings", "create"),
                (GROUP, PLURAL, "create"),
                (GROUP, PLURAL, "delete"),
                (kmm::GROUP, kmm::node::PLURAL, "patch"),
            ] {
                assert!(!covers(&all, &[rule(group, &[resource], &[verb])]), "{platform}: {verb} {resource}");
            }
            let binds = covers(&all, &[rule(RBAC, &["rolebindings"], &["create"])]);
            assert_eq!(binds, platform.is_openshift(), "{platform}");
        }
    }
}
