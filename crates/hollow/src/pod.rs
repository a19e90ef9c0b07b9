//! A pod on a hollow node, as far as its kubelet looks at it.
//!
//! In: a Pod object. Out: [`PodView`]. Never: a field that is not used.

use std::sync::Arc;
use std::time::Duration;

use api::convert;
use api::goduration::GoDuration;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use topology::kubelet::pod::PodUid;
use topology::request::{ContainerKind, PodRequest};

use crate::checkpoint;

/// How long a pod runs that its kubelet does not restart; over the setting of the whole process.
pub const RUN_TIME: &str = "hollow.tholepin.dev/run-time";

/// A pod that is bound to a node.
#[derive(Clone, Debug)]
pub struct PodView {
    /// The UID.
    pub uid: PodUid,
    /// Namespace and name.
    pub name: PodName,
    /// `spec.nodeName`.
    pub node: Box<str>,
    /// When it was created.
    pub created: Timestamp,
    /// `status.startTime`: a kubelet has decided about it.
    pub started: Option<Timestamp>,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether it has a deletion timestamp.
    pub is_deleted: bool,
    /// What it asks for.
    pub request: PodRequest,
    /// Its containers, in the order of [`PodView::request`].
    pub containers: Arc<[ContainerView]>,
    /// Whether containers that end are started again (`restartPolicy: Always`).
    pub restarts: bool,
    /// The value of [`RUN_TIME`], if it is a duration.
    pub run_time: Option<Duration>,
    /// What its containers were given before this process started.
    pub held: Option<String>,
}

/// The name of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

/// The phase of a pod, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `Pending`, or none.
    Pending,
    /// `Running`, or one that is not known.
    Running,
    /// `Succeeded` or `Failed`.
    Ended,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    /// The name.
    pub name: Box<str>,
    /// The image.
    pub image: Box<str>,
    /// The role.
    pub kind: ContainerKind,
}

impl PodView {
    /// Reads a pod. Cost: its containers.
    ///
    /// # Errors
    /// The field of an amount that cannot be read.
    pub fn of(pod: &Pod) -> Result<Self, String> {
        let request = convert::whole_pod_request(pod).map_err(|error| error.to_string())?;
        let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref(), pod.status.as_ref());
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let annotation = |key| metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let init = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        let wire = init.chain(spec.into_iter().flat_map(|spec| &spec.containers));
        let container = |(wire, request): (&Container, &topology::request::ContainerRequest)| ContainerView {
            name: wire.name.as_str().into(),
            image: text(&wire.image),
            kind: request.kind,
        };
        Ok(Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            name: PodName { namespace: text(&metadata.namespace), name: text(&metadata.name) },
            node: spec.map(|spec| text(&spec.node_name)).unwrap_or_default(),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            started: status.and_then(|status| status.start_time.as_ref()).map(|time| time.0),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                None | Some("Pending") => Phase::Pending,
                Some("Succeeded" | "Failed") => Phase::Ended,
                Some(_) => Phase::Running,
            },
            is_deleted: metadata.deletion_timestamp.is_some(),
            containers: wire.zip(&request.containers).map(container).collect(),
            restarts: spec
                .and_then(|spec| spec.restart_policy.as_deref())
                .is_none_or(|policy| policy == "Always"),
            run_time: annotation(RUN_TIME).and_then(|text| GoDuration::positive(text).ok()),
            held: annotation(checkpoint::KEY).cloned(),
            request,
        })
    }
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
