//! The binding of one pod.
//!
//! In: a pod and its node. Out: whether the pod is bound there, for certain. Never: a result that is only likely.
//!
//! A kubelet hears of a deletion when the scheduler does, and may have released the pod before it admits the next one.
//! Before the binding of a pod that relies on others is sent, the API server is asked for them: what it answers is
//! newer than what the watch has brought. Cost: a call for each of them; few pods rely on any.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::ready;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{Binding as WireBinding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{ObjectMeta, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use runtime::backoff::Backoff;
use runtime::client;
use tokio_util::sync::CancellationToken;

use super::super::extenders::HttpExtender;
use super::Completed;
use super::answers::{is_final, until_told};
use crate::core::Binding;
use crate::pod::PodView;

/// Most answers to one binding that leave open whether it was stored, such as 500, before the pod is only looked up.
const MAX_ANSWERS: u32 = 5;

/// Most pods that are asked for at a time.
const MAX_LOOKS: usize = 8;
/// The longest wait for news of them, for which other bindings to the node wait as well.
const LOOK: Duration = Duration::from_secs(5);

/// The reason for which a binding failed.
#[derive(Debug, PartialEq)]
pub(in crate::shell) enum BindFailure {
    /// The namespace of the pod is being deleted, and the pod with it.
    NamespaceTerminating(String),
    Other(String),
}

impl fmt::Display for BindFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamespaceTerminating(reason) | Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl BindFailure {
    fn of(error: &kube::Error) -> Self {
        let reason = client::brief(error);
        if client::is_namespace_terminating(error) {
            Self::NamespaceTerminating(reason)
        } else {
            Self::Other(reason)
        }
    }
}

/// Binds a pod, by the extender if one binds it.
pub(super) async fn bind(
    (client, binder): (Client, Option<Arc<HttpExtender>>),
    mut binding: Binding,
    stopped: CancellationToken,
) -> Completed {
    let began = Instant::now();
    if has_departed(&client, std::mem::take(&mut binding.relied_on)).await {
        return Completed::Departed(Box::new(binding));
    }
    let result = match binder {
        None => post_until_certain(&client, &binding, &stopped, 0).await,
        Some(binder) => match binder.bind(&binding).await {
            Ok(()) => Ok(()),
            // As in kube-scheduler, another one binds it then. The extender may have sent a binding.
            Err(_) if binder.is_ignorable() => post_until_certain(&client, &binding, &stopped, 1).await,
            Err(reason) => look_up(&client, &binding, BindFailure::Other(reason)).await,
        },
    };
    Completed::Bind(Box::new(binding), began.elapsed(), result)
}

/// Whether the API server says that one of these pods leaves or has left. Without an answer in time, none has.
async fn has_departed(client: &Client, pods: Vec<PodView>) -> bool {
    let looks = stream::iter(pods).map(|pod| has_left(client.clone(), pod)).buffer_unordered(MAX_LOOKS);
    let departed = std::pin::pin!(looks.any(ready));
    tokio::time::timeout(LOOK, departed).await.unwrap_or(false)
}

async fn has_left(client: Client, pod: PodView) -> bool {
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace);
    match api.get_opt(&pod.name).await {
        Ok(Some(found)) => {
            let found = PodView::read(&found);
            found.uid != pod.uid || found.progress.is_ending()
        }
        Ok(None) => true,
        Err(error) => {
            tracing::debug!(
                pod = pod.key(),
                error = client::brief(&error),
                "cannot look whether a pod stays"
            );
            false
        }
    }
}

/// Posts a binding, of which `sent` may have been posted before. A call without an answer may be stored later, which no
/// reading can rule out. Only a second one can: the server stores one binding of a pod and refuses all others.
pub(in crate::shell) async fn post_until_certain(
    client: &Client,
    binding: &Binding,
    stopped: &CancellationToken,
    mut sent: u32,
) -> Result<(), BindFailure> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut answers = 0;
    loop {
        let Err(error) = post_binding(client, binding).await else { return Ok(()) };
        let reason = BindFailure::of(&error);
        sent += 1;
        answers += u32::from(client::code(&error).is_some());
        match is_final(&error) {
            true if sent == 1 => return Err(reason),
            // The refusal may be due to an earlier call.
            true => return look_up(client, binding, reason).await,
            // A webhook that fails for this pod must not keep the node from others.
            false if answers >= MAX_ANSWERS => return look_up(client, binding, reason).await,
            false => {}
        }
        let stops = tokio::time::timeout(backoff.next_delay(), stopped.cancelled()).await.is_ok();
        if stops {
            return look_up(client, binding, reason).await;
        }
    }
}

async fn post_binding(client: &Client, binding: &Binding) -> Result<(), kube::Error> {
    let object = WireBinding {
        metadata: ObjectMeta {
            name: Some(binding.pod.name.to_string()),
            namespace: Some(binding.pod.namespace.to_string()),
            uid: Some(binding.pod.uid.to_string()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(binding.node.to_string()),
            ..ObjectReference::default()
        },
    };
    let body = serde_json::to_vec(&object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(Pod::url_path(&(), Some(&binding.pod.namespace)))
        .create_subresource("binding", &binding.pod.name, &PostParams::default(), body)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<Status>(request).await.map(drop)
}

/// Whether the pod is bound to the node, as the API server tells in the end.
async fn look_up(client: &Client, binding: &Binding, reason: BindFailure) -> Result<(), BindFailure> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &binding.pod.namespace);
    let found = until_told(|| api.get_opt(&binding.pod.name)).await.flatten();
    let node = found
        .filter(|pod| pod.metadata.uid.as_deref() == Some(binding.pod.uid.as_ref()))
        .and_then(|pod| pod.spec?.node_name);
    if node.as_deref() == Some(binding.node.as_ref()) { Ok(()) } else { Err(reason) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_that_is_being_deleted_is_no_failure_to_tell() {
        let cause =
            json!({ "reason": "NamespaceTerminating", "message": "it is being terminated", "field": "" });
        for (causes, is_told) in [(vec![cause], false), (vec![], true)] {
            let status = json!({
                "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no",
                "details": { "causes": causes },
            });
            let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
            assert!(is_final(&error));
            assert_eq!(matches!(BindFailure::of(&error), BindFailure::Other(_)), is_told);
        }
    }
}
