//! The nodes to check, and their pools.

use kube::core::SelectorExt as _;

use super::{Evidence, Node};

/// Labels with the name of a node's pool, by precedence.
const POOLS: [&str; 6] = [
    "hypershift.openshift.io/nodePool",
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
    "alpha.eksctl.io/nodegroup-name",
];
const ROLE: &str = "node-role.kubernetes.io/";

impl Evidence {
    /// The nodes to check, by name: those of the selector, else those of an operator's node groups, else nodes with the
    /// role `worker`, else nodes outside the control plane, else all nodes.
    pub(in crate::validate) fn workers(&self) -> Vec<&Node> {
        if let Some(selector) = &self.selector {
            return self.nodes.values().filter(|node| selector.0.matches(&node.labels)).collect();
        }
        if let Some(chosen) = &self.chosen {
            return self.nodes.values().filter(|node| chosen.contains(&node.name)).collect();
        }
        let is_worker = |node: &&Node| node.labels.contains_key("node-role.kubernetes.io/worker");
        let is_other = |node: &&Node| {
            !["control-plane", "master"].iter().any(|role| node.labels.contains_key(&format!("{ROLE}{role}")))
        };
        for chosen in [is_worker, is_other] {
            let nodes: Vec<&Node> = self.nodes.values().filter(chosen).collect();
            if !nodes.is_empty() {
                return nodes;
            }
        }
        self.nodes.values().collect()
    }
}

impl Node {
    /// The node's pool: the label of a cloud or an operator, else the node's roles.
    pub(in crate::validate) fn pool(&self) -> String {
        let named = POOLS.iter().find_map(|label| self.labels.get(*label)).filter(|name| !name.is_empty());
        if let Some(name) = named {
            return name.clone();
        }
        let roles: Vec<&str> = self.labels.keys().filter_map(|label| label.strip_prefix(ROLE)).collect();
        if roles.is_empty() { "worker".to_owned() } else { roles.join(",") }
    }
}
