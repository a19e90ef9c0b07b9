//! Writes and deletes the Module.
//!
//! In: the Module, its precondition. Out: the API server's answer in the cluster state. Never: a change upon which KMM
//! reloads a driver that pods use.

use api::hardware::keys;
use kube::api::{Patch, PatchParams};
use objects::ownership::references;
use objects::{Object, ObjectKind};
use serde_json::{Value, json};

use super::{DISRUPTION, Executor, Fault, delete, fault};
use crate::claim::Id;
use crate::cluster_state::{AffectedConfigs, ObservedObject};
use crate::plan::is_config;
use crate::precondition::Precondition;

impl Executor {
    pub(super) async fn apply_module(
        &self,
        id: &Id,
        object: &Object,
        unused: &Precondition,
    ) -> Result<(), Fault> {
        let module = Id::new(object.namespace().unwrap_or_default(), object.name());
        let api = self.api(object.kind(), &module.namespace);
        let fault = |error: kube::Error| fault(&format!("Module {module}"), &error, true);
        let known =
            self.shared.read(|cluster| cluster.modules.get(&module).map(|live| live.uid().to_owned()));
        let mut body = object.body().clone();
        let is_new = known.is_none();
        match known {
            // The UID excludes a Module that another client has made in its place.
            Some(uid) => body["metadata"]["uid"] = uid.into(),
            None => {
                if let Some(raw) = api.get_opt(&module.name).await.map_err(fault)? {
                    self.observe_module(module, raw.body, true);
                    return Err(Fault::Stale);
                }
            }
        }
        let params = PatchParams::apply(keys::FIELD_MANAGER).force();
        if !unused.has_cordon_taints() {
            // Nodes get the cordon taint only for a Module that KMM accepts.
            let trial = PatchParams { dry_run: true, ..params.clone() };
            api.patch(&module.name, &trial, &Patch::Apply(&body)).await.map_err(fault)?;
            return Err(Fault::Later(DISRUPTION));
        }
        self.verify_unused(unused).await?;
        let mut raw = api.patch(&module.name, &params, &Patch::Apply(&body)).await.map_err(fault)?;
        if let Some(patch) = removal(&raw.body, object.body()) {
            let params = PatchParams { field_manager: params.field_manager, ..PatchParams::default() };
            raw = api.patch(&module.name, &params, &Patch::Merge(patch)).await.map_err(fault)?;
        }
        self.observe_module(module, raw.body, is_new);
        tracing::info!(deviceconfig = %id, module = object.name(), "wrote the Module");
        Ok(())
    }

    pub(super) async fn delete_module(&self, kind: &ObjectKind, module: &Id, uid: &str) -> Result<(), Fault> {
        let api = self.api(kind, &module.namespace);
        match delete(&api, &module.name, uid).await {
            Ok(Some(body)) => self.observe_module(module.clone(), body, false),
            Ok(None) => self.shared.update(|cluster| cluster.remove_module(module)),
            Err(error) => return Err(fault(&format!("Module {module}"), &error, true)),
        }
        tracing::info!(%module, "deleted the Module; waiting until KMM has unloaded the driver");
        Ok(())
    }

    /// Takes in a Module from an answer, unless the Module is not new and has been deleted since.
    fn observe_module(&self, id: Id, body: Value, is_new: bool) {
        self.shared.update(|cluster| match is_new || cluster.modules.contains_key(&id) {
            true => cluster.put_module(id, ObservedObject { body }),
            false => AffectedConfigs::new(),
        });
    }
}

/// The patch that removes fields which an apply leaves: further selectors, and a DeviceConfig as owner, with which the
/// garbage collector would delete the Module.
fn removal(observed: &Value, desired: &Value) -> Option<Value> {
    let metadata = &observed["metadata"];
    let mut patch = json!({ "metadata": { "uid": metadata["uid"] } });
    let empty = patch.clone();
    let wanted = &desired["spec"]["selector"];
    let selector = observed["spec"]["selector"].as_object().into_iter().flatten();
    for (key, _) in selector.filter(|(key, _)| wanted[key.as_str()].is_null()) {
        patch["spec"]["selector"][key] = Value::Null;
    }
    let owners = references(observed);
    let others: Vec<&Value> = owners.iter().filter(|owner| !is_config(owner)).collect();
    if others.len() < owners.len() {
        patch["metadata"]["ownerReferences"] = json!(others);
        // A merge patch replaces the whole list.
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
    }
    (patch != empty).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_selectors_and_old_owners_are_removed() {
        let wanted = json!({ "spec": { "selector": { "ours": "1" } } });
        let owner = |version: &str, kind: &str| json!({ "apiVersion": version, "kind": kind, "name": "acc" });
        let (ours, other) =
            (owner("hardware.tholepin.dev/v1alpha1", "DeviceConfig"), owner("v1", "ConfigMap"));
        let observed = |selector: Value, owners: Value| {
            let metadata = json!({ "uid": "u", "resourceVersion": "7", "ownerReferences": owners });
            json!({ "metadata": metadata, "spec": { "selector": selector } })
        };
        let metadata = json!({ "uid": "u", "resourceVersion": "7", "ownerReferences": [other] });
        let table = [
            (json!({ "ours": "1" }), json!([other]), None),
            (json!({ "ours": "1" }), Value::Null, None),
            (
                json!({ "ours": "1", "theirs": "2" }),
                Value::Null,
                Some(json!({ "metadata": { "uid": "u" }, "spec": { "selector": { "theirs": null } } })),
            ),
            (json!({ "ours": "1" }), json!([ours, other]), Some(json!({ "metadata": metadata }))),
        ];
        for (selector, owners, patch) in table {
            assert_eq!(removal(&observed(selector, owners), &wanted), patch);
        }
    }
}
