//! Writes of volumes and claims before a binding.
//!
//! In: the volumes chosen for a pod's claims, and its claims to provision. Out: the versions written, or the first
//! failure. Never: a write over a newer object; each names the version that the decision rests on.
//!
//! Source: kube-scheduler 1.36 `volumebinding` `bindAPIUpdate`, which replaces whole objects; here only the fields of
//! the binding are sent. Nothing is taken back after a failure, as there.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use runtime::client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Completed;
use crate::core::{BindVolumes, ChosenVolume};
use crate::volumes::views::{BOUND_BY_CONTROLLER, SELECTED_NODE};

/// Writes the volumes of a pod one after the other.
pub(super) async fn write(client: Client, bind: BindVolumes) -> Completed {
    let BindVolumes { binding, mut volumes } = bind;
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let mut result = Ok(());
    for chosen in volumes.chosen.iter_mut().filter(|chosen| chosen.writes) {
        match patch(&api, &chosen.volume, claim_patch(chosen)).await {
            Ok(version) => chosen.version = version.unwrap_or(chosen.version),
            Err(reason) => return Completed::Volumes(binding.id, volumes, Err(reason)),
        }
    }
    for claim in volumes.provisioned.iter_mut().filter(|claim| claim.writes) {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &claim.claim.namespace);
        let patched = patch(&api, &claim.claim.name, node_patch(claim.version, &binding.node)).await;
        match patched {
            Ok(version) => claim.version = version.unwrap_or(claim.version),
            Err(reason) => {
                result = Err(reason);
                break;
            }
        }
    }
    Completed::Volumes(binding.id, volumes, result)
}

/// Returns the new version, if it is a number.
async fn patch<K>(api: &Api<K>, name: &str, patch: Value) -> Result<Option<u64>, String>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let written = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    let written = written.map_err(|error| match &error {
        kube::Error::Api(status) => status.message.clone(),
        _ => client::brief(&error),
    })?;
    Ok(written.meta().resource_version.as_deref().and_then(|version| version.parse().ok()))
}

fn claim_patch(chosen: &ChosenVolume) -> Value {
    let ChosenVolume { version, claim, claim_version, marks, .. } = chosen;
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if *marks {
        metadata["annotations"] = json!({ BOUND_BY_CONTROLLER: "yes" });
    }
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.key.namespace, "name": claim.key.name,
        "uid": claim.uid, "resourceVersion": claim_version.to_string(),
    });
    json!({ "metadata": metadata, "spec": { "claimRef": reference } })
}

fn node_patch(version: u64, node: &str) -> Value {
    json!({ "metadata": { "resourceVersion": version.to_string(), "annotations": { SELECTED_NODE: node } } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::reference::ClaimKey;
    use crate::volumes::views::ClaimRef;

    #[test]
    fn patches_name_the_version_and_the_fields_of_the_binding() {
        let key = ClaimKey { namespace: "ns".into(), name: "c".into() };
        for (marks, annotations) in
            [(true, json!({ "pv.kubernetes.io/bound-by-controller": "yes" })), (false, Value::Null)]
        {
            let chosen = ChosenVolume {
                volume: "v".into(),
                version: 7,
                claim: ClaimRef { key: key.clone(), uid: "u".into() },
                claim_version: 5,
                marks,
                writes: true,
            };
            let patch = claim_patch(&chosen);
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            assert_eq!(patch["metadata"]["annotations"], annotations);
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "c", "uid": "u",
                "resourceVersion": "5",
            });
            assert_eq!(patch["spec"]["claimRef"], claim);
        }
        let annotations = json!({ "volume.kubernetes.io/selected-node": "n" });
        assert_eq!(
            node_patch(3, "n"),
            json!({ "metadata": { "resourceVersion": "3", "annotations": annotations } })
        );
    }
}
