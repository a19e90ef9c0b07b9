//! The resources a pod asks for, container by container.
//!
//! In: the requests and limits of a pod spec (`api::convert` fills them from the wire). Out: the QoS class, the amounts
//! charged to the node's totals, and the amounts the kubelet aligns. Sources: kubelet 1.36 `qos`, `cpumanager`,
//! `memorymanager`, `devicemanager`; component-helpers `resource` for totals.
//!
//! # Example
//! ```
//! use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
//! use topology::resource::ResourceName;
//!
//! let container = |kind, cpu: &str| {
//!     let amounts = vec![(ResourceName::CPU, cpu.parse().unwrap())];
//!     ContainerRequest { name: "c".into(), kind, requests: amounts.clone(), limits: amounts }
//! };
//! let containers = vec![container(ContainerKind::Init, "4"), container(ContainerKind::App, "1500m")];
//! let needs = PodRequest { containers, ..PodRequest::default() }.needs();
//!
//! assert_eq!(needs.qos, Qos::Burstable, "no memory limits");
//! assert_eq!(needs.totals[0].amount, 4_000, "the init phase needs more than the running pod");
//! assert!(needs.containers[0].needs[0].is_whole() && !needs.containers[1].needs[0].is_whole());
//! ```

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::kubelet::pod::Pod;
use crate::kubelet::profile::KubeletProfile;
use crate::quantity::Quantity;
use crate::resource::{MILLI_CPUS, ResourceKind, ResourceName};

/// The role of a container in the pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Runs to completion before the next starts; its resources are reused by later containers.
    Init,
    /// An init container with `restartPolicy: Always`; keeps running beside the app containers.
    Sidecar,
    /// A regular container.
    App,
}

/// One container's resources as the spec states them (requests already defaulted from limits by the API server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    /// The container's name, for reasons.
    pub name: Box<str>,
    /// The container's role.
    pub kind: ContainerKind,
    /// `resources.requests`, ordered by name, each name once.
    pub requests: Vec<(ResourceName, Quantity)>,
    /// `resources.limits`, ordered by name, each name once.
    pub limits: Vec<(ResourceName, Quantity)>,
}

/// A pod's resources: containers in the order the kubelet admits them (init containers, then app containers).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequest {
    /// Init containers and sidecars in spec order, then app containers in spec order.
    pub containers: Vec<ContainerRequest>,
    /// `spec.overhead`.
    pub overhead: Vec<(ResourceName, Quantity)>,
    /// `status.qosClass`, if the API server has set it.
    pub stated_qos: Option<Qos>,
    /// `spec.resources.requests`: replaces the containers' sum in the totals.
    pub pod_level: Vec<(ResourceName, Quantity)>,
    /// `spec.resources.limits`: with the requests they decide the QoS class alone.
    pub pod_level_limits: Vec<(ResourceName, Quantity)>,
}

/// Quality-of-service class of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Qos {
    /// Every container has equal requests and limits for cpu and memory.
    Guaranteed,
    /// Some cpu or memory is requested or limited, but not as for Guaranteed.
    Burstable,
    /// No cpu or memory anywhere.
    #[default]
    BestEffort,
}

/// An amount of a resource in base units ([`ResourceName::base_units`]), rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Need {
    /// The resource.
    pub name: ResourceName,
    /// The amount; never negative.
    pub amount: i64,
}

impl Need {
    /// Whether the amount is a whole number of units. The CPU manager pins only containers whose cpu is integral
    /// (kubelet 1.36 `cpumanager.guaranteedCPUs`).
    #[must_use]
    pub fn is_whole(self) -> bool {
        // By a constant, which takes a fraction of the time.
        self.name != ResourceName::CPU || self.amount % MILLI_CPUS == 0
    }
}

/// One container's needs, ready for admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerNeeds {
    /// The container's name.
    pub name: Box<str>,
    /// The container's role.
    pub kind: ContainerKind,
    /// Non-zero requests in name order.
    pub needs: Vec<Need>,
}

