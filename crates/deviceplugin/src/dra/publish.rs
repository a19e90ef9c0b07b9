//! Keeps this node's ResourceSlices as the inventory says.
//!
//! In: the inventory whenever it changes, news of the slices. Out: writes. Never: a decision; those are in [`slices`](super::slices). Before
//! anything is known of the devices, nothing is written or removed: a restart changes nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use runtime::backoff::Backoff;
use runtime::client::{brief, is_not_found};
use runtime::watch::{self, Event};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tracing::{info, warn};

use super::offer;
use super::slices::{Plan, Pool};
use crate::inventory::{Feed, Inventory};

/// Slices by name, and the highest generation seen.
#[derive(Debug, Default)]
struct Live {
    slices: Option<BTreeMap<String, ResourceSlice>>,
    generation: i64,
}

/// How long to wait for resources of which nothing is known yet.
const PATIENCE: Duration = Duration::from_secs(30);

/// Publishes for ever. `watching` is a client for the watch, `client` one for writes. Nothing is written before something is known of each of the
/// `resources`, or half a minute has gone by: half of the devices would look like the loss of the others.
pub async fn run(
    pool: Pool,
    watching: Client,
    client: Client,
    mut feed: Feed,
    resources: &[String],
) -> Infallible {
    let selection = format!("spec.driver={},spec.nodeName={}", pool.driver, pool.node);
    let config = Config::default().fields(&selection);
    let (sender, mut news) = unbounded_channel();
    let metrics = watch::Metrics::default();
    let watch =
        watch::run(Api::<ResourceSlice>::all(watching), config, &metrics, |event| drop(sender.send(event)));
    let all_known = async {
        let all =
            |inventory: &Arc<Inventory>| resources.iter().all(|name| inventory.resources.contains_key(name));
        let _ = feed.wait_for(all).await;
    };
    tokio::select! {
        biased;
        () = all_known => {}
        () = tokio::time::sleep(PATIENCE) => warn!("not all resources have been found yet; offering what there is"),
    }
    let api = Api::all(client);
    tokio::select! {
        never = watch => never,
        never = keep(&pool, &api, &mut feed, &mut news) => never,
    }
}

async fn keep(
    pool: &Pool,
    api: &Api<ResourceSlice>,
    feed: &mut Feed,
    news: &mut UnboundedReceiver<Event<ResourceSlice>>,
) -> Infallible {
    let mut live = Live::default();
    let mut backoff = Backoff::new(super::RETRY.0, super::RETRY.1);
    let mut last_reason = String::new();
    loop {
        while let Ok(event) = news.try_recv() {
            live.take(event);
        }
        let inventory = feed.borrow_and_update().clone();
        let known = !inventory.resources.is_empty();
        let plan = match &live.slices {
            Some(slices) if known => pool.plan(&offer::devices(&inventory), slices, live.generation),
            _ => Plan::default(),
        };
        let retry = match write(api, plan, &mut live).await {
            Ok(()) => {
                backoff.reset();
                last_reason.clear();
                None
            }
            Err(reason) => {
                if reason != last_reason {
                    warn!(reason, "cannot write this node's resource slices; trying again");
                    last_reason = reason;
                }
                Some(backoff.next_delay())
            }
        };
        let again = async {
            match retry {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = news.recv() => match event {
                Some(event) => live.take(event),
                None => std::future::pending().await,
            },
            changed = feed.changed() => if changed.is_err() {
                // Nobody looks at devices any more: the process ends.
                std::future::pending::<()>().await;
            },
            () = again => {}
        }
    }
}

async fn write(api: &Api<ResourceSlice>, plan: Plan, live: &mut Live) -> Result<(), String> {
    if plan.is_empty() {
        return Ok(());
    }
    let devices: usize = plan.write.iter().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
    let slices = plan.write.len();
    for slice in plan.write {
        let name = slice.name_any();
        let params = PostParams::default();
        let written = if slice.metadata.resource_version.is_some() {
            api.replace(&name, &params, &slice).await
        } else {
            api.create(&params, &slice).await
        };
        let written = written.map_err(|error| {
            // Its version is out of date, or it is gone: the watch tells which.
            format!("{name}: {}", brief(&error))
        })?;
        live.put(written);
    }
    for name in plan.remove {
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(format!("{name}: {}", brief(&error))),
        }
        live.slices.get_or_insert_default().remove(&name);
    }
    info!(devices, slices, "wrote this node's resource slices");
    Ok(())
}

impl Live {
    fn take(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Reset { objects, .. } => {
                self.slices = Some(BTreeMap::new());
                objects.into_iter().for_each(|slice| self.put(slice));
            }
            Event::Applied(slice) => self.put(slice),
            Event::Deleted(slice) => {
                let slices = self.slices.get_or_insert_default();
                // One of the same name that we have made since stays.
                if slices.get(&slice.name_any()).is_some_and(|known| known.uid() == slice.uid()) {
                    slices.remove(&slice.name_any());
                }
            }
            Event::Unreadable { key, .. } => drop(self.slices.get_or_insert_default().remove(&*key.name)),
        }
    }

    /// Takes a slice, unless a newer state of it is known: we know of our own writes before the watch does.
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
