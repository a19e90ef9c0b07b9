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

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use api::hardware;
use api::kmm;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::core::ApiResource;
use kube::runtime::watcher::Config as Selection;
use kube::{Api, Client};
use objects::ObjectKind;
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
use super::claims_in_use::{self, ClaimsInUse, DeviceClaim};
use super::cluster_state::{
    AffectedConfigs, ClusterState, Config, Kind, Kmm, Needs, Node, ObservedObject, Pod, Pods,
};
use super::nmc::{Images, Nmc};
use super::shared::Shared;
use super::wire::{Trim as _, WireClaim, WireNode, WirePod};

/// The definition that says whether there is KMM.
pub const DEFINITION: &str = "modules.kmm.sigs.x-k8s.io";
/// The version of KMM's API that we were written for.
const PREFERRED: &str = kmm::VERSION;

/// What every watch needs.
#[derive(Clone)]
struct Watcher {
    client: Client,
    metrics: Metrics,
    shared: Arc<Shared>,
}

/// Starts all watches as tasks; `readiness` is there once each has told the whole truth of its kind once.
///
/// # Errors
/// When no client can be made.
pub fn start(
    tasks: &mut Tasks,
    connection: &Connection,
    metrics: &Metrics,
    readiness: &Readiness,
    shared: &Arc<Shared>,
) -> Result<(), runtime::client::Error> {
    let hearer =
        Watcher { client: connection.watch_client()?, metrics: metrics.clone(), shared: Arc::clone(shared) };
    let gate = |name: &str| readiness.gate(format!("{name} for DeviceConfigs"));
    let version = Sender::new(None);
    let served = version.subscribe();
    let (configs, nodes, definition, modules) =
        (gate("deviceconfigs"), gate("nodes"), gate("customresourcedefinitions"), gate("modules"));
    let all = hearer.clone();
    tasks.spawn("watch", async move { Ok::<_, Infallible>(all.configs(&configs).await) });
    let all = hearer.clone();
    tasks.spawn("watch", async move { Ok::<_, Infallible>(all.nodes(&nodes).await) });
    let all = hearer.clone();
    tasks.spawn("watch", async move { Ok::<_, Infallible>(all.definition(&definition, version).await) });
    let all = hearer.clone();
    tasks.spawn("watch", async move { Ok::<_, Infallible>(all.kmm(&modules, served).await) });
    let all = hearer.clone();
    tasks.spawn("watch", async move { Ok::<_, Infallible>(all.pods().await) });
    tasks.spawn("watch", async move { Ok::<_, Infallible>(hearer.held().await) });
    Ok(())
}

fn core(kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&kube::core::GroupVersionKind::gvk("", "v1", kind), plural)
}

impl Watcher {
    async fn configs(self, gate: &Gate) -> Infallible {
        let gvk = kube::core::GroupVersionKind::gvk(hardware::GROUP, hardware::VERSION, hardware::KIND);
        let api =
            Api::<Raw>::all_with(self.client, &ApiResource::from_gvk_with_plural(&gvk, hardware::PLURAL));
        let shared = self.shared;
        let tell = |event: Event<Raw>| {
            let whole = matches!(event, Event::Reset { .. });
            shared.update(|world| {
                let concerned = take_configs(world, event);
                if whole && world.listed.insert(Kind::Config) { world.everybody() } else { concerned }
            });
            opened(gate, whole);
        };
        watch::run_mapped(api, hardware::PLURAL, Selection::default(), &self.metrics, Ok, tell).await
    }

    async fn nodes(self, gate: &Gate) -> Infallible {
        let api = Api::<WireNode>::all_with(self.client, &core("Node", "nodes"));
        let (shared, mut texts) = (self.shared, Texts::default());
        let open = |node: WireNode| Ok(node.trim(&mut texts));
        let tell = |event: Event<(Arc<str>, Node)>| {
            let whole = matches!(event, Event::Reset { .. });
            shared.update(|world| {
                let concerned = take_nodes(world, event);
                if whole && world.listed.insert(Kind::Node) { world.everybody() } else { concerned }
            });
            opened(gate, whole);
        };
        watch::run_mapped(api, "nodes", Selection::default(), &self.metrics, open, tell).await
    }

