//! The CPU manager's policy `static`: exclusive CPUs, id by id.
//!
//! In: a machine, the options, what is reserved, what containers hold. Out: hints for the Topology Manager, and the
//! CPUs that a container gets. Never: a look at memory or devices.
//!
//! Source: kubelet 1.34 to 1.37 `cpumanager/policy_static.go`.

mod accumulator;
mod distributed;
mod hints;

pub use accumulator::TakeError;
pub(crate) use hints::CpuHints;

use std::borrow::Cow;
use std::sync::Arc;

use crate::cpuset::CpuSet;
use crate::kubelet::cpu_manager::accumulator::{Strategy, take_packed};
use crate::kubelet::cpu_manager::distributed::{Ask, take_distributed};
use crate::kubelet::hint::ZoneMask;
use crate::kubelet::hint_source::Source;
use crate::kubelet::machine::Machine;
use crate::kubelet::pod::{Container, Pod, PodUid};
use crate::kubelet::profile::{CpuOptions, Minor, Refusal, ReservedCpus};
use crate::kubelet::rejection::Rejection;
use crate::kubelet::topology_manager::Hints;
use crate::policy::CpuOption;
use crate::request::ContainerKind;

/// The policy `static` on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPolicy {
    machine: Arc<Machine>,
    minor: Minor,
    options: CpuOptions,
    reserved: CpuSet,
    /// All threads of the cores of reserved CPUs.
    reserved_cores: CpuSet,
    /// CPUs of the largest zone, of the two largest ones, and so on.
    largest_zones: Vec<usize>,
    is_regular: bool,
}

/// What the CPU manager has handed out (kubelet `cpu_manager_state`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuState {
    /// CPUs that no container holds, reserved ones included (`defaultCpuSet`).
    pub shared: CpuSet,
    /// What the containers of each pod hold, in the order of admission.
    pub pods: Vec<PodCpus>,
    /// CPUs of init containers that the next containers of this pod may use.
    reusable: Option<(PodUid, CpuSet)>,
    /// Pods that have ended and still hold what they held.
    pub(crate) stale: Vec<PodUid>,
}

/// The CPUs of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodCpus {
    /// The pod.
    pub uid: PodUid,
    /// CPUs by container, in the order of admission.
    pub containers: Vec<(Box<str>, CpuSet)>,
    /// The CPUs of the pod as a whole, under pod-level managers.
    pub whole: Option<CpuSet>,
}

impl StaticPolicy {
    /// The policy, with the reserved CPUs chosen as the kubelet chooses them. The machine's CPUs are the most that can
    /// be reserved.
    ///
    /// # Errors
    /// [`TakeError`] if so many CPUs are not there.
    pub fn new(
        machine: Arc<Machine>,
        minor: Minor,
        options: CpuOptions,
        reserved: &ReservedCpus,
    ) -> Result<Self, TakeError> {
        let mut sizes: Vec<usize> = machine.cpu_zones().iter().map(|zone| zone.cpus.len()).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let sums = sizes.iter().scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        let largest_zones = sums.collect();
        let is_regular = machine.is_regular(options.has(CpuOption::PreferUncoreCache));
        let mut policy = Self {
            machine,
            minor,
            options,
            reserved: CpuSet::new(),
            reserved_cores: CpuSet::new(),
            largest_zones,
            is_regular,
        };
        policy.reserved = match reserved {
            ReservedCpus::Named(cpus) => cpus.clone(),
            ReservedCpus::Count(count) => policy.take(policy.machine.cpus(), *count)?,
        };
        for core in policy.machine.cores().iter().filter(|core| !core.cpus.is_disjoint(&policy.reserved)) {
            policy.reserved_cores.insert_all(&core.cpus);
        }
        Ok(policy)
    }

    /// The options.
    pub(crate) fn options(&self) -> CpuOptions {
        self.options
    }

    /// Whether the CPUs that are taken are always free, and as many as were asked for. Not so on machines whose cores
    /// or sockets have different sizes, or lie across each other: the kubelet computes with mean sizes.
    pub(crate) fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// The CPUs that are kept for the system.
    #[must_use]
    pub fn reserved(&self) -> &CpuSet {
        &self.reserved
    }

