//! Claims for the extended resources of pods: made before a binding, and deleted when the pod is not bound after all.
//!
//! In: the requests that devices serve, and a pod. Out: the claim, and the pod's status that names it. Never: a claim
//! that outlives a failed attempt, as far as the API server lets it be deleted; the next attempt deletes what is left.
//!
//! Source: kube-scheduler 1.36 `createExtendedResourceClaimInAPI`, `patchPodExtendedResourceClaimStatus` and
//! `deleteClaim`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use runtime::client;
use serde_json::{Value, json};

use super::claims::message;
use crate::core::Reservation;
use crate::devices::views::claim::{ClaimView, EXTENDED, FINALIZER, Mode};
use crate::plugins::dynamic_resources::extended::ExtendedClaim;
use crate::pod::PodView;
use crate::volumes::reference::ClaimKey;

/// Makes the claim. Returns it as one to reserve.
pub(super) async fn create(
    client: &Client,
    claim: &Reservation,
    made: &ExtendedClaim,
    pod: &PodView,
) -> Result<Reservation, String> {
    let of = format!("create claim for extended resources {}", made.view.key);
    let object: ResourceClaim =
        serde_json::from_value(object(made, pod)).map_err(|error| format!("{of}: {error}"))?;
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &pod.namespace);
    let created = api.create(&PostParams::default(), &object).await;
    let created = ClaimView::read(&created.map_err(|error| format!("{of}: {}", message(&error)))?);
    let ClaimView { key, uid, version, is_protected, .. } = created;
    Ok(Reservation { key, uid, version, is_protected, allocation: claim.allocation.clone(), made: None })
}

/// The claim as it is made: the pod owns it, and its name follows that of the pod.
fn object(made: &ExtendedClaim, pod: &PodView) -> Value {
    let requests = made.view.requests.iter().flat_map(|request| request.asks());
    let requests = requests.map(|ask| {
        let count = if let Mode::Exact(count) = ask.mode { count } else { 0 };
        let exactly =
            json!({ "deviceClassName": *ask.class, "allocationMode": "ExactCount", "count": count });
        json!({ "name": ask.name, "exactly": exactly })
    });
    let owner =
        json!({ "apiVersion": "v1", "kind": "Pod", "name": *pod.name, "uid": *pod.uid, "controller": true });
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": *pod.namespace,
            "generateName": format!("{}-extended-resources-", pod.name),
            "ownerReferences": [owner],
            "annotations": { EXTENDED: "true" },
        },
        "spec": { "devices": { "requests": requests.collect::<Vec<_>>() } },
    })
}

/// Writes into the status of the pod which claim serves which resources of its containers.
pub(super) async fn name_in_status(
    client: &Client,
    claim: &ClaimKey,
    made: &ExtendedClaim,
    pod: &PodView,
) -> Result<(), String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = Patch::Merge(status(claim, made, pod));
    let written = api.patch_status(&pod.name, &PatchParams::default(), &patch).await;
    let failed = |error| format!("update pod {} ExtendedResourceClaimStatus: {}", pod.key(), message(&error));
    written.map(drop).map_err(failed)
}

fn status(claim: &ClaimKey, made: &ExtendedClaim, pod: &PodView) -> Value {
    let mappings = made.mappings.iter().map(|it| {
        json!({ "containerName": *it.container, "resourceName": it.resource.as_str(), "requestName": it.request })
    });
    let named = json!({ "resourceClaimName": *claim.name, "requestMappings": mappings.collect::<Vec<_>>() });
    json!({ "metadata": { "uid": *pod.uid }, "status": { "extendedResourceClaimStatus": named } })
}

/// Deletes the claim, without its finalizer. What fails is tried again with the pod.
pub(super) async fn delete(client: &Client, key: &ClaimKey, uid: Option<&Arc<str>>) {
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
    let mut metadata = json!({ "$deleteFromPrimitiveList/finalizers": [FINALIZER] });
    if let Some(uid) = uid {
        metadata["uid"] = json!(**uid);
    }
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    let mut result = api.patch(&key.name, &PatchParams::default(), &patch).await.map(drop);
    if result.is_ok() {
        let preconditions = Preconditions { uid: uid.map(ToString::to_string), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        result = api.delete(&key.name, &params).await.map(drop);
    }
    if let Err(error) = result
        && !client::is_not_found(&error)
    {
        tracing::warn!(claim = %key, reason = client::brief(&error), "cannot delete a claim for extended resources");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use topology::resource::ResourceName;

    use super::*;
    use crate::plugins::dynamic_resources::extended::Mapping;

    #[test]
    fn claims_name_their_pod_and_pods_their_claim() {
        let pod = json!({ "metadata": { "namespace": "ns", "name": "p", "uid": "u-p" } });
        let pod = PodView::read(&serde_json::from_value(pod).unwrap());
        let requests = json!([{
            "name": "container-0-request-1",
            "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2 },
        }]);
        let view = json!({ "metadata": {}, "spec": { "devices": { "requests": requests } } });
        let mapping = Mapping {
            container: "c".into(),
            resource: ResourceName::new("vendor.example/gpu").unwrap(),
            request: "container-0-request-1".into(),
        };
        let view = ClaimView::read(&serde_json::from_value(view).unwrap());
        let made = ExtendedClaim { view, mappings: vec![mapping] };

        let created = object(&made, &pod);
        assert_eq!(created["spec"]["devices"]["requests"], requests);
        assert_eq!(created["metadata"]["generateName"], "p-extended-resources-");
        let owner =
            json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-p", "controller": true }]);
        assert_eq!(created["metadata"]["ownerReferences"], owner);
        let mut known = created;
        known["metadata"]["uid"] = "u-c".into();
        let known = ClaimView::read(&serde_json::from_value(known).unwrap());
        assert!(known.is_extended && known.controller.as_deref() == Some("u-p"));

        let key = ClaimKey { namespace: "ns".into(), name: "p-extended-resources-x".into() };
        let wanted = json!({
            "resourceClaimName": "p-extended-resources-x",
            "requestMappings": [{
                "containerName": "c", "resourceName": "vendor.example/gpu", "requestName": "container-0-request-1",
            }],
        });
        let written = status(&key, &made, &pod);
        assert_eq!(written["status"]["extendedResourceClaimStatus"], wanted);
        assert_eq!(written["metadata"]["uid"], "u-p");
    }
}
