//! What a node has, worked out anew from what its kubelet says, and what its kubelet will do, worked out by the model.

use std::collections::{BTreeMap, BTreeSet};

use api::nrt::{NodeResourceTopology, attribute};
use node::podresources::{Allocatable, PodResources};
use testkit::machine::Layout;
use topology::admit::{self, Scratch};
use topology::cpuset::CpuSet;
use topology::placement::holdings::Holdings;
use topology::policy::Policy;
use topology::reason::{Constraint, Misfit};
use topology::request::PodNeeds;
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::{Free, NodeTopology, ZoneId};

/// `(zone, resource)` -> allocatable and available, in base units.
type Table = BTreeMap<(u32, ResourceName), (i64, i64)>;

/// How the object differs from what the kubelet says; nothing when it does not.
pub(super) fn difference(
    layout: &Layout,
    allocatable: &Allocatable,
    pods: &[PodResources],
    nrt: &NodeResourceTopology,
) -> Option<String> {
    let (topology, warnings) = match api::convert::node_topology(nrt) {
        Ok(read) => read,
        Err(error) => return Some(error.to_string()),
    };
    if !warnings.is_empty() {
        return Some(format!("{warnings:?}"));
    }
    let published: Table = topology
        .zones
        .iter()
        .flat_map(|zone| zone.resources.iter().map(|r| ((zone.id.0, r.name), (r.allocatable, r.available))))
        .collect();
    let (mut wanted, spread) = table(layout, allocatable, pods);
    // What containers hold over several zones together says nothing of each: there only the sum is known.
    let mut published_left = published.clone();
    for (resource, zones) in &spread {
        let sum = |table: &Table| -> i64 {
            zones
                .iter()
                .filter_map(|zone| table.get(&(*zone, *resource)))
                .map(|(_, available)| available)
                .sum()
        };
        if sum(&wanted) != sum(&published) {
            return Some(format!(
                "{resource} of zones {zones:?}: {} published, {} wanted",
                sum(&published),
                sum(&wanted)
            ));
        }
        for zone in zones {
            for table in [&mut wanted, &mut published_left] {
                table.entry((*zone, *resource)).and_modify(|(_, available)| *available = 0);
            }
        }
    }
    if published_left != wanted {
        let differing = wanted.iter().filter(|(key, amounts)| published_left.get(key) != Some(amounts));
        let missing: Vec<_> = differing.map(|(key, wanted)| format!("{key:?} wanted {wanted:?}")).collect();
        let extra = published_left.iter().filter(|(key, amounts)| wanted.get(key) != Some(amounts));
        let extra: Vec<_> = extra.map(|(key, has)| format!("{key:?} published {has:?}")).collect();
        return Some(format!("{}; {}", missing.join(", "), extra.join(", ")));
    }
    None
}

/// How what containers hold by ids differs from what the kubelet says: containers that have ended may hold something
/// for a while, no other may.
pub(super) fn holdings_differ(
    layout: &Layout,
    allocatable: &Allocatable,
    pods: &[PodResources],
    nrt: &NodeResourceTopology,
) -> Option<String> {
    let text = attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_HOLDINGS)?;
    let holdings = match Holdings::decode(text) {
        Ok(holdings) => holdings,
        Err(error) => return Some(error.to_string()),
    };
    let mut held = CpuSet::new();
    for one in holdings.iter() {
        if !held.is_disjoint(&one.cpus) {
            return Some(format!("CPUs {} are held twice: {text}", held.intersection(&one.cpus)));
        }
        held.insert_all(&one.cpus);
    }
    for (pod, container) in pods.iter().flat_map(|pod| pod.containers.iter().map(move |c| (pod, c))) {
        let cpus = &container.cpus;
        if !cpus.is_empty() && !holdings.iter().any(|one| one.cpus == *cpus) {
            return Some(format!("{} holds CPUs {cpus}, published is {text}", pod.name));
        }
    }
    layout.zones.iter().zip(&nrt.zones).find_map(|(zone, published)| {
        let cpus = CpuSet::from_ids(zone.cpus.iter().copied()).unwrap().intersection(&allocatable.cpus);
        let wanted = (!cpus.is_empty()).then(|| cpus.difference(&held).to_string());
        let free = attribute::get(&published.attributes, api::keys::ZONE_ATTRIBUTE_FREE_CPUS);
        (free != wanted.as_deref())
            .then(|| format!("zone {}: {free:?} free, {wanted:?} wanted: {text}", zone.id))
    })
}

