//! Patches of nodes.
//!
//! In: a node as it is. Out: a JSON patch (RFC 6902) of its labels and taints. Never: a change without a test of the
//! value that it replaces.

use serde_json::{Value, json};

use super::{Action, NodeWrite};
use crate::cluster_state::CORDON_TAINT;
use crate::cluster_state::Node;
use crate::precondition::Precondition;
use crate::rollout::NodeChange;

/// A patch of a node. Each change tests the value that it replaces, so that of two writers one fails.
pub(super) struct Patch {
    pub(super) steps: Vec<Value>,
    node: Node,
}

impl Patch {
    pub(super) fn of(node: &Node) -> Self {
        let mut steps = Vec::new();
        if !node.has_labels {
            steps.push(json!({ "op": "test", "path": "/metadata/resourceVersion", "value": node.version }));
            steps.push(json!({ "op": "add", "path": "/metadata/labels", "value": {} }));
        }
        Self { steps, node: node.clone() }
    }

    /// Tests the value of a label.
    pub(super) fn test_label(&mut self, key: &str, value: &str) {
        self.steps.push(json!({ "op": "test", "path": label_path(key), "value": value }));
    }

    /// Sets or removes a label, and tests its value before. An absent label tests as null.
    pub(super) fn set_label(&mut self, key: &str, before: Option<&str>, after: Option<&str>) {
        let path = label_path(key);
        self.steps.push(json!({ "op": "test", "path": path, "value": before }));
        self.steps.push(match after {
            Some(value) => json!({ "op": "add", "path": path, "value": value }),
            None => json!({ "op": "remove", "path": path }),
        });
    }

    /// Sets the cordon taint for a claim or removes it, and tests the taints before.
    pub(super) fn set_cordon_taint(&mut self, claim: Option<&str>) {
        let taints = &self.node.taints;
        let before = if taints.is_empty() { Value::Null } else { json!(taints) };
        self.steps.push(json!({ "op": "test", "path": "/spec/taints", "value": before }));
        let others = taints.iter().filter(|taint| taint.key != CORDON_TAINT).map(|taint| json!(taint));
        let taint = claim.map(|claim| json!({ "key": CORDON_TAINT, "value": claim, "effect": "NoSchedule" }));
        let after: Vec<Value> = others.chain(taint).collect();
        self.steps.push(json!({ "op": "add", "path": "/spec/taints", "value": after }));
    }

    pub(super) fn into_action(self, node: &str, change: NodeChange, unused: Precondition) -> Action {
        Action::Node(NodeWrite { node: node.to_owned(), change, patch: Value::Array(self.steps), unused })
    }
}

/// The JSON pointer of a label.
pub(super) fn label_path(key: &str) -> String {
    format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"))
}
