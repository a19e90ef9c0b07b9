//! What the account of the controller of DeviceConfigs must be allowed to do.
//!
//! In: a platform. Out: the rules of a ClusterRole, and of a Role in its own namespace. Never: more than is used; what
//! is asked of the API server stands in [`super::execute`] and [`super::watch`].
//!
//! DeviceConfigs are in any namespace, and what is made for them beside them, so accounts and ConfigMaps are in the
//! ClusterRole, whatever their names. It never grants what a role could be told from: OpenShift's role for privileged
//! pods it may bind, and no other.

use api::hardware::{GROUP, PLURAL, keys};
use api::kmm;
use api::rbac::{Rules, rule, rule_for};
use deployer::manifests::controller::openshift_rules;
use deployer::platform::Platform;

use super::claims_in_use;
use super::module::SCC_ROLE;
use super::watch::DEFINITION;

/// What is watched and changed.
const WHOLE: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];
/// What is made and taken away by name.
const NAMED: [&str; 4] = ["get", "create", "patch", "delete"];
/// What is watched only.
const SEEN: [&str; 2] = ["list", "watch"];

const RBAC: &str = "rbac.authorization.k8s.io";
const LEASES: &str = "coordination.k8s.io";

/// The rules on a platform.
#[must_use]
pub fn rules(platform: Platform) -> Rules {
    let mut cluster = vec![
        // Its finalizer is part of the object.
        rule(GROUP, &[PLURAL], &["list", "watch", "patch"]),
        rule(GROUP, &[&format!("{PLURAL}/status")], &["patch"]),
        // Whether there is KMM.
        rule_for("apiextensions.k8s.io", &["customresourcedefinitions"], DEFINITION, &SEEN),
        rule(kmm::GROUP, &[kmm::MODULES], &WHOLE),
        rule(kmm::GROUP, &[kmm::node::PLURAL, kmm::image::PLURAL], &SEEN),
        // Claims and versions are labels.
        rule("", &["nodes"], &["list", "watch", "patch"]),
        // Who uses devices, by resources or by claims.
        rule("", &["pods"], &SEEN),
        rule(claims_in_use::GROUP, &[claims_in_use::PLURAL], &SEEN),
        rule("", &["pods/eviction"], &["create"]),
        rule("", &["serviceaccounts", "configmaps"], &NAMED),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        // Which platform it is; where it is none of OpenShift's the answer is that there is no such thing, but only to
        // those who may ask.
        rule("config.openshift.io", &["clusterversions"], &["list"]),
    ];
    if platform.is_openshift() {
        cluster.extend(openshift_rules());
        cluster.push(rule(RBAC, &["rolebindings"], &NAMED));
        cluster.push(rule_for(RBAC, &["clusterroles"], SCC_ROLE, &["bind"]));
    }
    let namespaced = vec![
        // Its own, for the image it runs, which is that of its device plugin.
        rule("", &["pods"], &["get"]),
        rule(LEASES, &["leases"], &["create"]),
        rule_for(LEASES, &["leases"], keys::LEASE, &["get", "update"]),
    ];
    Rules { cluster, namespaced, config_managed: Vec::new() }
}

#[cfg(test)]
mod tests {
    use api::rbac::{covers, missing};

    use super::*;
    use crate::permissions::{Need, needed};

    /// What is looked for before work begins is what is given.
    #[test]
    fn what_is_needed_is_given() {
        for platform in Platform::ALL {
            let rules = rules(platform).cluster;
            for Need { group, resource, name, verbs } in needed(platform.is_openshift()) {
                let all = || rule(group, &[resource], verbs);
                let needed = [name.map_or_else(all, |name| rule_for(group, &[resource], name, verbs))];
                assert!(covers(&rules, &needed), "{platform}: {:?}", missing(&rules, &needed));
            }
            let binds = needed(platform.is_openshift()).iter().any(|need| need.verbs == ["bind"]);
            assert_eq!(binds, platform.is_openshift(), "{platform}");
        }
    }

    /// Nothing that would make it an administrator: no secret, no role of its choice, no pod of its own, no deletion of
    /// nodes or pods.
    #[test]
    fn much_is_not_given() {
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
