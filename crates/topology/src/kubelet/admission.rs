//! The order in which a kubelet asks its managers about a pod.
//!
//! In: a kubelet, a pod, and what the managers have handed out: exactly ([`Exact`]), or as counts
//! ([`crate::kubelet::zone_table`]). Out: the pod has what it gets, or the first reason against it. Never: the choice
//! of a CPU, a zone or a device.
//!
//! Source: kubelet 1.34 to 1.37 `topologymanager/scope_*.go`, `NewMainKubelet`.

use crate::kubelet::cpu_manager::{self, empty_shared_pool};
use crate::kubelet::device_manager::Choice;
use crate::kubelet::hint::Hint;
use crate::kubelet::hint_source::{HintList, Source};
use crate::kubelet::pod::{Container, Pod, PodUid};
use crate::kubelet::profile::Minor;
use crate::kubelet::rejection::Rejection;
use crate::kubelet::topology_manager::{Hints, merge};
use crate::kubelet::{Kubelet, NodeState, memory_manager};
use crate::policy::{Policy, Scope};
use crate::request::Qos;

/// What is asked for: the resources of one container, or of the pod as a whole.
pub(crate) type Asker<'a> = Option<&'a Container>;

/// The managers of a kubelet with what they have handed out.
pub(crate) trait Managers {
    /// Why an admission ends early.
    type Stop: From<Rejection>;

    /// Whether they only look on: CPUs, memory and devices stay as they are.
    fn is_idle(&self) -> bool {
        false
    }

    /// Gives back what ended pods hold.
    fn sweep(&mut self);

    /// The container of this number is next.
    fn begin(&mut self, _number: usize) {}

    /// Adds one item for each resource that a plugin serves.
    fn device_hints<'a>(&'a self, asker: Asker<'a>, hints: &mut HintList<'a>);

    fn cpu_hints<'a>(&'a self, cpus: &'a cpu_manager::StaticPolicy, asker: Asker<'a>) -> Hints<Source<'a>>;

    fn memory_hints<'a>(
        &'a self,
        memory: &'a memory_manager::StaticPolicy,
        asker: Asker<'a>,
    ) -> Hints<Source<'a>>;

    /// The alignment, if the policy admits one.
    fn merge(&self, hints: &mut HintList<'_>) -> Result<Option<Hint>, Self::Stop>;

    fn allocate_devices(&mut self, container: &Container, hint: Hint) -> Result<(), Self::Stop>;

    fn allocate_cpus(
        &mut self,
        cpus: Option<&cpu_manager::StaticPolicy>,
        asker: Asker<'_>,
        hint: Hint,
    ) -> Result<(), Self::Stop>;

    fn allocate_memory(
        &mut self,
        memory: Option<&memory_manager::StaticPolicy>,
        asker: Asker<'_>,
        hint: Hint,
    ) -> Result<(), Self::Stop>;

    /// The node's totals.
    fn check_totals(&self) -> Result<(), Self::Stop>;
}

/// One admission.
pub(crate) struct Admission<'a, M> {
    pub kubelet: &'a Kubelet,
    pub pod: &'a Pod,
    pub managers: M,
}

