//! Nodes from the API server, reduced to the fields that are read.
//!
//! In: JSON of the API server. Out: [`Node`]. Never: a field that no controller reads.

use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition, NodeDaemonEndpoints};
use runtime::wire::{Parts, Texts, Wire};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::cluster_state::Node;

/// A node with the fields of [`Status`] only.
pub(super) type WireNode = Wire<Parts<IgnoredAny, Status>>;

/// The fields of a node's status that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<NodeCondition>>,
    daemon_endpoints: Option<NodeDaemonEndpoints>,
}

/// The port of kubelets, unless the node states another.
const KUBELET: u16 = 10250;

/// The name of a node, and the fields that controllers read.
#[must_use]
pub(super) fn trim(node: WireNode, texts: &mut Texts) -> (String, Node) {
    let WireNode { meta, body: Parts { status, .. } } = node;
    let labels = texts.share_all(&meta.labels.unwrap_or_default());
    let ready = status.conditions.iter().flatten().any(|at| at.type_ == "Ready" && at.status == "True");
    let endpoint = status.daemon_endpoints.and_then(|all| all.kubelet_endpoint);
    let port = endpoint.and_then(|one| u16::try_from(one.port).ok());
    let port = port.filter(|port| *port != 0).unwrap_or(KUBELET);
    let internal = status.addresses.into_iter().flatten().find(|one| one.type_ == "InternalIP");
    let kubelet = internal.map(|one| (one.address, port));
    (meta.name.unwrap_or_default(), Node { labels, ready, kubelet })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(body: &Value) -> (String, Node) {
        trim(WireNode::deserialize(body).unwrap(), &mut Texts::default())
    }

    #[test]
    fn the_read_fields_of_a_node_are_kept() {
        let body = json!({
            "metadata": {
                "name": "n1", "uid": "u", "labels": { "a": "1" }, "annotations": { "long": "text" },
                "managedFields": [{ "manager": "kubelet" }],
            },
            "spec": { "taints": [] },
            "status": {
                "addresses": [{ "type": "Hostname", "address": "n1" }, { "type": "InternalIP", "address": "10.0.0.1" }],
                "conditions": [{ "type": "Ready", "status": "True", "reason": "x" }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10255 } },
                "images": [{ "names": ["x"] }],
            },
        });
        let (name, kept) = node(&body);
        assert_eq!(
            (name.as_str(), kept.ready, kept.kubelet),
            ("n1", true, Some(("10.0.0.1".to_owned(), 10255)))
        );
        assert_eq!(kept.labels.get("a").map(|value| &**value), Some("1"));
    }

    #[test]
    fn a_node_with_few_fields_is_not_ready() {
        for body in [
            json!({ "metadata": { "name": "n1" } }),
            json!({ "metadata": { "name": "n1" }, "status": { "conditions": null, "addresses": null } }),
            json!({ "metadata": { "name": "n1" }, "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        ] {
            assert_eq!(node(&body), ("n1".to_owned(), Node::default()), "{body}");
        }
        let port = json!({
            "metadata": { "name": "n1" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "::1" }] },
        });
        assert_eq!(node(&port).1.kubelet, Some(("::1".to_owned(), 10250)));
    }
}
