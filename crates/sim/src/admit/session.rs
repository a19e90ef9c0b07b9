//! One kubelet's life as a list of steps: what a random search makes, a comparison runs, and a file keeps.
//!
//! In: JSON. Out: the same, typed as far as the model of the kubelet needs it. Pods, configuration and machine are kept
//! in the words of Kubernetes and cAdvisor, so the same file serves the model, the oracle and real kubelets.

use node::kubelet::machine::MachineInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A kubelet on a machine, and what happens to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The machine, as cAdvisor reports it.
    pub machine: MachineInfo,
    /// A KubeletConfiguration.
    pub kubelet: Value,
    /// What device plugins list.
    #[serde(default)]
    pub devices: Vec<Plugin>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// The devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugin {
    /// The resource's name.
    pub resource: String,
    /// Its devices.
    pub devices: Vec<PluginDevice>,
    /// Which of them the plugin prefers; absent if it has no preference.
    #[serde(default)]
    pub preferred: Option<Preferred>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginDevice {
    /// The id.
    pub id: String,
    /// Its zones; empty if the plugin says nothing of zones.
    #[serde(default)]
    pub nodes: Vec<u32>,
    /// Whether it can be handed out.
    #[serde(default = "yes")]
    pub healthy: bool,
}

/// What a plugin prefers among devices that are equally aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preferred {
    /// The lowest ids.
    First,
    /// The highest ids.
    Last,
    /// Others, by a rule of its own.
    Own,
}

/// Something that happens to a kubelet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Step {
    /// A pod is bound to the node.
    Admit {
        /// The pod.
        pod: Value,
    },
    /// A pod has ended or was deleted.
    Remove {
        /// Its UID.
        uid: String,
    },
    /// A pod's CPU and memory are changed in place.
    Resize {
        /// The pod, as it shall be.
        pod: Value,
    },
    /// The kubelet restarts.
    Restart {
        /// Whether device plugins register before the kubelet admits its pods again, and not after that.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        plugins: bool,
    },
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_yes(value: &bool) -> bool {
    *value
}

impl Step {
    /// The pod that the step brings or changes.
    pub fn pod_mut(&mut self) -> Option<&mut Value> {
        match self {
            Self::Admit { pod } | Self::Resize { pod } => Some(pod),
            Self::Remove { .. } | Self::Restart { .. } => None,
        }
    }

    /// The step as the oracle reads it.
    #[must_use]
    pub fn request(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Session {
    /// The start as the oracle reads it.
    #[must_use]
    pub fn request(&self) -> Value {
        serde_json::json!({
            "op": "start", "machine": self.machine, "kubelet": self.kubelet, "devices": self.devices,
        })
    }
}
