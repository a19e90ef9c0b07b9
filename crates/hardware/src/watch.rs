//! Watches that feed the cluster state.
//!
//! In: watch events. Out: a [`super::cluster_state::ClusterState`], and the DeviceConfigs that changes affect. Never: a
//! field that no controller reads.
//!
//! KMM's kinds are watched while its definition exists, in the version that it serves. Pods are watched once a
//! DeviceConfig offers devices, resource claims once one offers devices by claims: there are many of both. An API
//! server without resource claims has none in use. Requests to the API server: list and watch of deviceconfigs, nodes,
//! pods, resourceclaims, modules, nodemodulesconfigs, moduleimagesconfigs in all namespaces, and of the
//! customresourcedefinition `modules.kmm.sigs.x-k8s.io` by its name.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use api::kmm;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::ApiResource;
use kube::runtime::watcher::Config as Selection;
use kube::{Api, Client, Resource};
use objects::ObjectKind;
use objects::controller::table::{Table, take};
use runtime::client::Connection;
use runtime::ready::{Gate, Readiness};
use runtime::shutdown::Tasks;
use runtime::watch::{self, Event, Metrics};
use runtime::wire::{Raw, Texts};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch::{Receiver, Sender};
use tracing::{info, warn};

use super::claim::Id;
use super::claims_in_use::{ClaimsInUse, DeviceClaim};
use super::cluster_state::{
    AffectedConfigs, ClusterState, Config, Kmm, Node, ObservedObject, OptionalWatches, Pod, Pods, WatchedKind,
};
use super::config_kind;
use super::module::object_kind;
use super::nmc::{Images, Nmc};
use super::shared::Shared;
use super::wire::{WireNode, read_claim, read_node, read_pod};

/// The definition that tells whether KMM is available.
pub const DEFINITION: &str = "modules.kmm.sigs.x-k8s.io";
/// The preferred version of KMM's API.
const PREFERRED: &str = kmm::VERSION;

/// The table of one kind in the cluster state.
type KindTable<K, V> = Table<ClusterState, K, V, AffectedConfigs>;

const CONFIGS: KindTable<Id, Raw> = Table {
    keys: |cluster| cluster.configs.keys().cloned().collect(),
    put: |cluster, _, raw| put_config(cluster, &raw),
    remove: ClusterState::remove_config,
    // The answer to a write may have brought a new object of the same name already.
    delete: |cluster, id, raw| {
        let uid = cluster.configs.get(id).and_then(|config| config.object.metadata.uid.as_deref());
        if uid == raw.text("/metadata/uid") { cluster.remove_config(id) } else { AffectedConfigs::new() }
    },
    unreadable: |_, _| AffectedConfigs::new(),
};

const NODES: KindTable<Arc<str>, Node> = Table {
    keys: |cluster| cluster.nodes.keys().cloned().collect(),
    put: ClusterState::put_node,
    remove: ClusterState::remove_node,
    delete: |cluster, name, _| cluster.remove_node(name),
    unreadable: |_, _| AffectedConfigs::new(),
};

const MODULES: KindTable<Id, Raw> = Table {
    keys: |cluster| cluster.modules.keys().cloned().collect(),
    put: |cluster, id, raw| cluster.put_module(id, ObservedObject { body: raw.body }),
    remove: ClusterState::remove_module,
    delete: |cluster, id, raw| {
        let uid = cluster.modules.get(id).map(ObservedObject::uid);
        if uid == raw.text("/metadata/uid") { cluster.remove_module(id) } else { AffectedConfigs::new() }
    },
    unreadable: |_, _| AffectedConfigs::new(),
};

const NMCS: KindTable<Arc<str>, Nmc> = Table {
    keys: |cluster| cluster.nmcs.keys().cloned().collect(),
    put: |cluster, name, nmc| cluster.put_nmc(name, Some(nmc)),
    remove: |cluster, name| cluster.put_nmc(Arc::clone(name), None),
    delete: |cluster, name, _| cluster.put_nmc(Arc::clone(name), None),
    unreadable: |cluster, key| cluster.put_nmc((&*key.name).into(), None),
};

const IMAGES: KindTable<Id, Images> = Table {
    keys: |cluster| cluster.images.keys().cloned().collect(),
    put: |cluster, id, images| cluster.put_images(id, Some(images)),
    remove: |cluster, id| cluster.put_images(id.clone(), None),
    delete: |cluster, id, _| cluster.put_images(id.clone(), None),
    unreadable: |cluster, key| cluster.put_images(Id::new(&key.namespace, &key.name), None),
};

