//! The world, between the watches that keep it true and the worker that reads it.
//!
//! In: what watches and the answers of our own writes say. Out: a look at it, and what there is to look at again.
//! Never: a wait while it is locked.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::claim::Id;
use super::cluster_state::{AffectedConfigs, ClusterState, Environment, Key, Needs};

/// The world and what there is to do. One for the process.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    call: Notify,
    /// What it is worth to know.
    needs: watch::Sender<Needs>,
}

#[derive(Debug)]
struct State {
    world: ClusterState,
    due: BTreeSet<Key>,
}

impl Shared {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(place: Environment) -> Arc<Self> {
        let state = State { world: ClusterState::new(place), due: BTreeSet::new() };
        Arc::new(Self { state: Mutex::new(state), call: Notify::new(), needs: watch::Sender::default() })
    }

    /// Reads the cluster state under its lock.
    pub fn read<T>(&self, look: impl FnOnce(&ClusterState) -> T) -> T {
        look(&self.state().world)
    }

    /// Changes the world; who is concerned is looked at again.
    pub fn update(&self, change: impl FnOnce(&mut ClusterState) -> AffectedConfigs) {
        let (woken, needs) = {
            let mut state = self.state();
            let concerned = change(&mut state.world);
            let woken = !concerned.is_empty();
            state.due.extend(concerned.into_iter().map(Key::Config));
            let orphans = state.world.orphans();
            let woken = woken || !orphans.is_empty();
            state.due.extend(orphans.into_iter().map(Key::Orphan));
            (woken, state.world.needs())
        };
        self.needs.send_if_modified(|known| std::mem::replace(known, needs) != needs);
        if woken {
            self.call.notify_one();
        }
    }

    /// This is to be looked at again.
    pub fn wake(&self, id: Id) {
        self.state().due.insert(Key::Config(id));
        self.call.notify_one();
    }

    /// Whatever is to be looked at, once enough is known; it is forgotten here.
    pub fn take(&self) -> BTreeSet<Key> {
        let mut state = self.state();
        if state.world.is_complete() { std::mem::take(&mut state.due) } else { BTreeSet::new() }
    }

    /// Returns when there is something to look at.
    pub async fn called(&self) {
        self.call.notified().await;
    }

    /// What has to be known.
    pub fn needs(&self) -> watch::Receiver<Needs> {
        self.needs.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was locked has ended the process already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
