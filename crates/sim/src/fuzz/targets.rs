//! The parsers, with right inputs.

use std::path::Path;

use node::kubelet::Configuration;
use node::kubelet::machine::{MachineInfo, of_sysfs};
use node::kubelet::profile::profile;
use node::kubelet::state::Checkpoint;
use node::kubelet::state::assignments::Assignments;
use node::sysfs::Sysfs;
use runtime::yaml::{self, Mode};
use topology::cpuset::CpuSet;
use topology::fingerprint::Fingerprint;
use topology::kubelet::Kubelet;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::profile::Minor;
use topology::placement::holdings::Holdings;
use topology::placement::{leb89, spread};
use topology::quantity::Quantity;
use topology::siblings;

use super::Target;
use crate::admit::model::{Model, registration};
use crate::admit::session::{Plugin, Session, Step};
use crate::machine::dump::{Dump, DumpOptions};
use crate::workload::Workload;

const MACHINE: &str = r#"{"num_cores": 4, "num_sockets": 2, "memory_capacity": 4294967296, "topology": [
 {"node_id": 0, "memory": 2147483648, "hugepages": [{"page_size": 2048, "num_pages": 8}], "distances": [10, 21],
  "cores": [{"core_id": 0, "thread_ids": [0, 2], "socket_id": 0, "uncore_caches": [{"id": 0}]}]},
 {"node_id": 1, "memory": 2147483648, "hugepages": [{"page_size": 2048, "num_pages": 8}], "distances": [21, 10],
  "cores": [{"core_id": 0, "thread_ids": [1, 3], "socket_id": 1, "uncore_caches": [{"id": 1}]}]}]}"#;

const KUBELET: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: \"true\", distribute-cpus-across-numa: \"false\"}
memoryManagerPolicy: Static
topologyManagerPolicy: best-effort
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\", max-allowable-numa-nodes: \"8\"}
reservedSystemCPUs: 0,2
reservedMemory: [{numaNode: 0, limits: {memory: 400Mi}}]
kubeReserved: {memory: 300Mi}
evictionHard: {memory.available: 100Mi}
featureGates: {CPUManagerPolicyAlphaOptions: true}
maxPods: 110
";

const SESSION: &str = r#"{"machine": {"num_cores": 4, "memory_capacity": 4294967296, "topology": [
 {"node_id": 0, "memory": 2147483648, "distances": [10, 21], "cores": [{"core_id": 0, "thread_ids": [0, 2], "socket_id": 0}]},
 {"node_id": 1, "memory": 2147483648, "distances": [21, 10], "cores": [{"core_id": 0, "thread_ids": [1, 3], "socket_id": 1}]}]},
 "kubelet": {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "cpuManagerPolicy": "static",
  "topologyManagerPolicy": "restricted", "kubeReserved": {"cpu": "1"}},
 "devices": [{"resource": "a.io/nic", "devices": [{"id": "d0", "nodes": [0]}, {"id": "d1", "nodes": [1]}], "preferred": "first"}],
 "steps": [
 {"op": "admit", "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [
  {"name": "m", "resources": {"limits": {"cpu": "1", "memory": "64Mi", "a.io/nic": "1"}, "requests": {"cpu": "1", "memory": "64Mi", "a.io/nic": "1"}}}]}}},
 {"op": "remove", "uid": "a"}, {"op": "restart"}]}"#;

const NRT: &str = r#"{"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n"},
 "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}, {"name": "topologyManagerScope", "value": "pod"}],
 "zones": [{"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": 10}],
  "resources": [{"name": "cpu", "capacity": "8", "allocatable": "6", "available": "500m"}, {"name": "memory", "capacity": "8Gi", "allocatable": "7Gi", "available": "7Gi"}]}]}"#;

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {
 "overhead": {"cpu": "100m"}, "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}}],
 "containers": [{"name": "m", "resources": {"limits": {"cpu": "1500m", "memory": "1e9"}, "requests": {"cpu": "1", "memory": "1G"}}}]}}"#;

