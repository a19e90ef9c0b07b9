//! A pod as the scheduler keeps it: a small struct instead of the whole object.
//!
//! In: `Pod` objects. Out: [`PodView`], with all that a cycle reads already parsed. Never: a guess; features that the
//! pod needs and this scheduler lacks are listed in [`Spec::unsupported`], and such a pod stays Pending.

use std::sync::Arc;

use api::keys::{CONFIG_MIRROR, POD_ALIGNMENT};
use k8s_openapi::api::core::v1 as wire;
use topology::fingerprint::PodHash;
use topology::kubelet::rejection::REASONS;
use topology::request::{PodNeeds, PodRequest};

use crate::affinity::{Labels, NodeAffinity, Toleration};
use crate::default_selector::{Controller, controller_of};
use crate::devices::reference::ClaimRef;
use crate::plugins::image_locality::PodImages;
use crate::plugins::inter_pod_affinity::{PodAffinity, PodTerm, Term};
use crate::plugins::node_declared_features::Features;
use crate::plugins::node_ports::HostPort;
use crate::plugins::pod_topology_spread::SpreadConstraint;
use crate::selection::{PodSelector, Selectable};
use crate::volumes::reference::VolumeRef;

/// The constraints of a pod on its node. Pods of one workload have equal specs and are woken as a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Resource requests.
    pub needs: Arc<PodNeeds>,
    /// `nodeSelector` and node affinity.
    pub affinity: NodeAffinity,
    /// `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Ports that the pod takes of its host.
    pub host_ports: Vec<HostPort>,
    /// Volumes that limit where the pod can run.
    pub volumes: Vec<VolumeRef>,
    /// Claims for devices.
    pub claims: Vec<ClaimRef>,
    /// Features that the node's kubelet must declare.
    pub features: Features,
    /// `topologySpreadConstraints`, or those that the profile gives to a pod without any.
    pub spread: Vec<SpreadConstraint>,
    /// Pod affinity and anti-affinity.
    pub pod_affinity: PodAffinity,
    /// Names of the `schedulingGates` that hold the pod back.
    pub gates: Vec<String>,
    /// What of the pod cannot be read; with any of it the pod is not placed.
    pub unsupported: Vec<Unsupported>,
    /// Whether the pod may finish by itself (`restartPolicy` other than `Always`).
    pub finishes: bool,
    /// Whether less important pods may be evicted for it (`preemptionPolicy` other than `Never`).
    pub preempts: bool,
    /// What the pod wants of zones.
    pub intent: AlignmentIntent,
    /// Whether it belongs to a PodGroup. Such pods wait apart from others: what wakes them may be another.
    pub in_group: bool,
}

/// What a pod wants of zones beyond what its node's kubelet enforces (annotation `tholepin.dev/alignment`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AlignmentIntent {
    /// The pod does not say. Of nodes that fit, those that are known not to align it come last.
    #[default]
    Unstated,
    /// Only nodes that are known to align it.
    Require,
    /// Of nodes that fit, those that are not known to align it come last.
    Prefer,
    /// All nodes that fit are alike.
    Ignore,
}

/// What of a pod cannot be read, so that it is not placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unsupported {
    /// A required term of pod affinity or anti-affinity, with the reason.
    PodAffinity(String),
    /// A spread constraint, with the reason.
    TopologySpread(String),
    /// Resources that cannot be read, with the reason.
    Resources(String),
    /// A field that cannot be read, with the reason.
    Unreadable(String),
}

/// The rejection of a pod by its kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The kubelet's reason.
    pub reason: Arc<str>,
    /// The controller of the pod.
    pub owner: Option<Owner>,
}

/// The controller of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// The progress of a pod, as its object shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The kubelet has written a status.
    pub admitted: bool,
    /// Its init containers have ended, but for sidecars.
    pub initialized: bool,
    /// The deletion was requested.
    pub deleting: bool,
    /// The phase is Succeeded or Failed.
    pub terminal: bool,
    /// All containers that ever started have ended.
    pub stopped: bool,
    /// A scheduler evicts it for a more important pod (condition `DisruptionTarget`).
    pub preempted: bool,
}