    /// The state of a kubelet that has handed out nothing.
    #[must_use]
    pub fn empty_state(&self) -> CpuState {
        let mut shared = self.machine.cpus().clone();
        if self.options.has(CpuOption::StrictReservation) {
            shared.remove_all(&self.reserved);
        }
        CpuState { shared, ..CpuState::default() }
    }

    /// Whether a kubelet starts with this state (kubelet `validateState`). A kubelet may have handed out reserved CPUs
    /// on machines with uneven sockets, and does not start again then.
    pub(crate) fn check(&self, state: &CpuState) -> Result<(), Refusal> {
        if state.shared.is_empty() {
            return if state.pods.is_empty() { Ok(()) } else { Err(Refusal::NoSharedCpus) };
        }
        let strict = self.options.has(CpuOption::StrictReservation);
        let found = self.reserved.intersection(&state.shared);
        match (strict, found.is_empty(), found == self.reserved) {
            (true, false, _) => Err(Refusal::SharedReserved {
                found: Box::new(found),
                shared: Box::new(state.shared.clone()),
            }),
            (false, _, false) => Err(Refusal::UsedReserved {
                reserved: Box::new(self.reserved.clone()),
                shared: Box::new(state.shared.clone()),
            }),
            _ => self.check_assigned(state),
        }
    }

    fn check_assigned(&self, state: &CpuState) -> Result<(), Refusal> {
        let mut known = state.shared.clone();
        for pod in &state.pods {
            for (container, cpus) in &pod.containers {
                if !cpus.is_disjoint(&state.shared) {
                    return Err(Refusal::SharedAssigned {
                        pod: pod.uid.clone(),
                        container: container.clone(),
                        cpus: Box::new(cpus.clone()),
                        shared: Box::new(state.shared.clone()),
                    });
                }
                known.insert_all(cpus);
            }
            pod.whole.iter().for_each(|whole| known.insert_all(whole));
        }
        let mut there = self.machine.cpus().clone();
        if self.options.has(CpuOption::StrictReservation) {
            there.remove_all(&self.reserved);
        }
        if known == there {
            Ok(())
        } else {
            Err(Refusal::OtherCpus { there: Box::new(there), known: Box::new(known) })
        }
    }

    pub(crate) fn available(&self, state: &CpuState) -> CpuSet {
        state.shared.difference(&self.reserved)
    }

    fn take(&self, available: &CpuSet, count: usize) -> Result<CpuSet, TakeError> {
        let strategy = Strategy {
            spread: self.options.has(CpuOption::DistributeAcrossCores),
            by_cache: self.options.has(CpuOption::PreferUncoreCache),
        };
        if !self.options.has(CpuOption::DistributeAcrossNuma) {
            return take_packed(&self.machine, available, count, strategy);
        }
        let whole = self.options.has(CpuOption::FullPcpusOnly);
        let newer = self.minor >= Minor::V37;
        let ask = Ask {
            count,
            group: if whole { self.machine.cpus_per_core().max(1) } else { 1 },
            by_socket: newer && self.options.has(CpuOption::AlignBySocket),
            bounded: newer,
        };
        take_distributed(&self.machine, available, ask, strategy)
    }

