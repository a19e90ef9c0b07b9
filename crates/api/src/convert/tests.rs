use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};
use topology::fingerprint::Method;
use topology::policy::{Manager, Policy, Scope};
use topology::request::{ContainerKind, Qos};
use topology::zone::{NodeTopology, ZoneId};

use super::*;
use crate::nrt::NodeResourceTopology;

fn nrt(value: Value) -> NodeResourceTopology {
    serde_json::from_value(value).unwrap()
}

/// The topology and the texts of the warnings, or the text of the error.
fn convert(value: Value) -> Result<(NodeTopology, Vec<String>), String> {
    match node_topology(&nrt(value)) {
        Ok((topology, warnings)) => Ok((topology, warnings.iter().map(ToString::to_string).collect())),
        Err(error) => Err(error.to_string()),
    }
}

/// A node with one zone that has one resource.
fn one(name: &str, capacity: Value, allocatable: Value, available: Value) -> Value {
    json!({"zones": [{"name": "node-0", "type": "Node", "resources": [
        {"name": name, "capacity": capacity, "allocatable": allocatable, "available": available},
    ]}]})
}

/// A node with attributes, given as name and value pairs.
fn attributes(list: &[(&str, &str)]) -> Value {
    let list: Vec<_> = list.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"zones": [], "attributes": list})
}

#[test]
fn zones_become_numbers_in_base_units() {
    let amount = |name: &str, amount: &str| json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount});
    let (topology, warnings) = convert(json!({"zones": [
        {"name": "node-7", "type": "Node", "costs": [{"name": "node-7", "value": 10}, {"name": "node-2", "value": 21}],
         "resources": [amount("vendor.com/nic", "4"), amount("memory", "16Gi"), amount("cpu", "15500m")]},
        {"name": "socket-0", "type": "Socket"},
        {"name": "node-2", "type": "Node", "resources": [amount("hugepages-2Mi", "1.5Ki"), amount("cpu", "1u")]},
    ]}))
    .unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let ids: Vec<_> = topology.zones.iter().map(|zone| zone.id.0).collect();
    assert_eq!(ids, [2, 7]);
    let available = |zone: usize| -> Vec<_> {
        topology.zones[zone].resources.iter().map(|r| (r.name.as_str(), r.available)).collect()
    };
    // A millionth of a CPU is not one thousandth: availability rounds down.
    assert_eq!(available(0), [("cpu", 0), ("hugepages-2Mi", 1536)]);
    assert_eq!(available(1), [("cpu", 15_500), ("memory", 16 << 30), ("vendor.com/nic", 4)]);
    assert_eq!(topology.zones[1].distances, [(ZoneId(2), 21), (ZoneId(7), 10)]);
}

#[test]
fn nonsense_is_refused_with_its_path() {
    let zone = |name: &str| json!({"name": name, "type": "Node"});
    let cpu = json!({"name": "cpu", "capacity": 1, "allocatable": 1, "available": 1});
    for (value, message) in [
        (
            one("cpu", json!(8), json!(8), json!(-1)),
            "zones[0].resources[0].available: -1 is negative; amounts start at 0",
        ),
        (
            one("cpu", json!(8), json!("-1n"), json!(0)),
            "zones[0].resources[0].allocatable: -1n is negative; amounts start at 0",
        ),
        (
            one("memory", json!(1), json!(1), json!("lots")),
            "zones[0].resources[0].available: \"lots\" is not a quantity: expected a decimal number and an optional \
             suffix, such as 2, 500m or 16Gi",
        ),
        (
            one("memory", json!("1e40"), json!(1), json!(1)),
            "zones[0].resources[0].capacity: 100e27 is too large; the most a zone can have is 144115188075855871",
        ),
        (
            one("cpu", json!(1), json!("144115188075856"), json!(1)),
            "zones[0].resources[0].allocatable: 144115188075856 is too large; the most a zone can have is \
             144115188075855871m",
        ),
        (
            one("", json!(1), json!(1), json!(1)),
            "zones[0].resources[0].name: resource name has 0 bytes; allowed are 1 to 317 (a 253 byte domain, `/`, a 63 \
             byte name)",
        ),
        (
            json!({"zones": [zone("node-0"), zone("node-1"), zone("node-0")]}),
            "zones[2].name: \"node-0\" is listed twice",
        ),
        (
            json!({"zones": [{"name": "node-0", "type": "Node", "resources": [cpu, cpu]}]}),
            "zones[0].resources[1].name: \"cpu\" is listed twice",
        ),
    ] {
        assert_eq!(convert(value.clone()), Err(message.to_owned()), "{value}");
    }
}

