//! Objects of the Go operator that no watch of ours tells of.
//!
//! In: the metadata of kinds that are watched by our mark only. Out: objects that belong to our users' objects and lack the mark, whole.
//! Never: an object without such an owner.
//!
//! After an upgrade in place the Go operator's ClusterRoles, MachineConfigs and so on are ours, by their owner, and those that are
//! wanted get the mark at once. This finds those that nobody wants any more. It is done once, before the controllers start.

use api::numaresources::{self, operator, scheduler};
use deployer::platform::Platform;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use objects::ObjectKind;
use runtime::client::{brief, is_not_found};
use runtime::watch::Event;

use super::{marked, take};
use crate::desired::{MANAGED_BY, MANAGER};
use crate::reconcile::Shared;
use runtime::wire::Raw;

/// Of a list, at once.
const PAGE: u32 = 500;

/// Takes them into the world. What cannot be read is logged: then it stays until its owner goes.
pub async fn take_in(client: &Client, platform: Platform, shared: &Shared) {
    for kind in marked(platform) {
        let api: Api<Raw> = Api::all_with(client.clone(), &kind.resource());
        if let Err(error) = take_in_kind(&api, &kind, shared).await {
            tracing::warn!(
                kind = kind.kind,
                error = brief(&error),
                "cannot look for objects of a former operator"
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
            take::live(shared, kind, Event::Applied(whole));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Whether one of our users' objects owns it and it is not marked.
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
    fn only_what_belongs_to_our_users_objects_and_is_not_marked() {
        let owner = |api: &str, kind: &str, controller: bool| json!([{ "apiVersion": api, "kind": kind, "name": "x", "uid": "u", "controller": controller }]);
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
