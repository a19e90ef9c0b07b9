//! The cluster state, shared by the watches that feed it and the reconciles that read it.
//!
//! In: changes from watches, and from the answers to writes. Out: the state; keys in the queue; the optional watches
//! that are needed. Never: a wait while the state is locked.

use std::sync::Arc;

use objects::controller::{Queue, SharedState};
use tokio::sync::watch;

use super::cluster_state::{AffectedConfigs, ClusterState, Environment, Key, OptionalWatches};

/// The cluster state, the queue of its DeviceConfigs, and the optional watches that they need.
#[derive(Debug)]
pub struct Shared {
    state: SharedState<ClusterState, Key>,
    optional_watches: watch::Sender<OptionalWatches>,
}

impl Shared {
    /// Shares an empty cluster state.
    #[must_use]
    pub fn new(environment: Environment) -> Arc<Self> {
        let state = SharedState::new(ClusterState::new(environment));
        Arc::new(Self { state, optional_watches: watch::Sender::default() })
    }

    /// Reads the cluster state, which is locked meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&ClusterState) -> T) -> T {
        self.state.read(read)
    }

    /// Changes the cluster state, and queues the affected DeviceConfigs and orphans.
    pub fn update(&self, change: impl FnOnce(&mut ClusterState) -> AffectedConfigs) {
        let mut needed = OptionalWatches::default();
        self.state.update(|cluster| {
            let affected = change(cluster).into_iter().map(Key::Config);
            needed = cluster.optional_watches();
            affected.chain(cluster.orphans().into_iter().map(Key::Orphan))
        });
        self.optional_watches.send_if_modified(|known| std::mem::replace(known, needed) != needed);
    }

    /// The queue of keys to reconcile.
    pub fn queue(&self) -> &Queue<Key> {
        &self.state.queue
    }

    /// The optional watches that are needed.
    pub fn optional_watches(&self) -> watch::Receiver<OptionalWatches> {
        self.optional_watches.subscribe()
    }
}
