//! What the operator does next.
//!
//! In: the [`World`], and what is known besides. Out: [`Step`]s, which change nothing when they are taken twice. Never:
//! a write.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::PoolBehaviour;
use super::kubelet_config::{self, Accepted};
use super::machine_pool::MachinePool;
use super::rendered::Rendered;
use super::world::{Kind, World};

/// The label of a node that takes all pods, and label and taint of one that does not.
const WORKER: &str = "node-role.kubernetes.io/worker";
const MASTER: &str = "node-role.kubernetes.io/master";

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// An object is to have some fields.
    Write(Write),
    /// A machine is to get a configuration.
    Configure { node: String, config: Rendered },
}

/// A merge of an object, or of its status.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) patch: Value,
    pub(super) is_status: bool,
}

/// What is known besides the cluster's objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) behaviour: BTreeMap<String, PoolBehaviour>,
    pub(super) accepted: Accepted,
    /// The configuration that a node is getting now.
    pub(super) at_work: BTreeMap<String, String>,
    /// The configuration that a node could not get.
    pub(super) failed: BTreeMap<String, String>,
}

/// All that is left to do; machines at work are left alone.
pub(super) fn steps(world: &World, memory: &mut Memory, now: Timestamp) -> Vec<Step> {
    memory.accepted.update(world);
    let mut steps = Vec::new();
    for config in world.all(Kind::KubeletConfig) {
        if let Some(status) = kubelet_config::status(config, world, now) {
            steps.push(written_status(Kind::KubeletConfig, config, &status));
        }
    }
    if let Some(scheduler) = world.only(Kind::Scheduler) {
        let schedulable = scheduler.data["spec"]["mastersSchedulable"] == true;
        steps.extend(world.all(Kind::Node).filter_map(|node| master(node, schedulable)));
    }
    for pool in world.all(Kind::Pool) {
        if let Some(pool) = MachinePool::of(pool, world, memory) {
            steps.append(&mut pool.steps(memory, now));
        }
    }
    steps
}

/// Unless masters take all pods they are no workers, and have a taint.
fn master(node: &DynamicObject, schedulable: bool) -> Option<Step> {
    node.labels().get(MASTER)?;
    let is_worker = node.labels().contains_key(WORKER);
    let taints = node.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let is_ours = |taint: &Value| taint["key"] == MASTER && taint["effect"] == "NoSchedule";
    let (ours, mut wanted): (Vec<_>, Vec<_>) = taints.into_iter().partition(is_ours);
    if is_worker == schedulable && ours.is_empty() == schedulable {
        return None;
    }
    let label = if schedulable { json!("") } else { Value::Null };
    if !schedulable {
        wanted.push(json!({ "key": MASTER, "effect": "NoSchedule" }));
    }
    // Others have taints in the same list.
    let patch = json!({
        "metadata": { "labels": { WORKER: label }, "resourceVersion": node.metadata.resource_version },
        "spec": { "taints": wanted },
    });
    Some(Step::Write(Write { kind: Kind::Node, name: node.name_any(), patch, is_status: false }))
}

/// A status for an object as it is now; one that has changed meanwhile is looked at again.
pub(super) fn written_status(kind: Kind, object: &DynamicObject, status: &Value) -> Step {
    let metadata = json!({ "resourceVersion": object.metadata.resource_version });
    let patch = json!({ "metadata": metadata, "status": status });
    Step::Write(Write { kind, name: object.name_any(), patch, is_status: true })
}