const DUMP: &str = "\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {allocatable: {cpu: \"8\", memory: 8Gi, pods: \"110\"}, capacity: {cpu: \"8\"}}}
- apiVersion: topology.node.k8s.io/v1alpha2
  kind: NodeResourceTopology
  metadata: {name: node-1}
  topologyPolicies: [SingleNUMANodeContainerLevel]
  zones: [{name: node-0, type: Node, resources: [{name: cpu, capacity: \"8\", allocatable: \"8\", available: \"8\"}]}]
- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: d, uid: u}, spec: {nodeName: node-1, containers: [{name: c}]}}
";

/// Every parser.
pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "cpuset",
        seeds: &["0-3,8,10-11", "", "0", "7,1-2\n"],
        read: |text| match CpuSet::parse(text) {
            Ok(set) => {
                CpuSet::parse(&set.to_string()).as_ref() == Ok(&set) || panic!("{set} reads otherwise")
            }
            Err(_) => false,
        },
    },
    Target {
        name: "quantity",
        seeds: &["500m", "1Gi", "1e3", "0", "-1.5Ki", "12345678901234567890n"],
        read: |text| match Quantity::parse(text) {
            Ok(amount) => {
                let again = Quantity::parse(&amount.to_string());
                let _ = (amount.value(), amount.milli_value(), amount.floor_value());
                again.is_ok_and(|again| again.value() == amount.value()) || panic!("{amount} reads otherwise")
            }
            Err(_) => false,
        },
    },
    Target {
        name: "fingerprint",
        seeds: &["pfp0v001ef46db3751d8e999", "pfp0v0019e0420efb37746c6"],
        read: |text| Fingerprint::parse(text).is_ok(),
    },
    Target {
        name: "numbers of placements",
        seeds: &["Of!~e", "gff!"],
        read: |text| leb89::read(text).all(|number| number.is_ok()),
    },
    Target {
        name: "placements in several zones",
        seeds: &["v1 000000000000029e=0:4+1:12", "v1 029ec313dc36ba9c=0:4+1:4 3a90e1ffc72f1ae6=0:2+1:0"],
        read: |text| match spread::decode(text) {
            Ok(placements) => {
                spread::encode(placements).is_ok_and(|again| again == text)
                    || panic!("{text} is not canonical")
            }
            Err(_) => false,
        },
    },
    Target {
        name: "what containers hold",
        seeds: &[
            "v1 uid 02cb1a9a3ba95d4a a3Fk_=4-7 b-4Zq=8@0,1+vendor.com/nic@1*2",
            "v1 name ef46db3751d8e999",
        ],
        read: |text| match Holdings::decode(text) {
            Ok(holdings) => holdings.encode() == text || panic!("{text} is not canonical"),
            Err(_) => false,
        },
    },
    Target {
        name: "threads of cores",
        seeds: &["0-63+64", "0-126:2+1;200+1+2+3"],
        read: |text| match siblings::decode(text) {
            Ok(cores) => {
                let again = siblings::decode(&siblings::encode(&cores)).unwrap();
                let by_first = |mut cores: Vec<CpuSet>| {
                    cores.sort_by_key(CpuSet::first);
                    cores
                };
                by_first(again) == by_first(cores) || panic!("{text} is read as other cores")
            }
            Err(_) => false,
        },
    },
    Target {
        name: "kubelet of a report",
        seeds: &[REPORT],
        read: |text| {
            let object = serde_json::from_str(text).ok();
            object.is_some_and(|object| api::convert::kubelet_report(&object).is_ok())
        },
    },
    Target {
        name: "zone name",
        seeds: &["node-0", "node-63"],
        read: |text| api::nrt::zone_name::parse(text).is_ok(),
    },
    Target {
        name: "duration",
        seeds: &["1h2m3.5s", "10ms", "1s"],
        read: |text| {
            let _ = api::goduration::GoDuration::parse_std(text);
            api::goduration::GoDuration::parse(text).is_ok()
        },
    },
    Target { name: "machine", seeds: &[MACHINE], read: machine },
    Target { name: "kubelet configuration", seeds: &[KUBELET], read: configuration },
    Target { name: "session", seeds: &[SESSION], read: session },
    Target {
        name: "devices",
        seeds: &[
            r#"[{"resource": "a.io/b", "devices": [{"id": "d", "nodes": [0], "healthy": true}], "preferred": "last"}]"#,
        ],
        read: |text| yaml::read_str::<Vec<Plugin>>("devices", text, Mode::Lenient).is_ok(),
    },
    Target {
        name: "NodeResourceTopology",
        seeds: &[NRT],
        read: |text| {
            let object = yaml::read_str::<api::nrt::NodeResourceTopology>("nrt", text, Mode::Lenient);
            object.is_ok_and(|object| api::convert::node_topology(&object).is_ok())
        },
    },
    Target {
        name: "pod",
        seeds: &[POD],
        read: |text| {
            let object = yaml::read_str::<k8s_openapi::api::core::v1::Pod>("pod", text, Mode::Lenient);
            object.is_ok_and(|pod| {
                api::convert::whole_pod_request(&pod).is_ok_and(|request| request.needs().totals.len() < 100)
            })
        },
    },
    Target {
        name: "dump of a cluster",
        seeds: &[DUMP],
        read: |text| Dump::parse("dump", text, DumpOptions::default()).is_ok(),
    },
    Target {
        name: "scheduler configuration",
        seeds: &[
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: a\n",
        ],
        read: |text| api::schedulerconfig::SchedulerConfig::parse(text).is_ok(),
    },
    Target { name: "workload", seeds: &[WORKLOAD], read: |text| Workload::parse("workload", text).is_ok() },
    Target {
        name: "kubelet_internal_checkpoint",
        seeds: &[DEVICE_STATE],
        read: |text| checkpoint(Checkpoint::Devices, text),
    },
    Target { name: "cpu_manager_state", seeds: &[CPU_STATE], read: |text| checkpoint(Checkpoint::Cpu, text) },
    Target {
        name: "memory_manager_state",
        seeds: &[MEMORY_STATE],
        read: |text| checkpoint(Checkpoint::Memory, text),
    },
    Target { name: "sysfs", seeds: &[SYSFS], read: sysfs },
];

