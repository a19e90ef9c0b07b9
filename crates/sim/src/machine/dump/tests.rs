use proptest::prelude::*;
use topology::request::Qos;

use super::*;
use crate::comparison::{Contender, Impairments};
use crate::workload::{Arrival, Workload};

/// A list as kubectl prints it: two nodes, one with zones; pods in all states.
const LIST: &str = r#"
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: v1
  kind: Node
  metadata: {name: worker, uid: n1, creationTimestamp: "2026-01-01T00:00:00Z"}
  status: {allocatable: {cpu: "31", memory: 60Gi, pods: "110", ephemeral-storage: 10Gi}}
- apiVersion: v1
  kind: Node
  metadata: {name: control, uid: n2}
  spec: {taints: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]}
  status: {allocatable: {cpu: 3900m, memory: 8Gi, pods: "110"}}
- apiVersion: v1
  kind: Pod
  metadata: {name: a, namespace: x, uid: p1}
  spec:
    nodeName: worker
    containers:
    - {name: c, resources: {limits: {cpu: "4", memory: 1Gi}}}
  status: {phase: Running, startTime: "2026-01-01T00:01:00Z"}
- apiVersion: v1
  kind: Pod
  metadata: {name: b, namespace: x, uid: p2}
  spec: {nodeName: control, containers: [{name: c, resources: {limits: {cpu: "1", memory: 1Gi}}}]}
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: done, namespace: x, uid: p3}
  spec: {nodeName: worker, containers: [{name: c}]}
  status: {phase: Succeeded}
- apiVersion: v1
  kind: Pod
  metadata: {name: waits, namespace: x, uid: p4}
  spec: {containers: [{name: c}]}
- apiVersion: topology.node.k8s.io/v1alpha2
  kind: NodeResourceTopology
  metadata: {name: worker}
  attributes:
  - {name: topologyManagerPolicy, value: single-numa-node}
  - {name: topologyManagerScope, value: pod}
  zones:
  - {name: node-0, type: Node, resources: [{name: cpu, capacity: "16", allocatable: "15", available: "11"}]}
  - {name: node-3, type: Node, resources: [{name: cpu, capacity: "16", allocatable: "16", available: "16"}]}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: whatever}}
"#;

fn read(text: &str, options: DumpOptions) -> Dump {
    Dump::parse("dump.yaml", text, options).unwrap()
}

fn available(machine: &Machine) -> Vec<(u32, i64)> {
    let free = machine.topology.available();
    let cpu = |zone: &Zone| (zone.id.0, free.amount(zone.id, ResourceName::CPU));
    machine.topology.zones.iter().map(cpu).collect()
}