#[test]
fn the_largest_zones_do_not_overflow() {
    let zones: Vec<_> = (0..64)
        .map(|i| {
            let most = json!(144_115_188_075_855_871_i64);
            let memory = json!({"name": "memory", "capacity": most, "allocatable": most, "available": most});
            json!({"name": format!("node-{i}"), "type": "Node", "resources": [memory]})
        })
        .collect();
    let (topology, _) = convert(json!({"zones": zones})).unwrap();
    let total: i64 = topology.zones.iter().map(|zone| zone.resources[0].available).sum();
    assert_eq!(total, 144_115_188_075_855_871 * 64);
}

#[test]
fn what_is_left_out_is_said() {
    let (topology, warnings) = convert(json!({"zones": [
        {"name": "node-00", "type": "Node"},
        {"name": "cell-1", "type": "Node"},
        {"name": "node-64", "type": "Node"},
        {"name": "node-1", "type": "Node",
         "costs": [{"name": "node-1", "value": 10}, {"name": "here", "value": 1}, {"name": "node-2", "value": -1},
                   {"name": "node-1", "value": 11}],
         "resources": [{"name": "cpu", "capacity": 8, "allocatable": 7, "available": "7.5"}]},
    ]}))
    .unwrap();
    assert_eq!(
        warnings,
        [
            "zones[0].name: zone name \"node-00\" is not of the form node-N; left out",
            "zones[1].name: zone name \"cell-1\" is not of the form node-N; left out",
            "zones[2].name: zone 64: kubelets align on zones 0 to 63 only; left out",
            "zones[3].resources[0].available: 7500m is more than the allocatable 7; taken as 7",
            "zones[3].costs[1].name: zone name \"here\" is not of the form node-N; left out",
            "zones[3].costs[2].value: -1 is not a distance (0 to 4294967295); left out",
        ]
    );
    assert_eq!(topology.zones.len(), 1);
    assert_eq!(topology.zones[0].resources[0].available, 7000);
    assert_eq!(topology.zones[0].distances, [(ZoneId(1), 11)]);
}

#[test]
fn policy_and_scope_follow_the_peers() {
    let (none, container) = (Policy::None, Scope::Container);
    let word = |words: Value| json!({"zones": [], "topologyPolicies": words});
    for (value, expected) in [
        (json!({"zones": []}), (none, container)),
        (word(json!(["SingleNUMANodePodLevel"])), (Policy::SingleNumaNode, Scope::Pod)),
        (word(json!(["SingleNUMANodeContainerLevel"])), (Policy::SingleNumaNode, container)),
        (word(json!(["BestEffortPodLevel"])), (Policy::BestEffort, Scope::Pod)),
        (word(json!(["BestEffortContainerLevel"])), (Policy::BestEffort, container)),
        (word(json!(["RestrictedPodLevel"])), (Policy::Restricted, Scope::Pod)),
        (word(json!(["RestrictedContainerLevel", "BestEffortPodLevel"])), (Policy::Restricted, container)),
        (word(json!(["None", "RestrictedPodLevel"])), (none, container)),
        (word(json!(["BestEffort"])), (none, container)),
        (word(json!(["Restricted"])), (none, container)),
        (word(json!([""])), (none, container)),
        (attributes(&[("topologyManagerPolicy", "restricted")]), (Policy::Restricted, container)),
        (attributes(&[("topologyManagerScope", "pod")]), (none, Scope::Pod)),
        (
            attributes(&[
                ("topologyManagerPolicy", "restricted"),
                ("topologyManagerPolicy", "single-numa-node"),
            ]),
            (Policy::SingleNumaNode, container),
        ),
    ] {
        let (topology, warnings) = convert(value.clone()).unwrap();
        assert_eq!((topology.rules.policy, topology.rules.scope), expected, "{value}");
        assert_eq!(warnings, Vec::<String>::new(), "{value}");
    }
    let mut both = attributes(&[("topologyManagerScope", "container"), ("TopologyManagerPolicy", "none")]);
    both["topologyPolicies"] = json!(["SingleNUMANodePodLevel"]);
    let (topology, _) = convert(both).unwrap();
    assert_eq!((topology.rules.policy, topology.rules.scope), (Policy::SingleNumaNode, container));
}

