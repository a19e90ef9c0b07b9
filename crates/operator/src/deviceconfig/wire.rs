//! Nodes and pods as they come off the wire, with no more of them than somebody reads.
//!
//! In: JSON of the API server. Out: [`Node`], [`Pod`]. Never: a rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::Value;

use super::world::{Node, Pod};
use crate::watch::wire::{Parts, Texts, Wire};

/// A node.
pub(super) type WireNode = Wire<Parts<NodeSpec, NodeStatus>>;
/// A pod.
pub(super) type WirePod = Wire<Parts<PodSpec, PodStatus>>;

/// Of a node's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

/// Of its status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NodeStatus {
    node_info: NodeInfo,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "kernelVersion")]
    kernel: String,
    #[serde(rename = "bootID")]
    boot: String,
}

/// Of a pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    node_name: Option<String>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

/// Of its status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodStatus {
    phase: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: Option<BTreeMap<String, Value>>,
    requests: Option<BTreeMap<String, Value>>,
}

impl WireNode {
    /// What is kept of it, and its name.
    #[must_use]
    pub(super) fn trim(self, texts: &mut Texts) -> (Arc<str>, Node) {
        let Self { meta, body: Parts { spec, status } } = self;
        let labels = meta.labels;
        let mut node = Node {
            has_labels: labels.is_some(),
            labels: texts.share_all(&labels.unwrap_or_default()),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or_default(),
            kernel: texts.share(&status.node_info.kernel),
            boot: status.node_info.boot,
            version: meta.resource_version.unwrap_or_default(),
            fence_seen: None,
        };
        node.fence_seen = node.fenced_for().map(|_| Timestamp::now());
        (texts.share(&meta.name.unwrap_or_default()), node)
    }
}

impl WirePod {
    /// What is kept of it, with namespace and name; nothing of those that cannot have a device: they are not bound, have ended, or ask for
    /// nothing but the usual.
    #[must_use]
    pub(super) fn trim(self, texts: &mut Texts) -> (super::claim::Id, Option<Pod>) {
        let Self { meta, body: Parts { spec, status } } = self;
        let id = super::claim::Id {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
        };
        let containers = spec.containers.into_iter().chain(spec.init_containers).flatten();
        let asked = containers.flat_map(|one| [one.resources.requests, one.resources.limits]);
        let names = asked.flatten().flatten().map(|(name, _)| name);
        let resources: Vec<Arc<str>> = {
            let mut all: Vec<String> = names.filter(|name| name.contains('/')).collect();
            all.sort_unstable();
            all.dedup();
            all.iter().map(|name| texts.share(name)).collect()
        };
        let ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let Some(node) = spec.node_name.filter(|_| !ended && !resources.is_empty()) else {
            return (id, None);
        };
        let pod = Pod { node: texts.share(&node), resources, leaving: meta.deletion_timestamp.is_some() };
        (id, Some(pod))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_node_what_matters_is_kept() {
        let body = json!({
            "metadata": { "name": "n1", "uid": "u", "resourceVersion": "7", "labels": { "a": "1" }, "managedFields": [{}] },
            "spec": { "unschedulable": true, "taints": [{ "key": "x", "effect": "NoSchedule" }] },
            "status": { "nodeInfo": { "kernelVersion": "6.1.0-1", "bootID": "b", "machineID": "m" }, "conditions": [] },
        });
        let (name, node) = WireNode::deserialize(&body).unwrap().trim(&mut Texts::default());
        assert_eq!(
            (&*name, &*node.kernel, node.boot.as_str(), node.version.as_str()),
            ("n1", "6.1.0-1", "b", "7")
        );
        assert!(node.unschedulable && node.has_labels);
        assert_eq!(node.taints[0].key, "x");
        for body in [
            json!({ "metadata": { "name": "n1" } }),
            json!({ "metadata": { "name": "n1" }, "spec": { "taints": null } }),
        ] {
            let (_, node) = WireNode::deserialize(&body).unwrap().trim(&mut Texts::default());
            assert!(!node.has_labels, "{body}");
        }
    }

    #[test]
    fn pods_that_may_have_a_device_are_kept() {
        let pod = |spec: Value, phase: &str| {
            let body = json!({ "metadata": { "name": "p", "namespace": "x" }, "spec": spec, "status": { "phase": phase } });
            WirePod::deserialize(&body).unwrap().trim(&mut Texts::default()).1
        };
        let asks = |name: &str| json!([{ "resources": { "limits": { name: "1", "cpu": "1" } } }]);
        let device = json!({ "nodeName": "n", "containers": asks("vendor.example/acc") });
        let kept = pod(device.clone(), "Running").unwrap();
        assert_eq!((&*kept.node, &*kept.resources[0]), ("n", "vendor.example/acc"));
        assert!(
            pod(json!({ "nodeName": "n", "initContainers": asks("vendor.example/acc") }), "Pending")
                .is_some()
        );
        for (spec, phase) in [
            (device, "Succeeded"),
            (json!({ "containers": asks("vendor.example/acc") }), "Pending"),
            (json!({ "nodeName": "n", "containers": asks("memory") }), "Running"),
            (json!({}), ""),
        ] {
            assert_eq!(pod(spec.clone(), phase), None, "{spec}");
        }
    }
}
