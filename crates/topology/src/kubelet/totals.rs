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
        let Some(allocatable) = &kubelet.profile().allocatable else { return Ok(()) };
        let capacity = |name: ResourceName| match self.devices.resources.get(&name) {
            Some(resource) => {
                let healthy = resource.devices.values().filter(|device| device.healthy).count();
                let raised = if self.has_devices(pod) { self.devices.in_use(name).len() } else { 0 };
                Some(i64::try_from(healthy.max(raised)).unwrap_or(i64::MAX))
            }
            None => allocatable.iter().find(|(of, _)| *of == name).map(|(_, amount)| *amount),
        };
        let others = || self.pods.iter().filter(|other| other.uid != pod.uid);
        let short = |name, requested, used: i64| {
            let capacity = capacity(name).unwrap_or(0);
            (requested > capacity.saturating_sub(used)).then_some(Rejection::OutOf {
                resource: name,
                requested,
                used,
                capacity,
            })
        };
        if capacity(ResourceName::PODS).is_some() {
            let count = i64::try_from(others().count()).unwrap_or(i64::MAX);
            short(ResourceName::PODS, 1, count).map_or(Ok(()), Err)?;
        }
        for name in in_order(&pod.totals) {
            let amount =
                |totals: &[Need]| totals.iter().find(|need| need.name == name).map_or(0, |need| need.amount);
            // Resources that the node does not know are left to others, such as cluster-level ones. What the profile
            // does not say of the host, such as its storage, is not checked.
            if matches!(name.kind(), ResourceKind::Device | ResourceKind::Host) && capacity(name).is_none() {
                continue;
            }
            let used = others().map(|other| amount(&other.totals)).fold(0, i64::saturating_add);
            short(name, pod.total(name), used).map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// A pod that has devices already finds at least what is in use (kubelet `UpdatePluginResources`).
    fn has_devices(&self, pod: &Pod) -> bool {
        self.devices.pods.iter().any(|held| held.uid == pod.uid)
    }
}

/// CPU, memory, ephemeral storage, then all others by name.
fn in_order(totals: &[Need]) -> Vec<ResourceName> {
    let rank = |name: ResourceName| match name {
        ResourceName::CPU => 0,
        ResourceName::MEMORY => 1,
        ResourceName::EPHEMERAL_STORAGE => 2,
        _ => 3,
    };
    let mut names: Vec<_> = totals.iter().filter(|need| need.amount > 0).map(|need| need.name).collect();
    names.sort_by_key(|name| (rank(*name), *name));
    names
}
