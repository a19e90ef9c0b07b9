//! Keeps this node's ResourceSlices equal to the inventory.
//!
//! In: the inventory whenever it changes, events of the slices, the node's object. Out: writes. Never: a decision;
//! those are in [`slices`](super::slices). Before the devices are known, nothing is written or removed: a restart
//! changes nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use runtime::backoff::Backoff;
use runtime::client::{brief, is_not_found};
use runtime::watch::{self, Event};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::metrics::Metrics;
use super::slice_devices;
use super::slices::{Plan, Pool};
use crate::inventory::Feed;

/// The time between attempts, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// The time between reads of the node's object without another reason.
const RESYNC: Duration = Duration::from_secs(600);

/// Writes the slices of one driver on this node.
pub struct Publisher {
    pool: Pool,
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    observed: ObservedSlices,
    /// When the node's object was last read.
    node_read_at: Option<Instant>,
    metrics: Metrics,
}

/// The slices by name, and the highest generation seen.
#[derive(Debug, Default)]
struct ObservedSlices {
    slices: Option<BTreeMap<String, ResourceSlice>>,
    generation: i64,
}

impl Publisher {
    /// A publisher of this driver's slices on this node.
    #[must_use]
    pub fn new(driver: &str, node: &str, client: Client, metrics: Metrics) -> Self {
        let pool = Pool { driver: driver.to_owned(), node: node.to_owned(), owner: String::new() };
        let (slices, nodes) = (Api::all(client.clone()), Api::all(client));
        Self { pool, slices, nodes, observed: ObservedSlices::default(), node_read_at: None, metrics }
    }

    /// Publishes for ever. `watching` is a client for the watch.
    pub async fn run(mut self, watching: Client, mut feed: Feed) -> Infallible {
        let selection = format!("spec.driver={},spec.nodeName={}", self.pool.driver, self.pool.node);
        let config = Config::default().fields(&selection);
        let (sender, mut events) = unbounded_channel();
        let metrics = watch::Metrics::default();
        let watch = watch::run(Api::<ResourceSlice>::all(watching), config, &metrics, |event| {
            drop(sender.send(event));
        });
        tokio::select! {
            never = watch => never,
            never = self.publish_changes(&mut feed, &mut events) => never,
        }
    }

    async fn publish_changes(
        &mut self,
        feed: &mut Feed,
        events: &mut UnboundedReceiver<Event<ResourceSlice>>,
    ) -> Infallible {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut last_reason = String::new();
        // An inventory that is empty after it had resources means that all devices are gone.
        let mut known = false;
        loop {
            while let Ok(event) = events.try_recv() {
                self.observed.take(event);
            }
            let inventory = feed.borrow_and_update().clone();
            known |= !inventory.resources.is_empty();
            let published =
                if known { self.publish(&slice_devices::devices(&inventory)).await } else { Ok(()) };
            let again = match published {
                Ok(()) => {
                    backoff.reset();
                    last_reason.clear();
                    self.node_read_at.unwrap_or_else(Instant::now) + RESYNC
                }
                Err(reason) => {
                    if reason != last_reason {
                        warn!(reason, "cannot write this node's resource slices; trying again");
                        last_reason = reason;
                    }
                    Instant::now() + backoff.next_delay()
                }
            };
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.observed.take(event),
                    None => std::future::pending().await,
                },
                changed = feed.changed() => if changed.is_err() {
                    // The sender is gone: the process ends.
                    std::future::pending::<()>().await;
                },
                () = sleep_until(again) => {}
            }
        }
    }

    /// Writes the slices for these devices, once the existing slices are known.
    ///
    /// Slices that are gone may have gone with the node's object, which has been created again since. With the old
    /// object's UID as owner they would be removed again, without end. So the node is read before any slice is created.
    async fn publish(&mut self, devices: &[Device]) -> Result<(), String> {
        let Some(mut plan) = self.plan(devices) else { return Ok(()) };
        if plan.creates() || self.node_read_at.is_none_or(|node_read_at| node_read_at.elapsed() >= RESYNC) {
            self.pool.owner = self.owner().await?;
            self.node_read_at = Some(Instant::now());
            plan = self.plan(devices).unwrap_or_default();
        }
        self.write(plan).await
    }

    fn plan(&self, devices: &[Device]) -> Option<Plan> {
        let observed = self.observed.slices.as_ref()?;
        Some(self.pool.plan(devices, observed, self.observed.generation))
    }

    /// The UID of the node's object, for the slices' owner.
    async fn owner(&self) -> Result<String, String> {
        let node = &self.pool.node;
        let found = self.nodes.get_metadata(node).await;
        let found = found.map_err(|error| format!("reading node {node}: {}", brief(&error)))?;
        found.metadata.uid.ok_or_else(|| format!("node {node} has no UID"))
    }

    async fn write(&mut self, plan: Plan) -> Result<(), String> {
        if plan.is_empty() {
            return Ok(());
        }
        let devices: usize =
            plan.write.iter().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
        let slices = plan.write.len();
        for slice in plan.write {
            let name = slice.name_any();
            let params = PostParams::default();
            let written = if slice.metadata.resource_version.is_some() {
                self.slices.replace(&name, &params, &slice).await
            } else {
                self.slices.create(&params, &slice).await
            };
            self.metrics.slice_written(written.is_ok());
            // A conflict or a missing object: the watch delivers the current state.
            let written = written.map_err(|error| format!("{name}: {}", brief(&error)))?;
            self.observed.put(written);
        }
        for name in plan.remove {
            let removed = match self.slices.delete(&name, &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => Err(format!("{name}: {}", brief(&error))),
                _ => Ok(()),
            };
            self.metrics.slice_written(removed.is_ok());
            removed?;
            self.observed.slices.get_or_insert_default().remove(&name);
        }
        info!(devices, slices, "wrote this node's resource slices");
        Ok(())
    }
}

impl ObservedSlices {
    fn take(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Reset { objects, .. } => {
                self.slices = Some(BTreeMap::new());
                objects.into_iter().for_each(|slice| self.put(slice));
            }
            Event::Applied(slice) => self.put(slice),
            Event::Deleted(slice) => {
                let slices = self.slices.get_or_insert_default();
                // A slice of the same name that was created since stays.
                if slices.get(&slice.name_any()).is_some_and(|known| known.uid() == slice.uid()) {
                    slices.remove(&slice.name_any());
                }
            }
            Event::Unreadable { key, .. } => drop(self.slices.get_or_insert_default().remove(&*key.name)),
        }
    }

    /// Records a slice, unless a newer version of it is known: own writes are known before the watch delivers them.
    fn put(&mut self, slice: ResourceSlice) {
        let version =
            |slice: &ResourceSlice| slice.resource_version().and_then(|text| text.parse::<u64>().ok());
        self.generation = self.generation.max(slice.spec.pool.generation);
        let slices = self.slices.get_or_insert_default();
        let known = slices.get(&slice.name_any());
        if known.is_none_or(|known| version(known) <= version(&slice)) {
            slices.insert(slice.name_any(), slice);
        }
    }
}
