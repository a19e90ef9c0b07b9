//! The managers of a kubelet over counts.
//!
//! In: a [`ZoneTable`], which stays as it is, and a scratch that takes its place as soon as a container has got
//! something and others follow. Out: hints and allocations as the kubelet's, or [`Stop::Unknown`].

use std::borrow::Cow;
use std::cell::Cell;

use smallvec::SmallVec;

use crate::kubelet::admission::{Asker, Managers};
use crate::kubelet::cpu_manager::{CpuHints, TakeError, empty_shared_pool};
use crate::kubelet::device_manager::DeviceHints;
use crate::kubelet::hint::{Hint, ZoneMask};
use crate::kubelet::hint_source::{HintList, Source};
use crate::kubelet::memory_manager::MemoryCounts;
use crate::kubelet::pod::{Container, Pod};
use crate::kubelet::rejection::Rejection;
use crate::kubelet::topology_manager::{Hints, merge_by};
use crate::kubelet::totals::{Totals, check_totals};
use crate::kubelet::zone_table::cpus::CpuCounts;
use crate::kubelet::zone_table::devices::DeviceCounts;
use crate::kubelet::zone_table::{Counts, Scratch, ZoneTable};
use crate::kubelet::{Kubelet, cpu_manager, memory_manager};
use crate::policy::Policy;
use crate::request::{ContainerKind, Qos};
use crate::resource::ResourceName;

/// The most zones for which all combinations of hints are built.
const MAX_ZONES_COMBINED: usize = 4;
/// The most zones of which all sets are looked at.
const MAX_ZONES_WALKED: usize = 8;

/// Why an admission on counts ends early.
pub(super) enum Stop {
    Rejected(Rejection),
    /// Counts cannot tell.
    Unknown,
}

impl<E: Into<Rejection>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Rejected(error.into())
    }
}

/// The managers.
pub(super) struct Counted<'a> {
    kubelet: &'a Kubelet,
    table: &'a ZoneTable,
    pod: &'a Pod,
    scratch: &'a mut Counts,
    /// Which counts are those of the scratch.
    own_cpus: bool,
    own_memory: bool,
    own_devices: bool,
    /// Devices that the pod has newly got, by resource; 0 where it reuses them.
    taken: SmallVec<[(ResourceName, usize); 2]>,
    /// A hint that was just asked for would have to be made of counts that are not known.
    is_blind: Cell<bool>,
    /// The hints that were just asked for are the last that the pod needs.
    is_last: Cell<bool>,
}

impl<'a> Counted<'a> {
    pub(super) fn new(
        kubelet: &'a Kubelet,
        table: &'a ZoneTable,
        pod: &'a Pod,
        scratch: &'a mut Scratch,
    ) -> Self {
        Self {
            kubelet,
            table,
            pod,
            scratch: &mut scratch.counts,
            own_cpus: false,
            own_memory: false,
            own_devices: false,
            taken: SmallVec::new(),
            is_blind: Cell::new(false),
            is_last: Cell::new(false),
        }
    }

    fn cpus(&self) -> &CpuCounts {
        if self.own_cpus { &self.scratch.cpus } else { &self.table.counts.cpus }
    }

    fn memory(&self) -> &MemoryCounts {
        if self.own_memory { &self.scratch.memory } else { &self.table.counts.memory }
    }

    fn devices(&self) -> &[DeviceCounts] {
        if self.own_devices { &self.scratch.devices } else { &self.table.counts.devices }
    }

    fn device(&self, name: ResourceName) -> Option<&DeviceCounts> {
        self.devices().iter().find(|counts| counts.name == name)
    }

    /// Whether no container comes after this one.
    fn ends_with(&self, container: &Container) -> bool {
        self.pod.containers.last().is_some_and(|last| std::ptr::eq(last, container))
    }

    /// Whether the zones of an alignment decide about the pod's memory.
    fn pins_memory(&self) -> bool {
        let profile = &self.kubelet.profile;
        self.kubelet.memory.is_some() && self.pod.qos == Qos::Guaranteed && !self.pod.is_left_alone(profile)
    }

