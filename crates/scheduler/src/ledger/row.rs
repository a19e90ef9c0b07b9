//! Pods of one node, as the ledger keeps them.
//!
//! In: a pod at its binding. Out: its names, its stage in the kubelet, and what reports have said of it. Never: where
//! it is; each world has that.

use std::sync::Arc;

use topology::fingerprint::PodHash;
use topology::placement::ContainerHash;
use topology::placement::holdings::HashKey;
use topology::request::{ContainerKind, PodNeeds};

use super::kept_cpus::Departure;
use super::{Held, HeldIds, Location};
use crate::pod::PodView;

/// The key of a pod object. A recreated pod has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u64);

/// The stage of a pod in the kubelet, as known from the API server and from reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Bound, or about to be; the kubelet may not have seen the pod.
    Pending,
    /// The kubelet has written a status, so the pod holds its resources.
    Admitted,
    /// The deletion was requested, or the object was deleted by force: the kubelet may release the pod at any moment.
    Leaving {
        /// Whether the kubelet is known to have admitted the pod. If not, the pod may still be admitted after others.
        admitted: bool,
    },
    /// The kubelet has released or rejected the pod. The row stays for a while, to understand reports made before.
    Released,
}

impl Stage {
    pub(super) fn is_leaving(self) -> bool {
        matches!(self, Self::Leaving { .. })
    }

    /// Whether the kubelet may not have admitted the pod yet.
    pub(super) fn may_be_admitted_later(self) -> bool {
        matches!(self, Self::Pending | Self::Leaving { admitted: false })
    }

    /// Whether nothing says that the pod leaves.
    pub(super) fn stays(self) -> bool {
        matches!(self, Self::Pending | Self::Admitted)
    }
}

/// A pod at its binding.
#[derive(Clone, Debug)]
pub struct BoundPod {
    /// The key of the pod object.
    pub id: PodId,
    /// The names.
    pub names: PodNames,
    /// Hash of namespace and name, for fingerprints.
    pub hash: PodHash,
    /// The requests, as the kubelet has allocated them.
    pub needs: Arc<PodNeeds>,
    /// Whether the pod may finish by itself (`restartPolicy` other than `Always`).
    pub finishes: bool,
    /// The second of its creation.
    pub created_s: u64,
}

impl BoundPod {
    /// A pod as it is bound.
    #[must_use]
    pub fn of(id: PodId, pod: &PodView) -> Self {
        Self {
            id,
            names: PodNames::of(pod),
            hash: pod.hash,
            needs: Arc::clone(&pod.allocated),
            finishes: pod.spec.finishes,
            created_s: pod.created_s,
        }
    }
}

/// The names of a pod, by which its kubelet and reports know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNames {
    /// `metadata.uid`; of a mirror pod, the uid of its static pod.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl PodNames {
    /// The names of a pod.
    #[must_use]
    pub fn of(pod: &PodView) -> Self {
        Self {
            uid: Arc::clone(pod.static_uid.as_ref().unwrap_or(&pod.uid)),
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
        }
    }

    /// The hash under which a report has a container.
    #[must_use]
    pub fn hash(&self, key: HashKey, container: &str) -> ContainerHash {
        match key {
            HashKey::Uid => ContainerHash::of_uid(&self.uid, container),
            HashKey::Name => ContainerHash::of(&self.namespace, &self.name, container),
        }
    }
}

/// One pod's row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: PodId,
    pub(super) names: PodNames,
    pub(super) hash: PodHash,
    pub(super) needs: Arc<PodNeeds>,
    pub(super) stage: Stage,
    /// Whether the pod may finish by itself, unannounced (`restartPolicy` other than `Always`).
    pub(super) finishes: bool,
    /// The second of its creation.
    pub(super) created_s: u64,
    /// Number of its binding, in [`Ledger::bindings_shown`]; `u64::MAX` until the API server has shown it.
    pub(super) shown_at: u64,
    /// Whether the last understood report counts this pod.
    pub(super) described: bool,
    /// Whether the last report, understood or not, may have come before its admission.
    pub(super) may_follow_report: bool,
    /// Number of reports understood before its admission.
    pub(super) reports_before: u64,
    /// Reports by ids since its admission that show nothing of the pod.
    pub(super) missed: u8,
    /// Number of the release, in [`Ledger::releases`]; `u64::MAX` before.
    pub(super) released_at: u64,
    /// Whether its init containers have ended.
    pub(super) initialized: bool,
    /// Pods alike whose order of admission is not known have one number: each may be where another one is said to be.
    pub(super) alike: Option<PodId>,
    /// The second in which the kubelet has started the pod, after its admission, if that is known.
    pub(super) started_s: Option<u64>,
    /// Pods that may have left between two containers of its admission.
    pub(super) departures: Vec<Departure>,
}

impl Row {
    /// The location once init containers have given back their memory; `None` if they hold none there.
    pub(super) fn without_init_memory(&self, location: &Location) -> Option<Location> {
        let Location::Charged { held: Held::Ids(held), exact } = location else { return None };
        let asked = &self.needs.pod.containers;
        let is_init = |name: &str| asked.iter().any(|it| &*it.name == name && it.kind == ContainerKind::Init);
        let mut rest = HeldIds::clone(held);
        let with_memory = rest.containers.iter_mut().filter(|it| is_init(&it.name) && !it.memory.is_empty());
        let given_back = with_memory.map(|container| container.memory.clear()).count();
        (given_back > 0).then(|| Location::Charged { held: Held::Ids(Arc::new(rest)), exact: *exact })
    }
}
