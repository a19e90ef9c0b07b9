//! Conversion between NodeResourceTopology objects and [`NodeTopology`].
//!
//! In: an object of any exporter, or zones. Out: zones, policy, scope and fingerprint, or the zones of an object.
//! Never: more available than the object states.

use topology::fingerprint::{Fingerprint, Method};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::quantity::Quantity;
use topology::resource::{ResourceName, ResourceNameError};
use topology::zone::{MAX_AMOUNT, MAX_ZONES, NodeTopology, Zone, ZoneId, ZoneResource};

use super::{ConvertError, Problem, Warning, amount_available, quantity};
use crate::keys;
use crate::nrt::{self, NodeResourceTopology, attribute, zone_name};

/// Reads an NRT object.
///
/// Zones of another type than `Node` are no NUMA nodes and are skipped, as in the Go scheduler. Zones with an invalid
/// name are left out with a warning, where the Go scheduler logs a line; without a zone, fewer pods fit. Availability
/// above the allocatable amount (seen while an exporter catches up with a removed device) is lowered to it with a
/// warning, because refusing the object would keep older and worse numbers.
///
/// # Errors
/// [`ConvertError`] with the field's path: for amounts that are no quantities, negative or beyond 2^57, and for zones
/// or resources listed twice. The caller should ignore the whole object then.
pub fn node_topology(nrt: &NodeResourceTopology) -> Result<(NodeTopology, Vec<Warning>), ConvertError> {
    let mut warnings = Vec::new();
    let rules = rules(nrt, &mut warnings);
    let fingerprint = fingerprint(nrt, &mut warnings);
    let mut zones: Vec<Zone> = Vec::with_capacity(nrt.zones.len().min(MAX_ZONES));
    for (i, wire) in nrt.zones.iter().enumerate() {
        if wire.kind != nrt::ZONE_TYPE_NODE {
            continue;
        }
        let id = match zone_name::parse(&wire.name).map_err(Problem::from).and_then(reachable) {
            Ok(id) => id,
            Err(problem) => {
                warnings.push(Warning { path: format!("zones[{i}].name"), problem });
                continue;
            }
        };
        if zones.iter().any(|zone| zone.id == id) {
            return Err(Problem::Duplicate(wire.name.clone()).at(format!("zones[{i}].name")));
        }
        zones.push(zone(id, i, wire, &mut warnings)?);
    }
    zones.sort_unstable_by_key(|zone| zone.id);
    let threads = attribute::get(&nrt.attributes, keys::ATTRIBUTE_THREADS_PER_CORE);
    let threads_per_core = threads.and_then(|text| text.parse().ok());
    let max_numa_nodes = max_numa_nodes(&nrt.attributes);
    let kubelet = super::kubelet_report(nrt).unwrap_or_else(|ConvertError { path, problem }| {
        warnings.push(Warning { path, problem });
        None
    });
    let kubelet = kubelet.map(Box::new);
    Ok((NodeTopology { rules, zones, fingerprint, threads_per_core, max_numa_nodes, kubelet }, warnings))
}

/// What the last attribute that can be read says, as the Go plugin reads it.
fn max_numa_nodes(attributes: &[nrt::Attribute]) -> Option<u32> {
    let of_name = attributes.iter().rev().filter(|it| it.name == keys::ATTRIBUTE_MAX_NUMA_NODES);
    let last = of_name.filter_map(|it| it.value.parse::<i64>().ok()).find(|most| *most > 1)?;
    Some(u32::try_from(last).unwrap_or(MOST_NUMA_NODES).min(MOST_NUMA_NODES))
}

/// Refuses ids above 63: the kubelet's masks have no bit for them (1.36 `topologymanager/bitmask`).
fn reachable(id: ZoneId) -> Result<ZoneId, Problem> {
    if (id.0 as usize) < MAX_ZONES { Ok(id) } else { Err(Problem::OutOfReach(id.0)) }
}

