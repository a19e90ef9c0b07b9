use api::convert::wire_zones;
use serde_json::{Value, json};
use topology::resource::ResourceName;
use topology::zone::{Zone, ZoneId, ZoneResource};

use super::*;
use crate::settings::Mode;

fn zone(id: u32, available_cpus: i64) -> Zone {
    let resource =
        |name, capacity, allocatable, available| ZoneResource { name, capacity, allocatable, available };
    Zone {
        id: ZoneId(id),
        resources: vec![
            resource(ResourceName::CPU, 32_000, 30_000, available_cpus * 1000),
            resource(ResourceName::MEMORY, 33_503_891_456, 1_024_000, 1_000_000),
        ],
        distances: vec![(ZoneId(0), 10), (ZoneId(8), 21)],
    }
}

fn attribute(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: value.to_owned() }
}

fn content(available_cpus: i64) -> Content {
    let fingerprint = Fingerprint::of_names([("default", "test-pod-0")]);
    Content {
        zones: wire_zones(&[zone(0, available_cpus), zone(8, 30)]),
        attributes: vec![
            attribute("nodeTopologyPodsFingerprint", &fingerprint.to_string()),
            attribute("nodeTopologyPodsFingerprintMethod", "with-exclusive-resources"),
            attribute("topologyManagerScope", "container"),
            attribute("topologyManagerPolicy", "single-numa-node"),
        ],
        fingerprint: Some(fingerprint),
        topology_policy: None,
    }
}

fn owner(uid: &str) -> Owner {
    Owner::Node { uid: uid.to_owned() }
}

fn context<'a>(owner: &'a Owner, trigger: &'a str) -> WriteContext<'a> {
    WriteContext { owner, ..WriteContext::new("n1", trigger) }
}

/// The object as the server would return it after a create.
fn stored_object(content: &Content) -> NodeResourceTopology {
    let mut object = content.object(&context(&owner("u1"), "reactive"));
    object.metadata.uid = Some("o1".to_owned());
    object.metadata.resource_version = Some("7".to_owned());
    object
}

fn patch(content: &Content, stored: &NodeResourceTopology, owner: &Owner) -> Value {
    let write = content.write(&context(owner, "periodic"), Some(stored), Mode::Patch);
    if write.is_none() { Value::Null } else { patch_of(write) }
}

#[test]
fn the_object_is_the_peers() {
    let owner = owner("u1");
    let write = content(22).write(&context(&owner, "reactive"), None, Mode::Patch);
    let Some(Write::Create(object)) = write else {
        panic!("there is no object yet");
    };
    let costs = json!([{ "name": "node-0", "value": 10 }, { "name": "node-8", "value": 21 }]);
    let resources = |available: &str| {
        json!([
            { "name": "cpu", "capacity": "32", "allocatable": "30", "available": available },
            { "name": "memory", "capacity": "33503891456", "allocatable": "1024k", "available": "1M" },
        ])
    };
    let wanted = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "n1",
            "annotations": {
                "k8stopoawareschedwg/rte-update": "reactive",
                "topology.node.k8s.io/fingerprint": "pfp0v001fe53c4dbd2c5f4a0",
            },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1" }],
        },
        "attributes": [
            { "name": "nodeTopologyPodsFingerprint", "value": "pfp0v001fe53c4dbd2c5f4a0" },
            { "name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources" },
            { "name": "topologyManagerScope", "value": "container" },
            { "name": "topologyManagerPolicy", "value": "single-numa-node" },
        ],
        "zones": [
            { "name": "node-0", "type": "Node", "costs": costs, "resources": resources("22") },
            { "name": "node-8", "type": "Node", "costs": costs, "resources": resources("30") },
        ],
    });
    assert_eq!(serde_json::to_value(&object).unwrap(), wanted);
}

#[test]
fn the_kubelets_version_is_an_attribute() {
    let (ours, owner) = (content(22), owner("u1"));
    let versioned = WriteContext { kubelet_version: Some("v1.36.3"), ..context(&owner, "reactive") };
    let object = ours.object(&versioned);
    assert_eq!(object.attributes.last(), Some(&attribute("kubeletVersion", "v1.36.3")));
    let upgraded = WriteContext { kubelet_version: Some("v1.37.0"), ..versioned };
    let Some(Write::Patch(Change { merge: patch, .. })) = ours.write(&upgraded, Some(&object), Mode::Patch)
    else {
        panic!("a new version is a reason");
    };
    assert_eq!(patch["attributes"][4], json!(attribute("kubeletVersion", "v1.37.0")));
    assert_eq!(ours.write(&versioned, Some(&object), Mode::Patch), None);
}

