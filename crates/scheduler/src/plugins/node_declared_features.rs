//! NodeDeclaredFeatures: a pod that needs a feature of its kubelet goes to a node that declares it.
//!
//! In: a pod, and what a node declares (`status.declaredFeatures`). Out: whether the node has all that the pod needs.
//! Never: a look at versions; no feature here has a version from which it is taken for granted.
//!
//! Source: kube-scheduler 1.36 `nodedeclaredfeatures`, and component-helpers `nodedeclaredfeatures/features`, of which
//! these two count for placement. Cost: none for pods that need no feature.

use k8s_openapi::api::core::v1 as wire;

/// Features that a pod needs, or a node declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// `RestartAllContainersOnContainerExits`.
    restart_all_containers: bool,
    /// `UserNamespacesHostNetworkSupport`.
    user_namespaces_host_network: bool,
}

impl Features {
    /// What a pod needs.
    #[must_use]
    pub fn needed(spec: &wire::PodSpec) -> Self {
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
        Self {
            restart_all_containers: rules.any(|rule| rule.action == "RestartAllContainers"),
            user_namespaces_host_network: spec.host_network == Some(true) && spec.host_users == Some(false),
        }
    }

    /// What a node declares.
    #[must_use]
    pub fn declared(status: Option<&wire::NodeStatus>) -> Self {
        let names = status.and_then(|status| status.declared_features.as_ref());
        let has = |name: &str| names.is_some_and(|names| names.iter().any(|declared| declared == name));
        Self {
            restart_all_containers: has("RestartAllContainersOnContainerExits"),
            user_namespaces_host_network: has("UserNamespacesHostNetworkSupport"),
        }
    }

    /// Whether these are all that a pod needs.
    #[must_use]
    pub fn cover(self, needed: Self) -> bool {
        self.restart_all_containers >= needed.restart_all_containers
            && self.user_namespaces_host_network >= needed.user_namespaces_host_network
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_node_must_declare_what_the_pod_needs() {
        let restarts =
            json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [1] } }]);
        let container = json!({ "name": "c", "restartPolicyRules": restarts });
        let plain = json!({ "name": "c", "restartPolicyRules": [{ "action": "Restart" }] });
        let restarted = json!({ "containers": [plain, container] });
        let restarted_at_start = json!({ "containers": [plain], "initContainers": [container] });
        let host = json!({ "containers": [plain], "hostNetwork": true, "hostUsers": false });
        let both = json!({ "containers": [container], "hostNetwork": true, "hostUsers": false });
        let neither = json!({ "containers": [plain], "hostNetwork": true });
        let (restart, network) = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport");
        let check = |spec: &Value, declared: &[&str], fits: bool| {
            let needed = Features::needed(&serde_json::from_value(spec.clone()).unwrap());
            let status = serde_json::from_value(json!({ "declaredFeatures": declared })).unwrap();
            assert_eq!(Features::declared(Some(&status)).cover(needed), fits, "{spec} {declared:?}");
        };
        for spec in [&restarted, &restarted_at_start] {
            check(spec, &[], false);
            check(spec, &[network], false);
            check(spec, &["Other", restart], true);
        }
        check(&host, &[restart], false);
        check(&host, &[network], true);
        check(&both, &[restart], false);
        check(&both, &[network, restart], true);
        check(&neither, &[], true);
        assert_eq!(Features::declared(None), Features::default());
    }
}
