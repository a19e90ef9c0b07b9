//! Recorded answers as JSON files in a directory, in place of the kubelet: for experiments and tests.
//!
//! In: `list.json` and `get_allocatable_resources.json`, read again at every call. Names of fields are those of the
//! service's proto file (`pod_resources`, `cpu_ids`, `memory_type`, `topology.nodes[].ID`), as in the files for RTE's
//! `fake://`. Out: the messages. Unknown fields are ignored, as in RTE.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Call, Error, MAX_ANSWER_BYTES, wire};
use crate::file;
use crate::json::{Field, Mismatch};

/// The file with the answer to a call.
pub(super) fn path(dir: &Path, call: Call) -> PathBuf {
    dir.join(call.file_name())
}

/// The answer to `List`.
pub(super) fn list(dir: &Path) -> Result<wire::ListPodResourcesResponse, Error> {
    read(dir, Call::List, |at| {
        Ok(wire::ListPodResourcesResponse { pod_resources: at.get("pod_resources", |pods| pods.list(pod))? })
    })
}

/// The answer to `GetAllocatableResources`.
pub(super) fn allocatable(dir: &Path) -> Result<wire::AllocatableResourcesResponse, Error> {
    read(dir, Call::Allocatable, |at| {
        Ok(wire::AllocatableResourcesResponse {
            devices: at.get("devices", |devices| devices.list(self::devices))?,
            cpu_ids: at.get("cpu_ids", |ids| ids.list(Field::signed))?,
            memory: at.get("memory", |blocks| blocks.list(memory))?,
        })
    })
}

fn read<T>(dir: &Path, call: Call, decode: impl Fn(&Field) -> Result<T, Mismatch>) -> Result<T, Error> {
    let path = path(dir, call);
    let text =
        file::read_up_to(&path, MAX_ANSWER_BYTES as u64).map_err(|source| Error::File { call, source })?;
    let nonsense = |field: String, reason: String| Error::Nonsense { call, field, reason };
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| nonsense(path.display().to_string(), format!("not JSON: {error}")))?;
    decode(&Field::root(&value)).map_err(|error| {
        let Mismatch { field, found, expected } = error;
        nonsense(format!("{}: {field}", path.display()), format!("{found} is not {expected}"))
    })
}

fn pod(at: &Field) -> Result<wire::PodResources, Mismatch> {
    Ok(wire::PodResources {
        name: at.get("name", text)?,
        namespace: at.get("namespace", text)?,
        containers: at.get("containers", |containers| containers.list(container))?,
    })
}

fn container(at: &Field) -> Result<wire::ContainerResources, Mismatch> {
    Ok(wire::ContainerResources {
        name: at.get("name", text)?,
        devices: at.get("devices", |devices| devices.list(self::devices))?,
        cpu_ids: at.get("cpu_ids", |ids| ids.list(Field::signed))?,
        memory: at.get("memory", |blocks| blocks.list(memory))?,
        dynamic_resources: Vec::new(), // never read
    })
}

fn memory(at: &Field) -> Result<wire::ContainerMemory, Mismatch> {
    // Go's generated structure once called the field `Size_` with the JSON name `size`; both are found in recorded
    // answers.
    let size = if at.field("size")?.is_some() { "size" } else { "size_" };
    Ok(wire::ContainerMemory {
        memory_type: at.get("memory_type", text)?,
        size: at.get(size, Field::unsigned)?,
        topology: topology(at)?,
    })
}

fn devices(at: &Field) -> Result<wire::ContainerDevices, Mismatch> {
    Ok(wire::ContainerDevices {
        resource_name: at.get("resource_name", text)?,
        device_ids: at.get("device_ids", |ids| ids.list(text))?,
        topology: topology(at)?,
    })
}

fn topology(at: &Field) -> Result<Option<wire::TopologyInfo>, Mismatch> {
    let node = |node: &Field| Ok(wire::NumaNode { id: node.get("ID", Field::signed)? });
    let read = |topology: &Field| {
        Ok(Some(wire::TopologyInfo { nodes: topology.get("nodes", |nodes| nodes.list(node))? }))
    };
    at.get("topology", read)
}

fn text(at: &Field) -> Result<String, Mismatch> {
    at.text().map(str::to_owned)
}
