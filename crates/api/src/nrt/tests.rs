use kube::Resource as _;
use serde_json::{Value, json};

use super::*;

fn read(value: Value) -> NodeResourceTopology {
    serde_json::from_value(value).unwrap()
}

#[test]
fn reads_leniently_and_writes_stably() {
    let nrt = read(json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1", "annotations": {"a": "b"}},
        "someday": {"x": 1},
        "attributes": null,
        "zones": [{
            "name": "node-0",
            "type": "Node",
            "colour": "red",
            "costs": [{"name": "node-0", "value": 10}],
            "resources": [
                {"name": "cpu", "capacity": 4, "allocatable": "3", "available": 2.5, "extra": []},
                {"name": "memory", "capacity": "16Gi", "allocatable": 18446744073709551615u64, "available": -1},
            ],
        }],
    }));
    let resource = |name: &str, amounts: [&str; 3]| {
        let [capacity, allocatable, available] = amounts;
        json!({"name": name, "capacity": capacity, "allocatable": allocatable, "available": available})
    };
    assert_eq!(
        serde_json::to_value(&nrt).unwrap(),
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "n1", "annotations": {"a": "b"}},
            "zones": [{
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}],
                "resources": [
                    resource("cpu", ["4", "3", "2.5"]),
                    resource("memory", ["16Gi", "18446744073709551615", "-1"]),
                ],
            }],
        })
    );
    assert_eq!(read(serde_json::to_value(&nrt).unwrap()), nrt);
}

#[test]
fn empty_lists_are_left_out_except_zones() {
    let text = serde_json::to_string(&NodeResourceTopology::default()).unwrap();
    assert_eq!(
        text,
        r#"{"apiVersion":"topology.node.k8s.io/v1alpha2","kind":"NodeResourceTopology","metadata":{},"zones":[]}"#
    );
    assert_eq!(serde_json::to_string(&Zone::default()).unwrap(), r#"{"name":"","type":""}"#);
    let text = serde_json::to_string(&v1alpha1::NodeResourceTopology::default()).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"apiVersion":"topology.node.k8s.io/v1alpha1","kind":"NodeResourceTopology","metadata":{},"#,
            r#""topologyPolicies":[],"zones":[]}"#
        )
    );
}

#[test]
fn the_older_version_becomes_the_newer() {
    let old: v1alpha1::NodeResourceTopology = serde_json::from_value(json!({
        "metadata": {"name": "n1"},
        "topologyPolicies": ["Restricted"],
        "zones": [{"name": "node-0", "type": "Node"}],
    }))
    .unwrap();
    let new = NodeResourceTopology::from(old.clone());
    assert_eq!(
        (new.meta().name.as_deref(), new.topology_policies.as_slice()),
        (Some("n1"), &["Restricted".to_owned()][..])
    );
    assert_eq!((new.zones, new.attributes), (old.zones, vec![]));
}

#[test]
fn wrong_shapes_are_errors() {
    for (value, message) in [
        (json!({"metadata": {}}), "missing field `zones`"),
        (json!({"zones": {}}), "invalid type: map, expected a sequence"),
        (json!({"zones": [{"name": "node-0"}]}), "missing field `type`"),
        (
            json!({"zones": [{"name": "a", "type": "Node", "resources": [
                {"name": "cpu", "capacity": [], "allocatable": 1, "available": 1}]}]}),
            "invalid type: sequence, expected a quantity: a number or a text such as \"16Gi\"",
        ),
    ] {
        let error = serde_json::from_value::<NodeResourceTopology>(value.clone()).unwrap_err();
        assert_eq!(error.to_string(), message, "{value}");
    }
}

#[test]
fn amounts_are_checked_when_asked() {
    assert_eq!(Amount::from(" 16Gi ").parse().map(|q| q.value()), Ok(16 << 30));
    assert!(Amount::from("lots").parse().is_err());
    assert_eq!(Amount::from(Quantity::parse("16Gi").unwrap()), Amount::from("16Gi"));
    assert_eq!(Amount::default().parse(), Ok(Quantity::ZERO));
}

#[test]
fn urls_are_cluster_scoped() {
    assert_eq!(
        NodeResourceTopology::url_path(&(), None),
        "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
    );
    assert_eq!(
        v1alpha1::NodeResourceTopology::url_path(&(), None),
        "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
    );
    assert_eq!(
        (API_VERSION, v1alpha1::API_VERSION),
        (
            NodeResourceTopology::api_version(&()).as_ref(),
            v1alpha1::NodeResourceTopology::api_version(&()).as_ref()
        )
    );
}