/// The fields of a pod that the scheduler uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// The uid of the static pod that it mirrors, which the kubelet's managers have in place of its own.
    pub static_uid: Option<Arc<str>>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.resourceVersion`, where it is a number.
    pub version: u64,
    /// `metadata.creationTimestamp`, seconds since the epoch; the kubelet admits a list of pods in this order.
    pub created_s: u64,
    /// `spec.schedulerName`.
    pub scheduler: Arc<str>,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.nodeName`.
    pub node: Option<Arc<str>>,
    /// Hash of namespace and name.
    pub hash: PodHash,
    /// The constraints on the node.
    pub spec: Arc<Spec>,
    /// The requests that a node's totals count while the pod is there: those of the spec, or larger ones during a
    /// resize.
    pub charged: Arc<PodNeeds>,
    /// The requests that the kubelet has allocated, which zones hold: those of the spec until a resize.
    pub allocated: Arc<PodNeeds>,
    /// `metadata.labels`, against which selectors of other pods are matched.
    pub labels: Arc<Labels>,
    /// Its images, while it is on no node.
    pub images: PodImages,
    /// Its controller, while it is on no node.
    pub controller: Option<Controller>,
    /// The uid of its controller, of whatever kind, while it is on no node.
    pub owner: Option<Arc<str>>,
    /// Why its kubelet has rejected it, if that was for what it would get.
    pub rejection: Option<Arc<Rejection>>,
    /// Its terms about other pods, which count for those while it is on a node.
    pub terms: Vec<PodTerm>,
    /// Whether it stays as long as its node: a pod of a DaemonSet, or a static one.
    pub stays: bool,
    /// The progress of the pod.
    pub progress: Progress,
    /// The message of its condition `PodScheduled`, while that is `False`.
    pub unschedulable: Option<Arc<str>>,
    /// `status.nominatedNodeName`: the node where pods were evicted for it.
    pub nominated: Option<Arc<str>>,
    /// `status.startTime`, seconds since the epoch.
    pub started_s: Option<u64>,
    /// The second, since the epoch, in which its last container ended so far; `u64::MAX`: it has failed, and none has
    /// ever run.
    pub ended_s: Option<u64>,
    /// `spec.schedulingGroup.podGroupName`.
    pub group: Option<Arc<str>>,
}

