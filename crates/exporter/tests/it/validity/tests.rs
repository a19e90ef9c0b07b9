//! Every rule is broken once.

use super::*;
use serde_json::json;

/// A node of two zones with three placed containers, as an exporter publishes it.
fn good() -> Value {
    let resource = |name: &str, capacity: &str, allocatable: &str, available: &str| {
        let amounts = [("capacity", capacity), ("allocatable", allocatable), ("available", available)];
        let mut resource = json!({ "name": name });
        for (field, amount) in amounts {
            resource[field] = amount.into();
        }
        resource
    };
    let costs = |here: u64, there: u64| json!([{ "name": "node-0", "value": here }, { "name": "node-1", "value": there }]);
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": { "name": "a", "annotations": { "topology.node.k8s.io/fingerprint": "pfp0v0019e0420efb37746c6" } },
        "attributes": [
            { "name": "nodeTopologyPodsFingerprint", "value": "pfp0v0019e0420efb37746c6" },
            { "name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources" },
            { "name": "topologyManagerScope", "value": "pod" },
            { "name": "topologyManagerPolicy", "value": "single-numa-node" },
            { "name": "topologyManagerMaxNUMANodes", "value": "12" },
            { "name": "topology.node.k8s.io/numaplacement-metadata", "value": "npv0v001::ve=leb89::cc=3::nn=2::bn=1" },
            { "name": "theirs", "value": "" },
        ],
        "zones": [
            {
                "name": "node-0", "type": "Node", "costs": costs(10, 21),
                "attributes": [{ "name": "topology.node.k8s.io/numaplacement-vector", "value": "!" }],
                "resources": [resource("cpu", "8", "7", "3"), resource("memory", "1024k", "1024k", "512k")],
            },
            { "name": "node-1", "type": "Node", "costs": costs(21, 10), "resources": [resource("cpu", "8", "8", "0")] },
            { "name": "socket-0", "type": "Socket" },
        ],
    })
}

const POD: [(&str, &str); 1] = [("namespace1", "pod1")];
const CONTAINERS: [(&str, &str, &str); 3] =
    [("ns-0", "pod-0", "container-0"), ("ns-0", "pod-1", "container-1"), ("ns-0", "pod-1", "container-2")];

/// The good object with one member set; `-` appends to a list, null removes.
fn with(pointer: &str, value: Value) -> Value {
    let mut object = good();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) if value.is_null() => drop(list.remove(last.parse().unwrap())),
        Value::Array(list) => list[last.parse::<usize>().unwrap()] = value,
        parent if value.is_null() => drop(parent.as_object_mut().unwrap().remove(last)),
        parent => parent[last] = value,
    }
    object
}

#[test]
fn a_good_object_is_understood() {
    let known = Expected { pods: Some(&POD), containers: Some(&CONTAINERS), no_distances: false };
    let seen = check(&good(), &known).unwrap();
    let quantity = |text: &str| Quantity::parse(text).unwrap();
    let cell = |available: &[(&str, &str)], costs: [i64; 2]| Cell {
        available: available.iter().map(|(name, amount)| ((*name).to_owned(), quantity(amount))).collect(),
        costs: (0..).zip(costs).collect(),
    };
    let wanted = Findings {
        policy: "single-numa-node".to_owned(),
        scope: "pod".to_owned(),
        max_zones: 12,
        cells: BTreeMap::from([
            (0, cell(&[("cpu", "3"), ("memory", "512k")], [10, 21])),
            (1, cell(&[("cpu", "0")], [21, 10])),
        ]),
        fingerprint: "pfp0v0019e0420efb37746c6".to_owned(),
        only_exclusive: true,
        placements: Some(vec![0, 1, 1]),
    };
    assert_eq!(seen, wanted);
    assert_eq!(CONTAINERS.map(|container| seen.zone_of(container, &CONTAINERS)), [Some(1), Some(0), Some(1)]);
}

/// What the plugin assumes when it is not told, and what the deprecated list says to it.
#[test]
fn what_may_be_missing_may_be_missing() {
    let mut bare = good();
    bare["metadata"]["annotations"].take();
    bare["attributes"] = json!([
        { "name": "topologyManagerScope", "value": "container" },
        { "name": "topologyManagerPolicy", "value": "restricted" },
    ]);
    bare["zones"][0]["attributes"].take();
    bare["topologyPolicies"] = json!(["RestrictedContainerLevel"]);
    let seen = check(&bare, &Expected::default()).unwrap();
    assert_eq!((seen.policy.as_str(), seen.scope.as_str(), seen.max_zones), ("restricted", "container", 8));
    assert_eq!((seen.fingerprint.as_str(), seen.only_exclusive, seen.placements), ("", false, None));

    for zone in [0, 1] {
        bare["zones"][zone]["costs"].take();
    }
    let no_distances = Expected { no_distances: true, ..Expected::default() };
    assert!(check(&bare, &no_distances).unwrap().cells[&1].costs.is_empty());
    assert_eq!(check(&bare, &Expected::default()).unwrap_err().len(), 2);
}

