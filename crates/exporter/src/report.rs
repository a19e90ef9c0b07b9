//! Computes the content of the object from the inputs of one scan. Pure.
//!
//! In: the machine, the kubelet's rules, the allocatable resources, the listed pods, and what to account for. Out:
//! [`Report`]: the object's content, the pods that hold resources, contradictions. Never: I/O, or an order that depends
//! on the order in which the kubelet lists pods.
//!
//! Attributes come in the order of the peers, ours at the end: fingerprint, method, placements, scope, policy, then the
//! further inputs of a model of the kubelet. Readers ignore names they do not know.

use std::collections::{BTreeMap, BTreeSet};

use api::convert::wire_zones;
use api::keys;
use api::nrt::{self, Attribute, attribute};
use node::kubelet::state::assignments::Assignments;
use node::kubelet::{Configuration, ReservedCpus};
use node::podresources::{Allocatable, ContainerResources, Devices, PodResources};
use node::sysfs::{Layout, Machine};
use topology::cpuset::CpuSet;
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::kubelet::profile::POD_LEVEL_MANAGERS;
use topology::policy::{DEFAULT_MAX_NUMA_NODES, Manager, Policy, Rules, Scope};
use topology::quantity::{Format, Quantity};
use topology::resource::ResourceName;
use topology::siblings;
use topology::zone::{MAX_ZONES, ZoneId};

use crate::configuration::KubeletSettings;
use crate::holdings::{HoldingAttributes, device_groups, holding_attributes};
use crate::object::Content;
use crate::placements::{Placements, placements};
use crate::settings::{Accounting, ContainerName};
use crate::stability::KubeletListing;
use crate::zones::{Remark, device_ids, zones};

/// Feature gates of the kubelet's managers, by name (kubelet 1.34 to 1.37).
const MANAGER_GATES: [&str; 4] = [
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    POD_LEVEL_MANAGERS,
    "PodLevelResources",
];

/// The inputs of one scan.
#[derive(Clone, Copy, Debug)]
pub struct NodeSnapshot<'a> {
    /// The zones, with their CPUs, memory and distances.
    pub machine: &'a Machine,
    /// Cores and caches.
    pub layout: &'a Layout,
    /// CPUs by socket.
    pub sockets: &'a BTreeMap<u32, CpuSet>,
    /// CPUs by kind of core, on machines whose cores differ.
    pub core_kinds: &'a BTreeMap<String, CpuSet>,
    /// The kubelet's settings for alignment.
    pub kubelet: &'a KubeletSettings,
    /// What the kubelet can hand out.
    pub allocatable: &'a Allocatable,
    /// What containers hold by the checkpoints of its managers, at the moment of the list; `None`: not visible.
    pub checkpoints: Option<&'a Assignments>,
}

/// The results of one scan.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The content of the object.
    pub content: Content,
    /// What the kubelet lists.
    pub listed: KubeletListing,
    /// The pods behind the fingerprint, in the kubelet's order.
    pub fingerprinted: Vec<(String, String)>,
    /// Contradictions between the inputs.
    pub remarks: BTreeSet<Remark>,
}

/// The machine has zones that no kubelet can align on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "NUMA nodes {0} are beyond 63, but kubelets align on nodes 0 to 63 only: nothing is published for this machine"
)]
pub struct TooManyZones(CpuSet);