    async fn definition(self, gate: &Gate, version: Sender<Option<Kmm>>) -> Infallible {
        let gvk = kube::core::GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let kind = ApiResource::from_gvk_with_plural(&gvk, "customresourcedefinitions");
        let api = Api::<Raw>::all_with(self.client, &kind);
        let selection = Selection::default().fields(&format!("metadata.name={DEFINITION}"));
        let tell = |event: Event<Raw>| {
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
        watch::run_mapped(api, "customresourcedefinitions", selection, &self.metrics, Ok, tell).await
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
                    self.shared.update(|world| {
                        world.listed.retain(|kind| !matches!(kind, Kind::Module | Kind::Nmc | Kind::Images));
                        world.kmm.clone_from(&kmm);
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
            self.shared.update(|world| {
                world.kmm = kmm;
                world.everybody()
            });
        }
    }

    async fn modules(&self, version: &str, gate: &Gate) -> Infallible {
        let kind = kmm::resource(kmm::MODULE, kmm::MODULES, version);
        let tell = |event: Event<Raw>| {
            let whole = matches!(event, Event::Reset { .. });
            self.shared.update(|world| {
                let concerned = take_modules(world, event);
                if whole && world.listed.insert(Kind::Module) { world.everybody() } else { concerned }
            });
            opened(gate, whole);
        };
        let api = Api::<Raw>::all_with(self.client.clone(), &kind);
        watch::run_mapped(api, kmm::MODULES, Selection::default(), &self.metrics, Ok, tell).await
    }

    async fn nmcs(&self, version: &str) -> Infallible {
        let kind = kmm::resource(kmm::node::KIND, kmm::node::PLURAL, version);
        let open = |raw: Raw| {
            let object = read::<kmm::NodeModulesConfig>(raw.body)?;
            Ok((object.metadata.name.clone().unwrap_or_default(), Nmc::of(&object)))
        };
        let tell = |event: Event<(String, Nmc)>| {
            let whole = matches!(event, Event::Reset { .. });
            self.shared.update(|world| {
                let concerned = take_nmcs(world, event);
                if whole && world.listed.insert(Kind::Nmc) { world.everybody() } else { concerned }
            });
        };
        let api = Api::<Raw>::all_with(self.client.clone(), &kind);
        watch::run_mapped(api, kmm::node::PLURAL, Selection::default(), &self.metrics, open, tell).await
    }

    async fn images(&self, version: &str) -> Infallible {
        let kind = kmm::resource(kmm::image::KIND, kmm::image::PLURAL, version);
        let open = |raw: Raw| {
            let object = read::<kmm::ModuleImagesConfig>(raw.body)?;
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let id = Id { namespace: text(&object.metadata.namespace), name: text(&object.metadata.name) };
            Ok((id, Images::of(&object)))
        };
        let tell = |event: Event<(Id, Images)>| {
            let whole = matches!(event, Event::Reset { .. });
            self.shared.update(|world| {
                let concerned = take_images(world, event);
                if whole && world.listed.insert(Kind::Images) { world.everybody() } else { concerned }
            });
        };
        let api = Api::<Raw>::all_with(self.client.clone(), &kind);
        watch::run_mapped(api, kmm::image::PLURAL, Selection::default(), &self.metrics, open, tell).await
    }

    /// Watches pods while a DeviceConfig needs them.
    async fn pods(self) -> Infallible {
        let api = Api::<WirePod>::all_with(self.client, &core("Pod", "pods"));
        let (api, shared, metrics) = (&api, &self.shared, &self.metrics);
        let watch = || async move {
            let mut texts = Texts::default();
            let open = |pod: WirePod| Ok(pod.trim(&mut texts));
            let tell = |event| shared.update(|world| take_pods(world, event));
            watch::run_mapped(api.clone(), "pods", Selection::default(), metrics, open, tell).await
        };
        while_needed(shared, |needs| needs.pods, watch, |world| world.pods = None).await
    }

    /// Watches resource claims while a DeviceConfig needs them.
    async fn held(self) -> Infallible {
        let api = Api::<WireClaim>::all_with(self.client, &ObjectKind::of::<ResourceClaim>().resource());
        let (api, shared, metrics) = (&api, &self.shared, &self.metrics);
        let watch = || async move {
            let mut texts = Texts::default();
            let open = |claim: WireClaim| Ok(claim.trim(&mut texts));
            let tell = |event| shared.update(|world| take_holdings(world, event));
            watch::run_mapped(api.clone(), claims_in_use::PLURAL, Selection::default(), metrics, open, tell)
                .await
        };
        while_needed(shared, |needs| needs.held, watch, |world| world.held = None).await
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
        shared.update(|world| {
            forget(world);
            AffectedConfigs::new()
        });
    }
}

fn opened(gate: &Gate, whole: bool) {
    if whole {
        gate.open();
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

fn absent(world: &mut ClusterState) -> AffectedConfigs {
    world.kmm = Some(Kmm::Absent);
    world.remove_modules();
    world.nmcs.clear();
    world.images.clear();
    world.everybody()
}

fn read<T: DeserializeOwned>(body: Value) -> Result<T, String> {
    serde_json::from_value(body).map_err(|error| error.to_string())
}

fn id_of(raw: &Raw) -> Id {
    Id::new(
        raw.text("/metadata/namespace").unwrap_or_default(),
        raw.text("/metadata/name").unwrap_or_default(),
    )
}

/// A DeviceConfig as it came.
fn take_config(world: &mut ClusterState, raw: &Raw) -> AffectedConfigs {
    let config = Config::read(&raw.body);
    if let Some(error) = &config.unreadable {
        warn!(deviceconfig = %config.id(), error, "it cannot be read; what was made for it stays as it is");
    }
    world.put_config(config)
}

fn take_configs(world: &mut ClusterState, event: Event<Raw>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let here: BTreeSet<Id> = objects.iter().map(id_of).collect();
            let gone: Vec<Id> = world.configs.keys().filter(|id| !here.contains(id)).cloned().collect();
            let gone: AffectedConfigs = gone.iter().flat_map(|id| world.remove_config(id)).collect();
            objects.iter().flat_map(|raw| take_config(world, raw)).chain(gone).collect()
        }
        Event::Applied(raw) => take_config(world, &raw),
        Event::Deleted(raw) => {
            let id = id_of(&raw);
            let uid = world.configs.get(&id).and_then(|config| config.object.metadata.uid.clone());
            // A new one of the same name may be known already, by the answer to a write of ours.
            if uid.as_deref() == raw.text("/metadata/uid") {
                world.remove_config(&id)
            } else {
                AffectedConfigs::new()
            }
        }
        Event::Unreadable { .. } => AffectedConfigs::new(),
    }
}

fn take_nodes(world: &mut ClusterState, event: Event<(Arc<str>, Node)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let here: BTreeSet<&Arc<str>> = objects.iter().map(|(name, _)| name).collect();
            let gone: Vec<Arc<str>> =
                world.nodes.keys().filter(|name| !here.contains(name)).cloned().collect();
            let gone: AffectedConfigs = gone.iter().flat_map(|name| world.remove_node(name)).collect();
            objects.into_iter().flat_map(|(name, node)| world.put_node(name, node)).chain(gone).collect()
        }
        Event::Applied((name, node)) => world.put_node(name, node),
        Event::Deleted((name, _)) => world.remove_node(&name),
        Event::Unreadable { .. } => AffectedConfigs::new(),
    }
}

