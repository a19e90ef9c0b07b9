//! The kubelet behind an NRT object of ours: the attributes that other exporters do not write.
//!
//! In: an object. Out: [`KubeletReport`], or `None` where the object is another exporter's, or filtered by pods. Never:
//! a part of it: one attribute that makes no sense refuses the whole, and amounts of zones serve as before.

use std::collections::BTreeMap;

use topology::cpuset::{CpuSet, MAX_CPU};
use topology::gobool;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::machine::Cpu;
use topology::kubelet::profile::{CpuOptions, POD_LEVEL_MANAGERS};
use topology::kubelet::report::{KubeletReport, ReportedDeviceGroup};
use topology::placement::holdings::Holdings;
use topology::policy::{CpuOption, PREFER_CLOSEST_NUMA_NODES};
use topology::resource::ResourceName;
use topology::siblings;

use super::{ConvertError, Problem};
use crate::keys;
use crate::nrt::{self, NodeResourceTopology, attribute, zone_name};

/// The attribute of a zone or node that is read.
struct AttributeText<'a> {
    path: String,
    text: &'a str,
}

/// Reads what an object says of its kubelet by ids.
///
/// # Errors
/// [`ConvertError`] names the attribute.
pub fn kubelet_report(nrt: &NodeResourceTopology) -> Result<Option<KubeletReport>, ConvertError> {
    let (Some(siblings), Some(holdings)) =
        (of_node(nrt, keys::ATTRIBUTE_THREAD_SIBLINGS), of_node(nrt, keys::ATTRIBUTE_HOLDINGS))
    else {
        return Ok(None);
    };
    let mut cpu_options = CpuOptions::NONE;
    for (name, _) in switches(of_node(nrt, keys::ATTRIBUTE_CPU_MANAGER_OPTIONS))?.iter().filter(|(_, on)| *on)
    {
        let at = || format!("attributes.{}", keys::ATTRIBUTE_CPU_MANAGER_OPTIONS);
        let option = CpuOption::parse(name);
        cpu_options = cpu_options.with(option.ok_or_else(|| {
            Problem::unknown(name, "the options of the CPU managers of Kubernetes 1.34 to 1.37").at(at())
        })?);
    }
    let is_on = |attribute, wanted: &str| -> Result<bool, ConvertError> {
        Ok(switches(of_node(nrt, attribute))?.iter().any(|(name, on)| *name == wanted && *on))
    };
    let reserved = of_node(nrt, keys::ATTRIBUTE_RESERVED_CPUS);
    let holdings = Holdings::decode(holdings.text).map_err(|error| Problem::from(error).at(holdings.path))?;
    let (mut free_cpus, mut memory_groups) = (CpuSet::new(), Vec::new());
    for (i, zone) in node_zones(nrt) {
        if let Some(free) = of_zone(i, zone, keys::ZONE_ATTRIBUTE_FREE_CPUS) {
            free_cpus.insert_all(&free.cpus()?);
        }
        if let Some(group) = of_zone(i, zone, keys::ZONE_ATTRIBUTE_MEMORY_GROUP) {
            memory_groups.push(group.zones()?);
        }
    }
    memory_groups.sort_unstable();
    memory_groups.dedup();
    Ok(Some(KubeletReport {
        minor: of_node(nrt, keys::ATTRIBUTE_KUBELET_VERSION).and_then(|at| at.text.parse().ok()),
        cpu_options,
        prefer_closest: is_on(keys::ATTRIBUTE_POLICY_OPTIONS, PREFER_CLOSEST_NUMA_NODES)?,
        pod_level_managers: is_on(keys::ATTRIBUTE_FEATURE_GATES, POD_LEVEL_MANAGERS)?,
        reserved_cpus: reserved.map_or(Ok(CpuSet::new()), |at| at.cpus())?,
        cpus: cpus(nrt, &siblings)?,
        free_cpus,
        memory_groups,
        device_groups: device_groups(of_node(nrt, keys::ATTRIBUTE_DEVICE_GROUPS))?,
        holdings,
    }))
}

fn of_node<'a>(nrt: &'a NodeResourceTopology, name: &str) -> Option<AttributeText<'a>> {
    let text = attribute::get(&nrt.attributes, name)?;
    Some(AttributeText { path: format!("attributes.{name}"), text })
}

fn of_zone<'a>(i: usize, zone: &'a nrt::Zone, name: &str) -> Option<AttributeText<'a>> {
    let text = attribute::get(&zone.attributes, name)?;
    Some(AttributeText { path: format!("zones[{i}].attributes.{name}"), text })
}

fn node_zones(nrt: &NodeResourceTopology) -> impl Iterator<Item = (usize, &nrt::Zone)> {
    nrt.zones.iter().enumerate().filter(|(_, zone)| zone.kind == nrt::ZONE_TYPE_NODE)
}