/// Computes the report.
///
/// # Errors
/// When the machine has zones that no kubelet can align on: a part of a machine is not published.
pub fn report(
    snapshot: NodeSnapshot<'_>,
    mut pods: Vec<PodResources>,
    accounting: &Accounting,
) -> Result<Report, TooManyZones> {
    let beyond = snapshot.machine.zones.iter().map(|zone| zone.id.0).filter(|id| *id as usize >= MAX_ZONES);
    if let Ok(beyond) = CpuSet::from_ids(beyond)
        && !beyond.is_empty()
    {
        return Err(TooManyZones(beyond));
    }
    exclude(&mut pods, accounting);
    let fingerprinted = fingerprinted(&pods, accounting.fingerprint);
    let fingerprint = accounting
        .fingerprint
        .map(|_| Fingerprint::of_names(fingerprinted.iter().map(|(ns, name)| (ns.as_str(), name.as_str()))));
    let listed = kubelet_listing(snapshot, &pods);
    let placements = accounting.fingerprint.map(|_| placements(snapshot.machine, &pods)).unwrap_or_default();
    if let Some(namespace) = &accounting.namespace {
        pods.retain(|pod| pod.namespace == *namespace);
    }
    let described = is_whole(accounting).then(|| {
        let memory_manager = snapshot.kubelet.rules.memory_manager;
        holding_attributes(
            snapshot.machine,
            snapshot.allocatable,
            memory_manager,
            snapshot.checkpoints,
            &pods,
        )
    });
    let (mut zones, remarks) = zones(snapshot.machine, snapshot.allocatable, &pods);
    for zone in &mut zones {
        zone.resources.retain(|resource| !accounting.exclude.contains(resource.name.as_str()));
    }
    let mut zones = wire_zones(&zones);
    describe_zones(&mut zones, snapshot, &placements, described.as_ref());
    let mut attributes = Vec::new();
    if let (Some(fingerprint), Some(method)) = (fingerprint, accounting.fingerprint) {
        add(&mut attributes, keys::ATTRIBUTE_FINGERPRINT, &fingerprint.to_string());
        add(&mut attributes, keys::ATTRIBUTE_FINGERPRINT_METHOD, method.as_str());
    }
    attributes.extend(placements.node);
    describe_node(&mut attributes, snapshot);
    let unaligned = unaligned(&snapshot.allocatable.devices, &pods, &accounting.exclude);
    add(&mut attributes, keys::ATTRIBUTE_UNALIGNED_DEVICES, &unaligned);
    let groups = device_groups(&snapshot.allocatable.devices, &pods, &accounting.exclude);
    add(&mut attributes, keys::ATTRIBUTE_DEVICE_GROUPS, &groups);
    if let Some(described) = &described {
        add(&mut attributes, keys::ATTRIBUTE_HOLDINGS, &described.containers.encode());
    }
    let topology_policy = accounting.topology_policies.then(|| legacy_policy(snapshot.kubelet.rules));
    let content = Content { zones, attributes, fingerprint, topology_policy };
    Ok(Report { content, listed, fingerprinted, remarks })
}

/// Whether all pods are accounted for: what containers hold by ids says so of the whole node, or is left out.
fn is_whole(accounting: &Accounting) -> bool {
    accounting.namespace.is_none() && accounting.exclude_pods.is_empty() && accounting.reference.is_none()
}

/// Removes what is not accounted for: excluded pods, and CPUs of the shared pool.
fn exclude(pods: &mut Vec<PodResources>, accounting: &Accounting) {
    let excluded = |pod: &PodResources| {
        accounting.exclude_pods.iter().any(|pattern| pattern.matches(&pod.namespace, &pod.name))
    };
    pods.retain(|pod| !excluded(pod));
    let Some(reference) = &accounting.reference else { return };
    let containers = pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let pool = containers.filter(|(pod, container)| is_named(reference, pod, container));
    let pool = pool.fold(CpuSet::new(), |pool, (_, container)| pool.union(&container.cpus));
    for container in pods.iter_mut().flat_map(|pod| &mut pod.containers) {
        container.cpus = container.cpus.difference(&pool);
    }
}

fn is_named(name: &ContainerName, pod: &PodResources, container: &ContainerResources) -> bool {
    name.container == container.name && name.pod.name == pod.name && name.pod.namespace == pod.namespace
}

fn kubelet_listing(snapshot: NodeSnapshot<'_>, pods: &[PodResources]) -> KubeletListing {
    let hash = |pod: &PodResources| PodHash::of(&pod.namespace, &pod.name);
    let holders = pods.iter().filter(|pod| pod.holds_something_local()).map(hash).collect();
    let pods = pods.iter().map(hash).collect();
    KubeletListing { pods, holders, managers_started: managers_started(snapshot) }
}

/// Whether the managers with the policy `static` list what they can hand out. Nothing is known of others.
fn managers_started(NodeSnapshot { kubelet, allocatable, .. }: NodeSnapshot<'_>) -> bool {
    let Rules { cpu_manager, memory_manager, .. } = kubelet.rules;
    let managers =
        [(cpu_manager, allocatable.cpus.is_empty()), (memory_manager, allocatable.memory.is_empty())];
    managers.iter().all(|(manager, lists_none)| *manager != Manager::Static || !lists_none)
}

/// The pods that the fingerprint covers.
fn fingerprinted(pods: &[PodResources], method: Option<Method>) -> Vec<(String, String)> {
    let counts = |pod: &&PodResources| match method {
        None => false,
        Some(Method::All) => true,
        Some(Method::WithExclusiveResources) => pod.holds_something_local(),
    };
    pods.iter().filter(counts).map(|pod| (pod.namespace.clone(), pod.name.clone())).collect()
}

