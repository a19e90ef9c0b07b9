//! Deleting, and what the answer means.
//!
//! In: a name and a UID. Out: the object that is still there, or nothing. Never: another object of the same name.

use kube::Api;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use runtime::wire::Raw;
use serde_json::Value;

/// Deletes this object and lets what it owns go after it; what is still there of it is the answer.
pub(super) async fn delete(api: &Api<Raw>, name: &str, uid: &str) -> Result<Option<Value>, kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    let answer = api.delete(name, &params).await?;
    Ok(answer.left().map(|raw| raw.body).filter(|body| !body["metadata"]["deletionTimestamp"].is_null()))
}
