//! The cluster state, between the watches that feed it and the controllers that read it.
//!
//! In: reports of watches, and the answers to our own writes. Out: the cluster state; the controllers that a change
//! concerns, in the queue. Never: a wait while it is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use objects::ObjectKey;
use objects::controller::{Queue, SharedState};
use objects::ownership::uid;
use serde_json::Value;
use tokio::sync::Notify;

use crate::cluster_state::ClusterState;
use crate::desired::Controller;
use crate::ownership::{Responsible, responsible};

/// Controllers that a change concerns.
pub type ControllerSet = BTreeSet<Controller>;

/// The cluster state and the queue of the controllers. One for the process.
#[derive(Debug)]
pub struct Shared {
    state: SharedState<State, Controller>,
    /// Notified when a controller has reconciled.
    pub(crate) reconciled: Notify,
}

#[derive(Debug)]
struct State {
    cluster: ClusterState,
    /// The objects that each controller desired in its last reconcile.
    desired: BTreeMap<Controller, BTreeSet<ObjectKey>>,
    /// The failures of each controller's last reconcile.
    errors: BTreeMap<Controller, Vec<String>>,
}

impl Shared {
    /// Shares a cluster state.
    #[must_use]
    pub fn new(cluster: ClusterState) -> Arc<Self> {
        let state = State { cluster, desired: BTreeMap::new(), errors: BTreeMap::new() };
        Arc::new(Self { state: SharedState::new(state), reconciled: Notify::new() })
    }

    /// Reads the cluster state; no other access is possible meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        self.state.read(|state| look(&state.cluster))
    }

    /// Changes the cluster state, and queues the controllers that the change concerns.
    ///
    /// For observed objects there are [`Self::observe`] and [`Self::observe_deletion`], which know the controllers.
    pub fn update(&self, change: impl FnOnce(&mut ClusterState) -> ControllerSet) {
        self.state.update(|state| change(&mut state.cluster));
    }

    /// Takes in the state of an object that may be ours, unless a newer one is known.
    pub fn observe(&self, key: ObjectKey, body: Value) {
        self.state.update(|state| {
            let before = state.cluster.observed.get(&key).map(|body| state.concerned(&key, body));
            let mut concerned = state.concerned(&key, &body);
            concerned.extend(before.unwrap_or_default());
            if state.cluster.observed.observe(key, body) { concerned } else { ControllerSet::new() }
        });
    }

    /// Takes in the deletion of an object whose last state was `body`, unless a newer state is known.
    pub fn observe_deletion(&self, key: &ObjectKey, body: &Value) {
        self.state.update(|state| {
            let concerned = state.concerned(key, body);
            if state.cluster.observed.observe_deletion(key, body) { concerned } else { ControllerSet::new() }
        });
    }

    /// The queue of the controllers.
    #[must_use]
    pub fn queue(&self) -> &Queue<Controller> {
        &self.state.queue
    }

    /// Notes the objects that a controller desires, so that their changes concern it, also with another owner.
    pub(crate) fn note_desired(&self, controller: Controller, keys: BTreeSet<ObjectKey>) {
        self.state.edit(|state| state.desired.insert(controller, keys));
    }

    /// Notes a controller's failures. Returns whether they changed.
    pub(crate) fn note_errors(&self, controller: Controller, errors: &[String]) -> bool {
        let before = self.state.edit(|state| state.errors.insert(controller, errors.to_vec()));
        before.unwrap_or_default() != errors
    }

    /// The failures of a controller's last reconcile.
    pub(crate) fn errors(&self, controller: Controller) -> Vec<String> {
        self.state.read(|state| state.errors.get(&controller).cloned().unwrap_or_default())
    }

    /// Takes in the answer to a write of ours; its controller knows of it already.
    pub(crate) fn observe_write(&self, key: ObjectKey, body: Value) {
        self.state.edit(|state| state.cluster.observed.observe(key, body));
    }

    /// Takes in that the object with this UID was found absent.
    pub(crate) fn observe_absence(&self, key: &ObjectKey, absent: &str) {
        self.state.edit(|state| {
            if state.cluster.observed.get(key).is_some_and(|known| uid(known) == absent) {
                state.cluster.observed.remove(key);
            }
        });
    }
}

impl State {
    /// The controllers that an object concerns.
    fn concerned(&self, key: &ObjectKey, body: &Value) -> ControllerSet {
        let desired = self.desired.iter().filter(|(_, keys)| keys.contains(key));
        let mut concerned: ControllerSet = desired.map(|(&controller, _)| controller).collect();
        match responsible(key, body) {
            Responsible::Controller(controller) => drop(concerned.insert(controller)),
            Responsible::Orphaned => concerned.extend(Controller::ALL),
            Responsible::Unknown => {}
        }
        concerned
    }
}
