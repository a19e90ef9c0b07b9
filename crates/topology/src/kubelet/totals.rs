//! The node's totals, which the kubelet checks after its managers have handed out what they have.
//!
//! In: what the node may give, what its pods ask for. Out: nothing, or the first resource that is short (`OutOfcpu` and
//! kin). Source: kubelet 1.36 `lifecycle/predicate.go`, kube-scheduler 1.36 `noderesources.fitsRequest`.

use crate::kubelet::pod::{Pod, PodUid};
use crate::kubelet::rejection::Rejection;
use crate::kubelet::{Kubelet, NodeState};
use crate::request::Need;
use crate::resource::{ResourceKind, ResourceName};

/// A pod that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ActivePod {
    /// The pod.
    pub uid: PodUid,
    /// What it takes from the totals, in base units.
    pub totals: Vec<Need>,
}

/// What the totals of a node are, without one pod.
pub(crate) trait Totals {
    /// The number of other pods.
    fn pods(&self) -> i64;

    /// What other pods take of a resource.
    fn used(&self, name: ResourceName) -> i64;

    /// The devices of a resource that a plugin serves, `None` for all others.
    fn devices(&self, name: ResourceName) -> Option<i64>;
}

/// Cost: resources of the pod x that of [`Totals::used`].
///
/// # Errors
/// [`Rejection::OutOf`] for the first resource that is short.
pub(crate) fn check_totals(kubelet: &Kubelet, pod: &Pod, totals: &impl Totals) -> Result<(), Rejection> {
    let Some(allocatable) = &kubelet.profile().allocatable else { return Ok(()) };
    let capacity = |name: ResourceName| {
        let listed = || allocatable.iter().find(|(of, _)| *of == name).map(|(_, amount)| *amount);
        totals.devices(name).or_else(listed)
    };
    let short = |resource, requested, capacity: i64, used: i64| {
        let is_short = requested > capacity.saturating_sub(used);
        is_short.then_some(Rejection::OutOf { resource, requested, used, capacity }).map_or(Ok(()), Err)
    };
    if let Some(most) = capacity(ResourceName::PODS) {
        short(ResourceName::PODS, 1, most, totals.pods())?;
    }
    for need in in_order(&pod.totals) {
        let amount = match capacity(need.name) {
            Some(amount) => amount,
            // Resources that the node does not know are left to others, such as cluster-level ones. What the profile
            // does not say of the host, such as its storage, is not checked.
            None if matches!(need.name.kind(), ResourceKind::Device | ResourceKind::Host) => continue,
            None => 0,
        };
        short(need.name, need.amount, amount, totals.used(need.name))?;
    }
    Ok(())
}

/// What the pods of a node take.
struct Others<'a> {
    state: &'a NodeState,
    pod: &'a Pod,
}

impl Others<'_> {
    fn all(&self) -> impl Iterator<Item = &ActivePod> {
        self.state.pods.iter().filter(|other| other.uid != self.pod.uid)
    }
}

impl Totals for Others<'_> {
    fn pods(&self) -> i64 {
        i64::try_from(self.all().count()).unwrap_or(i64::MAX)
    }

    fn used(&self, name: ResourceName) -> i64 {
        let amount =
            |totals: &[Need]| totals.iter().find(|need| need.name == name).map_or(0, |need| need.amount);
        self.all().map(|other| amount(&other.totals)).fold(0, i64::saturating_add)
    }

    fn devices(&self, name: ResourceName) -> Option<i64> {
        let devices = &self.state.devices;
        let resource = devices.resources.get(&name)?;
        let healthy = resource.devices.values().filter(|device| device.healthy).count();
        // A pod that has devices already finds at least what is in use (kubelet `UpdatePluginResources`).
        let has_devices = devices.pods.iter().any(|held| held.uid == self.pod.uid);
        let raised = if has_devices { devices.in_use(name).len() } else { 0 };
        Some(i64::try_from(healthy.max(raised)).unwrap_or(i64::MAX))
    }
}

impl NodeState {
    /// A pod counts from now on, or with other amounts.
    pub(crate) fn remember(&mut self, pod: &Pod) {
        match self.pods.iter_mut().find(|active| active.uid == pod.uid) {
            Some(active) => active.totals.clone_from(&pod.totals),
            None => self.pods.push(ActivePod { uid: pod.uid.clone(), totals: pod.totals.clone() }),
        }
    }

    /// Cost: pods on the node x resources of the pod.
    pub(crate) fn check_totals(&self, kubelet: &Kubelet, pod: &Pod) -> Result<(), Rejection> {
        check_totals(kubelet, pod, &Others { state: self, pod })
    }
}

/// CPU, memory, ephemeral storage, then all others by name, in which order they come in any case.
fn in_order(totals: &[Need]) -> impl Iterator<Item = &Need> {
    const FIRST: [ResourceName; 3] =
        [ResourceName::CPU, ResourceName::MEMORY, ResourceName::EPHEMERAL_STORAGE];
    let first = FIRST.into_iter().filter_map(|name| totals.iter().find(|need| need.name == name));
    let rest = totals.iter().filter(|need| !FIRST.contains(&need.name));
    first.chain(rest).filter(|need| need.amount > 0)
}
