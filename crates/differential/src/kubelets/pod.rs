//! Pods of a session as the API server takes them, and what it then says of them.
//!
//! In: a session's pod. Out: the same pod on a node, of which nothing is changed that admission looks at. Never: I/O.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Container, Event, Pod};
use serde_json::{Value, json};
use sim::admit::verdict::{RejectedPod, Verdict};

/// The kubelet's words before each reason (kubelet `rejectPod`).
const REJECTED: &str = "Pod was rejected: ";

/// Reasons of rejections beside those about the node's totals.
const REASONS: [&str; 4] =
    ["TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError"];

/// A pod that the kubelet has admitted and that has not ended.
#[derive(Clone, Debug)]
pub(super) struct AdmittedPod {
    /// Its UID in the session.
    pub(super) uid: String,
    /// Its UID at the API server.
    pub(super) real_uid: String,
    /// Its name.
    pub(super) name: String,
    /// Containers that end before others start, and those that run then.
    pub(super) inits: Vec<String>,
    pub(super) apps: Vec<String>,
    /// When it was created, in seconds of Unix time: kubelets count no finer.
    pub(super) created: i64,
}

/// The pod for a node. It ends when its containers do, and mounts nothing.
pub(super) fn bound(pod: &Value, node: &str) -> anyhow::Result<Pod> {
    let mut pod = pod.clone();
    pod["metadata"] = json!({ "name": pod["metadata"]["name"] });
    let spec = pod["spec"].as_object_mut().context("a pod without spec")?;
    spec.insert("nodeName".to_owned(), json!(node));
    spec.insert("restartPolicy".to_owned(), json!("Never"));
    spec.insert("automountServiceAccountToken".to_owned(), json!(false));
    serde_json::from_value(pod).context("a session's pod")
}

/// A pod that asks for nothing: once it is admitted, the kubelet has decided about all pods before it.
pub(super) fn sentinel(name: &str, node: &str) -> anyhow::Result<Pod> {
    let containers = json!([{ "name": "sentinel", "image": "i" }]);
    bound(&json!({ "metadata": { "name": name }, "spec": { "containers": containers } }), node)
}

/// The UID of a session's pod.
pub(super) fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or_default()
}

/// A pod that was admitted, from its object as it was created.
pub(super) fn admitted(uid: &str, pod: &Pod) -> AdmittedPod {
    let spec = pod.spec.clone().unwrap_or_default();
    let ends = |container: &&Container| container.restart_policy.as_deref() != Some("Always");
    let inits = spec.init_containers.iter().flatten().filter(ends);
    let created = pod.metadata.creation_timestamp.as_ref();
    AdmittedPod {
        uid: uid.to_owned(),
        real_uid: pod.metadata.uid.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        inits: inits.map(|container| container.name.clone()).collect(),
        apps: spec.containers.iter().map(|container| container.name.clone()).collect(),
        created: created.map_or(0, |time| time.0.as_second()),
    }
}

/// All containers of a pod, in the order of admission.
pub(super) fn containers(pod: &Pod) -> Vec<String> {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.map(|container| container.name.clone()).collect()
}

/// Whether the kubelet has decided about the pod: its status tells of containers, or has the reason of a rejection. In
/// the seconds after its start a kubelet keeps that reason to itself: it does not know yet that no container of the pod
/// runs (kubelet `mergePodStatus`, `CouldHaveRunningContainers`).
pub(super) fn is_decided(pod: Option<&Pod>) -> bool {
    let status = pod.and_then(|pod| pod.status.as_ref());
    status.is_some_and(|status| status.container_statuses.is_some() || status.reason.is_some())
}

/// Whether the pod has ended.
pub(super) fn has_ended(pod: Option<&Pod>) -> bool {
    let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
    pod.is_none() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Why the kubelet has rejected the pod, if it has: in the words of its managers, with the session's UID.
pub(super) fn rejection(uid: &str, pod: &Pod) -> Option<Verdict> {
    let status = pod.status.as_ref().filter(|status| status.reason.is_some())?;
    let message = status.message.clone().unwrap_or_default();
    let message = message.strip_prefix(REJECTED).unwrap_or(&message);
    let real_uid = pod.metadata.uid.as_deref().unwrap_or_default();
    Some(Verdict {
        reason: status.reason.clone().unwrap_or_default(),
        message: message.replace(real_uid, uid),
        ..Verdict::default()
    })
}

/// What an event of the kubelet says of a pod that was alive, if it is about its rejection.
pub(super) fn rejection_event(pod: &AdmittedPod, event: &Event) -> Option<RejectedPod> {
    let reason = event.reason.as_deref()?;
    let is_rejection = REASONS.contains(&reason) || reason.starts_with("OutOf");
    let is_about_it = event.involved_object.uid.as_ref() == Some(&pod.real_uid);
    (is_rejection && is_about_it).then(|| RejectedPod {
        uid: pod.uid.clone(),
        reason: reason.to_owned(),
        message: event.message.clone().unwrap_or_default().replace(&pod.real_uid, &pod.uid),
    })
}
