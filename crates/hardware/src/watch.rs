//! Watches that feed the cluster state.
//!
//! In: watches. Out: a [`super::cluster_state::ClusterState`], and who is concerned. Never: a field that no controller
//! reads.
//!
//! KMM's kinds are watched while its definition is there, in the version it serves; whether it is there, or going, is
//! told by its definition. Pods are watched once a DeviceConfig offers devices, and resource claims once one offers
//! devices by them, since there are many and only those DeviceConfigs need them. An API server without resource claims
//! has none in use. What is asked of the API server: list and watch of deviceconfigs, nodes, pods, resourceclaims,
//! modules, nodemodulesconfigs, moduleimagesconfigs everywhere, and of the customresourcedefinition
//! `modules.kmm.sigs.x-k8s.io` by its name.

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
    AffectedConfigs, ClusterState, Config, Kind, Kmm, Needs, Node, ObservedObject, Pod, Pods,
};
use super::config_kind;
use super::module::object_kind;
use super::nmc::{Images, Nmc};
use super::shared::Shared;
use super::wire::{Trim as _, WireClaim, WireNode, WirePod};

/// The definition that says whether there is KMM.
pub const DEFINITION: &str = "modules.kmm.sigs.x-k8s.io";
/// The version of KMM's API that we were written for.
const PREFERRED: &str = kmm::VERSION;

/// The table of one kind in the cluster state.
type Kinds<K, V> = Table<ClusterState, K, V, AffectedConfigs>;

const CONFIGS: Kinds<Id, Raw> = Table {
    keys: |cluster| cluster.configs.keys().cloned().collect(),
    put: |cluster, _, raw| put_config(cluster, &raw),
    remove: ClusterState::remove_config,
    // A new one of the same name may be known already, by the answer to a write of ours.
    delete: |cluster, id, raw| {
        let uid = cluster.configs.get(id).and_then(|config| config.object.metadata.uid.as_deref());
        if uid == raw.text("/metadata/uid") { cluster.remove_config(id) } else { AffectedConfigs::new() }
    },
    unreadable: |_, _| AffectedConfigs::new(),
};

const NODES: Kinds<Arc<str>, Node> = Table {
    keys: |cluster| cluster.nodes.keys().cloned().collect(),
    put: ClusterState::put_node,
    remove: ClusterState::remove_node,
    delete: |cluster, name, _| cluster.remove_node(name),
    unreadable: |_, _| AffectedConfigs::new(),
};

const MODULES: Kinds<Id, Raw> = Table {
    keys: |cluster| cluster.modules.keys().cloned().collect(),
    put: |cluster, id, raw| cluster.put_module(id, ObservedObject { body: raw.body }),
    remove: ClusterState::remove_module,
    delete: |cluster, id, raw| {
        let uid = cluster.modules.get(id).map(ObservedObject::uid);
        if uid == raw.text("/metadata/uid") { cluster.remove_module(id) } else { AffectedConfigs::new() }
    },
    unreadable: |_, _| AffectedConfigs::new(),
};

const NMCS: Kinds<Arc<str>, Nmc> = Table {
    keys: |cluster| cluster.nmcs.keys().cloned().collect(),
    put: ClusterState::put_nmc,
    remove: |cluster, name| cluster.remove_nmc(name),
    delete: |cluster, name, _| cluster.remove_nmc(name),
    unreadable: |cluster, key| cluster.remove_nmc(&key.name),
};

const IMAGES: Kinds<Id, Images> = Table {
    keys: |cluster| cluster.images.keys().cloned().collect(),
    put: |cluster, id, images| cluster.put_images(id, Some(images)),
    remove: |cluster, id| cluster.put_images(id.clone(), None),
    delete: |cluster, id, _| cluster.put_images(id.clone(), None),
    unreadable: |cluster, key| cluster.put_images(Id::new(&key.namespace, &key.name), None),
};

/// What every watch needs.
#[derive(Clone)]
struct Watcher {
    client: Client,
    metrics: Metrics,
    shared: Arc<Shared>,
}