/// Objects by name; irrelevant ones have no value.
type Listed<V> = Vec<(Id, Option<V>)>;

/// The table of a kind that is watched on demand.
struct OptionalTable<V> {
    is_needed: fn(&OptionalWatches) -> bool,
    /// Replaces all objects by a list.
    reset: fn(&mut ClusterState, Listed<V>) -> AffectedConfigs,
    put: fn(&mut ClusterState, Id, Option<V>) -> AffectedConfigs,
    /// Drops all objects, as they are no longer watched.
    forget: fn(&mut ClusterState),
}

const PODS: OptionalTable<Pod> = OptionalTable {
    is_needed: |watches| watches.pods,
    reset: |cluster, listed| {
        let mut pods = Pods::default();
        listed.into_iter().for_each(|(id, pod)| drop(pods.put(id, pod)));
        cluster.put_pods(pods)
    },
    put: ClusterState::put_pod,
    forget: |cluster| cluster.pods = None,
};

const CLAIMS: OptionalTable<DeviceClaim> = OptionalTable {
    is_needed: |watches| watches.claims,
    reset: |cluster, listed| {
        let mut claims = ClaimsInUse::default();
        listed.into_iter().for_each(|(id, claim)| drop(claims.put(id, claim)));
        cluster.put_claims_in_use(claims)
    },
    put: ClusterState::put_claim_in_use,
    forget: |cluster| cluster.claims_in_use = None,
};

/// Starts all watches as tasks. `readiness` is reached once each kind has been listed.
///
/// # Errors
/// The client cannot be made.
pub fn start(
    tasks: &mut Tasks,
    connection: &Connection,
    metrics: &Metrics,
    readiness: &Readiness,
    shared: &Arc<Shared>,
) -> Result<(), runtime::client::Error> {
    let (client, metrics) = (connection.watch_client()?, metrics.clone());
    let watcher = Watcher { client, metrics, shared: Arc::clone(shared) };
    let gate = |name: &str| readiness.gate(format!("{name} for DeviceConfigs"));
    let kmm = Sender::new(None);
    let (one, available) = (|| watcher.clone(), kmm.subscribe());
    let watches: [BoxFuture<'static, Infallible>; 6] = [
        Box::pin(one().configs(gate("deviceconfigs"))),
        Box::pin(one().nodes(gate("nodes"))),
        Box::pin(one().definition(gate("customresourcedefinitions"), kmm)),
        Box::pin(one().kmm(gate("modules"), available)),
        Box::pin(one().optional(ObjectKind::of::<core::Pod>(), read_pod, &PODS)),
        Box::pin(one().optional(ObjectKind::of::<ResourceClaim>(), read_claim, &CLAIMS)),
    ];
    for watch in watches {
        tasks.spawn("watch", async move { Ok::<_, Infallible>(watch.await) });
    }
    Ok(())
}

#[derive(Clone)]
struct Watcher {
    client: Client,
    metrics: Metrics,
    shared: Arc<Shared>,
}