    /// kubelet `GetTopologyHints`.
    pub(crate) fn container_hints<'a>(
        &'a self,
        state: &CpuState,
        pod: &Pod,
        container: &Container,
    ) -> Hints<Source<'a>> {
        if container.cpus == 0 {
            return Hints::Any;
        }
        match state.held(&pod.uid, &container.name) {
            Some(held) if held.len() != container.cpus => Hints::Impossible,
            Some(held) => self.hints(held, &CpuSet::new(), container.cpus),
            None => self.hints(&self.available(state), &state.reusable(&pod.uid), container.cpus),
        }
    }

    /// kubelet `GetPodTopologyHints`.
    pub(crate) fn pod_hints<'a>(&'a self, state: &CpuState, pod: &Pod) -> Hints<Source<'a>> {
        if pod.cpus == 0 {
            return Hints::Any;
        }
        let mut assigned = CpuSet::new();
        for container in &pod.containers {
            if let Some(held) = state.held(&pod.uid, &container.name) {
                if held.len() != container.cpus {
                    return Hints::Impossible;
                }
                assigned.insert_all(held);
            }
        }
        if assigned.len() == pod.cpus {
            return self.hints(&assigned, &CpuSet::new(), pod.cpus);
        }
        let reusable = state.reusable(&pod.uid).union(&assigned);
        self.hints(&self.available(state), &reusable, pod.cpus)
    }

    fn hints<'a>(&'a self, available: &CpuSet, reusable: &CpuSet, request: usize) -> Hints<Source<'a>> {
        let offered = available.union(reusable);
        let zones = self.machine.cpu_zones().iter().map(|zone| offered.count_shared(&zone.cpus)).collect();
        let required = self.machine.zones_of(reusable);
        Hints::Of(Source::Cpus(CpuHints { policy: self, offered: Cow::Owned(zones), required, request }))
    }

    /// The fewest zones that could hold so many CPUs if all were free; all zones if even they cannot.
    pub(crate) fn narrowest(&self, request: usize) -> u32 {
        let sizes = &self.largest_zones;
        let fewest = sizes.iter().position(|size| *size >= request).map_or(sizes.len(), |at| at + 1);
        u32::try_from(fewest).unwrap_or(u32::MAX)
    }

    /// Takes CPUs for one container (kubelet `Allocate`).
    ///
    /// # Errors
    /// [`Rejection`] with the kubelet's reason.
    pub(crate) fn allocate(
        &self,
        state: &mut CpuState,
        pod: &Pod,
        container: &Container,
        zones: Option<ZoneMask>,
    ) -> Result<(), Rejection> {
        if container.cpus == 0 {
            return Ok(());
        }
        // Before 1.37 a pod that is admitted again after a restart had to find its whole cores once more.
        if self.minor < Minor::V37 {
            self.check_cores(self.on_whole_cores(state), container.cpus)?;
        }
        if let Some(held) = state.held(&pod.uid, &container.name).cloned() {
            state.note_reusable(pod, container.kind, &held);
            return Ok(());
        }
        if self.minor >= Minor::V37 {
            self.check_cores(self.on_whole_cores(state), container.cpus)?;
        }
        let reusable = state.reusable(&pod.uid);
        let cpus = self.take_aligned(state, container.cpus, zones, &reusable)?;
        state.shared.remove_all(&cpus);
        state.note_reusable(pod, container.kind, &cpus);
        state.hold(&pod.uid, &container.name, cpus);
        Ok(())
    }

    /// Free CPUs on cores of which none is reserved, as the kubelet counts them for `full-pcpus-only`.
    pub(crate) fn on_whole_cores(&self, state: &CpuState) -> usize {
        state.shared.len() - state.shared.count_shared(&self.reserved_cores)
    }

    /// kubelet `enforceSMTAlignment`, with so many CPUs on whole cores.
    pub(crate) fn check_cores(&self, available: usize, requested: usize) -> Result<(), Rejection> {
        if !self.options.has(CpuOption::FullPcpusOnly) {
            return Ok(());
        }
        let per_core = self.machine.cpus_per_core().max(1);
        if !requested.is_multiple_of(per_core) {
            return Err(Rejection::NotWholeCores { requested, per_core });
        }
        if requested > available {
            return Err(Rejection::TooFewCores { requested, per_core, available });
        }
        Ok(())
    }

    /// kubelet `allocateCPUs`: aligned CPUs first, then any others.
    fn take_aligned(
        &self,
        state: &CpuState,
        count: usize,
        zones: Option<ZoneMask>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, TakeError> {
        let offered = self.available(state).union(reusable);
        let mut cpus = match zones {
            None => CpuSet::new(),
            Some(zones) => {
                let near = if self.options.has(CpuOption::AlignBySocket) {
                    self.machine.cpus_of_sockets(zones)
                } else {
                    self.machine.cpus_of(zones)
                };
                let aligned = offered.intersection(&near);
                self.take(&aligned, aligned.len().min(count))?
            }
        };
        let rest = self.take(&offered.difference(&cpus), count - cpus.len())?;
        cpus.insert_all(&rest);
        Ok(cpus)
    }

    /// Takes CPUs for a pod as a whole and shares them out (kubelet 1.36 `AllocatePod`).
    ///
    /// # Errors
    /// [`Rejection`] with the kubelet's reason.
    pub(crate) fn allocate_pod(
        &self,
        state: &mut CpuState,
        pod: &Pod,
        zones: Option<ZoneMask>,
    ) -> Result<(), Rejection> {
        if pod.cpus == 0 {
            return Ok(());
        }
        empty_shared_pool(pod).map_or(Ok(()), |message| Err(Rejection::EmptyPodSharedPool(message)))?;
        self.check_cores(self.on_whole_cores(state), pod.cpus)?;
        let whole = self.take_aligned(state, pod.cpus, zones, &CpuSet::new())?;
        state.shared.remove_all(&whole);
        let mut shares: Vec<Option<CpuSet>> = vec![None; pod.containers.len()];
        let mut pool = whole.clone();
        for (share, container) in shares.iter_mut().zip(&pod.containers) {
            match (container.kind, container.cpus) {
                (ContainerKind::Sidecar | ContainerKind::App, 0) => {}
                (ContainerKind::Init, 0) => *share = Some(pool.clone()),
                (kind, count) => {
                    let cpus = self.take(&pool, count)?;
                    if kind != ContainerKind::Init {
                        pool.remove_all(&cpus);
                    }
                    *share = Some(cpus);
                }
            }
        }
        let containers = pod
            .containers
            .iter()
            .zip(shares)
            .map(|(container, share)| (container.name.clone(), share.unwrap_or_else(|| pool.clone())))
            .collect();
        // After a restart the kubelet takes all anew, and what the pod had is lost until the node is drained.
        state.pods.retain(|held| held.uid != pod.uid);
        state.pods.push(PodCpus { uid: pod.uid.clone(), containers, whole: Some(whole) });
        Ok(())
    }
}

