//! One case: a cluster, a scheduler's configuration, and a pod to place. And what kube-scheduler answers.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::AllocationResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The objects of a case, as the API server would have them, with all defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// Nodes.
    pub nodes: Vec<Value>,
    /// Pods on nodes, and pods that wait for a nominated node.
    pub pods: Vec<Value>,
    /// Namespaces.
    pub namespaces: Vec<Value>,
    /// Services.
    #[serde(default)]
    pub services: Vec<Value>,
    /// ReplicationControllers.
    #[serde(default)]
    pub replication_controllers: Vec<Value>,
    /// ReplicaSets.
    #[serde(default)]
    pub replica_sets: Vec<Value>,
    /// StatefulSets.
    #[serde(default)]
    pub stateful_sets: Vec<Value>,
    /// Budgets.
    #[serde(default)]
    pub pod_disruption_budgets: Vec<Value>,
    /// Volumes and what belongs to them.
    #[serde(default)]
    pub storage: Storage,
    /// Devices and claims for them.
    #[serde(default)]
    pub devices: Devices,
    /// A `KubeSchedulerConfiguration`.
    pub configuration: Value,
    /// The pod to place.
    pub pod: Value,
}

/// The objects that volume plugins look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Storage {
    /// PersistentVolumes.
    pub persistent_volumes: Vec<Value>,
    /// Claims.
    pub persistent_volume_claims: Vec<Value>,
    /// Classes.
    pub storage_classes: Vec<Value>,
    /// CSINodes.
    pub csi_nodes: Vec<Value>,
    /// CSIDrivers.
    pub csi_drivers: Vec<Value>,
    /// CSIStorageCapacities.
    pub csi_storage_capacities: Vec<Value>,
    /// VolumeAttachments.
    pub volume_attachments: Vec<Value>,
}

impl Storage {
    /// The lists of objects, one for each kind.
    pub fn kinds(&mut self) -> [&mut Vec<Value>; 7] {
        [
            &mut self.persistent_volumes,
            &mut self.persistent_volume_claims,
            &mut self.storage_classes,
            &mut self.csi_nodes,
            &mut self.csi_drivers,
            &mut self.csi_storage_capacities,
            &mut self.volume_attachments,
        ]
    }
}

/// The objects that DynamicResources looks at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Devices {
    /// Claims.
    pub resource_claims: Vec<Value>,
    /// Slices.
    pub resource_slices: Vec<Value>,
    /// Classes.
    pub device_classes: Vec<Value>,
}

impl Devices {
    /// The lists of objects, one for each kind.
    pub fn kinds(&mut self) -> [&mut Vec<Value>; 3] {
        [&mut self.resource_claims, &mut self.resource_slices, &mut self.device_classes]
    }
}

/// Why a node does not fit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Refusal {
    /// The plugin that refused it.
    pub plugin: String,
}

/// What the plugins give a node.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Score {
    /// The sum.
    pub total: i64,
    /// By plugin, with its weight.
    pub plugins: BTreeMap<String, i64>,
}

/// The answer of kube-scheduler's packages.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Answer {
    /// Nodes that fit.
    pub fits: Vec<String>,
    /// The scores of nodes, if several fit.
    pub scores: BTreeMap<String, Score>,
    /// The other nodes.
    pub refused: BTreeMap<String, Refusal>,
    /// The filters that looked at nodes.
    pub filters: Vec<String>,
    /// The devices that claims of the pod get on nodes that fit, by node and claim.
    pub allocations: BTreeMap<String, BTreeMap<String, AllocationResult>>,
    /// The claims of which devices are given back.
    pub deallocated: Vec<String>,
    /// What FailedScheduling says, if no node fits.
    pub message: String,
    /// The node that preemption frees; empty if it frees none.
    pub nominated: String,
    /// The pods that it deletes, as `namespace/name`, sorted.
    pub victims: Vec<String>,
}

impl Answer {
    /// The nodes that kube-scheduler chooses from.
    #[must_use]
    pub fn best(&self) -> Vec<&str> {
        let most = self.scores.values().map(|score| score.total).max();
        let is_best = |name: &&String| most.is_none_or(|most| self.total(name) == Some(most));
        self.fits.iter().filter(is_best).map(String::as_str).collect()
    }

    /// The scores of all nodes.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<String, i64> {
        self.scores.iter().map(|(name, score)| (name.clone(), score.total)).collect()
    }

    /// The score of a node.
    #[must_use]
    pub fn total(&self, node: &str) -> Option<i64> {
        self.scores.get(node).map(|score| score.total)
    }
}