const WORKLOAD: &str = "arrivals:\n- {at_ms: 50, cpus: 2}\n- {at_ms: 10, cpus: 4, life_ms: 7, end: forced}\n";

const DEVICE_STATE: &str = r#"{"Checksum": 1, "Data": {"RegisteredDevices": {"v.com/d": ["a", "b"]}, "PodDeviceEntries": [
 {"PodUID": "u", "ContainerName": "main", "ResourceName": "v.com/d", "DeviceIDs": {"0": ["a"], "-1": ["b"]}, "AllocResp": ""}]}}"#;

const REPORT: &str = r#"{"metadata": {"name": "n"}, "attributes": [{"name": "threadSiblings", "value": "0-1+2"},
 {"name": "containerHoldings", "value": "v1 uid ef46db3751d8e999"}, {"name": "cpuManagerPolicyOptions", "value": "full-pcpus-only=true"},
 {"name": "reservedSystemCPUs", "value": "0"}, {"name": "kubeletVersion", "value": "v1.36.3"},
 {"name": "deviceGroups", "value": "v.io/gpu@0,1:4:3"}], "zones": [{"name": "node-0", "type": "Node", "attributes": [
 {"name": "cpus", "value": "0-3"}, {"name": "sockets", "value": "0:0-1;1:2-3"}, {"name": "freeCPUs", "value": "1-3"},
 {"name": "lastLevelCaches", "value": "0-1;2-3"}, {"name": "memoryGroup", "value": "0,1"}]}]}"#;