/// kubelet 1.36 cpumanager `validatePodScopeResources`: what is wrong with a pod of which a container would be left
/// without CPUs.
pub(crate) fn empty_shared_pool(pod: &Pod) -> Option<String> {
    let (mut exclusive, mut shared) = (0, false);
    for container in &pod.containers {
        match (container.kind, container.cpus) {
            (ContainerKind::Init, 0) if exclusive >= pod.cpus => {
                return Some(
                    "pod rejected, pod has shared init containers but no cpus available for them".into(),
                );
            }
            (ContainerKind::Init, _) => {}
            (ContainerKind::Sidecar | ContainerKind::App, 0) => shared = true,
            (ContainerKind::Sidecar | ContainerKind::App, cpus) => exclusive += cpus,
        }
    }
    (shared && exclusive >= pod.cpus).then(|| {
        "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
            .into()
    })
}

impl CpuState {
    /// The CPUs of a container.
    #[must_use]
    pub fn held(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        let pod = self.pods.iter().find(|pod| &*pod.uid == uid)?;
        pod.containers.iter().find(|(name, _)| &**name == container).map(|(_, cpus)| cpus)
    }

    fn reusable(&self, uid: &PodUid) -> CpuSet {
        self.reusable.as_ref().filter(|(of, _)| of == uid).map(|(_, cpus)| cpus.clone()).unwrap_or_default()
    }

    pub(crate) fn hold(&mut self, uid: &PodUid, container: &str, cpus: CpuSet) {
        let entry = (container.into(), cpus);
        match self.pods.iter_mut().find(|pod| pod.uid == *uid) {
            Some(pod) => pod.containers.push(entry),
            None => self.pods.push(PodCpus { uid: uid.clone(), containers: vec![entry], whole: None }),
        }
    }

    /// kubelet `updateCPUsToReuse`.
    fn note_reusable(&mut self, pod: &Pod, kind: ContainerKind, cpus: &CpuSet) {
        let mut reusable = self.reusable(&pod.uid);
        match kind {
            ContainerKind::Init => reusable.insert_all(cpus),
            ContainerKind::Sidecar | ContainerKind::App => reusable.remove_all(cpus),
        }
        self.reusable = Some((pod.uid.clone(), reusable));
    }

    /// Gives back what a pod holds (kubelet `RemoveContainer` for each of its containers).
    fn release(&mut self, uid: &str) {
        if let Some(at) = self.pods.iter().position(|pod| &*pod.uid == uid) {
            let pod = self.pods.remove(at);
            match &pod.whole {
                Some(whole) => self.shared.insert_all(whole),
                None => pod.containers.iter().for_each(|(_, cpus)| self.shared.insert_all(cpus)),
            }
        }
    }

    /// Gives back what ended pods hold.
    pub(crate) fn sweep(&mut self) {
        for uid in std::mem::take(&mut self.stale) {
            self.release(&uid);
        }
    }

    /// Forgets what a kubelet keeps in memory only.
    pub(crate) fn restart(&mut self) {
        self.reusable = None;
    }
}
