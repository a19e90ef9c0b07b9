//! The kubelet's admission, CPU by CPU: what a given kubelet does with a pod.
//!
//! In: a machine, a kubelet's profile, what its managers have handed out, a pod. Out: the CPUs, bytes and devices that
//! each container gets, or the reason for which the kubelet rejects the pod. Never: I/O, a clock, or a choice between
//! nodes.
//!
//! A [`Kubelet`] is one configuration on one machine and never changes; a [`NodeState`] is what its managers know, and
//! [`admit`] changes it as the kubelet would. Each manager is a module: [`cpu_manager`], [`memory_manager`],
//! [`device_manager`], [`topology_manager`]; each names the kubelet's functions that it mirrors. `cargo xtask
//! differential` compares the whole with the kubelet's own packages. [`zone_table`] is the projection on counts by
//! zone, which answers most questions faster.
//!
//! # Example
//! One zone of two cores with two threads each; CPU 0 is reserved. An init container of one CPU and a container of two
//! hold three CPUs, not two.
//!
//! ```
//! use std::sync::Arc;
//! use topology::kubelet::machine::{Cpu, Machine, MachineZone};
//! use topology::kubelet::pod::Pod;
//! use topology::kubelet::profile::{CpuManager, CpuOptions, KubeletProfile, ReservedCpus};
//! use topology::kubelet::{Kubelet, NodeState, admit, device_manager::Lowest};
//! use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
//! use topology::resource::ResourceName;
//!
//! let cpu = |id| Cpu { id, core: id % 4, socket: 0, zone: 0, cache: 0 };
//! let zone = MachineZone { id: 0, memory: 1 << 30, ..MachineZone::default() };
//! let machine = Arc::new(Machine::new(vec![zone], &(0..8).map(cpu).collect::<Vec<_>>()).unwrap());
//! let cpu_manager = CpuManager::Static { options: CpuOptions::NONE, reserved: ReservedCpus::Count(1) };
//! let kubelet = Kubelet::new(machine, KubeletProfile { cpu_manager, ..KubeletProfile::default() }).unwrap();
//!
//! let container = |name: &str, kind, cpus: &str| {
//!     let requests = vec![(ResourceName::CPU, cpus.parse().unwrap())];
//!     ContainerRequest { name: name.into(), kind, limits: requests.clone(), requests }
//! };
//! let request = PodRequest {
//!     containers: vec![container("init", ContainerKind::Init, "1"), container("app", ContainerKind::App, "2")],
//!     stated_qos: Some(Qos::Guaranteed),
//!     ..PodRequest::default()
//! };
//! let mut state = kubelet.empty_state();
//! let pod = Pod::new(kubelet.profile(), "uid".into(), &request);
//! let allocation = admit(&kubelet, &mut state, &pod, &Lowest).unwrap();
//! assert_eq!(allocation.containers[0].cpus.to_string(), "4", "the other thread of the reserved core");
//! assert_eq!(allocation.containers[1].cpus.to_string(), "1,5");
//! assert_eq!(state.cpus.shared.to_string(), "0,2-3,6-7");
//! ```

mod admission;
pub mod alignment;
pub mod cpu_manager;
pub mod device_manager;
pub mod hint;
mod hint_source;
pub mod machine;
pub mod memory_manager;
pub mod pod;
pub mod profile;
pub mod rejection;
pub mod report;
pub mod resize;
pub mod start;
pub mod topology_manager;
mod totals;
pub mod zone_table;

use std::sync::Arc;

use crate::cpuset::CpuSet;
pub use crate::kubelet::admission::MidAdmissionRelease;
use crate::kubelet::admission::{Admission, Exact};
use crate::kubelet::cpu_manager::CpuState;
use crate::kubelet::device_manager::{Choice, DeviceState, HeldDevices, Registration};
use crate::kubelet::machine::Machine;
use crate::kubelet::memory_manager::{Block, MemoryState};
use crate::kubelet::pod::{Pod, PodUid};
use crate::kubelet::profile::{CpuManager, KubeletProfile, MemoryManager, Refusal};
use crate::kubelet::rejection::Rejection;

/// A kubelet that starts: a profile that its machine allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    machine: Arc<Machine>,
    profile: KubeletProfile,
    cpus: Option<cpu_manager::StaticPolicy>,
    memory: Option<memory_manager::StaticPolicy>,
}

