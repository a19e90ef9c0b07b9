//! Checks the kubelet's answers and converts them to types.
//!
//! In: decoded messages. Out: values with known names, ids and sizes. Never: a panic or a silent repair.
//!
//! Refused are: negative or huge CPU ids, invalid resource names, sizes above `i64::MAX`, zone ids that no
//! kernel has, pods without a name. Accepted are, because they occur: negative zone ids (plugins say -1 for "do not
//! know") and those beyond the kubelet's masks mean no locality; the same CPU, device or zone twice counts once; empty
//! blocks are dropped.

use topology::cpuset::CpuSet;
use topology::resource::ResourceName;
use topology::zone::{MAX_ZONES, ZoneId};

use super::{Allocatable, Call, ContainerResources, Devices, Error, MemoryBlock, PodResources, wire};

/// The largest zone id a kernel can have is 1023 (`CONFIG_NODES_SHIFT` 10); a little room for the future.
const MAX_ZONE: i64 = 65_535;

/// The answer to `List`.
pub(super) fn pods(pods: Vec<wire::PodResources>) -> Result<Vec<PodResources>, Error> {
    let parsed = pods.into_iter().enumerate().map(|(index, pod)| {
        if pod.name.is_empty() || pod.namespace.is_empty() {
            let reason = format!("pod {:?} in namespace {:?} has no full name", pod.name, pod.namespace);
            return Err(nonsense(Call::List, format!("pod_resources[{index}]"), reason));
        }
        let at = Location { call: Call::List, prefix: format!("{}/{}", pod.namespace, pod.name) };
        let containers = pod.containers.into_iter().map(|container| self::container(container, &at));
        Ok(PodResources {
            containers: containers.collect::<Result<_, _>>()?,
            namespace: pod.namespace,
            name: pod.name,
        })
    });
    parsed.collect()
}

/// The answer to `GetAllocatableResources`.
pub(super) fn allocatable(answer: wire::AllocatableResourcesResponse) -> Result<Allocatable, Error> {
    let at = Location { call: Call::Allocatable, prefix: "allocatable".to_owned() };
    Ok(Allocatable {
        cpus: at.cpus(&answer.cpu_ids)?,
        memory: at.memory(&answer.memory)?,
        devices: at.devices(answer.devices)?,
    })
}

fn container(container: wire::ContainerResources, pod: &Location) -> Result<ContainerResources, Error> {
    let at = Location { call: pod.call, prefix: format!("{}/{}", pod.prefix, container.name) };
    let memory = at.memory(&container.memory)?;
    // Of what a kubelet offers such an amount means less than nothing, of what it has handed out it means nothing.
    if let Some(block) = memory.iter().find(|block| i64::try_from(block.bytes).is_err()) {
        return Err(at.error(block.resource.as_str(), format!("{} bytes is impossible", block.bytes)));
    }
    Ok(ContainerResources {
        cpus: at.cpus(&container.cpu_ids)?,
        memory,
        devices: at.devices(container.devices)?,
        name: container.name,
    })
}

/// The call and the path of a value in its answer.
struct Location {
    call: Call,
    prefix: String,
}

impl Location {
    fn error(&self, field: &str, reason: impl ToString) -> Error {
        nonsense(self.call, format!("{}: {field}", self.prefix), reason.to_string())
    }

    fn cpus(&self, ids: &[i64]) -> Result<CpuSet, Error> {
        let mut set = CpuSet::new();
        for id in ids {
            let id =
                u32::try_from(*id).map_err(|_| self.error("cpu_ids", format!("{id} is not a CPU id")))?;
            set.insert(id).map_err(|error| self.error("cpu_ids", error))?;
        }
        Ok(set)
    }

    fn memory(&self, blocks: &[wire::ContainerMemory]) -> Result<Vec<MemoryBlock>, Error> {
        let mut parsed = Vec::with_capacity(blocks.len());
        for block in blocks.iter().filter(|block| block.size > 0) {
            let resource = self.resource("memory_type", &block.memory_type)?;
            let zones = self.zones(&block.memory_type, block.topology.as_ref())?;
            parsed.push(MemoryBlock { resource, bytes: block.size, zones });
        }
        Ok(parsed)
    }

    fn devices(&self, devices: Vec<wire::ContainerDevices>) -> Result<Vec<Devices>, Error> {
        let mut parsed = Vec::with_capacity(devices.len());
        for mut entry in devices {
            entry.device_ids.sort_unstable();
            entry.device_ids.dedup();
            if entry.device_ids.is_empty() {
                continue;
            }
            let resource = self.resource("resource_name", &entry.resource_name)?;
            let zones = self.zones(&entry.resource_name, entry.topology.as_ref())?;
            parsed.push(Devices { resource, ids: entry.device_ids, zones });
        }
        Ok(parsed)
    }

    fn resource(&self, field: &str, name: &str) -> Result<ResourceName, Error> {
        ResourceName::new(name).map_err(|error| self.error(field, error))
    }

    fn zones(&self, field: &str, topology: Option<&wire::TopologyInfo>) -> Result<Vec<ZoneId>, Error> {
        let mut zones = Vec::new();
        for node in topology.map(|topology| topology.nodes.as_slice()).unwrap_or_default() {
            if node.id > MAX_ZONE {
                return Err(self.error(field, format!("NUMA node id {} is too large", node.id)));
            }
            // GPUs have memory in zones that no kubelet aligns on. So a plugin cannot flood the log with ids either.
            zones.extend(u32::try_from(node.id).ok().filter(|id| (*id as usize) < MAX_ZONES).map(ZoneId));
        }
        zones.sort_unstable();
        zones.dedup();
        Ok(zones)
    }
}

fn nonsense(call: Call, field: String, reason: String) -> Error {
    Error::Nonsense { call, field, reason }
}