#[test]
fn nodes_with_zones_become_machines() {
    let dump = read(LIST, DumpOptions::default());
    let [machine] = &dump.machines[..] else { panic!("{:?}", dump.machines) };
    assert_eq!(&*machine.view.name, "worker");
    assert_eq!(available(machine), [(0, 11_000), (3, 16_000)]);
    assert_eq!(
        (machine.topology.rules.policy, machine.topology.rules.scope),
        (Policy::SingleNumaNode, Scope::Pod)
    );
    assert_eq!(machine.residents.len(), 1);
    assert!(machine.residents[0].progress.admitted);
    assert_eq!(machine.residents[0].spec.needs.qos, Qos::Guaranteed);
    assert_eq!(super::super::open_cpus(&dump.machines), 27);
    let notes = dump.notes.join("\n");
    for words in ["left out 1 node without", ": control (--zones", "left out 1 pod that"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}

#[test]
fn nodes_without_zones_can_be_divided() {
    let options = DumpOptions {
        zones: Some(2),
        policy: Some(Policy::Restricted),
        scope: Some(Scope::Container),
        ..DumpOptions::default()
    };
    let dump = read(LIST, options);
    let [control, worker] = &dump.machines[..] else { panic!("{:?}", dump.machines) };
    // 3.9 CPUs are 2 and 1 whole ones; one of zone 0 is held by a pod.
    assert_eq!(available(control), [(0, 1_000), (1, 1_000)]);
    assert_eq!(control.topology.zones[0].resources.len(), 2, "neither pods nor storage have zones");
    assert_eq!(control.view.taints.len(), 1);
    assert_eq!(worker.topology.rules.policy, Policy::Restricted);
    assert_eq!(worker.topology.rules.scope, Scope::Container);
}

#[test]
fn single_objects_in_several_documents_are_read() {
    let text = "apiVersion: v1\nkind: Node\nmetadata: {name: w}\nstatus: {allocatable: {cpu: \"4\"}}\n---\n\
                apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: x}\nspec: {containers: [{name: c}]}\n";
    let dump = read(text, DumpOptions { zones: Some(2), pending: true, ..DumpOptions::default() });
    assert_eq!((available(&dump.machines[0]), dump.pending.len()), (vec![(0, 2_000), (1, 2_000)], 1));
}

#[test]
fn pods_on_no_node_can_be_placed() {
    let dump = read(LIST, DumpOptions { pending: true, ..DumpOptions::default() });
    let [pod] = &dump.pending[..] else { panic!("{:?}", dump.pending) };
    assert_eq!((&*pod.namespace, &*pod.name), ("x", "waits"));
    assert!(!dump.notes.join(" ").contains("not bound"), "{:?}", dump.notes);
    let selective = LIST
        .replace("spec: {containers: [{name: c}]}", "spec: {nodeSelector: {a: b}, containers: [{name: c}]}");
    for (text, running, reason) in [
        (LIST, 1, None),
        (
            &*selective,
            0,
            Some("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
        ),
    ] {
        let dump = read(text, DumpOptions { pending: true, ..DumpOptions::default() });
        let arrivals = dump.pending.into_iter().map(Arrival::of).collect();
        let workload = Workload { max_pending: None, arrivals };
        let outcome =
            Contender::Tholepin.run(&workload, &dump.machines, Impairments::healthy(), 1, &mut |_| {});
        let refusals: Vec<_> = outcome.refusals.iter().map(|r| (&*r.first, &*r.reason)).collect();
        assert_eq!(outcome.summary.running, running, "{outcome:?}");
        assert_eq!(refusals, reason.map(|reason| ("waits", reason)).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn json_and_typed_lists_are_read_too() {
    let json = r#"{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"8"}}}]}"#;
    let dump = read(json, DumpOptions { zones: Some(2), ..DumpOptions::default() });
    assert_eq!(available(&dump.machines[0]), [(0, 4_000), (1, 4_000)]);
}

#[test]
fn bad_dumps_name_file_item_and_field() {
    let item = |item: &str| format!("{{kind: List, items: [{item}]}}");
    for (text, words) in [
        ("kind: Pod".to_owned(), r#"d.yaml: kind is "Pod": allowed is List"#),
        ("[]".to_owned(), "d.yaml: "),
        ("kind: List".to_owned(), "no Node objects"),
        (
            item("{kind: Node, apiVersion: v1, metadata: {name: w}}"),
            "no node has a NodeResourceTopology object",
        ),
        (item("{kind: Node, apiVersion: v1}"), "items[0] (Node ): metadata.name is missing"),
        (item("{kind: Node, metadata: {name: 3}}"), "items[0] (Node ): invalid type"),
        (
            item("{kind: Node, metadata: {name: w}}, {kind: Node, metadata: {name: w}}"),
            "items[1] (Node w): this node is listed twice",
        ),
        (
            item(
                "{kind: NodeResourceTopology, metadata: {name: w}, zones: [{name: node-0, type: Node, resources: [{name: cpu, capacity: 1, allocatable: 1, available: -1}]}]}",
            ),
            "items[0] (NodeResourceTopology w): zones[0].resources[0].available: -1 is negative",
        ),
        (item("{kind: Pod, metadata: {namespace: x, name: p}, spec: 4}"), "items[0] (Pod x/p): invalid type"),
    ] {
        let error = Dump::parse("d.yaml", &text, DumpOptions::default()).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn settings_that_no_report_names_are_guesses() {
    let dump = |attributes: &str, resource: &str| {
        let zone = format!(
            "{{name: node-0, type: Node, resources: [{{name: {resource}, capacity: 8, allocatable: 8, available: 8}}]}}"
        );
        let text = format!(
            "kind: List\nitems:\n- {{kind: Node, metadata: {{name: w}}}}\n- {{kind: NodeResourceTopology, \
             metadata: {{name: w}}, attributes: [{attributes}], zones: [{zone}]}}\n"
        );
        read(&text, DumpOptions::default())
    };
    let manager = |dump: &Dump| dump.machines[0].topology.rules.memory_manager;
    let without = dump("", "cpu");
    assert_eq!((manager(&without), without.is_guessed), (Manager::Off, true));
    assert_eq!(
        without.notes,
        [
            "guessed for 1 node without such a report (w): cpuManagerPolicy static",
            "guessed for 1 node without such a report (w): memoryManagerPolicy None, because their zones list no memory",
        ]
    );
    let with_memory = dump("", "memory");
    assert_eq!(manager(&with_memory), Manager::Unknown);
    assert!(with_memory.notes[1].ends_with("memoryManagerPolicy Static, so that memory must fit in a zone"));
    let said =
        dump("{name: cpuManagerPolicy, value: static}, {name: memoryManagerPolicy, value: Static}", "cpu");
    assert_eq!((manager(&said), said.is_guessed, said.notes.len()), (Manager::Static, false, 0));
}

#[test]
fn a_must_gather_is_read_as_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let node =
        "kind: Node\napiVersion: v1\nmetadata: {name: w}\nstatus: {allocatable: {cpu: \"8\", pods: \"9\"}}\n";
    let pod = "metadata: {name: p, namespace: x}\nspec: {nodeName: w, containers: [{name: c}]}\n";
    put("cluster-scoped-resources/core/nodes/w.yaml", &format!("---\n{node}"));
    put("namespaces/x/pods/p/p.yaml", &format!("kind: Pod\n{pod}"));
    put(
        "namespaces/x/core/pods.yaml",
        &format!("items:\n- {}kind: PodList\n", pod.replace("\nspec", "\n  spec")),
    );
    put("namespaces/x/core/broken.yaml", "a: [");
    put("namespaces/x/pods/p/p.log", "not: [yaml");
    put("version.json", "{\"gitVersion\": \"v1.36.0\"}");
    let dump = Dump::read(folder.path(), DumpOptions { zones: Some(2), ..DumpOptions::default() }).unwrap();
    assert_eq!((dump.machines.len(), dump.machines[0].residents.len()), (1, 1), "each object counts once");
    assert_eq!(dump.notes, ["ignored 1 file without valid YAML or JSON"]);
    let empty = tempfile::tempdir().unwrap();
    let error = Dump::read(empty.path(), DumpOptions::default()).unwrap_err().to_string();
    assert!(error.ends_with("no Node objects; nodes, pods and noderesourcetopologies are needed"), "{error}");
}

#[test]
fn numbers_are_bounded() {
    for zones in [0, 65, 1_000_000, u32::MAX] {
        let options = DumpOptions { zones: Some(zones), ..DumpOptions::default() };
        let error = Dump::parse("d", LIST, options).unwrap_err().to_string();
        assert_eq!(error, format!("the number of zones is {zones}: allowed are 1 to 64"));
    }
    let pod = "- {kind: Pod, metadata: {name: p}, spec: {nodeName: w, containers: [{name: c}]}}\n";
    let list =
        |pods| format!("kind: List\nitems:\n- {{kind: Node, metadata: {{name: w}}}}\n{}", pod.repeat(pods));
    let options = DumpOptions { zones: Some(1), ..DumpOptions::default() };
    assert_eq!(
        Dump::parse("d", &list(MAX_RESIDENTS), options).unwrap().machines[0].residents.len(),
        MAX_RESIDENTS
    );
    let error = Dump::parse("d", &list(MAX_RESIDENTS + 1), options).unwrap_err().to_string();
    assert_eq!(error, "d: items[5001] (Pod p): node w has more pods than the 5000 allowed");
}

/// JSON of the right shape, with any scalar anywhere a scalar can be.
fn hostile() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        prop_oneof![
            Just("1"),
            Just("9223372036854775807"),
            Just("1e18"),
            Just("-5"),
            Just("64Ei"),
            Just("node-0"),
            Just("node-4294967295"),
            Just("n"),
            Just("Guaranteed"),
            Just("single-numa-node"),
            Just("topologyManagerPolicy"),
            Just("Always"),
            Just(""),
        ]
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("name"),
        Just("namespace"),
        Just("uid"),
        Just("allocatable"),
        Just("cpu"),
        Just("memory"),
        Just("pods"),
        Just("nodeName"),
        Just("containers"),
        Just("resources"),
        Just("limits"),
        Just("zones"),
        Just("type"),
        Just("capacity"),
        Just("available"),
        Just("attributes"),
        Just("value"),
        Just("costs"),
        Just("example.com/gpu"),
        Just("initContainers"),
        Just("restartPolicy"),
    ];
    scalar.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| map
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Value>()),
        ]
    })
}

/// Amounts of all sizes in a list that is otherwise sound.
fn amount() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (0_i64..64).prop_map(|n| n.to_string()),
        Just("144115188075855872".to_owned()),
        Just("100m".to_owned()),
        Just("8Ei".to_owned()),
        Just("rubbish".to_owned()),
    ]
}