#[test]
fn each_broken_rule_is_told() {
    let attribute = |name: &str, value: &str| json!({ "name": name, "value": value });
    let cost = |name: &str, value: Value| json!({ "name": name, "value": value });
    let resource = |name: &str, available: &str| json!({ "name": name, "capacity": "8", "allocatable": "8", "available": available });
    for (pointer, value, told) in [
        ("/apiVersion", json!("topology.node.k8s.io/v1alpha1"), "apiVersion is "),
        ("/kind", json!("Node"), "kind is "),
        ("/metadata/name", json!(null), "the object has no name"),
        ("/topologyPolicies", json!("None"), "topologyPolicies is not a list"),
        ("/topologyPolicies", json!(["SingleNUMANodePodLevel", "None"]), "topologyPolicies has 2 entries"),
        ("/topologyPolicies", json!(["SingleNUMANodeContainerLevel"]), "contradicts"),
        ("/topologyPolicies", json!(["None"]), "contradicts"),
        ("/attributes", json!({}), "the attributes of the node is not a list"),
        ("/attributes/-", json!({ "name": "x" }), "not a name and a text"),
        ("/attributes/-", attribute("", "x"), "not a name and a text"),
        ("/attributes/-", attribute("theirs", "x"), "two attributes \"theirs\""),
        ("/attributes/2", json!(null), "topologyManagerScope is missing"),
        ("/attributes/3", json!(null), "topologyManagerPolicy is missing"),
        ("/attributes/2/value", json!("Pod"), "topologyManagerScope is \"Pod\""),
        ("/attributes/3/value", json!("strict"), "topologyManagerPolicy is \"strict\""),
        ("/attributes/4/value", json!("1"), "topologyManagerMaxNUMANodes is \"1\""),
        ("/attributes/4/value", json!("1025"), "topologyManagerMaxNUMANodes is \"1025\""),
        ("/attributes/4/value", json!("many"), "topologyManagerMaxNUMANodes is \"many\""),
        ("/attributes/0", json!(null), "nodeTopologyPodsFingerprintMethod without"),
        ("/attributes/0/value", json!("pfp0v001807d932586d44a8a"), "topology.node.k8s.io/fingerprint is "),
        ("/attributes/1/value", json!("some"), "nodeTopologyPodsFingerprintMethod is "),
        (
            "/metadata/annotations",
            json!({ "topology.node.k8s.io/fingerprint": "" }),
            "topology.node.k8s.io/fingerprint is ",
        ),
        ("/zones", json!(null), "zones is not a list"),
        ("/zones", json!([]), "there is no NUMA zone"),
        ("/zones/1/type", json!("node"), "its type is \"node\""),
        ("/zones/1/name", json!("node-01"), "its name is not that of a NUMA node"),
        ("/zones/1/name", json!("numa-1"), "its name is not that of a NUMA node"),
        ("/zones/1/name", json!("node-64"), "more than the plugin can bear"),
        ("/zones/1/name", json!("node-0"), "two zones \"node-0\""),
        ("/zones/1/resources", json!(null), "node-1 does not list cpu"),
        ("/zones/1/resources/0/name", json!("CPU"), "node-1 does not list cpu"),
        ("/zones/1/resources/-", resource("", "8"), "a resource without a name"),
        ("/zones/1/resources/-", resource("cpu", "8"), "node-1 has cpu twice"),
        ("/zones/1/resources/-", resource("nic", "9"), "node-1 has 9 of 8 of 8 nic"),
        ("/zones/0/resources/0/capacity", json!("6"), "node-0 has 3 of 7 of 6 cpu"),
        ("/zones/1/resources/-", resource("nic", "-1"), "available of nic is negative"),
        ("/zones/1/resources/-", resource("nic", "7500m"), "available of nic is not whole"),
        ("/zones/1/resources/-", resource("nic", "lots"), "available of nic is not a quantity"),
        ("/zones/1/resources/0/capacity", json!(null), "capacity of cpu is not a quantity"),
        ("/zones/1/costs", json!(null), "node-1 has costs to []"),
        ("/zones/1/costs/1", json!(null), "node-1 has costs to [0]"),
        ("/zones/1/costs/-", cost("node-2", json!(30)), "node-1 has costs to [0, 1, 2]"),
        ("/zones/1/costs/-", cost("node-1", json!(30)), "node-1 has two costs to node-1"),
        ("/zones/1/costs/0", cost("zone-0", json!(21)), "a cost that makes no sense"),
        ("/zones/1/costs/0/value", json!(0), "a cost that makes no sense"),
        ("/zones/1/costs/0/value", json!(10.5), "a cost that makes no sense"),
        ("/zones/0/attributes/-", attribute("topology.node.k8s.io/numaplacement-vector", "!"), "two vectors"),
        ("/zones/0/attributes/0/value", json!(""), "placements: the vector of zone 0 is empty"),
        ("/zones/0/attributes/0/value", json!("!!"), "placements: offset 0 twice"),
        ("/zones/0/attributes/0/value", json!("'"), "placements: offset 4 of 3"),
        ("/zones/0/attributes/0/value", json!("!f"), "ends too early"),
        ("/zones/0/attributes/0/value", json!("~~~~~"), "beyond all bounds"),
        ("/zones/0/attributes/0/value", json!("&"), "byte 0x26 makes the plugin panic"),
        ("/zones/0/attributes/0/value", json!("!#"), "placements: bn=1, but the containers are"),
        ("/attributes/5", json!(null), "placements: vectors without metadata"),
        ("/attributes/5/value", json!("npv0v002::ve=leb89"), "placements: not npv0v001"),
        ("/attributes/5/value", json!("npv0v001::ve"), "\"ve\" is not key=value"),
        ("/attributes/5/value", json!("npv0v001::cc=3::cc=3"), "two values of cc"),
        ("/attributes/5/value", json!("npv0v001::cc=3::nn=2::bn=1"), "is not ve=leb89, cc, nn and bn"),
        ("/attributes/5/value", json!("npv0v001::ve=x::cc=3::nn=2::bn=1"), "is not ve=leb89, cc, nn and bn"),
        ("/attributes/5/value", json!("npv0v001::ve=leb89::cc=-3::nn=2::bn=1"), "cc, nn and bn are"),
        ("/attributes/5/value", json!("npv0v001::ve=leb89::cc=3::nn=3::bn=1"), "nn=3, but there are 2 zones"),
        ("/attributes/5/value", json!("npv0v001::ve=leb89::cc=3::nn=2::bn=2"), "bn is no zone of"),
        ("/attributes/5/value", json!("npv0v001::ve=leb89::cc=3::nn=2::bn=0"), "vectors on zones [0] of 2"),
        ("/attributes/5/value", json!("npv0v001::ve=leb89::cc=4::nn=2::bn=1"), "cc=4, it should be 3"),
    ] {
        let known = Expected { containers: Some(&CONTAINERS), ..Expected::default() };
        let wrong = check(&with(pointer, value.clone()), &known).expect_err(&format!("{pointer} = {value}"));
        assert!(
            wrong.iter().any(|wrong| wrong.contains(told)),
            "{pointer} = {value}: {told:?} is not in {wrong:?}"
        );
    }
}