#[test]
fn without_a_fingerprint_none_is_left_over() {
    let stored = stored_object(&content(22));
    let mut ours = content(22);
    ours.fingerprint = None;
    ours.attributes.drain(..2);
    let patched = patch(&ours, &stored, &owner("u1"));
    assert_eq!(patched["attributes"], json!(ours.attributes));
    assert_eq!(patched["metadata"]["annotations"]["topology.node.k8s.io/fingerprint"], Value::Null);
    let keys = patched["metadata"]["annotations"].as_object().unwrap();
    assert!(keys.contains_key("topology.node.k8s.io/fingerprint"), "{patched}");
    assert_eq!(stored_object(&ours).metadata.annotations.unwrap().len(), 1);
}

#[test]
fn the_deprecated_word_is_written_when_asked_for() {
    let ours = Content { topology_policy: Some("RestrictedPodLevel"), ..content(22) };
    let stored = stored_object(&ours);
    assert_eq!(stored.topology_policies, ["RestrictedPodLevel"]);
    assert_eq!(patch(&ours, &stored, &owner("u1")), Value::Null);
    let patched = patch(&ours, &stored_object(&content(22)), &owner("u1"));
    assert_eq!(patched["topologyPolicies"], json!(["RestrictedPodLevel"]));
}

#[test]
fn what_says_the_same_is_not_written() {
    let stored = stored_object(&content(22));
    assert_eq!(patch(&content(22), &stored, &owner("u1")), Value::Null, "the trigger alone is no reason");
    assert_eq!(patch(&content(22), &stored, &Owner::Leave), Value::Null);
    let mut spelled = stored.clone();
    spelled.zones[0].resources[1].available = Amount("1000k".to_owned());
    spelled.metadata.labels = Some([("theirs".to_owned(), "1".to_owned())].into());
    assert_eq!(patch(&content(22), &spelled, &owner("u1")), Value::Null, "amounts compare by value");
}

#[test]
fn only_what_differs_is_written_and_only_onto_what_was_seen() {
    let stored = stored_object(&content(22));
    let patched = patch(&content(21), &stored, &owner("u1"));
    let metadata =
        json!({ "annotations": { "k8stopoawareschedwg/rte-update": "periodic" }, "resourceVersion": "7" });
    assert_eq!(patched["metadata"], metadata);
    assert_eq!(patched["zones"][0]["resources"][0]["available"], "21");
    assert_eq!(patched.as_object().unwrap().len(), 2, "{patched}");

    let patched = patch(&content(22), &stored, &owner("u2"));
    let metadata = json!({
        "annotations": { "k8stopoawareschedwg/rte-update": "periodic" },
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u2" }],
        "resourceVersion": "7",
    });
    assert_eq!(patched, json!({ "metadata": metadata }), "a replaced node");
}

#[test]
fn leftovers_of_other_exporters_go_and_what_is_foreign_stays() {
    let ours = content(22);
    let mut stored = stored_object(&ours);
    stored.topology_policies = vec!["SingleNUMANodePodLevel".to_owned()];
    stored.attributes = vec![
        attribute("theirs", "kept"),
        attribute("topologyManagerPolicy", "restricted"),
        attribute("topology.node.k8s.io/numaplacement-metadata", "npv0v001::cc=1"),
        attribute("topologyManagerPolicy", "none"),
    ];
    let annotations = stored.metadata.annotations.get_or_insert_default();
    annotations.insert("k8stopoawareschedwg/sleep-duration".to_owned(), "10s".to_owned());
    annotations.insert("theirs".to_owned(), "kept".to_owned());
    annotations.insert("topology.node.k8s.io/fingerprint".to_owned(), "pfp0v0010000000000000000".to_owned());

    let patched = patch(&ours, &stored, &owner("u1"));
    let mut attributes = ours.attributes.clone();
    attributes.push(attribute("theirs", "kept"));
    let metadata = json!({
        "annotations": {
            "k8stopoawareschedwg/rte-update": "periodic",
            "k8stopoawareschedwg/sleep-duration": null,
            "topology.node.k8s.io/fingerprint": "pfp0v001fe53c4dbd2c5f4a0",
        },
        "resourceVersion": "7",
    });
    assert_eq!(patched, json!({ "metadata": metadata, "attributes": attributes, "topologyPolicies": null }));
}