fn take_modules(world: &mut ClusterState, event: Event<Raw>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let here: BTreeSet<Id> = objects.iter().map(id_of).collect();
            let gone: Vec<Id> = world.modules.keys().filter(|id| !here.contains(id)).cloned().collect();
            let gone: AffectedConfigs = gone.iter().flat_map(|id| world.remove_module(id)).collect();
            let put = |raw: Raw| world.put_module(id_of(&raw), ObservedObject { body: raw.body });
            objects.into_iter().flat_map(put).chain(gone).collect()
        }
        Event::Applied(raw) => world.put_module(id_of(&raw), ObservedObject { body: raw.body }),
        Event::Deleted(raw) => {
            let id = id_of(&raw);
            let same =
                world.modules.get(&id).is_some_and(|live| Some(live.uid()) == raw.text("/metadata/uid"));
            if same { world.remove_module(&id) } else { AffectedConfigs::new() }
        }
        Event::Unreadable { .. } => AffectedConfigs::new(),
    }
}

fn take_nmcs(world: &mut ClusterState, event: Event<(String, Nmc)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let here: BTreeSet<&str> = objects.iter().map(|(name, _)| name.as_str()).collect();
            let gone: Vec<Arc<str>> =
                world.nmcs.keys().filter(|name| !here.contains(&***name)).cloned().collect();
            let gone: AffectedConfigs = gone.iter().flat_map(|name| world.remove_nmc(name)).collect();
            objects.into_iter().flat_map(|(name, nmc)| world.put_nmc(name.into(), nmc)).chain(gone).collect()
        }
        Event::Applied((name, nmc)) => world.put_nmc(name.into(), nmc),
        Event::Deleted((name, _)) => world.remove_nmc(&name),
        Event::Unreadable { key, .. } => world.remove_nmc(&key.name),
    }
}

fn take_images(world: &mut ClusterState, event: Event<(Id, Images)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let here: BTreeSet<&Id> = objects.iter().map(|(id, _)| id).collect();
            let gone: Vec<Id> = world.images.keys().filter(|id| !here.contains(id)).cloned().collect();
            let gone: AffectedConfigs = gone.into_iter().flat_map(|id| world.put_images(id, None)).collect();
            objects
                .into_iter()
                .flat_map(|(id, images)| world.put_images(id, Some(images)))
                .chain(gone)
                .collect()
        }
        Event::Applied((id, images)) => world.put_images(id, Some(images)),
        Event::Deleted((id, _)) => world.put_images(id, None),
        Event::Unreadable { key, .. } => world.put_images(Id::new(&key.namespace, &key.name), None),
    }
}

fn take_pods(world: &mut ClusterState, event: Event<(Id, Option<Pod>)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let mut pods = Pods::default();
            for (id, pod) in objects {
                pods.put(id, pod);
            }
            world.put_pods(pods)
        }
        Event::Applied((id, pod)) => world.put_pod(id, pod),
        Event::Deleted((id, _)) => world.put_pod(id, None),
        Event::Unreadable { .. } => AffectedConfigs::new(),
    }
}

fn take_holdings(world: &mut ClusterState, event: Event<(Id, Option<DeviceClaim>)>) -> AffectedConfigs {
    match event {
        Event::Reset { objects, .. } => {
            let mut held = ClaimsInUse::default();
            for (claim, holding) in objects {
                held.put(claim, holding);
            }
            if world.held.as_ref() == Some(&held) {
                return AffectedConfigs::new();
            }
            world.held = Some(held);
            world.everybody()
        }
        Event::Applied((claim, holding)) => world.put_holding(claim, holding),
        Event::Deleted((claim, _)) => world.put_holding(claim, None),
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
