//! Pods on nodes, as a watch shows them.
//!
//! In: watch events of the namespace `default`. Out: where and when each pod was first seen on a node. Never: a pod
//! that is on no node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};

/// How long no pod may be bound before the benchmark gives up.
const STALLED: Duration = Duration::from_secs(60);

/// What a watch has shown so far.
#[derive(Clone, Default)]
pub(super) struct BoundPods(Arc<Mutex<Seen>>);

/// The pods that were seen.
#[derive(Default)]
pub(super) struct Seen {
    /// By pod.
    pub(super) places: BTreeMap<String, Place>,
    /// How often a pod was seen on another node than before.
    pub(super) moved: usize,
}

/// The node of a pod.
pub(super) struct Place {
    pub(super) node: String,
    /// When it was first seen there.
    pub(super) at: Instant,
}

impl BoundPods {
    /// Watches until the benchmark ends.
    pub(super) fn watch(client: &Client) -> Self {
        let (bound, api) = (Self::default(), Api::<Pod>::default_namespaced(client.clone()));
        let seen = bound.clone();
        tokio::spawn(async move {
            let config = watcher::Config::default().fields("spec.nodeName!=");
            let mut events = std::pin::pin!(watcher::watcher(api, config));
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event {
                    seen.see(pod);
                }
            }
        });
        bound
    }

    fn see(&self, pod: Pod) {
        let (Some(name), Some(node)) = (pod.metadata.name, pod.spec.and_then(|spec| spec.node_name)) else {
            return;
        };
        let mut seen = self.seen();
        let place =
            seen.places.entry(name).or_insert_with(|| Place { node: node.clone(), at: Instant::now() });
        let is_other = place.node != node;
        seen.moved += usize::from(is_other);
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many pods are on nodes.
    pub(super) fn count(&self) -> usize {
        self.seen().places.len()
    }

    /// Waits until so many pods are on nodes; when the last of them was seen.
    pub(super) async fn all(&self, count: u64) -> anyhow::Result<Instant> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let seen = self.count();
            if seen as u64 >= count {
                return self.seen().places.values().map(|place| place.at).max().context("no pod");
            }
            if seen > last {
                (last, since) = (seen, Instant::now());
            }
            ensure!(since.elapsed() < STALLED, "only {seen} of {count} pods were bound");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
