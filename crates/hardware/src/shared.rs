//! The cluster state, between the watches that feed it and the reconciles that read it.
//!
//! In: what watches and the answers to our own writes say. Out: a look at it; keys in the queue; the optional watches
//! that are needed. Never: a wait while it is locked.

use std::sync::Arc;

use objects::controller::{Queue, SharedState};
use tokio::sync::watch;

use super::cluster_state::{AffectedConfigs, ClusterState, Environment, Key, Needs};

/// The cluster state, the queue of its DeviceConfigs, and what has to be watched for them. One for the process.
#[derive(Debug)]
pub struct Shared {
    state: SharedState<ClusterState, Key>,
    needs: watch::Sender<Needs>,
}

impl Shared {
    /// Shares an empty cluster state.
    #[must_use]
    pub fn new(environment: Environment) -> Arc<Self> {
        let state = SharedState::new(ClusterState::new(environment));
        Arc::new(Self { state, needs: watch::Sender::default() })
    }

    /// Reads the cluster state; no other access is possible meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        self.state.read(look)
    }

    /// Changes the cluster state, and queues the DeviceConfigs that the change concerns, and orphans.
    pub fn update(&self, change: impl FnOnce(&mut ClusterState) -> AffectedConfigs) {
        let mut needs = Needs::default();
        self.state.update(|cluster| {
            let affected = change(cluster).into_iter().map(Key::Config);
            needs = cluster.needs();
            affected.chain(cluster.orphans().into_iter().map(Key::Orphan))
        });
        self.needs.send_if_modified(|known| std::mem::replace(known, needs) != needs);
    }

    /// The queue of what is to be reconciled.
    pub fn queue(&self) -> &Queue<Key> {
        &self.state.queue
    }

    /// The optional watches that are needed.
    pub fn needs(&self) -> watch::Receiver<Needs> {
        self.needs.subscribe()
    }
}