impl Watcher {
    /// Watches all objects of a kind in all namespaces.
    async fn watch<W, T>(
        &self,
        kind: &ObjectKind,
        selection: Selection,
        convert: impl FnMut(W) -> Result<T, String>,
        sink: impl FnMut(Event<T>),
    ) -> Infallible
    where
        W: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let api = Api::<W>::all_with(self.client.clone(), &kind.resource());
        watch::run_mapped(api, &kind.plural, selection, &self.metrics, convert, sink).await
    }

    /// Watches a kind into its table. The first list affects every DeviceConfig, and opens the gate.
    async fn watch_table<W, K, V>(
        &self,
        kind: &ObjectKind,
        (listed, gate): (WatchedKind, Option<&Gate>),
        table: &KindTable<K, V>,
        convert: impl FnMut(W) -> Result<(K, V), String>,
    ) -> Infallible
    where
        W: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned + Send + 'static,
        K: Ord,
    {
        let sink = |event: Event<(K, V)>| {
            let is_list = matches!(event, Event::Reset { .. });
            self.shared.update(|cluster| {
                let affected = take(cluster, event, table);
                let is_first = is_list && cluster.listed.insert(listed);
                if is_first { cluster.all_configs() } else { affected }
            });
            if let Some(gate) = gate.filter(|_| is_list) {
                gate.open();
            }
        };
        self.watch(kind, Selection::default(), convert, sink).await
    }

    async fn configs(self, gate: Gate) -> Infallible {
        self.watch_table(&config_kind(), (WatchedKind::Config, Some(&gate)), &CONFIGS, keyed).await
    }

    async fn nodes(self, gate: Gate) -> Infallible {
        let mut texts = Texts::default();
        let convert = |node: WireNode| Ok(read_node(node, &mut texts));
        let kind = ObjectKind::of::<core::Node>();
        self.watch_table(&kind, (WatchedKind::Node, Some(&gate)), &NODES, convert).await
    }

    async fn definition(self, gate: Gate, kmm: Sender<Option<Kmm>>) -> Infallible {
        let selection = Selection::default().fields(&format!("metadata.name={DEFINITION}"));
        let sink = |event: Event<Raw>| {
            let now = Some(match event {
                Event::Reset { objects, .. } => {
                    objects.first().map_or(Kmm::Absent, |raw| availability(&raw.body))
                }
                Event::Applied(raw) => availability(&raw.body),
                Event::Deleted(_) | Event::Unreadable { .. } => Kmm::Absent,
            });
            kmm.send_if_modified(|known| {
                let changed = *known != now;
                known.clone_from(&now);
                changed
            });
            gate.open();
        };
        self.watch(&ObjectKind::of::<CustomResourceDefinition>(), selection, Ok, sink).await
    }

    /// Watches KMM's kinds while they are served.
    async fn kmm(self, gate: Gate, mut available: Receiver<Option<Kmm>>) -> Infallible {
        loop {
            let kmm = available.borrow_and_update().clone();
            match kmm.as_ref().map(Kmm::version) {
                None => {}
                Some(None) => {
                    info!("KMM is not installed; waiting for the definition {DEFINITION}");
                    self.shared.update(ClusterState::remove_kmm);
                    gate.open();
                }
                Some(Some(version)) => {
                    info!(version, "KMM is available");
                    self.shared.update(|cluster| {
                        let kinds = [WatchedKind::Module, WatchedKind::Nmc, WatchedKind::Images];
                        cluster.listed.retain(|kind| !kinds.contains(kind));
                        cluster.kmm.clone_from(&kmm);
                        AffectedConfigs::new()
                    });
                    tokio::select! {
                        _ = self.modules(version, &gate) => {}
                        _ = self.nmcs(version) => {}
                        _ = self.images(version) => {}
                        () = self.version_changed(version, &mut available) => continue,
                    }
                }
            }
            changed(&mut available).await;
        }
    }

    /// Returns when this version is no longer served. A deletion that begins meanwhile is noted.
    async fn version_changed(&self, version: &str, available: &mut Receiver<Option<Kmm>>) {
        loop {
            changed(available).await;
            let kmm = available.borrow_and_update().clone();
            if kmm.as_ref().and_then(Kmm::version) != Some(version) {
                available.mark_changed();
                return;
            }
            info!(?kmm, "KMM availability changed");
            self.shared.update(|cluster| {
                cluster.kmm = kmm;
                cluster.all_configs()
            });
        }
    }

    async fn modules(&self, version: &str, gate: &Gate) -> Infallible {
        let listed = (WatchedKind::Module, Some(gate));
        self.watch_table(&object_kind(version), listed, &MODULES, keyed).await
    }

    async fn nmcs(&self, version: &str) -> Infallible {
        let kind = ObjectKind::new(kmm::GROUP, version, kmm::node::KIND, kmm::node::PLURAL);
        let convert = |raw: Raw| {
            let object = read::<kmm::NodeModulesConfig>(raw.body)?;
            Ok((object.metadata.name.clone().unwrap_or_default().into(), Nmc::of(&object)))
        };
        self.watch_table(&kind, (WatchedKind::Nmc, None), &NMCS, convert).await
    }

    async fn images(&self, version: &str) -> Infallible {
        let kind = ObjectKind::new(kmm::GROUP, version, kmm::image::KIND, kmm::image::PLURAL);
        let convert = |raw: Raw| {
            let (id, raw) = keyed(raw)?;
            Ok((id, Images::of(&read::<kmm::ModuleImagesConfig>(raw.body)?)))
        };
        self.watch_table(&kind, (WatchedKind::Images, None), &IMAGES, convert).await
    }

    /// Watches a kind while a DeviceConfig needs it.
    async fn optional<W, V>(
        self,
        kind: ObjectKind,
        read: fn(W, &mut Texts) -> (Id, Option<V>),
        table: &OptionalTable<V>,
    ) -> Infallible
    where
        W: Resource<DynamicType = ApiResource> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut needed = self.shared.optional_watches();
        loop {
            if needed.wait_for(table.is_needed).await.is_err() {
                std::future::pending::<()>().await;
            }
            let mut texts = Texts::default();
            let convert = |object: W| Ok(read(object, &mut texts));
            let sink = |event: Event<(Id, Option<V>)>| {
                self.shared.update(|cluster| match event {
                    Event::Reset { objects, .. } => (table.reset)(cluster, objects),
                    Event::Applied((id, value)) => (table.put)(cluster, id, value),
                    Event::Deleted((id, _)) => (table.put)(cluster, id, None),
                    Event::Unreadable { .. } => AffectedConfigs::new(),
                });
            };
            tokio::select! {
                _ = self.watch(&kind, Selection::default(), convert, sink) => {}
                _ = needed.wait_for(|watches| !(table.is_needed)(watches)) => {}
            }
            self.shared.update(|cluster| {
                (table.forget)(cluster);
                AffectedConfigs::new()
            });
        }
    }
}