impl<M: Managers> Admission<'_, M> {
    /// The managers first, then the node's totals (kubelet 1.36 `NewMainKubelet`, the order of `admitHandlers`).
    /// Returns the alignment of the pod as a whole; none under the scope `container`.
    pub(crate) fn run(&mut self) -> Result<Hint, M::Stop> {
        let hint = self.align()?;
        self.managers.check_totals()?;
        Ok(hint)
    }

    /// kubelet `scope.Admit`, by scope.
    fn align(&mut self) -> Result<Hint, M::Stop> {
        let (profile, pod) = (&self.kubelet.profile, self.pod);
        // For hints each manager is asked first, and sweeps. Without hints it does so when it is asked for resources.
        if profile.policy != Policy::None {
            self.managers.sweep();
        }
        let mut whole = Hint::default();
        match (profile.policy, profile.scope) {
            (Policy::None, _) => self.allocate_all(whole)?,
            (_, Scope::Pod) if self.is_pod_level() => {
                let hint = self.pod_hint()?;
                whole = hint.ok_or(Rejection::PodTopologyAffinity { pod_scope: true })?;
                self.allocate_pod(whole)?;
            }
            (_, Scope::Pod) => {
                whole = self.pod_hint()?.ok_or(Rejection::TopologyAffinity)?;
                self.allocate_all(whole)?;
            }
            (_, Scope::Container) => {
                for (number, container) in pod.containers.iter().enumerate() {
                    self.managers.begin(number);
                    let hint = self.container_hint(container)?;
                    self.allocate(container, hint.ok_or_else(|| self.misaligned())?)?;
                }
            }
        }
        Ok(whole)
    }

    pub(crate) fn is_pod_level(&self) -> bool {
        self.kubelet.profile.pod_level_managers && self.pod.pod_level
    }

    fn is_managed(&self) -> bool {
        !self.pod.is_left_alone(&self.kubelet.profile) && !self.managers.is_idle()
    }

    fn misaligned(&self) -> Rejection {
        if self.is_pod_level() {
            Rejection::PodTopologyAffinity { pod_scope: false }
        } else {
            Rejection::TopologyAffinity
        }
    }

    fn allocate_all(&mut self, hint: Hint) -> Result<(), M::Stop> {
        self.pod.containers.iter().enumerate().try_for_each(|(number, container)| {
            self.managers.begin(number);
            self.allocate(container, hint)
        })
    }

    /// Devices, CPUs, memory: the order in which the kubelet adds its hint providers.
    fn allocate(&mut self, container: &Container, hint: Hint) -> Result<(), M::Stop> {
        self.managers.allocate_devices(container, hint)?;
        let (kubelet, managed) = (self.kubelet, self.is_managed());
        let cpus = kubelet.cpus.as_ref().filter(|_| managed);
        self.managers.allocate_cpus(cpus, Some(container), hint)?;
        let memory = kubelet.memory.as_ref().filter(|_| managed);
        self.managers.allocate_memory(memory, Some(container), hint)
    }

    /// The device manager hands out nothing to pods as a whole.
    fn allocate_pod(&mut self, hint: Hint) -> Result<(), M::Stop> {
        let (kubelet, managed) = (self.kubelet, self.is_managed());
        self.managers.allocate_cpus(kubelet.cpus.as_ref().filter(|_| managed), None, hint)?;
        self.managers.allocate_memory(kubelet.memory.as_ref().filter(|_| managed), None, hint)
    }

    fn container_hint(&self, container: &Container) -> Result<Option<Hint>, M::Stop> {
        let Self { kubelet, managers, .. } = self;
        let mut hints = HintList::new();
        managers.device_hints(Some(container), &mut hints);
        if self.is_managed() {
            if let Some(cpus) = &kubelet.cpus {
                hints.push(managers.cpu_hints(cpus, Some(container)));
            }
            if let Some(memory) = &kubelet.memory {
                hints.push(managers.memory_hints(memory, Some(container)));
            }
        }
        managers.merge(&mut hints)
    }

    fn pod_hint(&self) -> Result<Option<Hint>, M::Stop> {
        let Self { kubelet, pod, managers } = self;
        let mut hints = HintList::new();
        managers.device_hints(None, &mut hints);
        if self.is_managed() {
            if let Some(cpus) = &kubelet.cpus {
                hints.push(match pod.cpus {
                    0 => Hints::Any,
                    _ if self.is_pod_level() && empty_shared_pool(pod).is_some() => Hints::Impossible,
                    _ => managers.cpu_hints(cpus, None),
                });
            }
            if let Some(memory) = &kubelet.memory {
                let has_memory = pod.memory.as_ref().is_some_and(|amounts| !amounts.is_empty());
                let is_empty = || self.is_pod_level() && memory_manager::empty_shared_pool(pod).is_some();
                hints.push(if pod.qos == Qos::Guaranteed && has_memory && is_empty() {
                    Hints::Impossible
                } else {
                    managers.memory_hints(memory, None)
                });
            }
        }
        managers.merge(&mut hints)
    }
}

/// Pods that end while another one is admitted. Managers take back what they held when they are asked about the next
/// container (kubelet 1.36 `removeStaleState` in `GetTopologyHints` and `Allocate` of CPU and memory manager).
#[derive(Clone, Copy, Debug)]
pub struct MidAdmissionRelease<'a> {
    /// The number of the container that is asked about next.
    pub before: usize,
    /// The pods.
    pub pods: &'a [PodUid],
}

/// The managers of one kubelet, id by id.
pub(crate) struct Exact<'a> {
    pub kubelet: &'a Kubelet,
    pub state: &'a mut NodeState,
    pub pod: &'a Pod,
    pub choice: &'a dyn Choice,
    /// Managers may give back what ended pods hold. Not so while a restarted kubelet does not know its pods yet.
    pub ready: bool,
    /// The pod is there already, and is resized.
    pub resizes: bool,
    /// Pods that end during the admission.
    pub release: Option<MidAdmissionRelease<'a>>,
}

