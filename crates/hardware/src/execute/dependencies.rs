//! Writes and removes the dependencies of a Module: accounts, configurations, role bindings.
//!
//! In: an object. Out: the object written or deleted on the API server. Never: a change of an object without our marks.

use std::collections::BTreeSet;

use api::hardware::keys;
use kube::api::{Patch, PatchParams};
use objects::decision::{Comparison, Decision, Policy, Rules, decide};
use objects::ownership::Ownership;
use objects::{Object, ObjectKind};
use serde_json::Value;

use super::{DISRUPTION, Executor, Fault, delete, fault};
use crate::claim::Id;
use crate::cluster_state::{ObservedObject, marks};
use crate::status::Failure;

impl Executor {
    pub(super) async fn ensure(
        &self,
        id: &Id,
        object: &Object,
        kept: &BTreeSet<String>,
    ) -> Result<(), Fault> {
        let namespace = object.namespace().unwrap_or_default();
        let api = self.api(object.kind(), namespace);
        let title = format!("{} {namespace}/{}", object.kind().kind, object.name());
        let fault = |error: kube::Error| fault(&title, &error, false);
        let observed = api.get_opt(object.name()).await.map_err(fault)?.map(|raw| raw.body);
        let kept = observed.as_ref().and_then(|observed| with_kept(object, observed, kept));
        let desired = kept.as_ref().unwrap_or(object);
        let marks = marks(&id.name);
        let rules = Rules {
            ownership: Ownership::by_marks(keys::FIELD_MANAGER, &marks),
            policy: Policy::Refuse,
            comparison: Comparison::Stated,
        };
        match decide(desired, observed.as_ref(), rules) {
            Decision::Leave => return Ok(()),
            Decision::Await => return Err(Fault::Later(DISRUPTION)),
            Decision::Refuse { .. } => {
                let text =
                    format!("{title} is there and not ours; rename or delete it, or name another account");
                return Err(Fault::Failed { failure: Failure { module: false, text }, soon: false });
            }
            _ => {}
        }
        let params = PatchParams::apply(keys::FIELD_MANAGER).force();
        let applied = api.patch(object.name(), &params, &Patch::Apply(desired.body())).await;
        applied.map(drop).map_err(fault)
    }

    pub(super) async fn remove(&self, id: &Id, kind: &ObjectKind, object: &Id) -> Result<(), Fault> {
        let api = self.api(kind, &object.namespace);
        let fault = |error: kube::Error| fault(&format!("{} {object}", kind.kind), &error, false);
        let observed = api.get_opt(&object.name).await.map_err(fault)?;
        let Some(observed) = observed.map(|raw| ObservedObject { body: raw.body }) else { return Ok(()) };
        let name = if id.name.is_empty() { observed.device_config() } else { id.name.as_str() };
        if name.is_empty() || !observed.is_marked(name) || observed.is_terminating() {
            return Ok(());
        }
        delete(&api, &object.name, observed.uid()).await.map(drop).map_err(fault)
    }
}

/// A ConfigMap with the kept entries of the observed one, which an apply would remove. `None` for other objects.
fn with_kept(object: &Object, observed: &Value, kept: &BTreeSet<String>) -> Option<Object> {
    let known = observed["data"].as_object()?;
    object.body()["data"].as_object()?;
    Some(object.clone().edited(|body| {
        for (name, text) in known.iter().filter(|(name, _)| kept.contains(*name)) {
            if body["data"][name].is_null() {
                body["data"][name] = text.clone();
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    #[test]
    fn kept_entries_stay_as_they_are() {
        let object = |data: Value| {
            let body =
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": data });
            Object::from_value(ObjectKind::of::<ConfigMap>(), body).unwrap()
        };
        let observed = json!({ "data": { "1.yaml": "a", "2.yaml": "b", "3.yaml": "c" } });
        let kept = ["2.yaml", "3.yaml", "4.yaml"].map(str::to_owned).into();
        let wanted = with_kept(&object(json!({ "3.yaml": "new" })), &observed, &kept).unwrap();
        assert_eq!(wanted, object(json!({ "2.yaml": "b", "3.yaml": "new" })));
    }
}