    fn take_cpus(
        &mut self,
        policy: &cpu_manager::StaticPolicy,
        count: usize,
        hint: Hint,
        kind: ContainerKind,
        is_last: bool,
    ) -> Result<(), Stop> {
        let all = self.kubelet.machine.cpu_zone_mask();
        let near = CpuCounts::near(self.kubelet, policy, hint.zones);
        let counts = self.cpus();
        let (least, most) = counts.on_whole_cores;
        policy.check_cores(most, count)?;
        policy.check_cores(least, count).map_err(|_| Stop::Unknown)?;
        if !policy.is_regular() {
            // Fewer CPUs may come out than are asked for, or more than are free.
            return Err(Stop::Unknown);
        }
        if counts.total < count {
            let aligned = counts.inside(all, near).min(count);
            let (requested, available) = (count - aligned, counts.total - aligned.min(counts.total));
            return Err(TakeError::NotEnough { requested, available }.into());
        }
        if !counts.is_safe(policy, all, near, count) {
            return Err(Stop::Unknown);
        }
        if !is_last {
            if !self.own_cpus {
                self.scratch.cpus.copy_from(&self.table.counts.cpus);
                self.own_cpus = true;
            }
            self.scratch.cpus.take(all, near, count, kind);
        }
        Ok(())
    }

    /// Shares a pod's CPUs out (kubelet 1.36 `AllocatePod`).
    fn share_cpus(&self) -> Result<(), Stop> {
        let mut available = self.pod.cpus;
        for container in &self.pod.containers {
            let requested = container.cpus;
            if requested > available {
                return Err(TakeError::NotEnough { requested, available }.into());
            }
            if container.kind != ContainerKind::Init {
                available -= requested;
            }
        }
        Ok(())
    }

    fn aligned(&self, policy: Policy, closest: bool, hints: &HintList<'_>) -> Result<Option<Hint>, Stop> {
        let machine = &*self.kubelet.machine;
        let zones = machine.zones().len();
        if policy != Policy::BestEffort {
            return Ok(merge_by(policy, closest, machine, hints));
        }
        match merge_by(Policy::Restricted, closest, machine, hints) {
            None if zones > MAX_ZONES_COMBINED => Err(Stop::Unknown),
            None => Ok(merge_by(policy, closest, machine, hints)),
            hint => Ok(hint),
        }
    }
}