/// Writes zones, with resources and distances in the given order and amounts in canonical text.
#[must_use]
pub fn wire_zones(zones: &[Zone]) -> Vec<nrt::Zone> {
    let resource = |r: &ZoneResource| nrt::Resource {
        name: r.name.to_string(),
        capacity: quantity(r.name, r.capacity).into(),
        allocatable: quantity(r.name, r.allocatable).into(),
        available: quantity(r.name, r.available).into(),
    };
    let cost = |(id, distance): &(ZoneId, u32)| nrt::Cost {
        name: zone_name::format(*id),
        value: i64::from(*distance),
    };
    let zone = |zone: &Zone| nrt::Zone {
        name: zone_name::format(zone.id),
        kind: nrt::ZONE_TYPE_NODE.to_owned(),
        costs: zone.distances.iter().map(cost).collect(),
        resources: zone.resources.iter().map(resource).collect(),
        ..nrt::Zone::default()
    };
    zones.iter().map(zone).collect()
}

/// The limit of the Go plugin for the number of zones that an exporter states.
const MOST_NUMA_NODES: u32 = 1_024;

/// Reads policy and scope as the peers do: the first legacy word, then the attributes in order, where the last valid
/// one counts. Unknown values give a warning.
fn rules(nrt: &NodeResourceTopology, warnings: &mut Vec<Warning>) -> Rules {
    let mut rules = Rules::default();
    if let Some((policy, scope)) = nrt.topology_policies.first().and_then(|word| legacy(word)) {
        (rules.policy, rules.scope) = (policy, scope);
    }
    for (i, attribute) in nrt.attributes.iter().enumerate() {
        let value = attribute.value.as_str();
        let mut unknown = |allowed| {
            let problem = Problem::unknown(value, allowed);
            warnings.push(Warning { path: format!("attributes[{i}].value"), problem });
        };
        match attribute.name.as_str() {
            keys::ATTRIBUTE_POLICY => match Policy::parse(value) {
                Some(policy) => rules.policy = policy,
                None => unknown("none, best-effort, restricted and single-numa-node"),
            },
            keys::ATTRIBUTE_SCOPE => match Scope::parse(value) {
                Some(scope) => rules.scope = scope,
                None => unknown("container and pod"),
            },
            keys::ATTRIBUTE_CPU_MANAGER => rules.cpu_manager = Manager::parse(value),
            keys::ATTRIBUTE_MEMORY_MANAGER => rules.memory_manager = Manager::parse(value),
            _ => {}
        }
    }
    rules
}

/// The meaning of a word in `topologyPolicies`. `None`, `BestEffort`, `Restricted` and unknown words have no effect.
fn legacy(word: &str) -> Option<(Policy, Scope)> {
    Some(match word {
        "SingleNUMANodePodLevel" => (Policy::SingleNumaNode, Scope::Pod),
        "SingleNUMANodeContainerLevel" => (Policy::SingleNumaNode, Scope::Container),
        "BestEffortPodLevel" => (Policy::BestEffort, Scope::Pod),
        "BestEffortContainerLevel" => (Policy::BestEffort, Scope::Container),
        "RestrictedPodLevel" => (Policy::Restricted, Scope::Pod),
        "RestrictedContainerLevel" => (Policy::Restricted, Scope::Container),
        _ => return None,
    })
}

/// The fingerprint attribute with its method or, without that attribute, the older annotation, which always covers all
/// pods. An empty fingerprint counts as absent, and so does an invalid one, with a warning.
fn fingerprint(nrt: &NodeResourceTopology, warnings: &mut Vec<Warning>) -> Option<(Fingerprint, Method)> {
    let mut warn = |path: &str, problem| warnings.push(Warning { path: path.to_owned(), problem });
    let annotation =
        || nrt.metadata.annotations.as_ref()?.get(keys::ANNOTATION_FINGERPRINT).map(String::as_str);
    let (text, path, method) = match attribute::get(&nrt.attributes, keys::ATTRIBUTE_FINGERPRINT) {
        Some(text) => {
            let method = attribute::get(&nrt.attributes, keys::ATTRIBUTE_FINGERPRINT_METHOD);
            (text, keys::ATTRIBUTE_FINGERPRINT, method)
        }
        None => (annotation()?, keys::ANNOTATION_FINGERPRINT, None),
    };
    if text.is_empty() {
        return None;
    }
    let fingerprint = Fingerprint::parse(text).map_err(|error| warn(path, error.into())).ok()?;
    let Some(method) = method.map_or(Some(Method::default()), Method::parse) else {
        let problem = Problem::unknown(method.unwrap_or_default(), "all and with-exclusive-resources");
        warn(keys::ATTRIBUTE_FINGERPRINT_METHOD, problem);
        return None;
    };
    Some((fingerprint, method))
}

