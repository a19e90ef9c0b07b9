//! Holdings of pods, from the checkpoints that a kubelet's managers write at each change.
//!
//! In: the kubelet's root folder, a pod. Out: what each of its containers has, and the pod as a whole. Never: a pod
//! that the managers do not know.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use node::kubelet::state::Checkpoint;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sim::admit::verdict::{ContainerVerdict, DevicesVerdict, MemoryVerdict, PodVerdict};

/// Values by pod, then by container.
type ByContainer<T> = BTreeMap<String, BTreeMap<String, T>>;

/// `cpu_manager_state`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CpuCheckpoint {
    entries: ByContainer<String>,
    pod_entries: BTreeMap<String, PodCpus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodCpus {
    cpu_set: String,
}

/// `memory_manager_state`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemoryCheckpoint {
    entries: ByContainer<Vec<Block>>,
    pod_entries: BTreeMap<String, PodMemory>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodMemory {
    memory_blocks: Vec<Block>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    numa_affinity: Vec<u32>,
    #[serde(rename = "type")]
    name: String,
    size: u64,
}

/// `device-plugins/kubelet_internal_checkpoint`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DeviceCheckpoint {
    data: DeviceData,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct DeviceData {
    pod_device_entries: Option<Vec<DeviceEntry>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceEntry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    by_zone: BTreeMap<String, Vec<String>>,
}

/// The holdings of a pod: of its containers in the given order, and of the whole.
///
/// # Errors
/// When a checkpoint cannot be read.
pub(super) fn holdings(
    root: &Path,
    uid: &str,
    containers: &[String],
) -> anyhow::Result<(Vec<ContainerVerdict>, PodVerdict)> {
    let mut cpus: CpuCheckpoint = read(&root.join(Checkpoint::Cpu.file_name()))?;
    let mut memory: MemoryCheckpoint = read(&root.join(Checkpoint::Memory.file_name()))?;
    let devices: DeviceCheckpoint = read(&root.join("device-plugins/kubelet_internal_checkpoint"))?;
    let mut held_cpus = cpus.entries.remove(uid).unwrap_or_default();
    let mut held_memory = memory.entries.remove(uid).unwrap_or_default();
    let held_devices: Vec<DeviceEntry> = devices
        .data
        .pod_device_entries
        .unwrap_or_default()
        .into_iter()
        .filter(|e| e.pod_uid == uid)
        .collect();
    let containers = containers.iter().map(|name| ContainerVerdict {
        name: name.clone(),
        cpus: held_cpus.remove(name).unwrap_or_default(),
        memory: blocks(held_memory.remove(name).unwrap_or_default()),
        devices: devices_of(held_devices.iter().filter(|entry| entry.container_name == *name)),
    });
    let containers = containers.collect();
    let whole = PodVerdict {
        cpus: cpus.pod_entries.remove(uid).unwrap_or_default().cpu_set,
        memory: blocks(memory.pod_entries.remove(uid).unwrap_or_default().memory_blocks),
    };
    Ok((containers, whole))
}

fn blocks(blocks: Vec<Block>) -> Vec<MemoryVerdict> {
    let mut verdicts: Vec<MemoryVerdict> = blocks
        .into_iter()
        .map(|block| MemoryVerdict { name: block.name, zones: block.numa_affinity, bytes: block.size })
        .collect();
    verdicts.sort();
    verdicts
}

fn devices_of<'a>(entries: impl Iterator<Item = &'a DeviceEntry>) -> Vec<DevicesVerdict> {
    let mut by_resource = BTreeMap::<&str, Vec<String>>::new();
    for entry in entries {
        by_resource
            .entry(&entry.resource_name)
            .or_default()
            .extend(entry.by_zone.values().flatten().cloned());
    }
    let sorted = |mut ids: Vec<String>| {
        ids.sort_unstable();
        ids.dedup(); // A device close to two zones is listed under both.
        ids
    };
    by_resource
        .into_iter()
        .map(|(resource, ids)| DevicesVerdict { resource: resource.to_owned(), ids: sorted(ids) })
        .collect()
}

/// A manager without the policy `static` may have written nothing.
fn read<T: DeserializeOwned + Default>(path: &Path) -> anyhow::Result<T> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}
