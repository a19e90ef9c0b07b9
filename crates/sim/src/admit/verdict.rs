//! What a kubelet did in one step, in a form that two kubelets can be compared by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer to a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Whether the kubelet runs.
    #[serde(default)]
    pub ok: bool,
    /// The words with which it refuses.
    #[serde(default)]
    pub error: String,
}

/// The verdict about one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the pod may run.
    #[serde(default)]
    pub admitted: bool,
    /// `status.reason` of a rejected pod.
    #[serde(default)]
    pub reason: String,
    /// `status.message` of a rejected pod.
    #[serde(default)]
    pub message: String,
    /// By container, in the order of admission; none for a rejected pod.
    #[serde(default)]
    pub containers: Vec<ContainerVerdict>,
    /// What the pod has as a whole, under pod-level managers.
    #[serde(default)]
    pub pod: Option<PodVerdict>,
    /// Of a rejected pod: what the managers had handed out before one of them refused. Only the oracle tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<ContainerVerdict>,
}

/// What a container has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerVerdict {
    /// The container.
    pub name: String,
    /// Exclusive CPUs.
    pub cpus: String,
    /// Memory, ordered by type and zones.
    pub memory: Vec<MemoryVerdict>,
    /// Devices, ordered by resource.
    pub devices: Vec<DevicesVerdict>,
}

/// What a pod has as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodVerdict {
    /// CPUs.
    pub cpus: String,
    /// Memory, ordered by type and zones.
    pub memory: Vec<MemoryVerdict>,
}

/// A block of memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemoryVerdict {
    /// `memory`, or a size of huge pages.
    #[serde(rename = "type")]
    pub name: String,
    /// The zones.
    pub zones: Vec<u32>,
    /// Bytes.
    pub bytes: u64,
}

/// Devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesVerdict {
    /// The resource.
    pub resource: String,
    /// Ids, ascending.
    pub ids: Vec<String>,
}

/// The answer to a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    /// Whether the kubelet runs.
    #[serde(default)]
    pub ok: bool,
    /// The words with which it refuses.
    #[serde(default)]
    pub error: String,
    /// Pods that it rejects now, in the order of their admission.
    #[serde(default)]
    pub rejected: Vec<RejectedPod>,
}

/// The answer to a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    /// Whether the pod has what it shall have.
    #[serde(default)]
    pub resized: bool,
    /// The reason of the condition `PodResizePending`; empty if nothing waits.
    #[serde(default)]
    pub reason: String,
    /// The condition's message.
    #[serde(default)]
    pub message: String,
    /// What the containers have now.
    #[serde(default)]
    pub containers: Vec<ContainerVerdict>,
}

/// A pod that was rejected after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedPod {
    /// Its UID.
    pub uid: String,
    /// `status.reason`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}

impl Verdict {
    /// Devices by container and resource.
    #[must_use]
    pub fn devices(&self) -> BTreeMap<(&str, &str), &[String]> {
        let mut all = BTreeMap::new();
        for container in self.containers.iter().chain(&self.held) {
            for devices in &container.devices {
                all.insert((&*container.name, &*devices.resource), &*devices.ids);
            }
        }
        all
    }
}