/// Sets an attribute, unless the value is empty.
fn add(attributes: &mut Vec<Attribute>, name: &str, value: &str) {
    if !value.is_empty() {
        attribute::insert(attributes, name, value);
    }
}

fn describe_node(
    attributes: &mut Vec<Attribute>,
    NodeSnapshot { machine, layout, core_kinds, kubelet, allocatable, .. }: NodeSnapshot<'_>,
) {
    let mut add = |name, value: &str| add(attributes, name, value);
    let manager = |manager, off, on| match manager {
        Manager::Unknown => "",
        Manager::Off => off,
        Manager::Static => on,
    };
    let Rules { policy, scope, cpu_manager, memory_manager } = kubelet.rules;
    add(keys::ATTRIBUTE_SCOPE, scope.as_str());
    add(keys::ATTRIBUTE_POLICY, policy.as_str());
    add(keys::ATTRIBUTE_CPU_MANAGER, manager(cpu_manager, "none", "static"));
    add(keys::ATTRIBUTE_MEMORY_MANAGER, manager(memory_manager, "None", "Static"));
    if let Some(configuration) = &kubelet.configuration {
        if configuration.max_allowable_numa_nodes != DEFAULT_MAX_NUMA_NODES {
            add(keys::ATTRIBUTE_MAX_NUMA_NODES, &configuration.max_allowable_numa_nodes.to_string());
        }
        add(keys::ATTRIBUTE_POLICY_OPTIONS, &options(&configuration.topology_manager_options));
        add(keys::ATTRIBUTE_CPU_MANAGER_OPTIONS, &options(&configuration.cpu_manager_options));
    }
    add(keys::ATTRIBUTE_RESERVED_CPUS, &reserved_cpus(kubelet, machine, allocatable));
    if let Some(configuration) = &kubelet.configuration {
        add(keys::ATTRIBUTE_RESERVED_MEMORY, &reserved_memory(configuration));
        add(keys::ATTRIBUTE_FEATURE_GATES, &feature_gates(configuration));
    }
    add(keys::ATTRIBUTE_THREADS_PER_CORE, &threads_per_core(layout));
    add(keys::ATTRIBUTE_THREAD_SIBLINGS, &siblings::encode(&layout.cores));
    for kind in [keys::ATTRIBUTE_PERFORMANCE_CORES, keys::ATTRIBUTE_EFFICIENCY_CORES] {
        add(kind, &core_kinds.get(kind).map(CpuSet::to_string).unwrap_or_default());
    }
}