#[test]
fn unknown_values_change_nothing_and_are_said() {
    let (topology, warnings) = convert(attributes(&[
        ("topologyManagerPolicy", "restricted"),
        ("topologyManagerPolicy", "Restricted"),
        ("topologyManagerScope", "node"),
        ("colour", "red"),
    ]))
    .unwrap();
    assert_eq!((topology.rules.policy, topology.rules.scope), (Policy::Restricted, Scope::Container));
    assert_eq!(
        warnings,
        [
            "attributes[1].value: unknown value \"Restricted\"; allowed are none, best-effort, restricted and \
             single-numa-node; left out",
            "attributes[2].value: unknown value \"node\"; allowed are container and pod; left out",
        ]
    );
}

#[test]
fn managers_are_unknown_until_said() {
    let rules = |value| convert(value).unwrap().0.rules;
    let silent = rules(json!({"zones": []}));
    assert_eq!((silent.cpu_manager, silent.memory_manager), (Manager::Unknown, Manager::Unknown));
    let said = rules(attributes(&[("cpuManagerPolicy", "static"), ("memoryManagerPolicy", "None")]));
    assert_eq!((said.cpu_manager, said.memory_manager), (Manager::Static, Manager::Off));
}

#[test]
fn fingerprints_come_from_the_attribute_else_the_annotation() {
    const A: &str = "pfp0v001fe53c4dbd2c5f4a0";
    const B: &str = "pfp0v001ef46db3751d8e999";
    let (key, method) = ("nodeTopologyPodsFingerprint", "nodeTopologyPodsFingerprintMethod");
    let exclusive = Method::WithExclusiveResources;
    for (list, annotation, expected) in [
        (&[][..], None, None),
        (&[(key, A)], None, Some((A, Method::All))),
        (&[(key, A), (method, "all")], Some(B), Some((A, Method::All))),
        (&[(key, A), (method, "with-exclusive-resources")], None, Some((A, exclusive))),
        (&[(method, "with-exclusive-resources")], Some(B), Some((B, Method::All))),
        (&[(key, "")], Some(B), None),
        (&[(key, A), (key, B)], None, Some((A, Method::All))),
    ] {
        let mut value = attributes(list);
        if let Some(annotation) = annotation {
            value["metadata"] = json!({"annotations": {"topology.node.k8s.io/fingerprint": annotation}});
        }
        let (topology, warnings) = convert(value.clone()).unwrap();
        let found = topology.fingerprint.map(|(fingerprint, method)| (fingerprint.to_string(), method));
        assert_eq!(found, expected.map(|(text, method)| (text.to_owned(), method)), "{value}");
        assert_eq!(warnings, Vec::<String>::new(), "{value}");
    }
    for (list, warning) in [
        (
            &[(key, "fingerprint")][..],
            "nodeTopologyPodsFingerprint: \"fingerprint\" is not a pod fingerprint: expected pfp0v001 and 16 lower-case \
             hex digits; left out",
        ),
        (
            &[(key, "pfp0v002ef46db3751d8e999")],
            "nodeTopologyPodsFingerprint: pod fingerprint version \"v002\" is not supported; expected v001; left out",
        ),
        (
            &[(key, A), (method, "exclude-terminal")],
            "nodeTopologyPodsFingerprintMethod: unknown value \"exclude-terminal\"; allowed are all and \
             with-exclusive-resources; left out",
        ),
    ] {
        let (topology, warnings) = convert(attributes(list)).unwrap();
        assert_eq!((topology.fingerprint, warnings), (None, vec![warning.to_owned()]));
    }
}

#[test]
fn zones_go_out_in_canonical_text_and_come_back() {
    let value = json!({"zones": [{
        "name": "node-3", "type": "Node",
        "costs": [{"name": "node-3", "value": 10}],
        "resources": [
            {"name": "cpu", "capacity": "16", "allocatable": "15500m", "available": "12k"},
            {"name": "memory", "capacity": "33503891456", "allocatable": "1024k", "available": "0"},
        ],
    }]});
    let (topology, warnings) = convert(value.clone()).unwrap();
    assert_eq!(warnings.len(), 1);
    let mut expected = nrt(value).zones;
    expected[0].resources[0].available = "15500m".into();
    assert_eq!(wire_zones(&topology.zones), expected);
}