proptest! {
    #[test]
    fn no_objects_make_the_reader_panic(
        items in prop::collection::vec(
            (prop_oneof![Just("Node"), Just("Pod"), Just("NodeResourceTopology")], hostile()),
            0..6,
        ),
        zones in prop::option::of(0_u32..70),
    ) {
        let items: Vec<Value> = items.into_iter().map(|(kind, mut item)| {
            if let Some(map) = item.as_object_mut() {
                map.insert("kind".to_owned(), kind.into());
            }
            item
        }).collect();
        let list = serde_json::json!({ "kind": "List", "items": items }).to_string();
        let _ = Dump::parse("d", &list, DumpOptions { zones, ..DumpOptions::default() });
    }

    /// What can be read can be simulated.
    #[test]
    fn no_amounts_make_the_simulation_panic(
        node in prop::collection::vec(amount(), 3),
        zone in prop::collection::vec(amount(), 3),
        pod in prop::collection::vec(amount(), 2),
        with_zones in any::<bool>(),
    ) {
        let mut list = format!(
            "kind: List\nitems:\n\
             - {{kind: Node, metadata: {{name: w}}, status: {{allocatable: {{cpu: \"{}\", memory: \"{}\", pods: \"{}\"}}}}}}\n\
             - {{kind: Pod, metadata: {{name: p, uid: sim/0}}, spec: {{nodeName: w, containers: [{{name: c, resources: {{limits: {{cpu: \"{}\", memory: \"{}\"}}}}}}]}}}}\n",
            node[0], node[1], node[2], pod[0], pod[1],
        );
        if with_zones {
            list += &format!(
                "- {{kind: NodeResourceTopology, metadata: {{name: w}}, attributes: [{{name: topologyManagerPolicy, value: single-numa-node}}], zones: [{{name: node-7, type: Node, resources: [{{name: cpu, capacity: \"{}\", allocatable: \"{}\", available: \"{}\"}}]}}]}}\n",
                zone[0], zone[1], zone[2],
            );
        }
        if let Ok(dump) = Dump::parse("d", &list, DumpOptions { zones: Some(2), ..DumpOptions::default() }) {
            let workload = crate::workload::OpenArrivals { pods: 8, ..Default::default() }.workload().unwrap();
            let summary = crate::ideal(&workload, &dump.machines, 1);
            prop_assert_eq!(summary.running + summary.rejected + summary.unplaced, 8);
        }
    }
}

