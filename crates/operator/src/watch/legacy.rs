//! Objects of the Go operator that no watch reports.
//!
//! In: the metadata of kinds that are watched by label. Out: objects that users' objects own and that lack the label.
//! Never: an object without such an owner.
//!
//! After an upgrade in place the operator owns the Go operator's ClusterRoles, MachineConfigs and so on. Desired ones
//! get the label at once; this finds the others. It is done once, before the controllers start.

use api::numaresources::{operator, scheduler};
use objects::{ApiServer, CallError, Object, ObjectKey, ObjectKind};
use runtime::client::brief;
use serde_json::Value;

use super::{Selection, all};
use crate::desired::{MANAGED_BY, MANAGER};
use crate::ownership::owners;
use crate::reconcile::Shared;

/// Takes these objects into the cluster state. A failure is logged; then they stay until their owner is deleted.
pub async fn take_in(api_server: &ApiServer, shared: &Shared) {
    let platform = shared.read(|cluster| cluster.environment.platform);
    for watch in all(platform).filter(|watch| watch.selection == Selection::Managed) {
        let kind = watch.kind();
        if let Err(CallError::Failed(error)) = take_in_kind(api_server, &kind, shared).await {
            let error = brief(&error);
            tracing::warn!(kind = kind.kind, error, "cannot list objects of a former operator");
        }
    }
}

async fn take_in_kind(api_server: &ApiServer, kind: &ObjectKind, shared: &Shared) -> Result<(), CallError> {
    let listed = api_server.list_metadata(kind, None).await?.unwrap_or_default();
    for former in listed.iter().filter(|object| is_former(object)) {
        let name = former["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { kind: kind.clone(), namespace: None, name };
        let Some(whole) = api_server.get(&Object::bare(key.clone())).await? else { continue };
        tracing::info!(kind = kind.kind, name = key.name, "found an object of a former operator");
        shared.observe(key, whole);
    }
    Ok(())
}

/// Whether a user's object owns the object, and it lacks our label.
fn is_former(object: &Value) -> bool {
    let marked = object["metadata"]["labels"][MANAGED_BY] == MANAGER;
    !marked && owners(object).any(|(kind, _)| [operator::KIND, scheduler::KIND].contains(&kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_unlabelled_objects_of_users_objects_are_taken_in() {
        let owner = |api: &str, kind: &str, controller: bool| {
            let reference =
                json!({ "apiVersion": api, "kind": kind, "name": "x", "uid": "u", "controller": controller });
            json!([reference])
        };
        let ours = "nodetopology.openshift.io/v1alpha1";
        let mark = json!({ MANAGED_BY: MANAGER });
        let table = [
            (json!({}), owner(ours, operator::KIND, true), true),
            (json!({}), owner(ours, scheduler::KIND, true), true),
            (mark, owner(ours, operator::KIND, true), false),
            (json!({}), owner(ours, operator::KIND, false), false),
            (json!({}), owner("apps/v1", "DaemonSet", true), false),
            (json!({}), owner("v1", operator::KIND, true), false),
            (json!({}), json!([]), false),
        ];
        for (labels, owners, wanted) in table {
            let object = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": { "name": "a", "labels": labels, "ownerReferences": owners },
            });
            assert_eq!(is_former(&object), wanted, "{object}");
        }
    }
}
