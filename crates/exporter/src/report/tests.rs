use api::convert::{kubelet_report, node_topology};
use api::nrt::NodeResourceTopology;
use node::kubelet::machine::of_kernel;
use node::podresources::MemoryBlock;
use node::sysfs::{self, Hugepages};
use topology::kubelet::machine::Cpu;
use topology::placement::ContainerHash;
use topology::placement::holdings::Holdings;
use topology::resource::ResourceName;
use topology::zone::ZoneId;

use super::*;
use crate::settings::PodName;

const RULES: Rules = Rules {
    policy: Policy::SingleNumaNode,
    scope: Scope::Container,
    cpu_manager: Manager::Static,
    memory_manager: Manager::Off,
};

fn known(rules: Rules) -> KubeletSettings {
    KubeletSettings { rules, configuration: None }
}

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

fn resource(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

/// Zones 0 and 4 with eight CPUs each: four cores of two threads, two caches.
fn machine() -> (Machine, Layout) {
    let zone = |id, cpus| sysfs::Zone {
        id: ZoneId(id),
        cpus: set(cpus),
        memory_bytes: 1 << 30,
        hugepages: vec![Hugepages { page_bytes: 2 << 20, total_bytes: 4 << 20 }],
        distances: vec![(ZoneId(0), 10), (ZoneId(4), 20)],
    };
    let machine = Machine { cpus: set("0-15"), zones: vec![zone(0, "0-7"), zone(4, "8-15")] };
    let cores = (0..8).map(|core| CpuSet::from_ids([2 * core, 2 * core + 1]).unwrap()).collect();
    let caches = ["0-3", "4-7", "8-15"].map(set).to_vec();
    (machine, Layout { cores, caches })
}

fn snapshot<'a>(
    machine: &'a Machine,
    layout: &'a Layout,
    kubelet: &'a KubeletSettings,
    allocatable: &'a Allocatable,
) -> NodeSnapshot<'a> {
    static ALIKE: BTreeMap<String, CpuSet> = BTreeMap::new();
    static SOCKETS: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let (sockets, core_kinds) = (&SOCKETS, &ALIKE);
    NodeSnapshot { machine, layout, sockets, core_kinds, kubelet, allocatable, checkpoints: None }
}

fn accounting() -> Accounting {
    Accounting {
        namespace: None,
        exclude: BTreeSet::new(),
        exclude_pods: Vec::new(),
        reference: None,
        fingerprint: Some(Method::WithExclusiveResources),
        topology_policies: false,
    }
}

/// A pod `namespace/name` of one container `c` with these CPUs, and devices as (resource, id, zones).
fn pod(name: &str, cpus: &str, devices: &[(&str, &str, &[u32])]) -> PodResources {
    let (namespace, name) = name.split_once('/').unwrap();
    let memory: Vec<MemoryBlock> = Vec::new();
    let container =
        ContainerResources { name: "c".to_owned(), cpus: set(cpus), memory, devices: offered(devices) };
    PodResources { namespace: namespace.to_owned(), name: name.to_owned(), containers: vec![container] }
}

fn offered(devices: &[(&str, &str, &[u32])]) -> Vec<Devices> {
    let entry = |(name, id, zones): &(&str, &str, &[u32])| Devices {
        resource: resource(name),
        ids: vec![(*id).to_owned()],
        zones: zones.iter().copied().map(ZoneId).collect(),
    };
    devices.iter().map(entry).collect()
}

fn look(devices: &[(&str, &str, &[u32])], pods: &[PodResources], accounting: &Accounting) -> Report {
    let (machine, layout) = machine();
    let allocatable = Allocatable { cpus: set("1-15"), devices: offered(devices), ..Allocatable::default() };
    let kubelet = known(RULES);
    let snapshot = snapshot(&machine, &layout, &kubelet, &allocatable);
    report(snapshot, pods.to_vec(), accounting).unwrap()
}

fn value<'a>(report: &'a Report, name: &str) -> &'a str {
    attribute::get(&report.content.attributes, name).unwrap_or("-")
}

