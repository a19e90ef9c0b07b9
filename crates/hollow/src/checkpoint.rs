//! What the containers of a pod hold, as an annotation of the pod: the checkpoint of a hollow kubelet.
//!
//! In: an allocation of the model. Out: text, and the allocation again. Never: a pod's name; the annotation goes with
//! its pod. A kubelet keeps such a file on its disk, which hollow nodes have not; so that one that starts again knows
//! which CPUs its pods run on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::{DeviceId, HeldDevices};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::memory_manager::Block;
use topology::kubelet::{Allocation, ContainerAllocation};
use topology::resource::ResourceName;

/// The annotation.
pub const KEY: &str = "hollow.tholepin.dev/held";
/// The longest text that is read; a container needs some hundred bytes.
const MAX_BYTES: usize = 64 << 10;

/// What one container holds.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Held {
    #[serde(skip_serializing_if = "String::is_empty")]
    cpus: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory: Vec<HeldMemory>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    devices: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldMemory {
    name: String,
    zones: String,
    bytes: u64,
}

/// The text for an allocation; `None` if no container holds anything.
#[must_use]
pub fn write(allocation: &Allocation) -> Option<String> {
    let memory = |block: &Block| HeldMemory {
        name: block.name.as_str().to_owned(),
        zones: block.zones.to_string(),
        bytes: block.bytes,
    };
    let held = |container: &ContainerAllocation| Held {
        cpus: container.cpus.to_string(),
        memory: container.memory.iter().map(memory).collect(),
        devices: container
            .devices
            .iter()
            .map(|(name, ids)| (name.as_str().to_owned(), ids.iter().map(ToString::to_string).collect()))
            .collect(),
    };
    let holds = |container: &&ContainerAllocation| {
        !container.cpus.is_empty() || !container.memory.is_empty() || !container.devices.is_empty()
    };
    let containers: BTreeMap<&str, Held> = allocation
        .containers
        .iter()
        .filter(holds)
        .map(|container| (&*container.name, held(container)))
        .collect();
    (!containers.is_empty()).then(|| serde_json::to_string(&containers).ok()).flatten()
}

/// The allocations in a text, by container; `None` for a text that is none of ours.
#[must_use]
pub fn read(text: &str) -> Option<Vec<ContainerAllocation>> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let containers: BTreeMap<String, Held> = serde_json::from_str(text).ok()?;
    containers.into_iter().map(|(name, held)| allocation(&name, held)).collect()
}

fn allocation(name: &str, held: Held) -> Option<ContainerAllocation> {
    let memory = held.memory.into_iter().map(|block| {
        let zones = ZoneMask::parse(&block.zones)?;
        Some(Block { name: ResourceName::new(&block.name).ok()?, zones, bytes: block.bytes })
    });
    let devices = held.devices.into_iter().map(|(name, ids)| {
        Some((ResourceName::new(&name).ok()?, ids.into_iter().map(DeviceId::from).collect()))
    });
    Some(ContainerAllocation {
        name: name.into(),
        cpus: CpuSet::parse(&held.cpus).ok()?,
        memory: memory.collect::<Option<_>>()?,
        devices: devices.collect::<Option<HeldDevices>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let name = |name| ResourceName::new(name).unwrap();
        let held = ContainerAllocation {
            name: "main".into(),
            cpus: CpuSet::parse("1-3,8").unwrap(),
            memory: vec![Block {
                zones: ZoneMask::parse("0,1").unwrap(),
                name: name("memory"),
                bytes: 1 << 30,
            }],
            devices: [(name("example.com/gpu"), [DeviceId::from("000-0-00001")].into())].into(),
        };
        let idle = ContainerAllocation { name: "idle".into(), ..ContainerAllocation::default() };
        let allocation = Allocation { containers: vec![idle.clone(), held.clone()], ..Allocation::default() };
        let text = write(&allocation).unwrap();
        assert_eq!(read(&text).unwrap(), [held]);
        assert_eq!(write(&Allocation { containers: vec![idle], ..Allocation::default() }), None);
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("{{\"{}\":{{}}}}", "a".repeat(MAX_BYTES));
        for text in [
            "",
            "[]",
            "{\"main\":{\"cpus\":\"x\"}}",
            "{\"main\":{\"memory\":[{\"name\":\"memory\",\"zones\":\"99\",\"bytes\":1}]}}",
            "{\"main\":{\"other\":1}}",
            &long,
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