/// What the managers of a kubelet know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeState {
    /// The CPU manager's.
    pub cpus: CpuState,
    /// The memory manager's.
    pub memory: MemoryState,
    /// The device manager's.
    pub devices: DeviceState,
    /// Pods that were admitted and have not ended, in the order of admission, with what they take from the totals.
    pub pods: Vec<totals::ActivePod>,
}

/// What a pod got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allocation {
    /// By container, in the order of admission.
    pub containers: Vec<ContainerAllocation>,
    /// The CPUs of the pod as a whole, under pod-level managers.
    pub cpus: CpuSet,
    /// The memory of the pod as a whole, under pod-level managers.
    pub memory: Vec<Block>,
}

/// What a container got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContainerAllocation {
    /// The container's name.
    pub name: Box<str>,
    /// Its exclusive CPUs; none if it runs on shared ones.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory: Vec<Block>,
    /// Its devices.
    pub devices: HeldDevices,
}

impl Kubelet {
    /// Starts a kubelet, as far as its managers are concerned.
    ///
    /// # Errors
    /// [`Refusal`] with the words with which the kubelet refuses to start.
    pub fn new(machine: Arc<Machine>, profile: KubeletProfile) -> Result<Self, Refusal> {
        profile.check(&machine)?;
        let cpus = match &profile.cpu_manager {
            CpuManager::None => None,
            CpuManager::Static { options, reserved } => Some(
                cpu_manager::StaticPolicy::new(machine.clone(), profile.minor, *options, reserved)
                    .map_err(|_| Refusal::reserved_cpus(&machine, reserved))?,
            ),
        };
        let memory = match &profile.memory_manager {
            MemoryManager::None => None,
            MemoryManager::Static { reserved } => {
                Some(memory_manager::StaticPolicy::new(machine.clone(), profile.minor, reserved.clone()))
            }
        };
        Ok(Self { machine, profile, cpus, memory })
    }

    /// The configuration.
    #[must_use]
    pub fn profile(&self) -> &KubeletProfile {
        &self.profile
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The CPUs that are kept for the system; none without the policy `static`.
    #[must_use]
    pub fn reserved_cpus(&self) -> CpuSet {
        self.cpus.as_ref().map(|cpus| cpus.reserved().clone()).unwrap_or_default()
    }

    /// The CPUs that a state has left for containers; `None` without the policy `static`.
    #[must_use]
    pub fn free_cpus(&self, state: &NodeState) -> Option<CpuSet> {
        self.cpus.as_ref().map(|cpus| cpus.available(&state.cpus))
    }

    /// The state of a kubelet that has handed out nothing. Devices are to be added.
    #[must_use]
    pub fn empty_state(&self) -> NodeState {
        NodeState {
            cpus: self.cpus.as_ref().map(cpu_manager::StaticPolicy::empty_state).unwrap_or_default(),
            memory: self.memory.as_ref().map(memory_manager::StaticPolicy::empty_state).unwrap_or_default(),
            ..NodeState::default()
        }
    }
}

/// Decides about a pod and changes the state accordingly. `choice` names devices where the kubelet has a choice. All
/// containers of an admitted pod count as started.
///
/// Cost: containers x resources x the sets of zones that [`merge`](topology_manager::merge) looks at.
///
/// # Errors
/// [`Rejection`] with the kubelet's reason and message; the state is then what the kubelet's next admission finds.
pub fn admit(
    kubelet: &Kubelet,
    state: &mut NodeState,
    pod: &Pod,
    choice: &dyn Choice,
) -> Result<Allocation, Rejection> {
    admit_with_release(kubelet, state, pod, choice, None)
}

/// The same while other pods end: between two containers of the pod.
///
/// # Errors
/// As [`admit`].
pub fn admit_with_release(
    kubelet: &Kubelet,
    state: &mut NodeState,
    pod: &Pod,
    choice: &dyn Choice,
    release: Option<MidAdmissionRelease<'_>>,
) -> Result<Allocation, Rejection> {
    let managers = Exact { kubelet, state, pod, choice, ready: true, resizes: false, release };
    let mut admission = Admission { kubelet, pod, managers };
    match admission.admit() {
        Ok(hint) => admission.start_devices(hint),
        Err(rejection) => {
            state.remove(&pod.uid);
            return Err(rejection);
        }
    }
    let allocation = state.allocation(pod);
    state.memory.release_init_containers(pod);
    Ok(allocation)
}

impl NodeState {
    /// A pod has ended, was deleted, or was rejected. It counts no more, but each manager keeps what the pod holds
    /// until it is asked the next time.
    pub fn remove(&mut self, uid: &str) {
        self.pods.retain(|pod| &*pod.uid != uid);
        self.cpus.stale.push(uid.into());
        self.memory.stale.push(uid.into());
        self.devices.stale.push(uid.into());
    }

