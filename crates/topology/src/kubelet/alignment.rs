//! How well an allocation is aligned.
//!
//! In: what a pod got, and the machine. Out: whether it is spread over more zones than it needs. Never: what was free
//! at the time: an empty machine is the measure.

mod held_resources;

pub use held_resources::{HeldResources, fewest_zones_for};

use crate::kubelet::{Allocation, ContainerAllocation, Kubelet, NodeState};
use crate::policy::Scope;

/// Whether a pod's resources are close to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Each container, or the pod in the scope `pod`, has what it holds from as few zones as on an empty machine; or it
    /// holds nothing.
    Aligned,
    /// From more zones. The policies `best-effort` and `none` admit that.
    Misaligned,
}

impl Alignment {
    /// The alignment of an allocation in the scope of the kubelet. Cost: CPUs, and zones x resources.
    #[must_use]
    pub fn of(kubelet: &Kubelet, state: &NodeState, allocation: &Allocation) -> Self {
        let is_spread = |containers: &[ContainerAllocation]| {
            let held = HeldResources::of(kubelet, state, containers);
            held.zones().len() > held.fewest_zones()
        };
        let misaligned = match kubelet.profile().scope {
            Scope::Pod => is_spread(&allocation.containers),
            Scope::Container => allocation.containers.chunks(1).any(is_spread),
        };
        if misaligned { Self::Misaligned } else { Self::Aligned }
    }
}
