//! Answers as text that a folder of recorded answers has.
//!
//! In: the messages. Out: JSON that `folder` reads as the same messages. Never: claims for dynamic resources, or
//! another field that this program does not read.

use serde_json::{Map, Value};

use super::{Call, Error, MAX_ANSWER_BYTES, wire};

/// The recording of `List`.
pub(super) fn list(answer: &wire::ListPodResourcesResponse) -> Result<String, Error> {
    text(Call::List, object([("pod_resources", list_of(&answer.pod_resources, pod))]))
}

/// The recording of `GetAllocatableResources`.
pub(super) fn allocatable(answer: &wire::AllocatableResourcesResponse) -> Result<String, Error> {
    let fields = [
        ("devices", list_of(&answer.devices, devices)),
        ("cpu_ids", answer.cpu_ids.clone().into()),
        ("memory", list_of(&answer.memory, memory)),
    ];
    text(Call::Allocatable, object(fields))
}

fn text(call: Call, value: Value) -> Result<String, Error> {
    let text = format!("{value:#}\n");
    if text.len() > MAX_ANSWER_BYTES { Err(Error::Unrecorded { call, bytes: text.len() }) } else { Ok(text) }
}

fn pod(pod: &wire::PodResources) -> Value {
    object([
        ("name", pod.name.clone().into()),
        ("namespace", pod.namespace.clone().into()),
        ("containers", list_of(&pod.containers, container)),
    ])
}

fn container(container: &wire::ContainerResources) -> Value {
    object([
        ("name", container.name.clone().into()),
        ("devices", list_of(&container.devices, devices)),
        ("cpu_ids", container.cpu_ids.clone().into()),
        ("memory", list_of(&container.memory, memory)),
    ])
}

fn memory(block: &wire::ContainerMemory) -> Value {
    object([
        ("memory_type", block.memory_type.clone().into()),
        ("size", block.size.into()),
        ("topology", topology(block.topology.as_ref())),
    ])
}

fn devices(devices: &wire::ContainerDevices) -> Value {
    object([
        ("resource_name", devices.resource_name.clone().into()),
        ("device_ids", devices.device_ids.clone().into()),
        ("topology", topology(devices.topology.as_ref())),
    ])
}

fn topology(topology: Option<&wire::TopologyInfo>) -> Value {
    let node = |node: &wire::NumaNode| Value::Object(Map::from_iter([("ID".to_owned(), node.id.into())]));
    topology.map_or(Value::Null, |topology| object([("nodes", list_of(&topology.nodes, node))]))
}

fn list_of<T>(items: &[T], value: impl Fn(&T) -> Value) -> Value {
    items.iter().map(value).collect()
}

/// Fields without those that are null or an empty list, which mean the same as none.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let says = |value: &Value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty());
    fields
        .into_iter()
        .filter(|(_, value)| says(value))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