#[test]
fn foreign_zones_and_zone_attributes_do_not_survive() {
    let ours = content(22);
    let spoilers: [fn(&mut NodeResourceTopology); 8] = [
        |stored| stored.zones.swap(0, 1),
        |stored| stored.zones.truncate(1),
        |stored| stored.zones[0].attributes.push(Attribute::default()),
        |stored| stored.zones[0].parent = "socket-0".to_owned(),
        |stored| stored.zones[0].kind = "node".to_owned(),
        |stored| stored.zones[0].costs.clear(),
        |stored| stored.zones[0].resources[0].available = Amount("garbage".to_owned()),
        |stored| stored.zones[0].resources[0].name = "cpus".to_owned(),
    ];
    for spoil in spoilers {
        let mut stored = stored_object(&ours);
        spoil(&mut stored);
        let patched = patch(&ours, &stored, &owner("u1"));
        assert_eq!(patched["zones"], json!(ours.zones));
    }
}

/// An object of another exporter, with things of third parties in it.
fn spoilt(ours: &Content) -> NodeResourceTopology {
    let mut stored = stored_object(ours);
    stored.topology_policies = vec!["SingleNUMANodePodLevel".to_owned()];
    stored.attributes = vec![attribute("theirs", "kept"), attribute("topologyManagerPolicy", "restricted")];
    stored.metadata.labels = Some([("theirs".to_owned(), "kept".to_owned())].into());
    let annotations = stored.metadata.annotations.get_or_insert_default();
    annotations.insert("k8stopoawareschedwg/sleep-duration".to_owned(), "10s".to_owned());
    annotations.insert("theirs".to_owned(), "kept".to_owned());
    stored
}

#[test]
fn a_replacement_is_the_held_object_with_our_parts_in_place() {
    let ours = content(22);
    let stored = spoilt(&ours);
    let owner = owner("u2");
    let write = ours.write(&context(&owner, "periodic"), Some(&stored), Mode::Update);
    let Some(Write::Replace(object)) = write else { panic!("{write:?}") };
    let mut wanted = stored_object(&ours);
    wanted.attributes.push(attribute("theirs", "kept"));
    wanted.metadata.labels.clone_from(&stored.metadata.labels);
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    annotations.insert("theirs".to_owned(), "kept".to_owned());
    annotations.insert("k8stopoawareschedwg/rte-update".to_owned(), "periodic".to_owned());
    wanted.metadata.owner_references.as_mut().unwrap()[0].uid = "u2".to_owned();
    assert_eq!(*object, wanted);
    assert_eq!(ours.write(&context(&owner, "periodic"), Some(&object), Mode::Update), None);
}

#[test]
fn an_apply_states_all_and_a_patch_takes_away() {
    let (ours, owner) = (content(21), owner("u1"));
    let context = context(&owner, "periodic");
    let write = |stored: Option<&NodeResourceTopology>| ours.write(&context, stored, Mode::Apply);
    assert_eq!(write(None), Some(Write::Apply(Box::new(ours.object(&context)))));

    let mut stored = stored_object(&content(22));
    stored.attributes.push(attribute("theirs", "kept"));
    stored.metadata.labels = Some([("theirs".to_owned(), "kept".to_owned())].into());
    let mut wanted = ours.object(&context);
    wanted.attributes.push(attribute("theirs", "kept"));
    wanted.metadata.resource_version = Some("7".to_owned());
    assert_eq!(write(Some(&stored)), Some(Write::Apply(Box::new(wanted))));

    let spoilers: [fn(&mut NodeResourceTopology); 3] = [
        |stored| stored.topology_policies = vec!["None".to_owned()],
        |stored| stored.metadata.owner_references.as_mut().unwrap()[0].uid = "u0".to_owned(),
        |stored| {
            let annotations = stored.metadata.annotations.as_mut().unwrap();
            annotations.insert("k8stopoawareschedwg/update-interval".to_owned(), "0s".to_owned());
        },
    ];
    for spoil in spoilers {
        let mut stored = stored.clone();
        spoil(&mut stored);
        assert!(matches!(write(Some(&stored)), Some(Write::Patch(_))), "{stored:?}");
    }
}