/// How the object differs from what the kubelet says of devices without a zone.
pub(super) fn unaligned_differs(
    allocatable: &Allocatable,
    pods: &[PodResources],
    nrt: &NodeResourceTopology,
) -> Option<String> {
    let (says, should) = (unaligned_published(nrt), unaligned(allocatable, pods));
    (says != should).then(|| format!("devices without a zone: {says:?} published, {should:?} wanted"))
}

/// The table, and sets of zones in which something is held together.
fn table(
    layout: &Layout,
    allocatable: &Allocatable,
    pods: &[PodResources],
) -> (Table, BTreeSet<(ResourceName, BTreeSet<u32>)>) {
    let mut table = Table::new();
    let mut spread: BTreeSet<(ResourceName, BTreeSet<u32>)> = BTreeSet::new();
    let containers = || pods.iter().flat_map(|pod| &pod.containers);
    let held = containers().fold(CpuSet::new(), |all, container| all.union(&container.cpus));
    for zone in &layout.zones {
        let cpus = CpuSet::from_ids(zone.cpus.iter().copied()).unwrap().intersection(&allocatable.cpus);
        let count = |cpus: &CpuSet| cpus.len() as i64 * 1000;
        table.insert((zone.id, ResourceName::CPU), (count(&cpus), count(&cpus.difference(&held))));
    }
    for block in &allocatable.memory {
        let cell = table.entry((block.zones[0].0, block.resource)).or_default();
        (cell.0, cell.1) = (cell.0 + block.bytes as i64, cell.1 + block.bytes as i64);
    }
    for block in containers().flat_map(|container| &container.memory) {
        table.entry((block.zones[0].0, block.resource)).or_default().1 -= block.bytes as i64;
        if block.zones.len() > 1 {
            join(&mut spread, block.resource, block.zones.iter().map(|zone| zone.0).collect());
        }
    }
    let held: BTreeSet<_> = containers()
        .flat_map(|container| &container.devices)
        .flat_map(|devices| devices.ids.iter().map(|id| (devices.resource, id)))
        .collect();
    let mut seen = BTreeSet::new();
    for devices in &allocatable.devices {
        for (id, ZoneId(zone)) in devices.ids.iter().flat_map(|id| devices.zones.iter().map(move |z| (id, z)))
        {
            if seen.insert((devices.resource, id, *zone)) {
                let cell = table.entry((*zone, devices.resource)).or_default();
                cell.0 += 1;
                cell.1 += i64::from(!held.contains(&(devices.resource, id)));
            }
        }
    }
    (table, spread)
}

/// Adds a set of zones, as one with all that overlap it.
fn join(all: &mut BTreeSet<(ResourceName, BTreeSet<u32>)>, resource: ResourceName, mut zones: BTreeSet<u32>) {
    all.retain(|(other, set)| {
        let apart = *other != resource || set.is_disjoint(&zones);
        if !apart {
            zones.extend(set);
        }
        apart
    });
    all.insert((resource, zones));
}