impl Managers for Exact<'_> {
    type Stop = Rejection;

    /// Since 1.37 CPU, memory and device manager do nothing about a resize (`lifecycle.ResizeOperation`).
    fn is_idle(&self) -> bool {
        self.resizes && self.kubelet.profile.minor >= Minor::V37
    }

    fn sweep(&mut self) {
        if self.ready {
            self.state.sweep();
        }
    }

    fn begin(&mut self, number: usize) {
        let ended = self.release.filter(|release| release.before == number);
        for uid in ended.into_iter().flat_map(|release| release.pods) {
            self.state.remove(uid);
        }
        if ended.is_some() {
            self.state.sweep();
        }
    }

    fn device_hints<'a>(&'a self, asker: Asker<'a>, hints: &mut HintList<'a>) {
        let (minor, zones) = (self.kubelet.profile.minor, self.kubelet.machine.zone_mask());
        match asker {
            Some(container) => {
                self.state.devices.container_hints(minor, zones, self.pod, container, hints);
            }
            None => self.state.devices.pod_hints(minor, zones, self.pod, hints),
        }
    }

    fn cpu_hints<'a>(&'a self, cpus: &'a cpu_manager::StaticPolicy, asker: Asker<'a>) -> Hints<Source<'a>> {
        match asker {
            Some(container) => cpus.container_hints(&self.state.cpus, self.pod, container),
            None => cpus.pod_hints(&self.state.cpus, self.pod),
        }
    }

    fn memory_hints<'a>(
        &'a self,
        memory: &'a memory_manager::StaticPolicy,
        asker: Asker<'a>,
    ) -> Hints<Source<'a>> {
        match asker {
            Some(container) => memory.container_hints(&self.state.memory, self.pod, container),
            None => memory.pod_hints(&self.state.memory, self.pod),
        }
    }

    fn merge(&self, hints: &mut HintList<'_>) -> Result<Option<Hint>, Rejection> {
        Ok(merge(&self.kubelet.profile, &self.kubelet.machine, hints))
    }

    fn allocate_devices(&mut self, container: &Container, hint: Hint) -> Result<(), Rejection> {
        if self.is_idle() {
            return Ok(());
        }
        if !self.ready && self.state.devices.is_kept(self.pod, container) {
            self.state.devices.count_reusable(self.pod, container);
            return Ok(());
        }
        if self.ready && self.state.devices.serves_any(&container.devices) {
            self.state.devices.sweep();
        }
        self.state.devices.allocate(self.pod, container, hint.zones, self.choice)
    }

    fn allocate_cpus(
        &mut self,
        cpus: Option<&cpu_manager::StaticPolicy>,
        asker: Asker<'_>,
        hint: Hint,
    ) -> Result<(), Rejection> {
        // Managers sweep at each container, whether or not they manage it.
        if self.ready && asker.is_some() {
            self.state.cpus.sweep();
        }
        match (cpus, asker) {
            (None, _) => Ok(()),
            (Some(cpus), Some(container)) => {
                cpus.allocate(&mut self.state.cpus, self.pod, container, hint.zones)
            }
            (Some(cpus), None) => cpus.allocate_pod(&mut self.state.cpus, self.pod, hint.zones),
        }
    }

    fn allocate_memory(
        &mut self,
        memory: Option<&memory_manager::StaticPolicy>,
        asker: Asker<'_>,
        hint: Hint,
    ) -> Result<(), Rejection> {
        if self.ready && asker.is_some() {
            self.state.memory.sweep();
        }
        match (memory, asker) {
            (None, _) => Ok(()),
            (Some(memory), Some(container)) => {
                memory.allocate(&mut self.state.memory, self.pod, container, hint)
            }
            (Some(memory), None) => memory.allocate_pod(&mut self.state.memory, self.pod, hint),
        }
    }

    fn check_totals(&self) -> Result<(), Rejection> {
        self.state.check_totals(self.kubelet, self.pod)
    }
}

impl Admission<'_, Exact<'_>> {
    /// A pod that passes counts from then on. Returns the alignment of the pod as a whole.
    pub(crate) fn admit(&mut self) -> Result<Hint, Rejection> {
        let hint = self.run()?;
        self.managers.state.remember(self.pod);
        Ok(hint)
    }

    /// The device manager hands out devices at the start of a container that has none yet (kubelet
    /// `GetDeviceRunContainerOptions`): those of a pod that is managed as a whole. A container that gets none does not
    /// start; its pod stays.
    pub(crate) fn start_devices(&mut self, hint: Hint) {
        let profile = &self.kubelet.profile;
        if profile.policy != Policy::None && profile.scope == Scope::Pod && self.is_pod_level() {
            let Exact { state, choice, pod, .. } = &mut self.managers;
            for container in &pod.containers {
                let _ = state.devices.allocate(pod, container, hint.zones, *choice);
            }
        }
    }
}
