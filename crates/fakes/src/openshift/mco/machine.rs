//! Nodes as the operator sees them: whose they are, and how far they are.
//!
//! In: nodes and pools. Out: a [`Machine`] for each node of a pool. Never: a node in two pools.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::SelectorExt as _;
use serde_json::Value;

use super::kubelet_config::selector;
use super::world::{Kind, World};

/// Annotations of nodes: what they have, and what they are to have.
pub(super) const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";
pub(super) const DESIRED: &str = "machineconfiguration.openshift.io/desiredConfig";
pub(super) const STATE: &str = "machineconfiguration.openshift.io/state";
pub(super) const REASON: &str = "machineconfiguration.openshift.io/reason";

/// Values of [`STATE`].
pub(super) const DONE: &str = "Done";
pub(super) const WORKING: &str = "Working";
pub(super) const DEGRADED: &str = "Degraded";

/// A node of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) current: String,
    pub(super) desired: String,
    pub(super) state: String,
    pub(super) reason: String,
    /// Its kubelet is ready, and pods may go there.
    pub(super) is_ready: bool,
}

impl Machine {
    /// The nodes of a pool.
    pub(super) fn all(pool: &str, world: &World) -> Vec<Self> {
        let own = world.all(Kind::Node).filter(|node| pool_of(node, world).as_deref() == Some(pool));
        own.map(Self::of).collect()
    }

    fn of(node: &DynamicObject) -> Self {
        let annotation = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
        Self {
            name: node.name_any(),
            current: annotation(CURRENT),
            desired: annotation(DESIRED),
            state: annotation(STATE),
            reason: annotation(REASON),
            is_ready: is_ready(&node.data),
        }
    }

    /// It has all that it was told to have.
    fn is_done(&self) -> bool {
        !self.current.is_empty() && self.current == self.desired && self.state == DONE
    }

    /// It has this, and all else that it was told to have.
    pub(super) fn is_done_at(&self, config: &str) -> bool {
        self.is_done() && self.current == config
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.state == DEGRADED
    }

    /// It takes no pods, or will soon take none.
    pub(super) fn is_unavailable(&self) -> bool {
        !self.is_ready || !(self.is_done() || self.is_degraded())
    }
}

/// The pool of a node: masters are in `master` alone, and custom pools precede `worker`. A node of two custom pools is
/// in none.
fn pool_of(node: &DynamicObject, world: &World) -> Option<String> {
    let takes = |pool: &&DynamicObject| {
        selector(&pool.data["spec"]["nodeSelector"]).is_some_and(|selector| selector.matches(node.labels()))
    };
    let names: Vec<String> = world.all(Kind::Pool).filter(takes).map(|pool| pool.name_any()).collect();
    let is_usual = |name: &str| name == "master" || name == "worker";
    let custom: Vec<&String> = names.iter().filter(|name| !is_usual(name)).collect();
    match (names.iter().find(|name| *name == "master"), custom.as_slice()) {
        (Some(master), _) => Some(master.clone()),
        (None, [one]) => Some((*one).clone()),
        (None, []) => names.first().cloned(),
        (None, _) => None,
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    ready && node["spec"]["unschedulable"] != true
}
