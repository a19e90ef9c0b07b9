//! Objects of the Go operator that no watch reports.
//!
//! In: the metadata of kinds that are watched by label. Out: objects that users' objects own and that lack the label.
//! Never: an object without such an owner.
//!
//! After an upgrade in place the operator owns the Go operator's ClusterRoles, MachineConfigs and so on. Desired ones
//! get the label at once; this finds the others. It is done once, before the controllers start.

use api::numaresources::{self, operator, scheduler};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use objects::ObjectKind;
use runtime::client::{brief, is_not_found};
use runtime::watch::Event;

use super::{Selection, all, take};
use crate::desired::{MANAGED_BY, MANAGER};
use crate::reconcile::Shared;
use runtime::wire::Raw;

/// The objects in one page of a list.
const PAGE: u32 = 500;

/// Takes these objects into the cluster state. A failure is logged; then they stay until their owner is deleted.
pub async fn take_in(client: &Client, shared: &Shared) {
    let platform = shared.read(|cluster| cluster.environment.platform);
    for watch in all(platform).filter(|watch| watch.selection == Selection::Managed) {
        let kind = watch.kind();
        let api: Api<Raw> = Api::all_with(client.clone(), &kind.resource());
        if let Err(error) = take_in_kind(&api, &kind, shared).await {
            tracing::warn!(
                kind = kind.kind,
                error = brief(&error),
                "cannot list objects of a former operator"
            );
        }
    }
}

async fn take_in_kind(api: &Api<Raw>, kind: &ObjectKind, shared: &Shared) -> kube::Result<()> {
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list_metadata(&params).await {
            Err(error) if is_not_found(&error) => return Ok(()),
            page => page?,
        };
        for object in page.items.iter().filter(|object| is_former(object)) {
            let Some(whole) = api.get_opt(&object.name_any()).await? else { continue };
            tracing::info!(
                kind = kind.kind,
                name = object.name_any(),
                "found an object of a former operator"
            );
            take::observed(shared, kind, Event::Applied(whole));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Whether a user's object owns the object, and it lacks our label.
fn is_former(object: &PartialObjectMeta<Raw>) -> bool {
    let owns = |owner: &OwnerReference| {
        let (group, _) = owner.api_version.split_once('/').unwrap_or_default();
        owner.controller == Some(true)
            && group == numaresources::GROUP
            && [operator::KIND, scheduler::KIND].contains(&owner.kind.as_str())
    };
    let marked = object.labels().get(MANAGED_BY).is_some_and(|value| value == MANAGER);
    !marked && object.owner_references().iter().any(owns)
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
            let read: PartialObjectMeta<Raw> = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(is_former(&read), wanted, "{object}");
        }
    }
}