/// Attribute and annotation agree on something that is no fingerprint, or on one of other pods.
#[test]
fn fingerprints_are_looked_at() {
    for (fingerprint, told) in [
        ("", "\"\" is not a fingerprint"),
        ("pfp0v002807d932586d44a8a", "is not a fingerprint"),
        ("pfp0v001807D932586D44A8A", "is not a fingerprint"),
        ("pfp0v001807d932586d44a8a", "that of the pods is \"pfp0v0019e0420efb37746c6\""),
    ] {
        let mut object = with("/attributes/0/value", json!(fingerprint));
        object["metadata"]["annotations"][ANNOTATION] = json!(fingerprint);
        let wrong = check(&object, &Expected { pods: Some(&POD), ..Expected::default() }).unwrap_err();
        assert!(wrong.iter().any(|wrong| wrong.contains(told)), "{fingerprint}: {wrong:?}");
    }
    let mut annotated = with("/attributes/0", json!(null));
    annotated["attributes"].as_array_mut().unwrap().remove(0);
    assert!(check(&annotated, &Expected::default()).unwrap_err()[0].starts_with(ANNOTATION));
}

#[test]
fn changes_by_hand_are_known_by_their_manager() {
    for (manager, field, by_hand) in [
        ("unknown", "f:zones", true),
        ("unknown", "f:attributes", true),
        ("unknown", "f:metadata", false),
        ("tholepin-exporter", "f:zones", false),
    ] {
        let entry = json!({ "manager": manager, "fieldsV1": { field: {} } });
        let object = json!({ "metadata": { "managedFields": [entry] } });
        assert_eq!(is_by_hand(&object), by_hand, "{manager} {field}");
    }
}
