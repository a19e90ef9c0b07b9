//! Executes one [`Action`].
//!
//! In: an action. Out: the API server's answer in the cluster state, or a [`Fault`]. Never: a retry, which the worker
//! times; a change of objects that are not ours.
//!
//! Requests beside the watches: deviceconfigs patch, deviceconfigs/status patch, deviceconfigs list (in one namespace,
//! before the clean-up for a DeviceConfig that is gone); modules get, create, patch, delete; nodes patch; pods list (of
//! one node, or of all); resourceclaims list; pods/eviction create; serviceaccounts, configmaps, rolebindings get,
//! create, patch, delete, and bind of the ClusterRole of [`super::module::SCC_ROLE`]; selfsubjectaccessreviews create;
//! events create, patch.

use std::sync::Arc;
use std::time::Duration;

use api::hardware::{self, Status, keys};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Client};
use objects::ObjectKind;
use runtime::client::{brief, is_conflict, is_not_found, is_retryable};
use runtime::status::merge_patch;
use runtime::wire::Raw;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::claim::Id;
use super::cluster_state::{AffectedConfigs, Config};
use super::config_kind;
use super::plan::Action;
use super::shared::Shared;
use super::status::Failure;

mod dependencies;
mod in_use;
mod module;
mod node;

/// Executes actions against the API server.
#[derive(Clone)]
pub struct Executor {
    /// A client whose calls have a deadline.
    pub client: Client,
    /// The cluster state, which takes in the answers.
    pub shared: Arc<Shared>,
    /// The longest time between the scheduling of a pod and its appearance on the node.
    pub binding: Duration,
}

/// The reason why an action was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The cluster state is out of date: plan again soon.
    Stale,
    /// Not possible yet: retry after this time.
    Later(Duration),
    /// The API server refused it.
    Failed {
        /// The object and the error.
        failure: Failure,
        /// A retry may succeed soon.
        soon: bool,
    },
}

/// The pause before another try at an object that cannot change now, or a pod that cannot be evicted now.
const DISRUPTION: Duration = Duration::from_secs(5);

impl Executor {
    /// Executes an action.
    ///
    /// # Errors
    /// The reason why it was not done.
    pub async fn execute(&self, id: &Id, action: &Action) -> Result<(), Fault> {
        match action {
            Action::Finalizer(wanted) => self.set_finalizer(id, *wanted).await,
            Action::Ensure(object, kept) => self.ensure(id, object, kept).await,
            Action::Apply(object, unused) => self.apply_module(id, object, unused).await,
            Action::DeleteModule { kind, module, uid, unused } => {
                self.verify_unused(unused).await?;
                self.delete_module(kind, module, uid).await
            }
            Action::Remove(kind, object) => self.remove(id, kind, object).await,
            Action::Node(write) => self.patch_node(write).await,
            Action::Evict(node, pod) => self.evict(node, pod).await,
        }
    }

    /// Writes the status, if it differs. Returns whether it did.
    ///
    /// # Errors
    /// The API server refused it.
    pub async fn write_status(
        &self,
        id: &Id,
        uid: &str,
        known: &Status,
        status: &Status,
    ) -> Result<bool, Fault> {
        let json = |status: &Status| serde_json::to_value(status).unwrap_or_default();
        let Some(patch) = merge_patch(&json(known), &json(status)) else { return Ok(false) };
        let body = json!({ "metadata": { "uid": uid }, "status": patch });
        let api: Api<Raw> = self.api(&config_kind(), &id.namespace);
        let answer = api.patch_status(&id.name, &PatchParams::default(), &Patch::Merge(body)).await;
        let answer = answer.map_err(|error| fault(&format!("status of DeviceConfig {id}"), &error, false))?;
        self.observe_config(&answer.body);
        Ok(true)
    }

    /// Whether a DeviceConfig has this claim. Asks the API server, since watches may be behind.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn is_claimed(&self, claim: &str) -> Result<bool, Fault> {
        let (namespace, module) = claim.split_once('.').unwrap_or((claim, ""));
        let list = self.api(&config_kind(), namespace).list(&ListParams::default()).await;
        let list = list.map_err(|error| fault(&format!("DeviceConfigs of {namespace}"), &error, false))?;
        let mut names = list.items.iter().filter_map(|raw| raw.text("/metadata/name"));
        Ok(names.any(|name| hardware::module_name(namespace, name).as_deref() == Some(module)))
    }

    fn api(&self, kind: &ObjectKind, namespace: &str) -> Api<Raw> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    fn observe_config(&self, body: &Value) {
        let config = Config::read(body);
        let uid = config.object.metadata.uid.clone();
        self.shared.update(|cluster| {
            let known = cluster.configs.get(&config.id());
            // An answer that arrives after the deletion is out of date.
            let exists = known.is_some_and(|known| known.object.metadata.uid == uid);
            if exists { cluster.put_config(config) } else { AffectedConfigs::new() }
        });
    }

    async fn set_finalizer(&self, id: &Id, wanted: bool) -> Result<(), Fault> {
        let known = self.shared.read(|cluster| {
            let metadata = &cluster.configs.get(id)?.object.metadata;
            Some((metadata.uid.clone(), metadata.finalizers.clone()))
        });
        let Some((uid, before)) = known else { return Err(Fault::Stale) };
        let is_ours = |one: &&String| [keys::FINALIZER, keys::OLD_FINALIZER].contains(&one.as_str());
        let mut after: Vec<String> = before.iter().flatten().filter(|one| !is_ours(one)).cloned().collect();
        if wanted {
            after.push(keys::FINALIZER.to_owned());
        }
        let steps = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": "/metadata/finalizers", "value": before },
            { "op": "add", "path": "/metadata/finalizers", "value": after },
        ]);
        let patch = json_patch::Patch::deserialize(steps).unwrap_or_default();
        let api = self.api(&config_kind(), &id.namespace);
        match api.patch(&id.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(raw) if wanted => self.observe_config(&raw.body),
            Ok(_) => {}
            Err(error) if is_not_found(&error) && !wanted => {}
            Err(error) => return Err(fault(&format!("finalizer of DeviceConfig {id}"), &error, false)),
        }
        Ok(())
    }
}

/// Deletes the object with this UID; its dependents go in the background. Returns the object if it still exists.
async fn delete(api: &Api<Raw>, name: &str, uid: &str) -> Result<Option<Value>, kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(answer) => {
            let body = answer.left().map(|raw| raw.body);
            Ok(body.filter(|body| !body["metadata"]["deletionTimestamp"].is_null()))
        }
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether another client was faster, so that the tests of a patch failed. The API server answers with exactly this
/// text; an admission policy, whose answer may have the same code, gives a reason.
fn is_lost_race(error: &kube::Error) -> bool {
    let text = "the server rejected our request due to an error in our request";
    matches!(error, kube::Error::Api(status) if status.code == 422 && status.message == text)
}

/// The fault for an error of the API server.
fn fault(object: &str, error: &kube::Error, module: bool) -> Fault {
    if is_conflict(error) || is_lost_race(error) {
        return Fault::Stale;
    }
    let text = format!("{object}: {}", brief(error));
    Fault::Failed { failure: Failure { module, text }, soon: is_retryable(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_race_is_not_a_failure() {
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
}
