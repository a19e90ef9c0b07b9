//! In-place resize: CPU and memory of a running pod change.
//!
//! In: a pod as it was allocated and as it shall be. Out: nothing if the kubelet allocates the new amounts, or a
//! [`PendingReason`]. A [`ResizeQueue`] keeps the order in which waiting resizes are tried again. Never: a restart of
//! containers, or swap.
//!
//! Exclusive CPUs and pinned memory never change: with the static policies the kubelet refuses such resizes of
//! Guaranteed pods. All others change the node's totals only. The alpha gates
//! `InPlacePodVerticalScalingExclusiveCPUs` and `...ExclusiveMemory` are not modelled.
//!
//! Up to 1.36 the managers are asked as at an admission: memory of finished init containers is taken once more. Since
//! 1.37 they leave a resize alone.
//!
//! Source: kubelet 1.36 `allocation_manager.go`, `allocation/handlers.go`; up to 1.35 `canResizePod`.

use std::cmp::Ordering;

use crate::kubelet::admission::{Admission, Exact};
use crate::kubelet::device_manager::Choice;
use crate::kubelet::pod::{Pod, PodUid};
use crate::kubelet::profile::{CpuManager, MemoryManager, Minor};
use crate::kubelet::rejection::Rejection;
use crate::kubelet::{Kubelet, NodeState};
use crate::request::{ContainerKind, Qos};
use crate::resource::ResourceName;

/// Why a resize waits (condition `PodResizePending`). Its text is the condition's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PendingReason {
    /// A Guaranteed pod's CPUs under the CPU manager's policy `static`.
    #[error("Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"")]
    ExclusiveCpus,
    /// A Guaranteed pod's memory under the memory manager's policy `Static`.
    #[error("Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"")]
    PinnedMemory,
    /// More than the node has (up to 1.35).
    #[error("Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}")]
    BeyondCapacity {
        /// CPU or memory.
        resource: ResourceName,
        /// The amount asked for, in base units.
        requested: i64,
        /// The amount of the node, in base units.
        capacity: i64,
    },
    /// An admission with the new amounts would be rejected now.
    #[error(transparent)]
    Deferred(#[from] Rejection),
}

impl PendingReason {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        if self.is_deferred() { "Deferred" } else { "Infeasible" }
    }

    /// Whether the kubelet tries again.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        matches!(self, Self::Deferred(_))
    }
}

/// Resizes a pod, if the kubelet would. `allocated` and `desired` are the same pod. `choice` decides nothing, since
/// devices do not change.
///
/// Cost: as an admission.
///
/// # Errors
/// [`PendingReason`]; the pod keeps what it has.
pub fn resize(
    kubelet: &Kubelet,
    state: &mut NodeState,
    allocated: &Pod,
    desired: &Pod,
    choice: &dyn Choice,
) -> Result<(), PendingReason> {
    check_pinned(kubelet, allocated, desired)?;
    if kubelet.profile().minor < Minor::V36 {
        check_capacity(kubelet, desired)?;
    }
    let managers = Exact { kubelet, state, pod: desired, choice, ready: true, resizes: true, release: None };
    Admission { kubelet, pod: desired, managers }.admit()?;
    Ok(())
}

fn check_pinned(kubelet: &Kubelet, allocated: &Pod, desired: &Pod) -> Result<(), PendingReason> {
    if desired.qos != Qos::Guaranteed {
        return Ok(());
    }
    let changes = |amount: fn(&crate::kubelet::pod::Container) -> crate::quantity::Quantity| {
        let pairs = allocated.containers.iter().zip(&desired.containers);
        pairs
            .filter(|(_, container)| container.kind != ContainerKind::Init)
            .any(|(before, after)| amount(before) != amount(after))
    };
    let profile = kubelet.profile();
    if profile.cpu_manager != CpuManager::None && changes(|container| container.requested_cpu) {
        return Err(PendingReason::ExclusiveCpus);
    }
    if profile.memory_manager != MemoryManager::None && changes(|container| container.requested_memory) {
        return Err(PendingReason::PinnedMemory);
    }
    Ok(())
}

fn check_capacity(kubelet: &Kubelet, desired: &Pod) -> Result<(), PendingReason> {
    let profile = kubelet.profile();
    let allocatable = profile.allocatable.iter().flatten();
    let cpus = allocatable.clone().find(|(name, _)| *name == ResourceName::CPU).map(|(_, amount)| *amount);
    let capacities = [(ResourceName::MEMORY, profile.unreserved_memory), (ResourceName::CPU, cpus)];
    for (resource, capacity) in capacities {
        let requested = desired.total(resource);
        if let Some(capacity) = capacity.filter(|capacity| requested > *capacity) {
            return Err(PendingReason::BeyondCapacity { resource, requested, capacity });
        }
    }
    Ok(())
}

/// Pods whose resize waits, in the order in which the kubelet tries again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeQueue(Vec<PodUid>);

impl ResizeQueue {
    /// Adds a pod, and sorts as the kubelet does: each time a pod comes, with a comparison that puts every resize that
    /// asks for nothing more before all others. `pods` gives a pod as allocated and as desired; pods that it does not
    /// know are dropped.
    ///
    /// Cost: square of the waiting pods. Priorities of pods are not looked at.
    pub fn push<'a>(&mut self, uid: &PodUid, pods: impl Fn(&PodUid) -> Option<(&'a Pod, &'a Pod)>) {
        if self.0.contains(uid) {
            return;
        }
        self.0.push(uid.clone());
        self.0.retain(|uid| pods(uid).is_some());
        let compare = |first: &PodUid, second: &PodUid| match (pods(first), pods(second)) {
            (Some(first), Some(second)) => order(first, second),
            _ => Ordering::Equal,
        };
        // Go sorts up to 12 items by insertion, and the comparison is no order: the algorithm matters.
        for end in 1..self.0.len() {
            let mut at = end;
            while at > 0 && compare(&self.0[at], &self.0[at - 1]) == Ordering::Less {
                self.0.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    /// Takes all pods out, first the one to try first.
    pub fn take(&mut self) -> Vec<PodUid> {
        std::mem::take(&mut self.0)
    }

    /// Keeps a pod for the next time, behind those already kept.
    pub fn keep(&mut self, uid: PodUid) {
        self.0.push(uid);
    }
}

/// kubelet `sortPendingResizes`, for pods of one priority that began to wait in the order of the queue.
fn order(first: (&Pod, &Pod), second: (&Pod, &Pod)) -> Ordering {
    if !increases(first) {
        return Ordering::Less;
    }
    let guaranteed = |(_, desired): (&Pod, &Pod)| desired.qos == Qos::Guaranteed;
    match (increases(second), guaranteed(first), guaranteed(second)) {
        (true, true, false) => Ordering::Less,
        _ => Ordering::Greater,
    }
}

/// kubelet `isResizeIncreasingRequests`.
fn increases((allocated, desired): (&Pod, &Pod)) -> bool {
    [ResourceName::CPU, ResourceName::MEMORY]
        .into_iter()
        .any(|name| desired.total(name) > allocated.total(name))
}