/// A pod's needs in base units, computed once per pod and read by every admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNeeds {
    /// QoS class.
    pub qos: Qos,
    /// Containers in admission order.
    pub containers: Vec<ContainerNeeds>,
    /// What the pod takes from the node's totals: the larger of init phase and running phase, plus overhead.
    pub totals: Vec<Need>,
    /// What pod scope aligns: the larger of init phase and running phase, without overhead.
    pub pod_scope: Vec<Need>,
    /// `spec.overhead`, which is part of `totals`.
    pub overhead: Vec<Need>,
    /// The CPU part of `pod_scope`, over containers that ask for whole CPUs only: the CPU manager ignores all others.
    pub pod_scope_whole_cpu: i64,
    /// The pod as the managers of a kubelet see it, without a UID. Resources of the pod as a whole are not managed.
    pub pod: Arc<Pod>,
}

impl Hash for PodNeeds {
    /// The pod for the managers is of the same request, and adds nothing.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { qos, containers, totals, pod_scope, overhead, pod_scope_whole_cpu, pod: _ } = self;
        (qos, containers, totals, pod_scope, overhead, pod_scope_whole_cpu).hash(state);
    }
}

impl PodNeeds {
    /// Whether a container asks for more of something than the container at the same place of another pod.
    #[must_use]
    pub fn asks_more_than(&self, other: &Self) -> bool {
        let more = |(one, other): (&ContainerNeeds, &ContainerNeeds)| {
            let before =
                |name| other.needs.iter().find(|need| need.name == name).map_or(0, |need| need.amount);
            one.needs.iter().any(|need| need.amount > before(need.name))
        };
        self.containers.len() > other.containers.len()
            || self.containers.iter().zip(&other.containers).any(more)
    }

    /// Whether any kubelet, whatever its settings, could have to align the pod.
    #[must_use]
    pub fn may_align(&self) -> bool {
        let guaranteed = self.qos == Qos::Guaranteed;
        let aligned = |need: &Need| match need.name.kind() {
            ResourceKind::Cpu => guaranteed && need.is_whole(),
            ResourceKind::Memory => guaranteed,
            ResourceKind::Device => true,
            ResourceKind::Host => false,
        };
        self.containers.iter().flat_map(|container| &container.needs).any(aligned)
    }
}

impl ContainerKind {
    /// Whether the container is still there once the pod runs. Only such containers are reported by podresources.
    #[must_use]
    pub fn keeps_running(self) -> bool {
        matches!(self, Self::Sidecar | Self::App)
    }
}

impl PodRequest {
    /// The QoS class: the one the API server stated; otherwise computed as the kubelet does, over all containers, from
    /// CPU and memory amounts above zero.
    #[must_use]
    pub fn qos(&self) -> Qos {
        self.stated_qos.unwrap_or_else(|| self.computed_qos())
    }

    fn computed_qos(&self) -> Qos {
        let lists: Vec<(&[_], &[_])> = if self.pod_level.is_empty() && self.pod_level_limits.is_empty() {
            self.containers.iter().map(|container| (&*container.requests, &*container.limits)).collect()
        } else {
            vec![(&*self.pod_level, &*self.pod_level_limits)]
        };
        let counted = |list: &[(ResourceName, Quantity)], name| {
            list.iter().find(|(n, q)| *n == name && q.value() > 0).map(|(_, q)| *q)
        };
        let mut any = false;
        let mut guaranteed = true;
        for (requests, limits) in lists {
            for name in [ResourceName::CPU, ResourceName::MEMORY] {
                let (request, limit) = (counted(requests, name), counted(limits, name));
                any |= request.is_some() || limit.is_some();
                // A request of zero is none, and no request is no limit (component-helpers 1.36 `qos`).
                guaranteed &= limit.is_some() && request == limit;
            }
        }
        match (any, guaranteed) {
            (false, _) => Qos::BestEffort,
            (true, true) => Qos::Guaranteed,
            (true, false) => Qos::Burstable,
        }
    }