/// Starts all watches as tasks; `readiness` is reached once each has listed its kind.
///
/// # Errors
/// No client can be made.
pub fn start(
    tasks: &mut Tasks,
    connection: &Connection,
    metrics: &Metrics,
    readiness: &Readiness,
    shared: &Arc<Shared>,
) -> Result<(), runtime::client::Error> {
    let watcher =
        Watcher { client: connection.watch_client()?, metrics: metrics.clone(), shared: Arc::clone(shared) };
    let gate = |name: &str| readiness.gate(format!("{name} for DeviceConfigs"));
    let version = Sender::new(None);
    let served = version.subscribe();
    let (configs, nodes, definition, modules) =
        (gate("deviceconfigs"), gate("nodes"), gate("customresourcedefinitions"), gate("modules"));
    let mut watch = |watched: BoxFuture<'static, Infallible>| {
        tasks.spawn("watch", async move { Ok::<_, Infallible>(watched.await) });
    };
    let one = watcher.clone();
    watch(Box::pin(async move { one.configs(&configs).await }));
    let one = watcher.clone();
    watch(Box::pin(async move { one.nodes(&nodes).await }));
    let one = watcher.clone();
    watch(Box::pin(async move { one.definition(&definition, version).await }));
    let one = watcher.clone();
    watch(Box::pin(async move { one.kmm(&modules, served).await }));
    let one = watcher.clone();
    watch(Box::pin(async move { one.pods().await }));
    watch(Box::pin(async move { watcher.claims().await }));
    Ok(())
}

impl Watcher {
    /// An API of all objects of a kind, in all namespaces.
    fn all<W: Resource<DynamicType = ApiResource>>(&self, kind: &ObjectKind) -> Api<W> {
        Api::all_with(self.client.clone(), &kind.resource())
    }