const CPU_STATE: &str =
    r#"{"policyName": "static", "defaultCpuSet": "0,2-3", "entries": {"uid": {"main": "1"}}, "checksum": 1}"#;

const MEMORY_STATE: &str = r#"{"policyName": "Static", "machineState": {"0": {"numberOfAssignments": 0, "memoryMap": {"memory":
 {"total": 10, "systemReserved": 1, "allocatable": 9, "reserved": 0, "free": 9}}, "cells": [0]}},
 "entries": {"uid": {"main": [{"numaAffinity": [0], "type": "memory", "size": 5}]}}, "checksum": 1}"#;

/// Files: a name and a text in a line each.
const SYSFS: &str = "\
devices/system/node/online|0-1
devices/system/node/node0/cpulist|0,2
devices/system/node/node0/distance|10 21
devices/system/node/node0/meminfo|Node 0 MemTotal: 2097152 kB
devices/system/node/node1/cpulist|1,3
devices/system/node/node1/distance|21 10
devices/system/node/node1/meminfo|Node 1 MemTotal: 2097152 kB
devices/system/cpu/online|0-3
devices/system/cpu/cpu0/topology/thread_siblings_list|0,2
devices/system/cpu/cpu0/topology/physical_package_id|0
devices/system/cpu/cpu1/topology/thread_siblings_list|1,3
devices/system/cpu/cpu1/topology/physical_package_id|1
devices/system/cpu/cpu2/topology/thread_siblings_list|0,2
devices/system/cpu/cpu2/topology/physical_package_id|0
devices/system/cpu/cpu3/topology/thread_siblings_list|1,3
devices/system/cpu/cpu3/topology/physical_package_id|1
";

fn machine(text: &str) -> bool {
    let info = yaml::read_str::<MachineInfo>("machine", text, Mode::Lenient);
    info.is_ok_and(|info| info.machine().is_ok())
}

/// A configuration, and the kubelet that it makes on a machine.
fn configuration(text: &str) -> bool {
    let info = yaml::read_str::<MachineInfo>("machine", MACHINE, Mode::Lenient);
    let machine = std::sync::Arc::new(info.unwrap().machine().unwrap());
    let Ok(configuration) = Configuration::parse(text, Path::new("kubelet")) else { return false };
    for minor in [Minor::V34, Minor::V37] {
        let profile = profile(&configuration, minor, &machine);
        let _ = profile
            .and_then(|profile| Kubelet::new(machine.clone(), profile))
            .map(|kubelet| kubelet.empty_state());
    }
    true
}

fn session(text: &str) -> bool {
    let Ok(session) = yaml::read_str::<Session>("session", text, Mode::Lenient) else { return false };
    let Ok(Ok(mut model)) = Model::start(&session, Minor::V36) else { return false };
    for step in session.steps.iter().take(20) {
        match step {
            Step::Admit { pod } => drop(model.admit(pod, &Lowest)),
            Step::Remove { uid } => model.remove(uid),
            Step::Resize { pod } => drop(model.resize(pod)),
            Step::Restart { plugins } => drop(model.restart(registration(*plugins), &Lowest)),
        }
    }
    true
}

fn checkpoint(checkpoint: Checkpoint, text: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(checkpoint.file_name());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
    let (recorded, held) = (checkpoint.recording(folder.path()), Assignments::read(folder.path()));
    recorded.is_ok() && held.is_ok()
}

fn sysfs(text: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in text.lines().take(60).filter_map(|line| line.split_once('|')) {
        let is_inside = name
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'));
        let path = folder.path().join(name);
        if is_inside
            && let Some(parent) = path.parent()
            && std::fs::create_dir_all(parent).is_ok()
        {
            let _ = std::fs::write(path, content);
        }
    }
    of_sysfs(&Sysfs::new(folder.path())).is_ok()
}