/// Returns when the availability of KMM has changed; never without a sender.
async fn changed(available: &mut Receiver<Option<Kmm>>) {
    if available.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The availability of KMM by its definition. One that is being deleted is served until its last object has gone.
fn availability(definition: &Value) -> Kmm {
    match served_version(definition) {
        None => Kmm::Absent,
        Some(version) if definition["metadata"]["deletionTimestamp"].is_null() => Kmm::Served(version),
        Some(version) => Kmm::Terminating(version),
    }
}

/// The preferred one of the versions that a definition serves.
fn served_version(definition: &Value) -> Option<String> {
    let established = definition["status"]["conditions"].as_array().into_iter().flatten();
    let mut established = established.filter(|one| one["type"] == "Established" && one["status"] == "True");
    established.next()?;
    let versions = definition["spec"]["versions"].as_array()?.iter();
    let served = versions.filter(|one| one["served"] == true).filter_map(|one| one["name"].as_str());
    served.clone().find(|name| *name == PREFERRED).or(served.clone().next()).map(str::to_owned)
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, String> {
    serde_json::from_value(body).map_err(|error| error.to_string())
}

/// A complete object, under its name.
#[expect(clippy::unnecessary_wraps, reason = "a conversion of a watch may fail")]
fn keyed(raw: Raw) -> Result<(Id, Raw), String> {
    let text = |pointer| raw.text(pointer).unwrap_or_default();
    Ok((Id::new(text("/metadata/namespace"), text("/metadata/name")), raw))
}

fn put_config(cluster: &mut ClusterState, raw: &Raw) -> AffectedConfigs {
    let config = Config::read(&raw.body);
    if let Some(error) = &config.unreadable {
        warn!(deviceconfig = %config.id(), error, "the DeviceConfig cannot be read; its objects stay as they are");
    }
    cluster.put_config(config)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminating_definition_is_still_served() {
        let definition = |conditions: Value, deleted: Value, served: bool| {
            let versions =
                json!([{ "name": "v1alpha1", "served": true }, { "name": PREFERRED, "served": served }]);
            json!({
                "metadata": { "deletionTimestamp": deleted }, "spec": { "versions": versions },
                "status": { "conditions": conditions },
            })
        };
        let established = json!([{ "type": "Established", "status": "True" }]);
        let going = json!("2026-01-01T00:00:00Z");
        let preferred = || PREFERRED.to_owned();
        let check = |definition: Value, wanted: Kmm| assert_eq!(availability(&definition), wanted);
        check(definition(established.clone(), Value::Null, true), Kmm::Served(preferred()));
        check(definition(established.clone(), Value::Null, false), Kmm::Served("v1alpha1".to_owned()));
        check(definition(established, going.clone(), true), Kmm::Terminating(preferred()));
        check(definition(json!([]), Value::Null, true), Kmm::Absent);
        check(definition(json!([]), going, true), Kmm::Absent);
    }
}