/// `0 cpu 4/7 | 4 cpu 8/8`: available and allocatable of every resource in every zone.
fn amounts(report: &Report) -> String {
    let zone = |zone: &nrt::Zone| {
        let amount = |r: &nrt::Resource| format!(" {} {}/{}", r.name, r.available.0, r.allocatable.0);
        zone.name.replace("node-", "") + &zone.resources.iter().map(amount).collect::<String>()
    };
    report.content.zones.iter().map(zone).collect::<Vec<_>>().join(" | ")
}

#[test]
fn our_own_reader_understands_it() {
    let report = look(&[], &[pod("ns/a", "2-5", &[])], &accounting());
    let object = NodeResourceTopology {
        zones: report.content.zones.clone(),
        attributes: report.content.attributes.clone(),
        ..NodeResourceTopology::default()
    };
    let (read, warnings) = node_topology(&object).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(read.rules, RULES);
    assert_eq!(read.fingerprint, report.content.fingerprint.zip(Some(Method::WithExclusiveResources)));
    assert_eq!(read.zones.iter().map(|zone| zone.id.0).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(amounts(&report), "0 cpu 3/7 | 4 cpu 8/8");
}

#[test]
fn what_the_machine_is_like() {
    let report = look(&[], &[], &accounting());
    assert_eq!(value(&report, "threadsPerCore"), "2");
    let zone = |index: usize, name| attribute::get(&report.content.zones[index].attributes, name);
    assert_eq!((zone(0, "cpus"), zone(1, "cpus")), (Some("0-7"), Some("8-15")));
    assert_eq!((zone(0, "lastLevelCaches"), zone(1, "lastLevelCaches")), (Some("0-3;4-7"), Some("8-15")));
    assert_eq!(value(&report, "threadSiblings"), "0-14:2+1");
    assert_eq!(value(&report, "reservedSystemCPUs"), "0", "those that the kubelet does not hand out");
}

/// Zones of these CPUs, cores of these threads, caches, sockets.
type Shape<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a [(u32, &'a str)]);

#[test]
fn the_machine_is_read_back_id_by_id() {
    const ONE: &[&str] = &["0", "1", "2", "3"];
    let table: [Shape<'_>; 6] = [
        (&["0-3"], ONE, &[], &[(0, "0-3")]),
        (&["0-1,4-5", "2-3,6-7"], &["0,4", "1,5", "2,6", "3,7"], &["0-1,4-5", "2-3,6-7"], &[(0, "0-7")]),
        // A cache for each socket is none of its own.
        (&["0-1", "2-3"], &["0-1", "2-3"], &["0-1", "2-3"], &[(0, "0-1"), (7, "2-3")]),
        // CPUs that alternate, an offline thread, a zone without CPUs, sockets that are no zones.
        (&["0,2,4,6", "1,3,5", ""], &["0,4", "1,5", "2,6", "3"], &[], &[(1, "1,3,5"), (0, "0,2,4,6")]),
        (&["0-7"], &["0-1", "2-3", "4-5", "6-7"], &["0-3", "4-5", "6-7"], &[(0, "0-3"), (1, "4-7")]),
        (&["0-1", "2-3", "4-7"], &["0-1", "2-3", "4-5", "6-7"], &["0-3", "4-7"], &[(0, "0-3"), (1, "4-7")]),
    ];
    for (zones, cores, caches, sockets) in table {
        let zone = |(id, cpus): (u32, &&str)| sysfs::Zone {
            id: ZoneId(2 * id),
            cpus: set(cpus),
            memory_bytes: 1 << 30,
            hugepages: vec![],
            distances: vec![],
        };
        let machine = Machine {
            cpus: zones.iter().fold(CpuSet::new(), |all, cpus| all.union(&set(cpus))),
            zones: (0..).zip(zones).map(zone).collect(),
        };
        let sets = |lists: &[&str]| lists.iter().map(|list| set(list)).collect::<Vec<_>>();
        let layout = Layout { cores: sets(cores), caches: sets(caches) };
        let sockets: BTreeMap<u32, CpuSet> = sockets.iter().map(|(id, cpus)| (*id, set(cpus))).collect();
        let allocatable = Allocatable { cpus: machine.cpus.difference(&set("0")), ..Allocatable::default() };
        let kubelet = known(RULES);
        let snapshot =
            NodeSnapshot { sockets: &sockets, ..snapshot(&machine, &layout, &kubelet, &allocatable) };
        let content = report(snapshot, vec![], &accounting()).unwrap().content;
        let (zones, attributes) = (content.zones, content.attributes);
        let object = NodeResourceTopology { zones, attributes, ..NodeResourceTopology::default() };
        let read = kubelet_report(&object).unwrap().unwrap();
        let wanted = of_kernel(&machine, &layout, &sockets).unwrap();
        let by_id = |cpu: &Cpu| wanted.cpu(cpu.id) == Some(*cpu);
        assert!(read.cpus.iter().all(by_id), "{:?}, wanted {wanted:?}", read.cpus);
        assert_eq!(read.cpus.len(), wanted.cpus().len());
        assert_eq!((read.reserved_cpus, read.free_cpus), (set("0"), allocatable.cpus.clone()));
    }
}

#[test]
fn zones_name_their_sockets() {
    let sockets = BTreeMap::from([(0, set("0-7")), (1, set("8-11,16")), (3, set("12-15"))]);
    for (cpus, wanted) in [("0-3", "0"), ("4-7", "0"), ("8-15", "1:8-11;3:12-15"), ("", ""), ("17", "")] {
        assert_eq!(sockets_of(&set(cpus), &sockets), wanted, "{cpus}");
    }
}

#[test]
fn what_containers_hold_is_said_of_the_whole_node_or_not_at_all() {
    let pods = [pod("ns/a", "1-2", &[]), pod("ns/b", "8-15", &[])];
    let zone = |report: &Report, index: usize| {
        attribute::get(&report.content.zones[index].attributes, "freeCPUs").map(str::to_owned)
    };
    let all = look(&[], &pods, &accounting());
    let holdings = Holdings::decode(value(&all, "containerHoldings")).unwrap();
    let hash = |pod: &str| ContainerHash::of("ns", pod, "c");
    assert!(holdings.are_of([hash("a"), hash("b")]));
    assert_eq!(holdings.of(hash("b")).map(|held| held.cpus.to_string()).as_deref(), Some("8-15"));
    assert_eq!((zone(&all, 0), zone(&all, 1)), (Some("3-7".to_owned()), Some(String::new())));
    let one = look(&[], &pods, &Accounting { namespace: Some("ns".to_owned()), ..accounting() });
    assert_eq!((value(&one, "containerHoldings"), zone(&one, 0)), ("-", None));
}

#[test]
fn kinds_of_cores_are_named_as_the_kernel_names_them() {
    let (machine, layout) = machine();
    let (kubelet, allocatable) = (known(RULES), Allocatable::default());
    let kinds = [("cpu_core", "0-7"), ("cpu_atom", "8-15"), ("cpu_new", "3")];
    let kinds = kinds.map(|(kind, cpus)| (kind.to_owned(), set(cpus))).into();
    let snapshot = NodeSnapshot { core_kinds: &kinds, ..snapshot(&machine, &layout, &kubelet, &allocatable) };
    let report = report(snapshot, vec![], &accounting()).unwrap();
    assert_eq!((value(&report, "cpu_core"), value(&report, "cpu_atom")), ("0-7", "8-15"));
    assert_eq!(value(&report, "cpu_new"), "-", "a name that would not be removed again");
}

#[test]
fn cores_that_differ_have_no_number_of_threads() {
    let layout = Layout { cores: vec![set("0-1"), set("2")], ..Layout::default() };
    assert_eq!(threads_per_core(&layout), "");
    assert_eq!(threads_per_core(&Layout::default()), "");
}

#[test]
fn what_the_kubelet_is_told() {
    let text = "kind: KubeletConfiguration\ncpuManagerPolicy: static\nmemoryManagerPolicy: Static\n\
        topologyManagerPolicy: restricted\nreservedSystemCPUs: 0,8\n\
        cpuManagerPolicyOptions: {full-pcpus-only: 'true'}\n\
        featureGates: {PodLevelResourceManagers: true, Other: true}\n\
        topologyManagerPolicyOptions: {max-allowable-numa-nodes: '16', prefer-closest-numa-nodes: 'true'}\n\
        reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}, {numaNode: 4, limits: {memory: 512Mi}}]";
    let configuration = Configuration::parse(text, std::path::Path::new("config.yaml")).unwrap();
    let kubelet = KubeletSettings { rules: configuration.rules, configuration: Some(configuration) };
    let (machine, layout) = machine();
    let allocatable = Allocatable::default();
    let snapshot = snapshot(&machine, &layout, &kubelet, &allocatable);
    let report = report(snapshot, vec![], &accounting()).unwrap();
    for (name, wanted) in [
        ("topologyManagerPolicy", "restricted"),
        ("topologyManagerMaxNUMANodes", "16"),
        ("topologyManagerPolicyOptions", "max-allowable-numa-nodes=16,prefer-closest-numa-nodes=true"),
        ("cpuManagerPolicyOptions", "full-pcpus-only=true"),
        ("reservedSystemCPUs", "0,8"),
        ("kubeletFeatureGates", "PodLevelResourceManagers=true"),
        ("reservedMemory", "0:memory=1Gi,hugepages-2Mi=4Mi;4:memory=512Mi"),
    ] {
        assert_eq!(value(&report, name), wanted, "{name}");
    }
    let ours = report
        .content
        .attributes
        .iter()
        .all(|attribute| crate::object::OWNED_ATTRIBUTES.contains(&attribute.name.as_str()));
    assert!(ours, "{:?}", report.content.attributes);
}

#[test]
fn excluded_pods_are_neither_counted_nor_fingerprinted() {
    let pods = [pod("kube-system/a", "1-2", &[]), pod("ns/b", "3-4", &[])];
    let pattern = crate::settings::PodPattern { namespace: "kube-*".to_owned(), name: "*".to_owned() };
    let report = look(&[], &pods, &Accounting { exclude_pods: vec![pattern], ..accounting() });
    assert_eq!(amounts(&report), "0 cpu 5/7 | 4 cpu 8/8");
    assert_eq!(report.fingerprinted, [("ns".to_owned(), "b".to_owned())]);
    assert_eq!(report.listed.pods.len(), 1);
}

#[test]
fn unknown_managers_are_not_mentioned() {
    let (machine, layout) = machine();
    let rules = Rules { cpu_manager: Manager::Unknown, memory_manager: Manager::Unknown, ..RULES };
    let kubelet = known(rules);
    let allocatable = Allocatable::default();
    let snapshot = snapshot(&machine, &layout, &kubelet, &allocatable);
    let report = report(snapshot, vec![], &accounting()).unwrap();
    assert_eq!((value(&report, "cpuManagerPolicy"), value(&report, "memoryManagerPolicy")), ("-", "-"));
}

#[test]
fn fingerprints_follow_the_method() {
    let pods = [pod("default/test-pod-0", "1", &[]), pod("default/shared", "", &[])];
    let of = |fingerprint| look(&[], &pods, &Accounting { fingerprint, ..accounting() });
    let exclusive = of(Some(Method::WithExclusiveResources));
    assert_eq!(value(&exclusive, "nodeTopologyPodsFingerprint"), "pfp0v001fe53c4dbd2c5f4a0");
    assert_eq!(value(&exclusive, "nodeTopologyPodsFingerprintMethod"), "with-exclusive-resources");
    let all = of(Some(Method::All));
    let wanted = Fingerprint::of_names([("default", "shared"), ("default", "test-pod-0")]);
    assert_eq!(all.content.fingerprint, Some(wanted));
    assert_eq!(all.fingerprinted.len(), 2);
    let none = of(None);
    assert_eq!((value(&none, "nodeTopologyPodsFingerprint"), none.content.fingerprint), ("-", None));
    assert_eq!(value(&none, "nodeTopologyPodsFingerprintMethod"), "-");
}

#[test]
fn one_namespace_counts_and_all_are_fingerprinted() {
    let pods = [pod("a/p", "1-2", &[]), pod("b/p", "3-4", &[])];
    let all = look(&[], &pods, &accounting());
    let one = look(&[], &pods, &Accounting { namespace: Some("a".to_owned()), ..accounting() });
    assert_eq!(amounts(&all), "0 cpu 3/7 | 4 cpu 8/8");
    assert_eq!(amounts(&one), "0 cpu 5/7 | 4 cpu 8/8");
    assert_eq!((&one.fingerprinted, &one.listed), (&all.fingerprinted, &all.listed));
}

#[test]
fn excluded_resources_are_in_no_zone_and_no_attribute() {
    let devices: [(&str, &str, &[u32]); 3] =
        [("v.io/nic", "n", &[0]), ("v.io/gpu", "g", &[4]), ("v.io/tpm", "t", &[])];
    let exclude = ["cpu", "v.io/gpu", "v.io/tpm"].map(str::to_owned).into();
    assert_eq!(
        amounts(&look(&devices, &[], &accounting())),
        "0 cpu 7/7 v.io/nic 1/1 | 4 cpu 8/8 v.io/gpu 1/1"
    );
    let report = look(&devices, &[], &Accounting { exclude, ..accounting() });
    assert_eq!(amounts(&report), "0 v.io/nic 1/1 | 4");
    assert_eq!(value(&report, "unalignedDevices"), "-");
}

#[test]
fn devices_without_a_zone_have_an_attribute() {
    let devices: [(&str, &str, &[u32]); 4] =
        [("v.io/tpm", "a", &[]), ("v.io/tpm", "b", &[]), ("v.io/key", "k", &[]), ("v.io/nic", "n", &[0])];
    // One of them is held; what is held but no longer offered is not counted.
    let held = pod("ns/p", "", &[("v.io/tpm", "b", &[]), ("v.io/tpm", "gone", &[])]);
    let report = look(&devices, &[held], &accounting());
    assert_eq!(value(&report, "unalignedDevices"), "v.io/key:1:1,v.io/tpm:2:1");
    assert_eq!(value(&look(&devices[3..], &[], &accounting()), "unalignedDevices"), "-");
}

#[test]
fn the_shared_pool_is_not_exclusive() {
    let reference = ContainerName {
        pod: PodName { namespace: "kube-system".to_owned(), name: "rte".to_owned() },
        container: "c".to_owned(),
    };
    let pods =
        [pod("kube-system/rte", "1,4-15", &[]), pod("ns/own", "2-3", &[]), pod("ns/shared", "1,4-15", &[])];
    let counted = Accounting { reference: Some(reference.clone()), ..accounting() };
    let report = look(&[], &pods, &counted);
    assert_eq!(amounts(&report), "0 cpu 5/7 | 4 cpu 8/8");
    assert_eq!(report.fingerprinted, [("ns".to_owned(), "own".to_owned())]);
    let absent = PodName { namespace: "kube-system".to_owned(), name: "gone".to_owned() };
    let missing = Accounting { reference: Some(ContainerName { pod: absent, ..reference }), ..accounting() };
    assert_eq!(amounts(&look(&[], &pods, &missing)), "0 cpu 0/7 | 4 cpu 0/8");
}

#[test]
fn a_machine_beyond_the_kubelets_reach_is_refused() {
    let (mut machine, layout) = machine();
    let mut last_zone = |id| {
        machine.zones[1].id = ZoneId(id);
        let allocatable = Allocatable::default();
        let kubelet = known(RULES);
        let snapshot = snapshot(&machine, &layout, &kubelet, &allocatable);
        report(snapshot, vec![], &accounting())
    };
    assert!(last_zone(63).is_ok());
    let error = last_zone(64).unwrap_err();
    assert!(error.to_string().starts_with("NUMA nodes 64 are beyond 63"), "{error}");
}

#[test]
fn the_deprecated_word_says_policy_and_scope() {
    for (policy, scope, wanted) in [
        (Policy::SingleNumaNode, Scope::Pod, "SingleNUMANodePodLevel"),
        (Policy::SingleNumaNode, Scope::Container, "SingleNUMANodeContainerLevel"),
        (Policy::Restricted, Scope::Pod, "RestrictedPodLevel"),
        (Policy::Restricted, Scope::Container, "RestrictedContainerLevel"),
        (Policy::BestEffort, Scope::Pod, "BestEffortPodLevel"),
        (Policy::BestEffort, Scope::Container, "BestEffortContainerLevel"),
        (Policy::None, Scope::Pod, "None"),
        (Policy::None, Scope::Container, "None"),
    ] {
        assert_eq!(legacy_policy(Rules { policy, scope, ..RULES }), wanted);
    }
    let report = look(&[], &[], &Accounting { topology_policies: true, ..accounting() });
    assert_eq!(report.content.topology_policy, Some("SingleNUMANodeContainerLevel"));
}

/// What makes a pod one with exclusive resources: only what has a place. Ids below 0 are no places already when they
/// arrive.
#[test]
fn only_what_has_a_place_is_exclusive() {
    let memory = |zones: &[u32]| MemoryBlock {
        resource: ResourceName::MEMORY,
        bytes: 1 << 20,
        zones: zones.iter().copied().map(ZoneId).collect(),
    };
    let with_memory = |zones| {
        let mut pod = pod("ns/p", "", &[]);
        pod.containers[0].memory = vec![memory(zones)];
        pod
    };
    let second = PodResources {
        containers: [pod("ns/p", "", &[]), pod("ns/p", "1", &[])].map(|pod| pod.containers[0].clone()).into(),
        ..pod("ns/p", "", &[])
    };
    let without_containers = PodResources { containers: vec![], ..pod("ns/p", "", &[]) };
    for (what, pod, wanted) in [
        ("nothing", without_containers, false),
        ("a container", pod("ns/p", "", &[]), false),
        ("CPUs", pod("ns/p", "1", &[]), true),
        ("CPUs of its second container", second, true),
        ("a device of no zone", pod("ns/p", "", &[("v.io/x", "a", &[])]), false),
        ("a device of a zone", pod("ns/p", "", &[("v.io/x", "a", &[4])]), true),
        ("both devices", pod("ns/p", "", &[("v.io/x", "a", &[]), ("v.io/y", "b", &[0])]), true),
        ("memory of no zone", with_memory(&[]), false),
        ("memory of a zone", with_memory(&[0]), true),
    ] {
        let exclusive = look(&[], std::slice::from_ref(&pod), &accounting());
        assert_eq!(exclusive.fingerprinted.len(), usize::from(wanted), "{what}");
        let all = look(&[], &[pod], &Accounting { fingerprint: Some(Method::All), ..accounting() });
        assert_eq!(all.fingerprinted.len(), 1, "{what}");
    }
}

/// 128 CPUs in two zones, 110 pods with a CPU each, all at their own ids: what is said by ids stays small.
#[test]
fn ids_of_a_full_node_take_at_most_a_kilobyte_and_a_half() {
    use node::kubelet::state::assignments::{Assignment, Assignments};
    let zone = |id: u32| sysfs::Zone {
        id: ZoneId(id),
        cpus: set(["0-31,64-95", "32-63,96-127"][id as usize]),
        memory_bytes: 1 << 38,
        hugepages: vec![],
        distances: vec![(ZoneId(0), 10), (ZoneId(1), 21)],
    };
    let machine = Machine { cpus: set("0-127"), zones: vec![zone(0), zone(1)] };
    let cores = (0..64).map(|cpu| CpuSet::from_ids([cpu, cpu + 64]).unwrap()).collect();
    let layout = Layout { cores, caches: vec![] };
    let sockets = BTreeMap::from([(0, machine.zones[0].cpus.clone()), (1, machine.zones[1].cpus.clone())]);
    let allocatable = Allocatable { cpus: set("2-63,66-127"), ..Allocatable::default() };
    let cpus: Vec<u32> = allocatable.cpus.iter().take(110).collect();
    let held = |(pod, cpu): (usize, &u32)| {
        let uid = format!("00000000-0000-4000-8000-{pod:012}");
        (
            (uid, "main".to_owned()),
            Assignment { cpus: CpuSet::from_ids([*cpu]).unwrap(), ..Assignment::default() },
        )
    };
    let containers = cpus.iter().enumerate().map(held).collect();
    let checkpoints = Assignments { shared_cpus: CpuSet::new(), containers };
    let kubelet = known(RULES);
    let snapshot = snapshot(&machine, &layout, &kubelet, &allocatable);
    let snapshot = NodeSnapshot { sockets: &sockets, checkpoints: Some(&checkpoints), ..snapshot };
    let content = report(snapshot, vec![], &accounting()).unwrap().content;
    let new = ["threadSiblings", "containerHoldings", "sockets", "freeCPUs", "memoryGroup", "deviceGroups"];
    let all = content.attributes.iter().chain(content.zones.iter().flat_map(|zone| &zone.attributes));
    let added = all.filter(|attribute| new.contains(&attribute.name.as_str()));
    // A comma each.
    let bytes: usize = added.map(|attribute| serde_json::to_vec(attribute).unwrap().len() + 1).sum();
    println!("ids: {bytes} bytes");
    assert!(bytes <= 1_536, "{bytes} bytes");
}
