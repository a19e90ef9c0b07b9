//! Executes one [`Action`].
//!
//! In: something to do. Out: the API server's answer in the world, or why it could not be done. Never: a repetition
//! (the worker knows when), a change of what is not ours.
//!
//! What is asked of the API server, beside the watches: deviceconfigs patch, deviceconfigs/status patch, deviceconfigs
//! list (in one namespace, before something is cleaned up after one that is gone); modules get, create, patch, delete;
//! nodes patch; pods list (of one node, or of all); resourceclaims list; pods/eviction create; serviceaccounts,
//! configmaps, rolebindings get, create, patch, delete, and bind of the ClusterRole of [`super::module::SCC_ROLE`];
//! selfsubjectaccessreviews create; events create, patch.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use self::delete::delete;
use api::hardware::{self, Status, keys};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use objects::{Object, ObjectKind};
use runtime::client::{brief, code, is_conflict, is_not_found, is_retryable};
use runtime::status::merge_patch;
use runtime::wire::{Raw, Texts};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::claim::Id;
use super::claims_in_use::{ClaimsInUse, is_driver};
use super::cluster_state::CORDON_TAINT;
use super::cluster_state::{AffectedConfigs, ClusterState, Config, ObservedObject, Pod};
use super::plan::{Action, NodeChange, NodeWrite, is_as_wanted, is_config};
use super::precondition::Precondition;
use super::shared::Shared;
use super::status::Failure;
use super::wire::{Trim as _, WireClaim, WireNode, WirePod};

mod delete;

/// Applies actions to the API server.
#[derive(Clone)]
pub struct Applier {
    /// One that gives up.
    pub client: Client,
    /// The world.
    pub shared: Arc<Shared>,
    /// How long a pod may be on its way to a node that was found free.
    pub binding: Duration,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The world is not what was thought; to be looked at again soon.
    Stale,
    /// Not yet; to be tried after this time.
    Later(Duration),
    /// It went wrong.
    Failed {
        /// What and why.
        failure: Failure,
        /// The same may work soon, without anybody doing anything.
        soon: bool,
    },
}

/// How long a pod that may not go now is left alone.
const DISRUPTION: Duration = Duration::from_secs(5);
/// Objects of one answer, where there may be many.
const PAGE: u32 = 500;

impl Applier {
    /// Executes the action.
    ///
    /// # Errors
    /// The fault that prevented it.
    pub async fn perform(&self, id: &Id, one: &Action) -> Result<(), Fault> {
        match one {
            Action::Finalizer(wanted) => self.finalizer(id, *wanted).await,
            Action::Ensure(object, kept) => self.ensure(id, object, kept).await,
            Action::Apply(object, unused) => self.apply_module(id, object, unused).await,
            Action::DeleteModule { kind, module, uid, unused } => {
                self.is_unused(unused).await?;
                self.delete_module(kind, module, uid).await
            }
            Action::Remove(kind, which) => self.remove(id, kind, which).await,
            Action::Node(write) => self.node(write).await,
            Action::Evict { node, pod } => self.evict(node, &pod.namespace, &pod.name).await,
        }
    }

    /// Writes the status, if it differs; says whether it did.
    ///
    /// # Errors
    /// When the API server did not take it.
    pub async fn status(&self, id: &Id, uid: &str, known: &Status, status: &Status) -> Result<bool, Fault> {
        let of = |status: &Status| serde_json::to_value(status).unwrap_or_default();
        let Some(patch) = merge_patch(&of(known), &of(status)) else { return Ok(false) };
        let body = json!({ "metadata": { "uid": uid }, "status": patch });
        let api: Api<Raw> = self.api(&configs(), &id.namespace);
        let answer = api.patch_status(&id.name, &PatchParams::default(), &Patch::Merge(body)).await;
        let answer = answer.map_err(|error| fault(&format!("status of DeviceConfig {id}"), &error, false))?;
        self.saw_config(&answer.body);
        Ok(true)
    }

    /// Whether a DeviceConfig has this claim, by what the API server says now. Watches may be behind.
    ///
    /// # Errors
    /// When it does not say.
    pub async fn is_claimed(&self, claim: &str) -> Result<bool, Fault> {
        let (namespace, module) = claim.split_once('.').unwrap_or((claim, ""));
        let api: Api<Raw> = self.api(&configs(), namespace);
        let list = api.list(&ListParams::default()).await;
        let list = list.map_err(|error| fault(&format!("DeviceConfigs of {namespace}"), &error, false))?;
        let mut names = list.items.iter().filter_map(|raw| raw.text("/metadata/name"));
        Ok(names.any(|name| hardware::module_name(namespace, name).as_deref() == Some(module)))
    }

