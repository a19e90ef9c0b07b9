//! Which nodes are to be looked at, and which of them belong together.

use super::{Evidence, Node};

/// Labels whose value names the pool a node is of, the most telling first.
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
    /// The nodes to be looked at, by name: those that the selector takes, or that an operator chose; else nodes with the role `worker`; where no
    /// node has it, those that are no control plane; where there are none, all.
    #[must_use]
    pub fn workers(&self) -> Vec<&Node> {
        if let Some(selector) = &self.selector {
            return self.nodes.values().filter(|node| selector.matches(&node.labels)).collect();
        }
        if let Some(chosen) = &self.chosen {
            return self.nodes.values().filter(|node| chosen.contains(&node.name)).collect();
        }
        let is_worker = |node: &&Node| node.labels.contains_key("node-role.kubernetes.io/worker");
        for chosen in [is_worker, |node: &&Node| !node.is_control_plane()] {
            let nodes: Vec<&Node> = self.nodes.values().filter(chosen).collect();
            if !nodes.is_empty() {
                return nodes;
            }
        }
        self.nodes.values().collect()
    }
}

impl Node {
    /// Whether it runs the control plane.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        ["control-plane", "master"].iter().any(|role| self.labels.contains_key(&format!("{ROLE}{role}")))
    }

    /// The pool it is of: what a cloud or an operator says, else its roles. Nodes of one pool should be alike.
    #[must_use]
    pub fn pool(&self) -> String {
        let named = POOLS.iter().find_map(|label| self.labels.get(*label)).filter(|name| !name.is_empty());
        if let Some(name) = named {
            return name.clone();
        }
        let roles: Vec<&str> = self.labels.keys().filter_map(|label| label.strip_prefix(ROLE)).collect();
        if roles.is_empty() { "worker".to_owned() } else { roles.join(",") }
    }
}