impl AttributeText<'_> {
    fn wrong(&self, allowed: &'static str) -> ConvertError {
        Problem::unknown(self.text, allowed).at(self.path.clone())
    }

    fn cpus(&self) -> Result<CpuSet, ConvertError> {
        CpuSet::parse(self.text).map_err(|error| Problem::from(error).at(self.path.clone()))
    }

    /// What semicolons separate. Each may become a set of a KiB, so there may be only as many as CPUs.
    fn parts(&self) -> Result<impl Iterator<Item = &str>, ConvertError> {
        let has_few = self.text.bytes().filter(|byte| *byte == b';').count() <= MAX_CPU as usize;
        has_few
            .then(|| self.text.split(';'))
            .ok_or_else(|| self.wrong("no more lists than there may be CPUs"))
    }

    fn zones(&self) -> Result<ZoneMask, ConvertError> {
        ZoneMask::parse(self.text).ok_or_else(|| self.wrong("ids of zones, such as 0,1"))
    }
}

/// `name=true,other=false`.
fn switches(at: Option<AttributeText<'_>>) -> Result<Vec<(&str, bool)>, ConvertError> {
    let Some(at) = at else { return Ok(Vec::new()) };
    let pair = |pair| -> Option<_> {
        let (name, value) = str::split_once(pair, '=')?;
        // Options that are numbers are none that are looked for.
        Some((name, gobool::parse(value) == Some(true)))
    };
    let pairs: Option<Vec<_>> = at.text.split(',').filter(|pair| !pair.is_empty()).map(pair).collect();
    pairs.ok_or_else(|| at.wrong("name=value, joined by commas"))
}

/// `name@zones:allocatable:available`, joined by `;`.
fn device_groups(at: Option<AttributeText<'_>>) -> Result<Vec<ReportedDeviceGroup>, ConvertError> {
    let Some(at) = at else { return Ok(Vec::new()) };
    let group = |text: &str| {
        let (resource, rest) = text.split_once('@')?;
        let mut parts = rest.split(':');
        let zones = ZoneMask::parse(parts.next()?)?;
        let mut count = || parts.next()?.parse().ok();
        let (allocatable, available) = (count()?, count()?);
        let known = available <= allocatable && parts.next().is_none();
        known.then_some(ReportedDeviceGroup {
            resource: ResourceName::new(resource).ok()?,
            zones,
            allocatable,
            available,
        })
    };
    let groups: Option<_> = at.text.split(';').map(group).collect();
    groups.ok_or_else(|| at.wrong("name@zones:allocatable:available, joined by semicolons"))
}

/// All CPUs. Cost: CPUs x log CPUs.
fn cpus(nrt: &NodeResourceTopology, siblings: &AttributeText<'_>) -> Result<Vec<Cpu>, ConvertError> {
    let cores =
        siblings::decode(siblings.text).map_err(|error| Problem::from(error).at(siblings.path.clone()))?;
    let cores: BTreeMap<u32, u32> = cores
        .iter()
        .filter_map(|core| Some((core, core.first()?)))
        .flat_map(|(core, first)| core.iter().map(move |cpu| (cpu, first)))
        .collect();
    let mut cpus = Vec::with_capacity(cores.len());
    let mut caches: Vec<CpuSet> = Vec::new();
    for (i, zone) in node_zones(nrt) {
        let path = |name| format!("zones[{i}].{name}");
        let id = zone_name::parse(&zone.name).map_err(|error| Problem::from(error).at(path("name")))?.0;
        let own = of_zone(i, zone, keys::ZONE_ATTRIBUTE_CPUS).map_or(Ok(CpuSet::new()), |at| at.cpus())?;
        let sockets = sockets(of_zone(i, zone, keys::ZONE_ATTRIBUTE_SOCKETS), &own)?;
        for cpu in own.iter() {
            let socket = sockets.iter().find(|(_, cpus)| cpus.contains(cpu)).map_or(0, |(socket, _)| *socket);
            // A CPU of no core is one by itself, as for the kubelet.
            let core = cores.get(&cpu).copied().unwrap_or(cpu);
            cpus.push(Cpu { id: cpu, core, socket, zone: id, cache: socket });
        }
        if let Some(at) = of_zone(i, zone, keys::ZONE_ATTRIBUTE_CACHES) {
            for list in at.parts()? {
                caches.push(AttributeText { path: at.path.clone(), text: list }.cpus()?);
            }
        }
    }
    // Caches that zones share are one each; their order is that of their first CPUs.
    caches.sort_by_key(CpuSet::first);
    let (mut cache_of, mut known) = (BTreeMap::new(), CpuSet::new());
    for (at, cache) in (0..).zip(&caches) {
        cache_of.extend(cache.difference(&known).iter().map(|cpu| (cpu, at)));
        known.insert_all(cache);
    }
    for cpu in cpus.iter_mut().filter(|_| !caches.is_empty()) {
        cpu.cache = cache_of.get(&cpu.id).copied().unwrap_or(cpu.socket);
    }
    Ok(cpus)
}

/// `0`, or `0:0-7;1:8-15`.
fn sockets(at: Option<AttributeText<'_>>, cpus: &CpuSet) -> Result<Vec<(u32, CpuSet)>, ConvertError> {
    let Some(at) = at else { return Ok(Vec::new()) };
    if let Ok(socket) = at.text.parse() {
        return Ok(vec![(socket, cpus.clone())]);
    }
    let socket = |text: &str| {
        let (socket, cpus) = text.split_once(':')?;
        Some((socket.parse().ok()?, CpuSet::parse(cpus).ok()?))
    };
    let sockets: Option<_> = at.parts()?.map(socket).collect();
    sockets.ok_or_else(|| at.wrong("the id of a socket, or id:cpus joined by semicolons"))
}
