//! Patches of nodes.
//!
//! In: a node as it is. Out: a JSON patch (RFC 6902) of its labels and taints. Never: a change without a test of what
//! it replaces.

use serde_json::{Value, json};

use super::{Action, NodeChange, NodeWrite};
use crate::cluster_state::CORDON_TAINT;
use crate::cluster_state::Node;
use crate::precondition::Precondition;

/// A patch of a node in the making. Each change tests what it replaces, so that of two writers one fails.
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

    /// Only if a label is like this.
    pub(super) fn has(&mut self, key: &str, value: &str) {
        self.steps.push(json!({ "op": "test", "path": path(key), "value": value }));
    }

    /// Another label, or none; only if it is as it was. What is not there tests as null.
    pub(super) fn label(&mut self, key: &str, before: Option<&str>, after: Option<&str>) {
        let path = path(key);
        self.steps.push(json!({ "op": "test", "path": path, "value": before }));
        match after {
            Some(value) => self.steps.push(json!({ "op": "add", "path": path, "value": value })),
            None => self.steps.push(json!({ "op": "remove", "path": path })),
        }
    }

    /// Our taint, or none; only if taints are as they were.
    pub(super) fn fence(&mut self, claim: Option<&str>) {
        let taints = &self.node.taints;
        let before = if taints.is_empty() { Value::Null } else { json!(taints) };
        self.steps.push(json!({ "op": "test", "path": "/spec/taints", "value": before }));
        let mut after: Vec<Value> =
            taints.iter().filter(|taint| taint.key != CORDON_TAINT).map(|taint| json!(taint)).collect();
        after.extend(
            claim.map(|claim| json!({ "key": CORDON_TAINT, "value": claim, "effect": "NoSchedule" })),
        );
        self.steps.push(json!({ "op": "add", "path": "/spec/taints", "value": after }));
    }

    pub(super) fn write(self, node: &str, change: NodeChange, unused: Precondition) -> Action {
        Action::Node(NodeWrite { node: node.to_owned(), change, patch: Value::Array(self.steps), unused })
    }
}

/// Where a label is.
pub(super) fn path(key: &str) -> String {
    format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"))
}