fn zone(id: ZoneId, i: usize, wire: &nrt::Zone, warnings: &mut Vec<Warning>) -> Result<Zone, ConvertError> {
    let mut resources: Vec<ZoneResource> = Vec::with_capacity(wire.resources.len());
    for (j, entry) in wire.resources.iter().enumerate() {
        let at = |error: ConvertError| error.within(&format!("zones[{i}].resources[{j}]."));
        let name = match ResourceName::new(&entry.name) {
            Ok(name) => name,
            // One name too many is no reason to lose the report.
            Err(problem @ ResourceNameError::TooMany(_)) => {
                let path = format!("zones[{i}].resources[{j}].name");
                warnings.push(Warning { path, problem: problem.into() });
                continue;
            }
            Err(error) => return Err(at(Problem::from(error).at("name"))),
        };
        let resource = resource(name, entry, |problem| {
            warnings.push(Warning { path: format!("zones[{i}].resources[{j}].available"), problem });
        });
        let resource = resource.map_err(at)?;
        if resources.iter().any(|known| known.name == resource.name) {
            return Err(at(Problem::Duplicate(entry.name.clone()).at("name")));
        }
        resources.push(resource);
    }
    resources.sort_unstable_by_key(|resource| resource.name);
    Ok(Zone { id, resources, distances: distances(i, wire, warnings) })
}

fn resource(
    name: ResourceName,
    wire: &nrt::Resource,
    mut warn: impl FnMut(Problem),
) -> Result<ZoneResource, ConvertError> {
    let read = |amount: &nrt::Amount, field: &str| zone_amount(name, amount).map_err(|p| p.at(field));
    let capacity = read(&wire.capacity, "capacity")?;
    let allocatable = read(&wire.allocatable, "allocatable")?;
    let mut available = read(&wire.available, "available")?;
    if available > allocatable {
        warn(Problem::AboveAllocatable {
            available: quantity(name, available),
            allocatable: quantity(name, allocatable),
        });
        available = allocatable;
    }
    Ok(ZoneResource { name, capacity, allocatable, available })
}

fn zone_amount(name: ResourceName, wire: &nrt::Amount) -> Result<i64, Problem> {
    let amount: Quantity = wire.parse()?;
    let limit = quantity(name, MAX_AMOUNT);
    if amount.sign() < 0 {
        Err(Problem::Negative(amount))
    } else if amount > limit {
        Err(Problem::TooLarge { amount, limit })
    } else {
        Ok(amount_available(name, amount))
    }
}

/// Distances by zone, ascending. Of repeated zones the last value counts, as in the peers' maps.
fn distances(i: usize, wire: &nrt::Zone, warnings: &mut Vec<Warning>) -> Vec<(ZoneId, u32)> {
    let mut distances: Vec<(ZoneId, u32)> = Vec::with_capacity(wire.costs.len().min(MAX_ZONES));
    for (j, cost) in wire.costs.iter().enumerate() {
        let distance = u32::try_from(cost.value).map_err(|_| ("value", Problem::Distance(cost.value)));
        match zone_name::parse(&cost.name)
            .map_err(|error| ("name", error.into()))
            .and_then(|id| Ok((id, distance?)))
        {
            Ok((id, distance)) => match distances.binary_search_by_key(&id, |(known, _)| *known) {
                Ok(at) => distances[at].1 = distance,
                Err(at) => distances.insert(at, (id, distance)),
            },
            Err((field, problem)) => {
                warnings.push(Warning { path: format!("zones[{i}].costs[{j}].{field}"), problem });
            }
        }
    }
    distances
}