#[test]
fn amounts_round_against_the_optimist() {
    let q = |text| Quantity::parse(text).unwrap();
    let cpu = ResourceName::CPU;
    assert_eq!((amount(cpu, q("0.1m")), amount_available(cpu, q("0.1m"))), (1, 0));
    assert_eq!((amount(cpu, q("2")), amount_available(cpu, q("2"))), (2000, 2000));
    assert_eq!(
        (amount(ResourceName::MEMORY, q("1.5")), amount_available(ResourceName::MEMORY, q("1.5"))),
        (2, 1)
    );
    assert_eq!(amount(cpu, q("1e40")), i64::MAX);
    assert_eq!(
        (quantity(cpu, 2500).to_string(), quantity(ResourceName::PODS, 2500).to_string()),
        ("2500m".into(), "2500".into())
    );
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

#[test]
fn pods_become_containers_in_admission_order() {
    let request = pod_request(&pod(json!({
        "spec": {
            "overhead": {"memory": "120Mi", "cpu": "250m"},
            "containers": [
                {"name": "app", "resources": {"requests": {"memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}},
                {"name": "bare"},
            ],
            "initContainers": [
                {"name": "init", "resources": {"requests": {"vendor.com/nic": "1", "cpu": "1"}}},
                {"name": "side", "restartPolicy": "Always"},
                {"name": "odd", "restartPolicy": "OnFailure"},
            ],
        },
        "status": {"qosClass": "Burstable"},
    })))
    .unwrap();
    let kinds: Vec<_> = request.containers.iter().map(|c| (&*c.name, c.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("init", ContainerKind::Init),
            ("side", ContainerKind::Sidecar),
            ("odd", ContainerKind::Init),
            ("app", ContainerKind::App),
            ("bare", ContainerKind::App),
        ]
    );
    let text = |list: &[(ResourceName, Quantity)]| -> Vec<_> {
        list.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect()
    };
    assert_eq!(text(&request.containers[0].requests), ["cpu=1", "vendor.com/nic=1"]);
    // The cpu request is missing, so the limit stands in for it.
    assert_eq!(text(&request.containers[3].requests), ["cpu=2", "memory=1Gi"]);
    assert_eq!(text(&request.containers[3].limits), ["cpu=2", "memory=2Gi"]);
    assert_eq!(text(&request.overhead), ["cpu=250m", "memory=120Mi"]);
    assert_eq!(request.stated_qos, Some(Qos::Burstable));
    assert_eq!(pod_request(&Pod::default()), Ok(topology::request::PodRequest::default()));
}

#[test]
fn bad_pods_are_refused_with_the_path() {
    let container = |resources: Value| json!({"name": "c", "resources": resources});
    for (spec, message) in [
        (
            json!({"containers": [container(json!({"requests": {"cpu": "-1"}}))]}),
            "spec.containers[0].resources.requests[cpu]: -1 is negative; amounts start at 0",
        ),
        (
            json!({"containers": [], "initContainers": [{"name": "a"}, container(json!({"limits": {"memory": "1KB"}}))]}),
            "spec.initContainers[1].resources.limits[memory]: \"1KB\" is not a quantity: expected a decimal number and an \
             optional suffix, such as 2, 500m or 16Gi",
        ),
        (
            json!({"containers": [], "overhead": {"": "1"}}),
            "spec.overhead[]: resource name has 0 bytes; allowed are 1 to 317 (a 253 byte domain, `/`, a 63 byte name)",
        ),
        (
            json!({"containers": [], "resources": {"limits": {"cpu": "1,5"}}}),
            "spec.resources.limits[cpu]: \"1,5\" is not a quantity: expected a decimal number and an optional suffix, such \
             as 2, 500m or 16Gi",
        ),
    ] {
        let error = pod_request(&pod(json!({"spec": spec}))).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert!(pod_request(&pod(json!({"spec": {"containers": [], "resources": {}}}))).is_ok());
}

#[test]
fn huge_pods_are_only_huge() {
    let containers: Vec<_> = (0..50)
        .map(
            |i| json!({"name": format!("c{i}"), "resources": {"requests": {"cpu": "1e30", "memory": "16E"}}}),
        )
        .collect();
    let needs = pod_request(&pod(json!({"spec": {"containers": containers}}))).unwrap().needs();
    assert!(needs.totals.iter().all(|need| need.amount == i64::MAX));
}

/// JSON of any shape.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any_key(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_key() -> impl Strategy<Value = String> {
    prop::sample::select(
        &[
            "zones",
            "name",
            "type",
            "resources",
            "capacity",
            "allocatable",
            "available",
            "costs",
            "value",
            "attributes",
            "metadata",
            "spec",
            "containers",
            "requests",
            "limits",
            "topologyPolicies",
            "x",
        ][..],
    )
    .prop_map(str::to_owned)
}

fn any_amount() -> impl Strategy<Value = Value> {
    prop_oneof![
        30 => (0..100_000_i64).prop_map(Value::from),
        5 => "[0-9]{1,3}(m|Ki|k)".prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => "[-+]?[0-9.]{0,25}(Ki|Ei|[numkMGTPE]|e[-+]?[0-9]{1,20})?".prop_map(Value::from),
    ]
}

/// Objects of the right shape with wrong contents.
fn any_nrt() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(&["cpu", "memory", "vendor.com/nic", "hugepages-1Gi", ""][..]);
    let resource = (name, any_amount(), any_amount(), any_amount())
        .prop_map(|(n, c, l, v)| json!({"name": n, "capacity": c, "allocatable": l, "available": v}));
    let zone_name = prop_oneof![4 => "node-[1-9][0-9]{0,9}", 1 => "\\PC{0,8}"];
    let cost = (zone_name.clone(), any::<i64>()).prop_map(|(n, v)| json!({"name": n, "value": v}));
    let zone = (zone_name, prop::collection::vec(resource, 0..4), prop::collection::vec(cost, 0..4))
        .prop_map(|(n, r, c)| json!({"name": n, "type": "Node", "resources": r, "costs": c}));
    let key = prop::sample::select(
        &["topologyManagerPolicy", "nodeTopologyPodsFingerprint", "cpuManagerPolicy"][..],
    );
    let attribute = (key, "\\PC{0,30}").prop_map(|(n, v)| json!({"name": n, "value": v}));
    (prop::collection::vec(zone, 0..5), prop::collection::vec(attribute, 0..4))
        .prop_map(|(zones, attributes)| json!({"zones": zones, "attributes": attributes}))
}

proptest! {
    #[test]
    fn any_json_converts_or_errs(value in any_json()) {
        if let Ok(nrt) = serde_json::from_value::<NodeResourceTopology>(value.clone()) {
            let _ = node_topology(&nrt);
        }
        if let Ok(pod) = serde_json::from_value::<Pod>(value) {
            let _ = pod_request(&pod);
        }
    }

    #[test]
    fn whatever_converts_is_sound(value in any_nrt()) {
        let Ok((topology, _)) = node_topology(&nrt(value)) else { return Ok(()) };
        prop_assert!(topology.zones.len() <= 64);
        prop_assert!(topology.zones.is_sorted_by(|a, b| a.id < b.id));
        for zone in &topology.zones {
            prop_assert!(zone.resources.is_sorted_by(|a, b| a.name < b.name));
            prop_assert!(zone.distances.is_sorted_by(|a, b| a.0 < b.0));
            for resource in &zone.resources {
                prop_assert!(0 <= resource.available && resource.available <= resource.allocatable);
            }
        }
        let again = NodeResourceTopology { zones: wire_zones(&topology.zones), ..NodeResourceTopology::default() };
        let (back, warnings) = node_topology(&again).unwrap();
        prop_assert_eq!(back.zones, topology.zones);
        prop_assert_eq!(warnings, vec![]);
    }
}

/// What our exporter says by ids, and what each attribute that makes no sense is refused with.
#[test]
fn kubelets_are_read_whole_or_not_at_all() {
    let object = |changes: &[(&str, &str)]| {
        let mut node = vec![
            ("threadSiblings", "0-1+2"),
            ("containerHoldings", "v1 uid ef46db3751d8e999"),
            ("cpuManagerPolicyOptions", "full-pcpus-only=True,align-by-socket=f"),
            ("topologyManagerPolicyOptions", "max-allowable-numa-nodes=16,prefer-closest-numa-nodes=true"),
            ("reservedSystemCPUs", "0"),
            ("kubeletVersion", "v1.35.4"),
            ("kubeletFeatureGates", "PodLevelResourceManagers=false"),
            ("deviceGroups", "v.io/gpu@0,1:4:3"),
        ];
        let mut zone = vec![("cpus", "0-3"), ("sockets", "1"), ("freeCPUs", "1,3"), ("memoryGroup", "0,1")];
        for (name, value) in changes {
            for list in [&mut node, &mut zone] {
                list.iter_mut().filter(|(known, _)| known == name).for_each(|pair| pair.1 = value);
                list.retain(|(_, value)| *value != "-");
            }
        }
        let mut value = attributes(&node);
        value["zones"] =
            json!([{"name": "node-0", "type": "Node", "attributes": attributes(&zone)["attributes"]}]);
        kubelet_report(&nrt(value)).map_err(|error| error.to_string())
    };
    let report = object(&[]).unwrap().unwrap();
    let cpu = |id, core| topology::kubelet::machine::Cpu { id, core, socket: 1, zone: 0, cache: 1 };
    assert_eq!(report.cpus, [cpu(0, 0), cpu(1, 1), cpu(2, 0), cpu(3, 1)]);
    let options: Vec<_> = report.cpu_options.iter().map(topology::policy::CpuOption::as_str).collect();
    assert_eq!((options.as_slice(), report.prefer_closest), (&["full-pcpus-only"][..], true));
    assert_eq!(report.minor, Some(topology::kubelet::profile::Minor::V35));
    let texts = [report.reserved_cpus, report.free_cpus].map(|cpus| cpus.to_string());
    assert_eq!(texts, ["0", "1,3"]);
    assert_eq!((report.memory_groups[0].to_string().as_str(), report.device_groups[0].available), ("0,1", 3));
    for another in ["threadSiblings", "containerHoldings"] {
        assert_eq!(object(&[(another, "-")]), Ok(None), "no object of ours");
    }
    assert_eq!(object(&[("kubeletVersion", "v1.99.0")]).unwrap().unwrap().minor, None);
    for (name, value, wanted) in [
        ("threadSiblings", "0+", "attributes.threadSiblings: \"0+\" is no run of cores"),
        ("containerHoldings", "v2", "attributes.containerHoldings: holdings \"v2\": expected"),
        ("cpuManagerPolicyOptions", "new=true", "attributes.cpuManagerPolicyOptions: unknown value \"new\""),
        ("cpuManagerPolicyOptions", "x", "attributes.cpuManagerPolicyOptions: unknown value \"x\""),
        ("reservedSystemCPUs", "3-1", "attributes.reservedSystemCPUs: CPU range 3-1 runs backwards"),
        ("deviceGroups", "v.io/gpu@0,1:3:4", "attributes.deviceGroups: unknown value"),
        ("cpus", "x", "zones[0].attributes.cpus: \"x\" in a CPU list"),
        ("sockets", "0:0-1;x", "zones[0].attributes.sockets: unknown value"),
        ("freeCPUs", "a", "zones[0].attributes.freeCPUs: \"a\" in a CPU list"),
        ("memoryGroup", "64", "zones[0].attributes.memoryGroup: unknown value"),
    ] {
        let error = object(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[test]
fn the_class_is_computed_as_the_api_server_does() {
    let class = |requests: Value, limits: Value| {
        let container = json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap();
        pod_request(&pod).unwrap().qos()
    };
    let both = || json!({"cpu": "2", "memory": "1Gi"});
    for (requests, limits, wanted) in [
        (json!({}), json!({}), Qos::BestEffort),
        (json!({"cpu": "0"}), json!({"cpu": "0"}), Qos::BestEffort),
        (both(), json!({}), Qos::Burstable),
        (json!({"cpu": "1", "memory": "1Gi"}), both(), Qos::Burstable),
        (json!({"cpu": "0", "memory": "1Gi"}), both(), Qos::Burstable),
        (both(), json!({"cpu": "2"}), Qos::Burstable),
        (json!({}), both(), Qos::Guaranteed),
        (both(), both(), Qos::Guaranteed),
    ] {
        assert_eq!(class(requests.clone(), limits.clone()), wanted, "{requests} {limits}");
    }
}

#[test]
fn the_last_readable_number_of_numa_nodes_counts() {
    let name = "topologyManagerMaxNUMANodes";
    for (values, wanted) in [
        (&["4", "16"][..], Some(16)),
        (&["x", "16"], Some(16)),
        (&["16", "1"], Some(16)),
        (&["16", "-3"], Some(16)),
        (&["5000000000"], Some(1_024)),
        (&["0"], None),
        (&[], None),
    ] {
        let list: Vec<_> = values.iter().map(|value| (name, *value)).collect();
        assert_eq!(convert(attributes(&list)).unwrap().0.max_numa_nodes, wanted, "{values:?}");
    }
}