impl Managers for Counted<'_> {
    type Stop = Stop;

    /// The table knows no ended pods.
    fn sweep(&mut self) {}

    fn device_hints<'a>(&'a self, asker: Asker<'a>, hints: &mut HintList<'a>) {
        let counts = asker.map_or(&self.pod.devices, |container| &container.devices);
        self.is_last.set(asker.is_some_and(|container| self.ends_with(container)));
        for (name, request) in counts {
            let Some(counts) = self.device(*name) else { continue };
            hints.push(if !counts.has_zones {
                Hints::Any
            } else if counts.free + counts.kept_total < *request {
                Hints::Impossible
            } else {
                self.is_blind.set(self.is_blind.get() || !counts.is_known);
                let (minor, zones) = (self.kubelet.profile.minor, self.kubelet.machine.zone_mask());
                let groups = Cow::Borrowed(&*counts.groups);
                let hints = DeviceHints::new(minor, zones, groups, counts.kept_zones(), *request);
                Hints::Of(Source::Devices(hints))
            });
        }
    }

    fn cpu_hints<'a>(&'a self, cpus: &'a cpu_manager::StaticPolicy, asker: Asker<'a>) -> Hints<Source<'a>> {
        let request = asker.map_or(self.pod.cpus, |container| container.cpus);
        if request == 0 {
            return Hints::Any;
        }
        let counts = self.cpus();
        self.is_blind.set(self.is_blind.get() || !counts.is_known);
        let (offered, required) = (Cow::Borrowed(&*counts.by_zone), counts.kept.zones);
        Hints::Of(Source::Cpus(CpuHints { policy: cpus, offered, required, request }))
    }

    fn memory_hints<'a>(
        &'a self,
        memory: &'a memory_manager::StaticPolicy,
        asker: Asker<'a>,
    ) -> Hints<Source<'a>> {
        let request = asker.map_or(self.pod.memory.as_ref(), |container| container.memory.as_ref());
        match request.filter(|_| self.pod.qos == Qos::Guaranteed) {
            None => Hints::Any,
            Some(_) if memory.is_over_reserved() && self.kubelet.machine.zones().len() > MAX_ZONES_WALKED => {
                self.is_blind.set(true);
                Hints::Any
            }
            Some(request) => memory.hints(self.memory(), &self.pod.uid, request),
        }
    }

    fn merge(&self, hints: &mut HintList<'_>) -> Result<Option<Hint>, Stop> {
        let profile = &self.kubelet.profile;
        let policy = profile.policy;
        let is_blind = self.is_blind.take();
        let is_impossible = hints.iter().any(|hints| matches!(hints, Hints::Impossible));
        if policy.enforces() && is_impossible {
            return Ok(None);
        }
        if !policy.enforces() && !self.pins_memory() {
            return Ok(Some(Hint::default())); // What alignment it is changes nothing.
        }
        if is_blind {
            return Err(Stop::Unknown);
        }
        // Among alignments that all prefer, the best one matters to later containers, and to memory without hints.
        let is_memory = |hints: &Hints<Source<'_>>| matches!(hints, Hints::Of(Source::Memory(_)));
        let any_will_do =
            self.is_last.get() && policy.enforces() && (!self.pins_memory() || hints.iter().any(is_memory));
        let closest = profile.prefer_closest && !any_will_do;
        if closest
            && policy != Policy::SingleNumaNode
            && self.kubelet.machine.zones().len() > MAX_ZONES_WALKED
        {
            return Err(Stop::Unknown);
        }
        let hint = self.aligned(policy, closest, hints)?;
        if self.cpus().kept.is_uncertain() {
            for source in hints.iter_mut() {
                if let Hints::Of(Source::Cpus(cpus)) = source {
                    cpus.required = ZoneMask::EMPTY;
                }
            }
            if self.aligned(policy, closest, hints)? != hint {
                return Err(Stop::Unknown);
            }
        }
        Ok(hint)
    }

    fn allocate_devices(&mut self, container: &Container, hint: Hint) -> Result<(), Stop> {
        let is_last = self.ends_with(container);
        for (name, count) in &container.devices {
            let Some(counts) = self.device(*name) else { continue };
            let fresh = counts.check(*count)?;
            if *count == 0 {
                continue;
            }
            match self.taken.iter_mut().find(|(of, _)| of == name) {
                Some((_, taken)) => *taken += fresh,
                None => self.taken.push((*name, fresh)),
            }
            if is_last {
                continue;
            }
            if !self.own_devices {
                self.scratch.devices.clone_from(&self.table.counts.devices);
                self.own_devices = true;
            }
            if let Some(counts) = self.scratch.devices.iter_mut().find(|counts| counts.name == *name) {
                counts.take(hint.zones, *count, container.kind);
            }
        }
        Ok(())
    }

    fn allocate_cpus(
        &mut self,
        cpus: Option<&cpu_manager::StaticPolicy>,
        asker: Asker<'_>,
        hint: Hint,
    ) -> Result<(), Stop> {
        let Some(policy) = cpus else { return Ok(()) };
        match asker {
            Some(container) if container.cpus == 0 => Ok(()),
            Some(container) => {
                self.take_cpus(policy, container.cpus, hint, container.kind, self.ends_with(container))
            }
            None if self.pod.cpus == 0 => Ok(()),
            None => {
                if let Some(message) = empty_shared_pool(self.pod) {
                    return Err(Rejection::EmptyPodSharedPool(message).into());
                }
                self.take_cpus(policy, self.pod.cpus, hint, ContainerKind::App, true)?;
                self.share_cpus()
            }
        }
    }

    fn allocate_memory(
        &mut self,
        memory: Option<&memory_manager::StaticPolicy>,
        asker: Asker<'_>,
        hint: Hint,
    ) -> Result<(), Stop> {
        let Some(policy) = memory.filter(|_| self.pod.qos == Qos::Guaranteed) else { return Ok(()) };
        let Some(container) = asker else {
            policy.pod_blocks_for(self.memory(), self.pod, hint)?;
            return Ok(());
        };
        if self.ends_with(container) {
            policy.container_zones(self.memory(), self.pod, container, hint)?;
            return Ok(());
        }
        if let Some(blocks) = policy.blocks_for(self.memory(), self.pod, container, hint)? {
            if !self.own_memory {
                self.scratch.memory.copy_from(&self.table.counts.memory);
                self.own_memory = true;
            }
            self.scratch.memory.take(self.pod, container.kind, &blocks);
        }
        Ok(())
    }

    fn check_totals(&self) -> Result<(), Stop> {
        // The order of resources matters only if one is short.
        if self.table.has_room(self.pod) { Ok(()) } else { Ok(check_totals(self.kubelet, self.pod, self)?) }
    }
}

impl Totals for Counted<'_> {
    fn pods(&self) -> i64 {
        self.table.pods
    }

    fn used(&self, name: ResourceName) -> i64 {
        self.table.totals.iter().find(|total| total.name == name).map_or(0, |total| total.used)
    }

    fn devices(&self, name: ResourceName) -> Option<i64> {
        let counts = self.table.counts.devices.iter().find(|counts| counts.name == name)?;
        let taken = self.taken.iter().find(|(of, _)| *of == name).map_or(0, |(_, taken)| *taken);
        // A pod that has devices already finds at least what is in use (kubelet `UpdatePluginResources`).
        let raised = if self.taken.is_empty() { 0 } else { counts.in_use + taken };
        counts.is_registered().then(|| i64::try_from(counts.healthy.max(raised)).unwrap_or(i64::MAX))
    }
}