impl PodView {
    /// Reads a pod. Missing names and uids, which no API server sends, become empty.
    #[must_use]
    pub fn read(pod: &wire::Pod) -> Self {
        let meta = &pod.metadata;
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let namespace = text(meta.namespace.as_ref());
        let name = text(meta.name.as_ref());
        let stated = api::convert::pod_request(pod);
        let charged = api::convert::charged_request(pod, stated.as_ref().ok());
        let charged = charged.map(|request| Arc::new(request.needs()));
        let nothing = || Arc::new(PodRequest::default().needs());
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty()).map(Arc::from);
        let allocated = node.as_ref().and(stated.as_ref().ok());
        let allocated = allocated.and_then(|stated| api::convert::allocated_request(pod, stated));
        let (needs, problem) = match stated {
            Ok(request) => (Arc::new(request.needs()), None),
            // Of requests that cannot be read in full, what can be is charged.
            Err(error) => (charged.clone().unwrap_or_else(nothing), Some(error.to_string())),
        };
        let charged = charged.filter(|charged| *charged != needs).unwrap_or_else(|| Arc::clone(&needs));
        let allocated = allocated.map_or_else(|| Arc::clone(&needs), |request| Arc::new(request.needs()));
        let parsed = Spec::read(pod, needs, problem);
        let created = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        let status = pod.status.as_ref();
        let nominated = status.and_then(|s| s.nominated_node_name.as_deref()).filter(|n| !n.is_empty());
        let started = status.and_then(|status| status.start_time.as_ref());
        let failed = status.filter(|status| status.phase.as_deref() == Some("Failed"));
        let reason = failed.and_then(|status| status.reason.as_deref());
        let rejection = reason.filter(|reason| REASONS.contains(reason));
        Self {
            uid: text(meta.uid.as_ref()),
            static_uid: annotation(pod, CONFIG_MIRROR).map(Arc::from),
            version: meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0),
            created_s: u64::try_from(created).unwrap_or(0),
            scheduler: spec.and_then(|s| s.scheduler_name.as_deref()).unwrap_or("default-scheduler").into(),
            priority: spec.and_then(|s| s.priority).unwrap_or(0),
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
            images: spec.filter(|_| node.is_none()).map(PodImages::read).unwrap_or_default(),
            controller: Controller::of(pod).filter(|_| node.is_none()),
            owner: controller_of(pod).filter(|_| node.is_none()).map(|owner| owner.uid.as_str().into()),
            rejection: rejection.map(|reason| Arc::new(Rejection::read(reason, pod))),
            terms: Term::read(pod),
            stays: controller_of(pod)
                .is_some_and(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node")),
            node,
            hash: PodHash::of(&namespace, &name),
            charged,
            allocated,
            spec: Arc::new(parsed),
            progress: Progress::read(pod),
            unschedulable: unschedulable(pod),
            nominated: nominated.map(Arc::from),
            group: spec.and_then(group).map(Arc::from),
            started_s: started.map(|time| u64::try_from(time.0.as_second()).unwrap_or(0)),
            ended_s: status.and_then(ended_s),
            namespace,
            name,
        }
    }

    /// The pod has a field that cannot be read: it counts where it is, and is not placed.
    #[must_use]
    pub fn with_unreadable_field(mut self, reason: String) -> Self {
        Arc::make_mut(&mut self.spec).unsupported.push(Unsupported::Unreadable(reason));
        self
    }

    /// Takes over the default spread constraints that the pod had when it was last tried, if it still has them.
    pub(crate) fn keep_default_spread(&mut self, before: &Self) {
        let is_given = !before.spec.spread.is_empty() && before.spec.has_default_spread();
        let is_same = self.labels == before.labels && self.controller == before.controller;
        if is_given && is_same && self.spec.spread.is_empty() {
            Arc::make_mut(&mut self.spec).spread.clone_from(&before.spec.spread);
        }
    }

    /// The pod as selectors see it.
    #[must_use]
    pub fn selectable(&self) -> Selectable {
        Selectable {
            namespace: Arc::clone(&self.namespace),
            labels: Arc::clone(&self.labels),
            leaving: self.progress.deleting,
        }
    }

    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Spec {
    /// Reads the constraints. `problem`: the reason for which the requests could not be read in full.
    fn read(pod: &wire::Pod, needs: Arc<PodNeeds>, problem: Option<String>) -> Self {
        let nothing = wire::PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        let mut unsupported: Vec<Unsupported> = problem.into_iter().map(Unsupported::Resources).collect();
        let spread = SpreadConstraint::read(pod).map_err(Unsupported::TopologySpread);
        let pod_affinity = PodAffinity::read(pod).map_err(Unsupported::PodAffinity);
        let intent = AlignmentIntent::read(pod).map_err(Unsupported::Unreadable);
        unsupported.extend(intent.as_ref().err().cloned());
        unsupported.extend(spread.as_ref().err().into_iter().chain(pod_affinity.as_ref().err()).cloned());
        Self {
            host_ports: HostPort::read(spec),
            volumes: VolumeRef::read(pod),
            claims: ClaimRef::read(pod),
            features: Features::needed(spec),
            spread: spread.unwrap_or_default(),
            pod_affinity: pod_affinity.unwrap_or_default(),
            needs,
            affinity: NodeAffinity::read(spec),
            tolerations: spec.tolerations.iter().flatten().filter_map(Toleration::read).collect(),
            gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
            unsupported,
            finishes: spec.restart_policy.as_deref().unwrap_or("Always") != "Always",
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            intent: intent.unwrap_or_default(),
            in_group: group(spec).is_some(),
        }
    }

    /// Whether the verdict about a node depends on other nodes and their pods.
    #[must_use]
    pub fn spans_nodes(&self) -> bool {
        self.pod_affinity.is_required() || self.spread.iter().any(|constraint| constraint.is_required)
    }

    /// Whether the pod states no spread constraints.
    #[must_use]
    pub fn has_default_spread(&self) -> bool {
        self.spread.iter().all(SpreadConstraint::is_default)
    }

    /// The pods whose numbers its constraints look at.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Arc<PodSelector>> {
        self.spread.iter().filter_map(|c| c.counted()).chain(self.pod_affinity.selectors())
    }
}