/// A node whose report says what is where: threads that are neighbours, a socket of two zones, a group of zones, a
/// device of two zones.
const BY_IDS: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: worker, uid: n1}, status: {allocatable: {cpu: "7", memory: 4Gi, pods: "110"}}}
- apiVersion: topology.node.k8s.io/v1alpha2
  kind: NodeResourceTopology
  metadata: {name: worker}
  attributes:
  - {name: topologyManagerPolicy, value: restricted}
  - {name: cpuManagerPolicy, value: static}
  - {name: memoryManagerPolicy, value: Static}
  - {name: cpuManagerPolicyOptions, value: full-pcpus-only=true}
  - {name: kubeletVersion, value: v1.35.4}
  - {name: reservedSystemCPUs, value: "7"}
  - {name: threadSiblings, value: "0-6:2+1"}
  - {name: deviceGroups, value: "v.io/gpu@0,1:2:1"}
  - {name: containerHoldings, value: "v1 uid ef46db3751d8e999"}
  zones:
  - name: node-0
    type: Node
    attributes: [{name: cpus, value: 0-3}, {name: sockets, value: "4"}, {name: freeCPUs, value: "0-1"}, {name: memoryGroup, value: "0,1"}]
    resources:
    - {name: cpu, capacity: "4", allocatable: "4", available: "4"}
    - {name: memory, capacity: 2Gi, allocatable: 2000Mi, available: "0"}
    - {name: v.io/gpu, capacity: "3", allocatable: "3", available: "1"}
  - name: node-1
    type: Node
    attributes: [{name: cpus, value: 4-7}, {name: sockets, value: "4"}, {name: freeCPUs, value: 4-6}, {name: memoryGroup, value: "0,1"}]
    resources:
    - {name: cpu, capacity: "4", allocatable: "3", available: "3"}
    - {name: memory, capacity: 2Gi, allocatable: 2000Mi, available: 1000Mi}
    - {name: v.io/gpu, capacity: "2", allocatable: "2", available: "1"}