    fn api(&self, kind: &ObjectKind, namespace: &str) -> Api<Raw> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    fn saw_config(&self, body: &Value) {
        let config = Config::read(body);
        let uid = config.object.metadata.uid.clone();
        self.shared.update(|world| {
            let known = world.configs.get(&config.id());
            // An answer that comes after the news of a deletion is none.
            let is_there = known.is_some_and(|known| known.object.metadata.uid == uid);
            if is_there { world.put_config(config) } else { BTreeSet::new() }
        });
    }

    /// A Module as an answer has it, unless it has gone meanwhile.
    fn saw_module(&self, id: Id, live: ObservedObject) {
        self.shared.update(|world| match world.modules.contains_key(&id) {
            true => world.put_module(id, live),
            false => BTreeSet::new(),
        });
    }

    async fn finalizer(&self, id: &Id, wanted: bool) -> Result<(), Fault> {
        let known = self.shared.read(|world| {
            let metadata = &world.configs.get(id)?.object.metadata;
            Some((metadata.uid.clone(), metadata.finalizers.clone()))
        });
        let Some((uid, before)) = known else { return Err(Fault::Stale) };
        let ours = |one: &String| one == keys::FINALIZER || one == keys::OLD_FINALIZER;
        let mut after: Vec<String> = before.iter().flatten().filter(|one| !ours(one)).cloned().collect();
        if wanted {
            after.push(keys::FINALIZER.to_owned());
        }
        let steps = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": "/metadata/finalizers", "value": before },
            { "op": "add", "path": "/metadata/finalizers", "value": after },
        ]);
        let patch = json_patch::Patch::deserialize(steps).unwrap_or_default();
        let api = self.api(&configs(), &id.namespace);
        match api.patch(&id.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(raw) if wanted => self.saw_config(&raw.body),
            Ok(_) => {}
            Err(error) if is_not_found(&error) && !wanted => {}
            Err(error) => return Err(fault(&format!("finalizer of DeviceConfig {id}"), &error, false)),
        }
        Ok(())
    }

    async fn ensure(&self, id: &Id, object: &Object, kept: &BTreeSet<String>) -> Result<(), Fault> {
        let namespace = object.namespace().unwrap_or_default();
        let api = self.api(object.kind(), namespace);
        let title = format!("{} {namespace}/{}", object.kind().kind, object.name());
        let live = api.get_opt(object.name()).await.map_err(|error| fault(&title, &error, false))?;
        let mut wanted = object.clone();
        if let Some(live) = live {
            let live = ObservedObject { body: live.body };
            if live.is_leaving() {
                return Err(Fault::Later(DISRUPTION));
            }
            if !live.is_marked(&id.name) {
                let text =
                    format!("{title} is there and not ours; rename or delete it, or name another account");
                return Err(Fault::Failed { failure: Failure { module: false, text }, soon: false });
            }
            wanted = keeping(object, &live, kept).unwrap_or(wanted);
            if is_as_wanted(&live, &wanted) {
                return Ok(());
            }
        }
        let params = PatchParams::apply(keys::FIELD_MANAGER).force();
        let done = api.patch(object.name(), &params, &Patch::Apply(wanted.body())).await;
        done.map(drop).map_err(|error| fault(&title, &error, false))
    }

    async fn apply_module(&self, id: &Id, object: &Object, unused: &Precondition) -> Result<(), Fault> {
        let module = Id::new(object.namespace().unwrap_or_default(), object.name());
        let api = self.api(object.kind(), &module.namespace);
        let title = format!("Module {module}");
        let known = self.shared.read(|world| world.modules.get(&module).map(|live| live.uid().to_owned()));
        let mut body = object.body().clone();
        let was_known = known.is_some();
        match known {
            // Not one that was made in its place meanwhile.
            Some(uid) => body["metadata"]["uid"] = uid.into(),
            None => {
                let there = api.get_opt(&module.name).await.map_err(|error| fault(&title, &error, true))?;
                if let Some(raw) = there {
                    self.shared
                        .update(|world| world.put_module(module.clone(), ObservedObject { body: raw.body }));
                    return Err(Fault::Stale);
                }
            }
        }
        let params = PatchParams::apply(keys::FIELD_MANAGER).force();
        if !unused.is_fenced() {
            // Pods are kept from nodes only for a Module that KMM takes.
            let trial = PatchParams { dry_run: true, ..params.clone() };
            let taken = api.patch(&module.name, &trial, &Patch::Apply(&body)).await;
            taken.map_err(|error| fault(&title, &error, true))?;
            return Err(Fault::Later(DISRUPTION));
        }
        self.is_unused(unused).await?;
        let raw = api.patch(&module.name, &params, &Patch::Apply(&body)).await;
        let mut raw = raw.map_err(|error| fault(&title, &error, true))?;
        if let Some(patch) = leftover(&raw.body, object.body()) {
            let params = PatchParams { field_manager: params.field_manager, ..PatchParams::default() };
            let done = api.patch(&module.name, &params, &Patch::Merge(patch)).await;
            raw = done.map_err(|error| fault(&title, &error, true))?;
        }
        let live = ObservedObject { body: raw.body };
        match was_known {
            true => self.saw_module(module, live),
            false => self.shared.update(|world| world.put_module(module, live)),
        }
        tracing::info!(deviceconfig = %id, module = object.name(), "wrote the Module");
        Ok(())
    }

    async fn delete_module(&self, kind: &ObjectKind, module: &Id, uid: &str) -> Result<(), Fault> {
        let api = self.api(kind, &module.namespace);
        let answer = delete(&api, &module.name, uid).await;
        match answer {
            Ok(Some(body)) => self.saw_module(module.clone(), ObservedObject { body }),
            Ok(None) => self.shared.update(|world| world.remove_module(module)),
            Err(error) if is_not_found(&error) => self.shared.update(|world| world.remove_module(module)),
            Err(error) => return Err(fault(&format!("Module {module}"), &error, true)),
        }
        tracing::info!(%module, "deleted the Module; waiting until KMM has unloaded the driver");
        Ok(())
    }

    async fn remove(&self, id: &Id, kind: &ObjectKind, which: &Id) -> Result<(), Fault> {
        let api = self.api(kind, &which.namespace);
        let title = format!("{} {which}", kind.kind);
        let live = api.get_opt(&which.name).await.map_err(|error| fault(&title, &error, false))?;
        let Some(live) = live.map(|raw| ObservedObject { body: raw.body }) else { return Ok(()) };
        let labelled = live.text("/metadata/labels/hardware.tholepin.dev~1deviceconfig");
        let name = if id.name.is_empty() { labelled } else { id.name.as_str() };
        if name.is_empty() || !live.is_marked(name) || live.is_leaving() {
            return Ok(());
        }
        match delete(&api, &which.name, live.uid()).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(fault(&title, &error, false)),
        }
    }

    async fn node(&self, write: &NodeWrite) -> Result<(), Fault> {
        self.is_unused(&write.unused).await?;
        let nodes = ObjectKind::of::<core::Node>();
        let api = Api::<WireNode>::all_with(self.client.clone(), &nodes.resource());
        let patch = match write.change {
            NodeChange::Fence => dated(write.patch.clone(), Timestamp::now()),
            _ => write.patch.clone(),
        };
        let patch = json_patch::Patch::deserialize(patch).unwrap_or_default();
        match api.patch(&write.node, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(node) => {
                let (name, node) = node.trim(&mut Texts::default());
                self.shared.update(|world| match world.nodes.contains_key(&name) {
                    true => world.put_node(name, node),
                    false => BTreeSet::new(),
                });
                tracing::info!(node = write.node, change = ?write.change, "changed a node");
                Ok(())
            }
            // Its watch tells what became of it.
            Err(error) if is_not_found(&error) => Err(Fault::Stale),
            Err(error) => Err(fault(&format!("Node {}", write.node), &error, false)),
        }
    }

    /// Checks with the API server that no pod uses the devices of some nodes, and that none can be on its way there.
    async fn is_unused(&self, unused: &Precondition) -> Result<(), Fault> {
        if unused.names.is_empty() {
            return Ok(());
        }
        if let Some(rest) = unused.rest(Timestamp::now(), self.binding) {
            return Err(Fault::Later(rest));
        }
        let gone = self.shared.read(ClusterState::pods_gone);
        let mut pods = self.pods(unused).await?;
        let by_claims = !pods.is_empty() && unused.names.iter().any(|name| is_driver(name));
        let held = if by_claims { self.held().await? } else { ClaimsInUse::default() };
        pods.retain(|(_, pod)| pod.uses(&unused.names, Some(&held)));
        if pods.is_empty() {
            return Ok(());
        }
        self.shared.update(|world| {
            let holdings = pods.iter().flat_map(|(_, pod)| held.of(&pod.uid));
            let mut concerned = AffectedConfigs::new();
            for (claim, holding) in holdings {
                concerned.extend(world.put_holding(claim.clone(), Some(holding.clone())));
            }
            concerned.extend(world.put_seen(pods, gone));
            concerned
        });
        Err(Fault::Stale)
    }

    /// The pods on some nodes that may have devices.
    async fn pods(&self, unused: &Precondition) -> Result<Vec<(Id, Pod)>, Fault> {
        let mut params = ListParams::default();
        if let (1, Some(node)) = (unused.fences.len(), unused.fences.keys().next()) {
            params = params.fields(&format!("spec.nodeName={node}"));
        }
        let api = Api::<WirePod>::all_with(self.client.clone(), &ObjectKind::of::<core::Pod>().resource());
        let (mut pods, mut texts) = (Vec::new(), Texts::default());
        let done = pages(&api, params, |pod| {
            let (id, pod) = pod.trim(&mut texts);
            let pod = pod.filter(|pod| unused.fences.contains_key(&*pod.node));
            pods.extend(pod.map(|pod| (id, pod)));
        });
        done.await.map_err(|error| fault("pods that may use the devices", &error, false))?;
        Ok(pods)
    }

    /// What pods have by resource claims; nothing, where there are none.
    async fn held(&self) -> Result<ClaimsInUse, Fault> {
        let api =
            Api::<WireClaim>::all_with(self.client.clone(), &ObjectKind::of::<ResourceClaim>().resource());
        let (mut held, mut texts) = (ClaimsInUse::default(), Texts::default());
        let done = pages(&api, ListParams::default(), |claim| {
            let (id, holding) = claim.trim(&mut texts);
            held.put(id, holding);
        });
        match done.await {
            Err(error) if !is_not_found(&error) => {
                Err(fault("resource claims that pods may have devices by", &error, false))
            }
            _ => Ok(held),
        }
    }

    async fn evict(&self, node: &str, namespace: &str, name: &str) -> Result<(), Fault> {
        let (pods, id): (Api<core::Pod>, _) =
            (Api::namespaced(self.client.clone(), namespace), Id::new(namespace, name));
        match pods.evict(name, &EvictParams::default()).await {
            Ok(_) => {
                tracing::info!(node, pod = %id, "evicted a pod that uses the devices");
                // The watch reports this later, and no pod is evicted twice.
                self.shared.update(|world| world.pod_leaves(&id));
                Ok(())
            }
            Err(error) if is_not_found(&error) => {
                self.shared.update(|world| world.put_pod(id, None));
                Ok(())
            }
            // Its disruption budget says not now.
            Err(error) if code(&error) == Some(429) => Err(Fault::Later(DISRUPTION)),
            Err(error) => Err(fault(&format!("eviction of pod {namespace}/{name}"), &error, false)),
        }
    }
}

