//! Nodes, pods and resource claims from JSON of the API server, reduced to the fields that are read.
//!
//! In: JSON. Out: [`Node`], [`Pod`], [`DeviceClaim`]. Never: a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Taint, Toleration};
use runtime::wire::{Parts, Texts, Wire};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::claim::Id;
use super::claims_in_use::DeviceClaim;
use super::cluster_state::{Node, Pod};
use super::taints::tolerates_cordon;

/// A node.
pub(super) type WireNode = Wire<Parts<NodeSpec, NodeStatus>>;
/// A pod.
pub(super) type WirePod = Wire<Parts<PodSpec, PodStatus>>;
/// A ResourceClaim.
pub(super) type WireClaim = Wire<Parts<IgnoredAny, ClaimStatus>>;

/// The spec of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

/// The status of a node.
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

/// The spec of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    node_name: Option<String>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    resource_claims: Option<Vec<IgnoredAny>>,
    tolerations: Option<Vec<Toleration>>,
    affinity: Option<Affinity>,
}

/// The status of a pod.
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

/// The status of a ResourceClaim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimStatus {
    allocation: Option<Allocation>,
    reserved_for: Option<Vec<Consumer>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Devices,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Option<Vec<Device>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Device {
    driver: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Consumer {
    api_group: String,
    resource: String,
    name: String,
    uid: Box<str>,
}

/// Name and relevant fields of a node.
pub(super) fn read_node(node: WireNode, texts: &mut Texts) -> (Arc<str>, Node) {
    let Wire { meta, body: Parts { spec, status } } = node;
    let labels = meta.labels;
    let mut node = Node {
        has_labels: labels.is_some(),
        labels: texts.share_all(&labels.unwrap_or_default()),
        taints: spec.taints.unwrap_or_default(),
        unschedulable: spec.unschedulable.unwrap_or_default(),
        kernel: texts.share(&status.node_info.kernel),
        boot: status.node_info.boot,
        version: meta.resource_version.unwrap_or_default(),
        cordon_taint_seen: None,
    };
    node.cordon_taint_seen = node.cordon_taint_claim().map(|_| Timestamp::now());
    (texts.share(&meta.name.unwrap_or_default()), node)
}

/// Name and relevant fields of a pod. `None` for pods that cannot have a device: they are not bound, have ended, or
/// request neither extended resources nor resource claims.
pub(super) fn read_pod(pod: WirePod, texts: &mut Texts) -> (Id, Option<Pod>) {
    let Wire { meta, body: Parts { spec, status } } = pod;
    let id = Id { namespace: meta.namespace.unwrap_or_default(), name: meta.name.unwrap_or_default() };
    let returns = returns(&spec);
    let has_claims = spec.resource_claims.is_some_and(|claims| !claims.is_empty());
    let containers = spec.containers.into_iter().chain(spec.init_containers).flatten();
    let lists = containers.flat_map(|one| [one.resources.requests, one.resources.limits]);
    let names = lists.flatten().flatten().map(|(name, _)| name);
    let names: BTreeSet<String> = names.filter(|name| name.contains('/')).collect();
    let resources: Vec<Arc<str>> = names.iter().map(|name| texts.share(name)).collect();
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let node = spec.node_name.filter(|_| !has_ended && (has_claims || !resources.is_empty()));
    let pod = node.map(|node| Pod {
        node: texts.share(&node),
        uid: meta.uid.unwrap_or_default().into(),
        resources,
        terminating: meta.deletion_timestamp.is_some(),
        returns,
    });
    (id, pod)
}

/// Whether an evicted pod comes back to its node at once, as that of a DaemonSet which tolerates everything: it is made
/// for this node by name, and the cordon taint does not keep it away.
fn returns(spec: &PodSpec) -> bool {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.iter().flat_map(|selector| &selector.node_selector_terms);
    let fields = terms.flat_map(|term| term.match_fields.iter().flatten());
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    fields.into_iter().any(|field| field.key == "metadata.name") && tolerates_cordon(tolerations)
}

/// Name and relevant fields of a resource claim. `None` for claims without devices, and for those that no pod may use.
pub(super) fn read_claim(claim: WireClaim, texts: &mut Texts) -> (Id, Option<DeviceClaim>) {
    let Wire { meta, body: Parts { status, .. } } = claim;
    let namespace = meta.namespace.unwrap_or_default();
    let results = status.allocation.and_then(|allocation| allocation.devices.results);
    let drivers = results.into_iter().flatten().map(|device| texts.share(&device.driver)).collect();
    let consumers = status.reserved_for.into_iter().flatten();
    let pods = consumers.filter(|one| one.api_group.is_empty() && one.resource == "pods");
    let pods = pods.map(|pod| (pod.uid, Id::new(&namespace, &pod.name))).collect();
    let claim = DeviceClaim { drivers, pods };
    let is_used = !claim.drivers.is_empty() && !claim.pods.is_empty();
    (Id { namespace, name: meta.name.unwrap_or_default() }, is_used.then_some(claim))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn relevant_fields_of_a_node_are_read() {
        let body = json!({
            "metadata": { "name": "n1", "uid": "u", "resourceVersion": "7", "labels": { "a": "1" }, "managedFields": [{}] },
            "spec": { "unschedulable": true, "taints": [{ "key": "x", "effect": "NoSchedule" }] },
            "status": { "nodeInfo": { "kernelVersion": "6.1.0-1", "bootID": "b", "machineID": "m" }, "conditions": [] },
        });
        let (name, node) = read_node(WireNode::deserialize(&body).unwrap(), &mut Texts::default());
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
            let (_, node) = read_node(WireNode::deserialize(&body).unwrap(), &mut Texts::default());
            assert!(!node.has_labels, "{body}");
        }
    }

    #[test]
    fn pods_that_may_have_a_device_are_read() {
        let pod = |spec: Value, phase: &str| {
            let body = json!({
                "metadata": { "name": "p", "namespace": "x", "uid": "u" }, "spec": spec, "status": { "phase": phase },
            });
            read_pod(WirePod::deserialize(&body).unwrap(), &mut Texts::default()).1
        };
        let asks = |name: &str| json!([{ "resources": { "limits": { name: "1", "cpu": "1" } } }]);
        let device = json!({ "nodeName": "n", "containers": asks("vendor.example/acc") });
        let kept = pod(device.clone(), "Running").unwrap();
        assert_eq!((&*kept.node, &*kept.uid, &*kept.resources[0]), ("n", "u", "vendor.example/acc"));
        let claims = json!([{ "name": "acc", "resourceClaimName": "acc" }]);
        let holder = json!({ "nodeName": "n", "containers": asks("memory"), "resourceClaims": claims });
        assert_eq!(pod(holder.clone(), "Running").unwrap().resources, []);
        assert!(
            pod(json!({ "nodeName": "n", "initContainers": asks("vendor.example/acc") }), "Pending")
                .is_some()
        );
        for (spec, phase) in [
            (device, "Succeeded"),
            (holder, "Failed"),
            (json!({ "resourceClaims": claims }), "Pending"),
            (json!({ "nodeName": "n", "resourceClaims": [] }), "Running"),
            (json!({ "containers": asks("vendor.example/acc") }), "Pending"),
            (json!({ "nodeName": "n", "containers": asks("memory") }), "Running"),
            (json!({}), ""),
        ] {
            assert_eq!(pod(spec.clone(), phase), None, "{spec}");
        }
    }

    #[test]
    fn pods_that_come_back_in_spite_of_the_taint_are_known() {
        let here = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] },
        ] } } });
        let labelled = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }],
        } } });
        let everything = json!([{ "operator": "Exists" }]);
        let usual = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule" }]);
        let named = json!([{ "key": "hardware.tholepin.dev/changing", "operator": "Exists" }]);
        let no_execute = json!([{ "operator": "Exists", "effect": "NoExecute" }]);
        for (affinity, tolerations, wanted) in [
            (&here, &everything, true),
            (&here, &named, true),
            (&here, &usual, false),
            (&here, &no_execute, false),
            (&here, &Value::Null, false),
            (&labelled, &everything, false),
            (&Value::Null, &everything, false),
        ] {
            let spec = json!({
                "nodeName": "n", "affinity": affinity, "tolerations": tolerations,
                "containers": [{ "resources": { "limits": { "vendor.example/acc": "1" } } }],
            });
            let body = json!({ "metadata": { "name": "p" }, "spec": spec });
            let (_, pod) = read_pod(WirePod::deserialize(&body).unwrap(), &mut Texts::default());
            assert_eq!(pod.unwrap().returns, wanted, "{spec}");
        }
    }

    #[test]
    fn claims_with_devices_for_pods_are_read() {
        let claim = |status: Value| {
            let body = json!({
                "metadata": { "name": "c", "namespace": "x" }, "spec": { "devices": {} }, "status": status,
            });
            read_claim(WireClaim::deserialize(&body).unwrap(), &mut Texts::default())
        };
        let device = |driver: &str| json!({ "request": "r", "driver": driver, "pool": "n", "device": "d" });
        let given = json!({ "devices": { "results": [device("a.example"), device("b.example"), device("a.example")] } });
        let pod = |name: &str| json!({ "resource": "pods", "name": name, "uid": format!("uid-{name}") });
        let other = json!({ "apiGroup": "batch", "resource": "jobs", "name": "j", "uid": "uid-j" });
        let (id, kept) =
            claim(json!({ "allocation": given, "reservedFor": [pod("p"), other, pod("q")], "devices": [] }));
        assert_eq!(id, Id::new("x", "c"));
        let wanted = DeviceClaim {
            drivers: ["a.example", "b.example"].map(Arc::from).into(),
            pods: ["p", "q"].map(|pod| (format!("uid-{pod}").into(), Id::new("x", pod))).into(),
        };
        assert_eq!(kept, Some(wanted));
        for status in [
            json!({}),
            json!({ "allocation": null, "reservedFor": null }),
            json!({ "allocation": given }),
            json!({ "allocation": given, "reservedFor": [other] }),
            json!({ "allocation": { "devices": { "results": null } }, "reservedFor": [pod("p")] }),
        ] {
            assert_eq!(claim(status.clone()).1, None, "{status}");
        }
    }
}