    /// The pod's needs in base units. Negative amounts, which the API server refuses, count as zero. Compute this once
    /// per pod; cost: containers x resources.
    #[must_use]
    pub fn needs(&self) -> PodNeeds {
        let containers = self.container_needs();
        let pod_scope = effective(&containers);
        let pod_scope_whole_cpu = whole_cpu(&containers);
        let pod = Arc::new(Pod::new(&KubeletProfile::default(), "".into(), self));
        let totals = pod.totals.clone();
        let overhead = needs_of(&self.overhead);
        PodNeeds { qos: pod.qos, containers, totals, pod_scope, overhead, pod_scope_whole_cpu, pod }
    }

    fn container_needs(&self) -> Vec<ContainerNeeds> {
        let needs = |c: &ContainerRequest| ContainerNeeds {
            name: c.name.clone(),
            kind: c.kind,
            needs: needs_of(&c.requests),
        };
        self.containers.iter().map(needs).collect()
    }

    /// What the pod takes from the node's totals; see [`PodNeeds::totals`].
    pub(crate) fn totals(&self) -> Vec<Need> {
        let mut totals = effective(&self.container_needs());
        for need in needs_of(&self.pod_level) {
            totals.retain(|sum| sum.name != need.name);
            add(&mut totals, need);
        }
        for need in needs_of(&self.overhead) {
            add(&mut totals, need);
        }
        totals
    }
}

/// The larger of the init phase and the running phase, per resource. Each init container runs beside the sidecars
/// started before it; the running pod is all sidecars and app containers (KEP-753; kubelet 1.36 and kube-scheduler
/// agree).
fn effective(containers: &[ContainerNeeds]) -> Vec<Need> {
    let mut running: Vec<Need> = Vec::new();
    let mut peak: Vec<Need> = Vec::new();
    for container in containers {
        match container.kind {
            ContainerKind::Sidecar | ContainerKind::App => {
                container.needs.iter().for_each(|need| add(&mut running, *need));
            }
            ContainerKind::Init => {
                let mut now = running.clone();
                container.needs.iter().for_each(|need| add(&mut now, *need));
                raise(&mut peak, &now);
            }
        }
    }
    raise(&mut peak, &running);
    peak
}

/// kubelet 1.36 `cpumanager.podGuaranteedCPUs`: as [`effective`], over whole CPUs only.
fn whole_cpu(containers: &[ContainerNeeds]) -> i64 {
    let whole: Vec<_> = containers
        .iter()
        .map(|c| ContainerNeeds {
            name: c.name.clone(),
            kind: c.kind,
            needs: c.needs.iter().copied().filter(|n| n.name == ResourceName::CPU && n.is_whole()).collect(),
        })
        .collect();
    effective(&whole).first().map_or(0, |need| need.amount)
}

fn needs_of(list: &[(ResourceName, Quantity)]) -> Vec<Need> {
    let amount = |name: ResourceName, q: &Quantity| {
        if name == ResourceName::CPU { q.milli_value() } else { q.value() }
    };
    let mut needs: Vec<_> = list
        .iter()
        .map(|(name, q)| Need { name: *name, amount: amount(*name, q) })
        .filter(|n| n.amount > 0)
        .collect();
    needs.sort_unstable_by_key(|n| n.name);
    needs
}

fn add(list: &mut Vec<Need>, need: Need) {
    match list.binary_search_by_key(&need.name, |n| n.name) {
        Ok(at) => list[at].amount = list[at].amount.saturating_add(need.amount),
        Err(at) => list.insert(at, need),
    }
}

fn raise(list: &mut Vec<Need>, other: &[Need]) {
    for need in other {
        match list.binary_search_by_key(&need.name, |n| n.name) {
            Ok(at) => list[at].amount = list[at].amount.max(need.amount),
            Err(at) => list.insert(at, *need),
        }
    }
}