/// Takes all objects of a list, which comes page by page.
async fn pages<K>(api: &Api<K>, params: ListParams, mut take: impl FnMut(K)) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    loop {
        let list = api.list(&params).await?;
        list.items.into_iter().for_each(&mut take);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// The cordon taint carries its time, so that the next leader knows since when pods are evicted.
fn dated(mut patch: Value, now: Timestamp) -> Value {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let steps = patch.as_array_mut().into_iter().flatten();
    let taints = steps.filter(|step| step["op"] == "add" && step["path"] == "/spec/taints");
    let taints = taints.filter_map(|step| step["value"].as_array_mut()).flatten();
    for fence in taints.filter(|taint| taint["key"] == CORDON_TAINT) {
        fence["timeAdded"] = json!(now);
    }
    patch
}

/// With those of a ConfigMap's entries that stay besides its own; an apply would take them away.
fn keeping(object: &Object, live: &ObservedObject, kept: &BTreeSet<String>) -> Option<Object> {
    let there = live.body["data"].as_object()?;
    let mut body = object.body().clone();
    let entries = body["data"].as_object_mut()?;
    for (name, text) in there.iter().filter(|(name, _)| kept.contains(*name)) {
        entries.entry(name.clone()).or_insert_with(|| text.clone());
    }
    Object::from_value(object.kind().clone(), body).ok()
}

/// Takes away what an apply leaves: what others have put beside our only selector, and a DeviceConfig as an owner that
/// we do not state, with which the garbage collector would take the Module.
fn leftover(live: &Value, wanted: &Value) -> Option<Value> {
    let metadata = &live["metadata"];
    let mut patch = json!({ "metadata": { "uid": metadata["uid"] } });
    let plain = patch.clone();
    let ours = &wanted["spec"]["selector"];
    let selector = live["spec"]["selector"].as_object().into_iter().flatten();
    for (key, _) in selector.filter(|(key, _)| ours[key.as_str()].is_null()) {
        patch["spec"]["selector"][key] = Value::Null;
    }
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others: Vec<&Value> = owners.iter().filter(|owner| !is_config(owner)).collect();
    if others.len() < owners.len() {
        patch["metadata"]["ownerReferences"] = json!(others);
        // They are replaced as a whole.
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
    }
    (patch != plain).then_some(patch)
}

fn configs() -> ObjectKind {
    ObjectKind::new(hardware::GROUP, hardware::VERSION, hardware::KIND, hardware::PLURAL)
}

/// Another client was faster: an object is not what a patch tests. The API server keeps the reason to itself, and says
/// no more than this; an admission policy that refuses a patch that can be applied, a policy, say, whose answer may
/// have the same code, says why.
fn is_outrun(error: &kube::Error) -> bool {
    let text = "the server rejected our request due to an error in our request";
    matches!(error, kube::Error::Api(status) if status.code == 422 && status.message == text)
}

/// What an error means.
fn fault(what: &str, error: &kube::Error, module: bool) -> Fault {
    if is_conflict(error) || is_outrun(error) {
        return Fault::Stale;
    }
    let text = format!("{what}: {}", brief(error));
    Fault::Failed { failure: Failure { module, text }, soon: is_retryable(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_others_stay_as_they_are() {
        let object = |data: Value| {
            let body =
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": data });
            Object::from_value(ObjectKind::of::<core::ConfigMap>(), body).unwrap()
        };
        let there = json!({ "data": { "1.yaml": "a", "2.yaml": "b", "3.yaml": "c" } });
        let kept = ["2.yaml", "3.yaml", "4.yaml"].map(str::to_owned).into();
        let wanted =
            keeping(&object(json!({ "3.yaml": "new" })), &ObservedObject { body: there }, &kept).unwrap();
        assert_eq!(wanted, object(json!({ "2.yaml": "b", "3.yaml": "new" })));
    }

    #[test]
    fn a_lost_race_is_no_refusal() {
        let answer = |message: &str| {
            let status = json!({ "status": "Failure", "code": 422, "reason": "Invalid", "message": message });
            let error = kube::Error::Api(serde_json::from_value(status).unwrap());
            fault("Node n1", &error, false)
        };
        assert_eq!(answer("the server rejected our request due to an error in our request"), Fault::Stale);
        let denied = "nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not today";
        assert!(
            matches!(answer(denied), Fault::Failed { failure, soon: false } if failure.text.contains("not today"))
        );
    }

    #[test]
    fn what_an_apply_leaves_is_taken_away() {
        let wanted = json!({ "spec": { "selector": { "ours": "1" } } });
        let owner = |version: &str, kind: &str| json!({ "apiVersion": version, "kind": kind, "name": "acc" });
        let (ours, other) =
            (owner("hardware.tholepin.dev/v1alpha1", "DeviceConfig"), owner("v1", "ConfigMap"));
        let live = |selector: Value, owners: Value| {
            let metadata = json!({ "uid": "u", "resourceVersion": "7", "ownerReferences": owners });
            json!({ "metadata": metadata, "spec": { "selector": selector } })
        };
        assert_eq!(leftover(&live(json!({ "ours": "1" }), json!([other])), &wanted), None);
        assert_eq!(leftover(&live(json!({ "ours": "1" }), Value::Null), &wanted), None);
        let selector = json!({ "metadata": { "uid": "u" }, "spec": { "selector": { "theirs": null } } });
        assert_eq!(
            leftover(&live(json!({ "ours": "1", "theirs": "2" }), Value::Null), &wanted),
            Some(selector)
        );
        let metadata = json!({ "uid": "u", "resourceVersion": "7", "ownerReferences": [other] });
        let owned = json!({ "metadata": metadata });
        assert_eq!(leftover(&live(json!({ "ours": "1" }), json!([ours, other])), &wanted), Some(owned));
    }

    #[test]
    fn a_fence_says_since_when_it_is_there() {
        let others = json!({ "key": "a", "effect": "NoSchedule" });
        let step = |fence: Value| {
            json!([
                { "op": "test", "path": "/spec/taints", "value": [others] },
                { "op": "add", "path": "/spec/taints", "value": [others, fence] },
            ])
        };
        let fence = json!({ "key": CORDON_TAINT, "value": "hw.m", "effect": "NoSchedule" });
        let mut wanted = fence.clone();
        wanted["timeAdded"] = "1970-01-01T00:00:07Z".into();
        assert_eq!(dated(step(fence), Timestamp::from_millisecond(7_900).unwrap()), step(wanted));
    }
}