impl AlignmentIntent {
    fn read(pod: &wire::Pod) -> Result<Self, String> {
        match annotation(pod, POD_ALIGNMENT) {
            None => Ok(Self::Unstated),
            Some("require") => Ok(Self::Require),
            Some("prefer") => Ok(Self::Prefer),
            Some("ignore") => Ok(Self::Ignore),
            Some(other) => {
                let shown: String = other.chars().take(64).collect();
                let allowed = "allowed are require, prefer and ignore";
                Err(format!("annotation {POD_ALIGNMENT} is {shown:?}: {allowed}"))
            }
        }
    }
}

impl Rejection {
    fn read(reason: &str, pod: &wire::Pod) -> Self {
        let owner = controller_of(pod).map(|owner| Owner {
            uid: owner.uid.as_str().into(),
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
        });
        Self { reason: reason.into(), owner }
    }
}

impl Progress {
    /// Whether the pod is being deleted, or has ended.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        self.deleting || self.terminal
    }

    fn read(pod: &wire::Pod) -> Self {
        let Some(status) = &pod.status else {
            return Self { deleting: pod.metadata.deletion_timestamp.is_some(), ..Self::default() };
        };
        let containers = || containers(status);
        let ended = |container: &wire::ContainerStatus| {
            container.state.as_ref().is_some_and(|s| s.terminated.is_some() || s.running.is_none())
        };
        let is_running = status.phase.as_deref() == Some("Running");
        Self {
            // The kubelet sets startTime with the first status it writes, right after admission.
            admitted: status.start_time.is_some() || containers().next().is_some() || is_running,
            // The first app container has started.
            initialized: is_running,
            deleting: pod.metadata.deletion_timestamp.is_some(),
            terminal: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            stopped: containers().next().is_some() && containers().all(ended),
            preempted: status.conditions.iter().flatten().any(|condition| {
                condition.type_ == "DisruptionTarget"
                    && condition.status == "True"
                    && condition.reason.as_deref() == Some("PreemptionByScheduler")
            }),
        }
    }
}

/// The statuses of all containers.
fn containers(status: &wire::PodStatus) -> impl Iterator<Item = &wire::ContainerStatus> {
    [&status.container_statuses, &status.init_container_statuses].into_iter().flatten().flatten()
}

/// The second in which the last container ended so far; of a pod that its kubelet has rejected, and so never had one,
/// `u64::MAX`.
fn ended_s(status: &wire::PodStatus) -> Option<u64> {
    if status.phase.as_deref() == Some("Failed") && containers(status).next().is_none() {
        return Some(u64::MAX);
    }
    let terminated = containers(status).filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    let ends = terminated.filter_map(|state| u64::try_from(state.finished_at.as_ref()?.0.as_second()).ok());
    ends.max()
}

fn annotation<'p>(pod: &'p wire::Pod, key: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The name of the PodGroup of a pod.
fn group(spec: &wire::PodSpec) -> Option<&str> {
    spec.scheduling_group.as_ref()?.pod_group_name.as_deref()
}

fn unschedulable(pod: &wire::Pod) -> Option<Arc<str>> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    Some(condition.message.as_deref().unwrap_or_default().into())
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PodAffinity(reason) => write!(f, "pod affinity or anti-affinity: {reason}"),
            Self::TopologySpread(reason) => write!(f, "topology spread constraints: {reason}"),
            Self::Resources(reason) => f.write_str(reason),
            Self::Unreadable(reason) => write!(f, "the pod's {reason}"),
        }
    }
}