    /// Takes over what a container is known to hold, without an admission. The managers then know it, as after a start.
    pub fn hold(&mut self, uid: &PodUid, held: ContainerAllocation) {
        let ContainerAllocation { name, cpus, memory, devices } = held;
        self.cpus.shared.remove_all(&cpus);
        memory.iter().for_each(|block| self.memory.counts.reserve(*block));
        if !cpus.is_empty() {
            self.cpus.hold(uid, &name, cpus);
        }
        if !memory.is_empty() {
            self.memory.hold(uid, &name, memory);
        }
        for (resource, ids) in devices {
            self.devices.hold(uid, &name, resource, ids);
        }
    }

    /// Whether a manager keeps what an ended pod held.
    pub(crate) fn has_stale(&self) -> bool {
        let stale = [&self.cpus.stale, &self.memory.stale, &self.devices.stale];
        stale.into_iter().any(|stale| !stale.is_empty())
    }

    /// All managers give back what ended pods hold (kubelet `removeStaleState`, `UpdateAllocatedDevices`).
    pub fn sweep(&mut self) {
        self.cpus.sweep();
        self.memory.sweep();
        self.devices.sweep();
    }

    /// The kubelet restarts: what it keeps in memory only is gone, and it admits its pods again, in the order of their
    /// creation. Returns the pods that it rejects now. Meanwhile nothing is swept. Memory of finished init containers
    /// is taken once more, as in the kubelet. `plugins` says when device plugins register.
    ///
    /// # Errors
    /// [`Refusal`] if the kubelet does not start with what its managers hold.
    pub fn restart<'a>(
        &mut self,
        kubelet: &Kubelet,
        pods: impl IntoIterator<Item = &'a Pod>,
        plugins: Registration,
        choice: &dyn Choice,
    ) -> Result<Vec<(PodUid, Rejection)>, Refusal> {
        kubelet.cpus.iter().try_for_each(|cpus| cpus.check(&self.cpus))?;
        kubelet.memory.iter().try_for_each(|memory| memory.check(&self.memory))?;
        self.cpus.restart();
        self.memory.restart();
        self.devices.restart();
        self.pods.clear();
        let later = (plugins == Registration::AfterPods).then(|| self.devices.forget_lists());
        let mut rejected = Vec::new();
        for pod in pods {
            let managers =
                Exact { kubelet, state: self, pod, choice, ready: false, resizes: false, release: None };
            if let Err(rejection) = (Admission { kubelet, pod, managers }).admit() {
                self.remove(&pod.uid);
                rejected.push((pod.uid.clone(), rejection));
            }
        }
        if let Some(resources) = later {
            self.devices.resources = resources;
        }
        Ok(rejected)
    }

    /// What a pod holds.
    #[must_use]
    pub fn allocation(&self, pod: &Pod) -> Allocation {
        let containers = pod.containers.iter().map(|container| ContainerAllocation {
            name: container.name.clone(),
            cpus: self.cpus.held(&pod.uid, &container.name).cloned().unwrap_or_default(),
            memory: self.memory.held(&pod.uid, &container.name).unwrap_or_default().to_vec(),
            devices: self.devices.held_by_container(&pod.uid, &container.name),
        });
        let whole_cpus = self.cpus.pods.iter().find(|held| held.uid == pod.uid);
        let whole_memory = self.memory.pods.iter().find(|held| held.uid == pod.uid);
        Allocation {
            containers: containers.collect(),
            cpus: whole_cpus.and_then(|held| held.whole.clone()).unwrap_or_default(),
            memory: whole_memory.and_then(|held| held.whole.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
