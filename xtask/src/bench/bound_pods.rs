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
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio_util::task::AbortOnDropHandle;

/// How long no pod may be bound before the benchmark gives up.
const STALLED: Duration = Duration::from_secs(60);

/// A watch, and what it has shown so far.
pub(super) struct BoundPods {
    seen: Arc<Mutex<Seen>>,
    /// It ends with this value: a watch of a control plane that is gone would try again without a pause, and take a
    /// processor from what is measured next.
    _watch: AbortOnDropHandle<()>,
}

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

impl Seen {
    fn see(&mut self, pod: Pod) {
        let (Some(name), Some(node)) = (pod.metadata.name, pod.spec.and_then(|spec| spec.node_name)) else {
            return;
        };
        let place =
            self.places.entry(name).or_insert_with(|| Place { node: node.clone(), at: Instant::now() });
        let is_other = place.node != node;
        self.moved += usize::from(is_other);
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BoundPods {
    pub(super) fn watch(client: &Client) -> Self {
        let (seen, api) = (Arc::<Mutex<Seen>>::default(), Api::<Pod>::default_namespaced(client.clone()));
        let shown = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            let config = watcher::Config::default().fields("spec.nodeName!=");
            let mut events = watcher::watcher(api, config).default_backoff().boxed();
            while let Some(event) = events.next().await {
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event {
                    locked(&shown).see(pod);
                }
            }
        });
        Self { seen, _watch: AbortOnDropHandle::new(watch) }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        locked(&self.seen)
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
