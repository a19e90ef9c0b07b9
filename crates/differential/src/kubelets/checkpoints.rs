//! Holdings of pods, from the checkpoints that a kubelet's managers write at each change.
//!
//! In: the kubelet's root folder, a pod. Out: what each of its containers has, and the pod as a whole. Never: a pod
//! that the managers do not know.

use std::collections::BTreeMap;
use std::path::Path;

use node::kubelet::state::assignments::{Assignment, Assignments, Block};
use sim::admit::verdict::{ContainerVerdict, DevicesVerdict, MemoryVerdict, PodVerdict};

/// The holdings of a pod: of its containers in the given order, and of the whole.
///
/// # Errors
/// When a checkpoint cannot be read.
pub(super) fn holdings(
    root: &Path,
    uid: &str,
    containers: &[String],
) -> anyhow::Result<(Vec<ContainerVerdict>, PodVerdict)> {
    let mut held = Assignments::read(root)?;
    let mut take =
        |container: &str| held.containers.remove(&(uid.to_owned(), container.to_owned())).unwrap_or_default();
    let containers = containers.iter().map(|name| {
        let Assignment { cpus, memory, devices } = take(name);
        let mut by_resource = BTreeMap::<String, Vec<String>>::new();
        for (resource, id) in devices.into_keys() {
            by_resource.entry(resource.to_string()).or_default().push(id);
        }
        let devices = by_resource.into_iter().map(|(resource, ids)| DevicesVerdict { resource, ids });
        ContainerVerdict {
            name: name.clone(),
            cpus: cpus.to_string(),
            memory: blocks(memory),
            devices: devices.collect(),
        }
    });
    let containers = containers.collect();
    let Assignment { cpus, memory, .. } = take("");
    Ok((containers, PodVerdict { cpus: cpus.to_string(), memory: blocks(memory) }))
}

fn blocks(blocks: Vec<Block>) -> Vec<MemoryVerdict> {
    let verdict = |block: Block| MemoryVerdict {
        name: block.resource.to_string(),
        zones: block.zones.iter().collect(),
        bytes: block.bytes,
    };
    let mut verdicts: Vec<MemoryVerdict> = blocks.into_iter().map(verdict).collect();
    verdicts.sort();
    verdicts
}