#[test]
fn the_time_slept_is_told_along_but_is_no_reason() {
    let owner = owner("u1");
    let timing = Timing { slept: Duration::from_millis(9_700), interval: Duration::from_secs(60) };
    let timed = WriteContext { timing: Some(timing), ..context(&owner, "periodic") };
    let stored = stored_object(&content(22));
    assert_eq!(content(22).write(&timed, Some(&stored), Mode::Patch), None);
    let write = content(21).write(&timed, Some(&stored), Mode::Patch);
    let Some(Write::Patch(Change { merge: patch, .. })) = write else { panic!("{write:?}") };
    let annotations = json!({
        "k8stopoawareschedwg/rte-update": "periodic",
        "k8stopoawareschedwg/sleep-duration": "10s",
        "k8stopoawareschedwg/update-interval": "1m0s",
    });
    assert_eq!(patch["metadata"]["annotations"], annotations);
    let mut told = content(22).object(&timed);
    told.metadata.resource_version = Some("8".to_owned());
    let patch = patch_of(content(22).write(&context(&owner, "periodic"), Some(&told), Mode::Patch));
    let gone =
        json!({ "k8stopoawareschedwg/sleep-duration": null, "k8stopoawareschedwg/update-interval": null });
    assert_eq!(patch["metadata"]["annotations"], gone, "turned off");
}

#[test]
fn a_namespace_can_own_it_and_there_is_one_owner() {
    let space = Owner::Namespace { name: "numa".to_owned(), uid: "u9".to_owned() };
    let patched = patch(&content(22), &stored_object(&content(22)), &space);
    let owners = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": "numa", "uid": "u9" }]);
    assert_eq!(patched["metadata"]["ownerReferences"], owners);
}

#[test]
fn ended_containers_are_forgotten_with_the_next_change() {
    use topology::cpuset::CpuSet;
    use topology::placement::ContainerHash;
    use topology::placement::holdings::{HashKey, Holding, Holdings};
    let with = |available, held: &[(u64, &str)], free: &str| {
        let holding = |cpus| Holding { cpus: CpuSet::parse(cpus).unwrap(), ..Holding::default() };
        let held = held.iter().map(|(hash, cpus)| (ContainerHash(*hash), holding(cpus))).collect();
        let mut content = content(available);
        content.attributes.push(attribute("containerHoldings", &Holdings::new(HashKey::Uid, held).encode()));
        content.zones[0].attributes.push(attribute("freeCPUs", free));
        content
    };
    let stored = stored_object(&with(22, &[(1, "4"), (2, "5-6")], "7-8"));
    let changes = |content: &Content| patch(content, &stored, &owner("u1")) != Value::Null;
    for (what, content, wanted) in [
        ("nothing", with(22, &[(1, "4"), (2, "5-6")], "7-8"), false),
        ("one is forgotten", with(22, &[(1, "4")], "5-8"), false),
        ("all are forgotten", with(22, &[], "4-8"), false),
        ("one is forgotten, and a number changes", with(23, &[(1, "4")], "5-8"), true),
        ("one comes", with(22, &[(1, "4"), (2, "5-6"), (3, "7")], "8"), true),
        ("one has other CPUs", with(22, &[(1, "4"), (2, "5")], "6-8"), true),
        ("free CPUs differ", with(22, &[(1, "4"), (2, "5-6")], "8"), true),
    ] {
        assert_eq!(changes(&content), wanted, "{what}");
    }
}

fn patch_of(write: Option<Write>) -> Value {
    match write {
        Some(Write::Patch(change)) => change.merge,
        other => panic!("{other:?}"),
    }
}

/// The more changes the more is written, and never as much as the whole object.
#[test]
fn a_small_change_is_a_small_patch() {
    let size = |value: &Value| serde_json::to_vec(value).unwrap().len();
    let stored = stored_object(&content(22));
    let relabelled = |mut ours: Content| {
        ours.attributes[2].value = "pod".to_owned();
        ours
    };
    let of = |ours: Content| size(&patch(&ours, &stored, &owner("u1")));
    let (owned, attributes) =
        (size(&patch(&content(22), &stored, &owner("u2"))), of(relabelled(content(22))));
    let (zones, both) = (of(content(21)), of(relabelled(content(21))));
    let whole = size(&json!(content(21).object(&context(&owner("u1"), "periodic"))));
    let sizes = [0, owned, attributes, zones, both, whole];
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    assert_eq!(patch(&content(22), &stored, &owner("u1")), Value::Null);
}