/// `full-pcpus-only=true,strict-cpu-reservation=true`.
fn options(options: &BTreeMap<String, String>) -> String {
    options.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// The CPUs that the policy `static` hands out to no container, whether they were named or are so many; without it
/// those that were named.
fn reserved_cpus(kubelet: &KubeletSettings, machine: &Machine, allocatable: &Allocatable) -> String {
    let named = kubelet.configuration.as_ref().map(|configuration| &configuration.reserved_cpus);
    match named {
        _ if !allocatable.cpus.is_empty() => machine.cpus.difference(&allocatable.cpus).to_string(),
        Some(ReservedCpus::Listed(cpus)) => cpus.to_string(),
        _ => String::new(),
    }
}

/// Feature gates that change what the kubelet's managers do, where they are set.
fn feature_gates(configuration: &Configuration) -> String {
    let set = |name: &&str| configuration.feature_gates.get(*name).map(|on| format!("{name}={on}"));
    MANAGER_GATES.iter().filter_map(set).collect::<Vec<_>>().join(",")
}

/// `0:memory=1Gi;1:memory=1Gi`, as the kubelet's flag has it.
fn reserved_memory(configuration: &Configuration) -> String {
    let amount = |(name, bytes): (&ResourceName, &u64)| {
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        format!("{name}={}", Quantity::from_i64(bytes, Format::BinarySI))
    };
    let zone = |(zone, amounts): (&ZoneId, &BTreeMap<ResourceName, u64>)| {
        format!("{}:{}", zone.0, amounts.iter().map(amount).collect::<Vec<_>>().join(","))
    };
    configuration.reserved_memory.iter().map(zone).collect::<Vec<_>>().join(";")
}

/// The number of threads of every core; empty when cores differ, as with some threads offline.
fn threads_per_core(layout: &Layout) -> String {
    let threads: BTreeSet<_> = layout.cores.iter().map(CpuSet::len).collect();
    match (threads.len(), threads.first()) {
        (1, Some(threads)) => threads.to_string(),
        _ => String::new(),
    }
}

fn describe_zones(
    zones: &mut [nrt::Zone],
    NodeSnapshot { machine, layout, sockets, .. }: NodeSnapshot<'_>,
    placements: &Placements,
    described: Option<&HoldingAttributes>,
) {
    for (zone, kernel) in zones.iter_mut().zip(&machine.zones) {
        if let Some(vector) = placements.zones.get(&kernel.id) {
            add(&mut zone.attributes, keys::ZONE_ATTRIBUTE_PLACEMENT, vector);
        }
        add(&mut zone.attributes, keys::ZONE_ATTRIBUTE_CPUS, &kernel.cpus.to_string());
        // The kubelet's cAdvisor counts caches where a socket has several.
        if layout.caches.len() > sockets.len().max(1) {
            let caches = layout.caches.iter().map(|cache| cache.intersection(&kernel.cpus));
            let caches = caches.filter(|cache| !cache.is_empty()).map(|cache| cache.to_string());
            add(&mut zone.attributes, keys::ZONE_ATTRIBUTE_CACHES, &caches.collect::<Vec<_>>().join(";"));
        }
        add(&mut zone.attributes, keys::ZONE_ATTRIBUTE_SOCKETS, &sockets_of(&kernel.cpus, sockets));
        let Some(described) = described else { continue };
        if let Some(free) = described.free_cpus.get(&kernel.id) {
            // None free is not the same as nothing known.
            attribute::insert(&mut zone.attributes, keys::ZONE_ATTRIBUTE_FREE_CPUS, free.to_string());
        }
        if let Some(group) = described.memory_groups.get(&kernel.id) {
            add(&mut zone.attributes, keys::ZONE_ATTRIBUTE_MEMORY_GROUP, &group.to_string());
        }
    }
}

/// `0`, or `0:0-7;1:8-15` where the zone has several sockets.
fn sockets_of(cpus: &CpuSet, sockets: &BTreeMap<u32, CpuSet>) -> String {
    let own = sockets.iter().map(|(id, socket)| (id, socket.intersection(cpus)));
    let own: Vec<_> = own.filter(|(_, cpus)| !cpus.is_empty()).collect();
    match own.as_slice() {
        [(id, _)] => id.to_string(),
        own => own.iter().map(|(id, cpus)| format!("{id}:{cpus}")).collect::<Vec<_>>().join(";"),
    }
}

/// Devices without a zone, which the zones cannot show: `name:allocatable:available,...`, by name.
fn unaligned(offered: &[Devices], pods: &[PodResources], exclude: &BTreeSet<String>) -> String {
    let without_zone = |devices: &&Devices| devices.zones.is_empty();
    let held =
        device_ids(pods.iter().flat_map(|pod| &pod.containers).flat_map(|container| &container.devices));
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for devices in offered.iter().filter(without_zone) {
        let name = devices.resource.as_str();
        for id in devices.ids.iter().filter(|_| !exclude.contains(name)) {
            if known.insert((devices.resource, id.as_str())) {
                let (allocatable, available) = counts.entry(name).or_default();
                *allocatable += 1;
                *available += usize::from(!held.contains(&(devices.resource, id.as_str())));
            }
        }
    }
    let texts =
        counts.iter().map(|(name, (allocatable, available))| format!("{name}:{allocatable}:{available}"));
    texts.collect::<Vec<_>>().join(",")
}

/// The deprecated value of `topologyPolicies` for a policy and a scope, as NFD writes it.
fn legacy_policy(rules: Rules) -> &'static str {
    match (rules.policy, rules.scope) {
        (Policy::SingleNumaNode, Scope::Container) => "SingleNUMANodeContainerLevel",
        (Policy::SingleNumaNode, Scope::Pod) => "SingleNUMANodePodLevel",
        (Policy::Restricted, Scope::Container) => "RestrictedContainerLevel",
        (Policy::Restricted, Scope::Pod) => "RestrictedPodLevel",
        (Policy::BestEffort, Scope::Container) => "BestEffortContainerLevel",
        (Policy::BestEffort, Scope::Pod) => "BestEffortPodLevel",
        (Policy::None, _) => "None",
    }
}

#[cfg(test)]
mod tests;