/// Free devices without a zone, of those there are.
fn unaligned(allocatable: &Allocatable, pods: &[PodResources]) -> BTreeMap<String, (i64, i64)> {
    let held: BTreeSet<_> = pods
        .iter()
        .flat_map(|pod| &pod.containers)
        .flat_map(|container| &container.devices)
        .flat_map(|devices| devices.ids.iter().map(|id| (devices.resource, id)))
        .collect();
    let mut counts = BTreeMap::<String, (i64, i64)>::new();
    for devices in allocatable.devices.iter().filter(|devices| devices.zones.is_empty()) {
        let cell = counts.entry(devices.resource.to_string()).or_default();
        cell.0 += devices.ids.len() as i64;
        cell.1 += devices.ids.iter().filter(|id| !held.contains(&(devices.resource, *id))).count() as i64;
    }
    counts
}

fn unaligned_published(nrt: &NodeResourceTopology) -> BTreeMap<String, (i64, i64)> {
    let text = attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_UNALIGNED_DEVICES).unwrap_or_default();
    let entry = |text: &str| {
        let words: Vec<_> = text.split(':').collect();
        (words[0].to_owned(), (words[1].parse().unwrap(), words[2].parse().unwrap()))
    };
    text.split(',').filter(|text| !text.is_empty()).map(entry).collect()
}

/// What the kubelet will make of a pod.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// Takes it, and then this is free.
    Taken(Free),
    /// Refuses it with one of these reasons.
    Refused(Vec<&'static str>),
    /// Does not say `TopologyAffinityError`.
    NotForZones,
    /// Unknown.
    Open,
}

/// Predicts from the object alone, but for the node's totals: CPUs (thousandths), memory and hugepages that are left
/// over all.
pub(super) fn predict(
    nrt: &NodeResourceTopology,
    needs: &PodNeeds,
    left: &BTreeMap<ResourceName, i64>,
) -> Verdict {
    let (topology, _) = api::convert::node_topology(nrt).unwrap();
    let NodeTopology { rules, .. } = topology;
    let mut free = topology.available();
    let admitted = admit::admit(rules, &free, needs, &mut Scratch::default());
    match (rules.policy, &admitted) {
        (Policy::SingleNumaNode, _) => {}
        (Policy::Restricted, Err(_)) => return Verdict::Open,
        _ => return Verdict::NotForZones,
    }
    let homeless = unaligned_published(nrt);
    let asked = |name: &str| {
        let needs = needs.containers.iter().flat_map(|container| &container.needs);
        needs.filter(|need| need.name.as_str() == name).map(|need| need.amount).sum::<i64>()
    };
    let too_few = |(name, (_, available)): (&String, &(i64, i64))| {
        let column = ResourceName::new(name).ok().and_then(|name| free.layout().column(name));
        column.is_none() && asked(name) > *available
    };
    let mut reasons = Vec::new();
    if admitted.is_err() {
        reasons.push("TopologyAffinityError");
    }
    // A zone in use by itself cannot be part of a group, so a shortage of memory mostly leaves the memory manager
    // without any hint, which the topology manager takes for no wish; then the allocation fails.
    let short_of = |misfit: Misfit| match misfit.constraint {
        Constraint::Short { resource, .. } => Some(resource.kind()),
        _ => None,
    };
    let memory_is_short = admitted.as_ref().err().copied().and_then(short_of) == Some(ResourceKind::Memory);
    if homeless.iter().any(too_few) || memory_is_short {
        reasons.push("UnexpectedAdmissionError");
    }
    if !reasons.is_empty() {
        return Verdict::Refused(reasons);
    }
    for need in &needs.totals {
        if left.get(&need.name).is_some_and(|left| need.amount > *left) {
            reasons.push(match need.name.as_str() {
                "cpu" => "OutOfcpu",
                "memory" => "OutOfmemory",
                _ => "OutOfhugepages-2Mi",
            });
        }
    }
    match admitted {
        Ok(placement) if reasons.is_empty() => {
            placement.grants.iter().for_each(|grant| free.add(grant.cell as usize, -grant.visible));
            Verdict::Taken(free)
        }
        _ => Verdict::Refused(reasons),
    }
}