"#;

#[test]
fn reports_with_ids_make_the_kubelet_that_is_there() {
    use topology::kubelet::hint::ZoneMask;
    use topology::kubelet::profile::{CpuManager, Minor};
    use topology::policy::CpuOption;
    let dump = read(BY_IDS, DumpOptions::default());
    let [machine] = &dump.machines[..] else { panic!("{:?}", dump.notes) };
    let (kubelet, state) = (&machine.start.kubelet, machine.start.state());
    let core = |id| kubelet.machine().cpu(id).map(|cpu| (cpu.core, cpu.socket, cpu.zone));
    assert_eq!((core(3), core(4)), (Some((2, 4, 0)), Some((4, 4, 1))));
    assert_eq!(kubelet.profile().minor, Minor::V35);
    assert_eq!(kubelet.reserved_cpus().to_string(), "7");
    let CpuManager::Static { options, .. } = &kubelet.profile().cpu_manager else { panic!("static") };
    assert!(options.has(CpuOption::FullPcpusOnly));
    // A finished init container holds 2-3, although 4 CPUs are said to be available.
    assert_eq!(state.cpus.shared.to_string(), "0-1,4-7");
    let group: ZoneMask = [0, 1].into_iter().collect();
    assert!(state.memory.counts.zones.iter().all(|zone| zone.group == group));
    assert_eq!(state.memory.counts.free(group, ResourceName::MEMORY), 1000 << 20);
    let gpus = &state.devices.resources[&ResourceName::new("v.io/gpu").unwrap()];
    let listed = |zones: &[u32]| {
        let zones: ZoneMask = zones.iter().copied().collect();
        gpus.devices.values().filter(|device| device.zones == Some(zones)).count()
    };
    assert_eq!((listed(&[0]), listed(&[1]), listed(&[0, 1])), (1, 0, 2));
    let held = state.devices.pods.iter().flat_map(|pod| &pod.containers).flat_map(|(_, held)| held.values());
    assert_eq!(held.map(std::collections::BTreeSet::len).sum::<usize>(), 2, "one of each kind");

    let other = DumpOptions { threads_per_core: Some(1), ..DumpOptions::default() };
    let other = read(BY_IDS, other);
    let core = |id| other.machines[0].start.kubelet.machine().cpu(id).map(|cpu| cpu.core);
    assert_eq!(core(3), Some(3), "another machine has other ids");
    let broken = read(&BY_IDS.replace("0-6:2+1", "0-"), DumpOptions::default());
    assert!(broken.notes.iter().any(|note| note.contains("invalid field")), "{:?}", broken.notes);
}