    /// Watches a kind into its table. Its first list concerns every DeviceConfig, and opens the gate.
    async fn follow<W, K, V>(
        &self,
        kind: &ObjectKind,
        (listed, gate): (Kind, Option<&Gate>),
        table: &Kinds<K, V>,
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
                if is_first { cluster.everybody() } else { affected }
            });
            if let Some(gate) = gate.filter(|_| is_list) {
                gate.open();
            }
        };
        let api = self.all::<W>(kind);
        watch::run_mapped(api, &kind.plural, Selection::default(), &self.metrics, convert, sink).await
    }

    async fn configs(self, gate: &Gate) -> Infallible {
        let kind = config_kind();
        self.follow(&kind, (Kind::Config, Some(gate)), &CONFIGS, keyed).await
    }

    async fn nodes(self, gate: &Gate) -> Infallible {
        let mut texts = Texts::default();
        let convert = |node: WireNode| Ok(node.trim(&mut texts));
        self.follow(&ObjectKind::of::<core::Node>(), (Kind::Node, Some(gate)), &NODES, convert).await
    }

    async fn definition(self, gate: &Gate, version: Sender<Option<Kmm>>) -> Infallible {
        let kind = ObjectKind::of::<CustomResourceDefinition>();
        let selection = Selection::default().fields(&format!("metadata.name={DEFINITION}"));
        let sink = |event: Event<Raw>| {
            let now = match event {
                Event::Reset { objects, .. } => objects.first().map_or(Kmm::Absent, |raw| served(&raw.body)),
                Event::Applied(raw) => served(&raw.body),
                Event::Deleted(_) | Event::Unreadable { .. } => Kmm::Absent,
            };
            let now = Some(now);
            version.send_if_modified(|known| {
                let changed = *known != now;
                known.clone_from(&now);
                changed
            });
            gate.open();
        };
        watch::run_mapped(self.all(&kind), &kind.plural, selection, &self.metrics, Ok, sink).await
    }

    /// Watches KMM's kinds while there are any.
    async fn kmm(self, gate: &Gate, mut served: Receiver<Option<Kmm>>) -> Infallible {
        loop {
            let kmm = served.borrow_and_update().clone();
            match kmm.as_ref().map(Kmm::version) {
                None => {}
                Some(None) => {
                    info!("there is no KMM; waiting for definition {DEFINITION}");
                    self.shared.update(absent);
                    gate.open();
                }
                Some(Some(version)) => {
                    info!(version, "KMM is there");
                    self.shared.update(|cluster| {
                        cluster
                            .listed
                            .retain(|kind| !matches!(kind, Kind::Module | Kind::Nmc | Kind::Images));
                        cluster.kmm.clone_from(&kmm);
                        AffectedConfigs::new()
                    });
                    tokio::select! {
                        _ = self.modules(version, gate) => {}
                        _ = self.nmcs(version) => {}
                        _ = self.images(version) => {}
                        () = self.still(version, &mut served) => continue,
                    }
                }
            }
            if served.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns when this version is served no more; whether it is going may turn meanwhile, and what is there is
    /// watched on.
    async fn still(&self, version: &str, served: &mut Receiver<Option<Kmm>>) {
        loop {
            if served.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let kmm = served.borrow_and_update().clone();
            if kmm.as_ref().and_then(Kmm::version) != Some(version) {
                served.mark_changed();
                return;
            }
            info!(?kmm, "whether KMM stays has turned");
            self.shared.update(|cluster| {
                cluster.kmm = kmm;
                cluster.everybody()
            });
        }
    }

    async fn modules(&self, version: &str, gate: &Gate) -> Infallible {
        let kind = object_kind(version);
        self.follow(&kind, (Kind::Module, Some(gate)), &MODULES, keyed).await
    }

    async fn nmcs(&self, version: &str) -> Infallible {
        let kind = ObjectKind::new(kmm::GROUP, version, kmm::node::KIND, kmm::node::PLURAL);
        let convert = |raw: Raw| {
            let object = read::<kmm::NodeModulesConfig>(raw.body)?;
            Ok((object.metadata.name.clone().unwrap_or_default().into(), Nmc::of(&object)))
        };
        self.follow(&kind, (Kind::Nmc, None), &NMCS, convert).await
    }

    async fn images(&self, version: &str) -> Infallible {
        let kind = ObjectKind::new(kmm::GROUP, version, kmm::image::KIND, kmm::image::PLURAL);
        let convert = |raw: Raw| {
            let id = id_of(&raw);
            Ok((id, Images::of(&read::<kmm::ModuleImagesConfig>(raw.body)?)))
        };
        self.follow(&kind, (Kind::Images, None), &IMAGES, convert).await
    }

    /// Watches pods while a DeviceConfig needs them.
    async fn pods(self) -> Infallible {
        let kind = ObjectKind::of::<core::Pod>();
        let watch = || async {
            let mut texts = Texts::default();
            let convert = |pod: WirePod| Ok(pod.trim(&mut texts));
            let sink = |event| self.shared.update(|cluster| take_pods(cluster, event));
            let (api, metrics) = (self.all(&kind), &self.metrics);
            watch::run_mapped(api, &kind.plural, Selection::default(), metrics, convert, sink).await
        };
        while_needed(&self.shared, |needs| needs.pods, watch, |cluster| cluster.pods = None).await
    }

    /// Watches resource claims while a DeviceConfig needs them.
    async fn claims(self) -> Infallible {
        let kind = ObjectKind::of::<ResourceClaim>();
        let watch = || async {
            let mut texts = Texts::default();
            let convert = |claim: WireClaim| Ok(claim.trim(&mut texts));
            let sink = |event| self.shared.update(|cluster| take_claims(cluster, event));
            let (api, metrics) = (self.all(&kind), &self.metrics);
            watch::run_mapped(api, &kind.plural, Selection::default(), metrics, convert, sink).await
        };
        while_needed(&self.shared, |needs| needs.claims, watch, |cluster| cluster.claims_in_use = None).await
    }
}

/// Watches while it is needed, and forgets what that told when it no longer is.
async fn while_needed<W: Future<Output = Infallible>>(
    shared: &Shared,
    wanted: fn(&Needs) -> bool,
    watch: impl Fn() -> W,
    forget: fn(&mut ClusterState),
) -> Infallible {
    let mut needs = shared.needs();
    loop {
        if needs.wait_for(wanted).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::select! {
            _ = watch() => {}
            _ = needs.wait_for(|needs| !wanted(needs)) => {}
        }
        shared.update(|cluster| {
            forget(cluster);
            AffectedConfigs::new()
        });
    }
}

/// Whether there is KMM, by its definition: one that is not yet served is none, one that is being deleted serves on
/// until the last object has gone.
fn served(definition: &Value) -> Kmm {
    let Some(version) = served_version(definition) else { return Kmm::Absent };
    if definition["metadata"]["deletionTimestamp"].is_null() {
        Kmm::Served(version)
    } else {
        Kmm::Going(version)
    }
}

/// The version of KMM's API to use, of those that its definition serves.
fn served_version(definition: &Value) -> Option<String> {
    let established = definition["status"]["conditions"].as_array().into_iter().flatten();
    let mut established = established.filter(|one| one["type"] == "Established" && one["status"] == "True");
    established.next()?;
    let versions = definition["spec"]["versions"].as_array()?;
    let names: Vec<&str> =
        versions.iter().filter(|one| one["served"] == true).filter_map(|one| one["name"].as_str()).collect();
    let preferred = names.iter().find(|name| **name == PREFERRED);
    preferred.or(names.first()).map(|name| (*name).to_owned())
}

fn absent(cluster: &mut ClusterState) -> AffectedConfigs {
    cluster.kmm = Some(Kmm::Absent);
    cluster.remove_modules();
    cluster.nmcs.clear();
    cluster.images.clear();
    cluster.everybody()
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, String> {
    serde_json::from_value(body).map_err(|error| error.to_string())
}

fn id_of(raw: &Raw) -> Id {
    let text = |pointer| raw.text(pointer).unwrap_or_default();
    Id::new(text("/metadata/namespace"), text("/metadata/name"))
}

/// A complete object, under its name.
#[expect(clippy::unnecessary_wraps, reason = "a conversion of a watch may fail")]
fn keyed(raw: Raw) -> Result<(Id, Raw), String> {
    Ok((id_of(&raw), raw))
}

fn put_config(cluster: &mut ClusterState, raw: &Raw) -> AffectedConfigs {
    let config = Config::read(&raw.body);
    if let Some(error) = &config.unreadable {
        warn!(deviceconfig = %config.id(), error, "the DeviceConfig cannot be read; its objects stay as they are");
    }
    cluster.put_config(config)
}

fn take_pods(cluster: &mut ClusterState, event: Event<(Id, Option<Pod>)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let mut pods = Pods::default();
            for (id, pod) in objects {
                pods.put(id, pod);
            }
            cluster.put_pods(pods)
        }
        Event::Applied((id, pod)) => cluster.put_pod(id, pod),
        Event::Deleted((id, _)) => cluster.put_pod(id, None),
        Event::Unreadable { .. } => AffectedConfigs::new(),
    }
}

fn take_claims(cluster: &mut ClusterState, event: Event<(Id, Option<DeviceClaim>)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let mut held = ClaimsInUse::default();
            for (claim, holding) in objects {
                held.put(claim, holding);
            }
            if cluster.claims_in_use.as_ref() == Some(&held) {
                return AffectedConfigs::new();
            }
            cluster.claims_in_use = Some(held);
            cluster.everybody()
        }
        Event::Applied((claim, holding)) => cluster.put_claim_in_use(claim, holding),
        Event::Deleted((claim, _)) => cluster.put_claim_in_use(claim, None),
        Event::Unreadable { .. } => AffectedConfigs::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_that_goes_still_serves() {
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
        let check = |definition: Value, wanted: Kmm| assert_eq!(super::served(&definition), wanted);
        check(definition(established.clone(), Value::Null, true), Kmm::Served(preferred()));
        check(definition(established.clone(), Value::Null, false), Kmm::Served("v1alpha1".to_owned()));
        check(definition(established, going.clone(), true), Kmm::Going(preferred()));
        check(definition(json!([]), Value::Null, true), Kmm::Absent);
        check(definition(json!([]), going, true), Kmm::Absent);
    }
}
