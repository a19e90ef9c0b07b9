//! The memory manager's policy `Static`: memory and huge pages, by groups of zones.
//!
//! In: what zones have, what is reserved, what containers hold. Out: hints for the Topology Manager, and the zones and
//! bytes that a container gets. Never: a look at CPUs or devices.
//!
//! A zone belongs to one group of zones at a time: either containers are in that zone alone, or all of them are spread
//! over the same zones. A group ends with its last container.
//!
//! Source: kubelet 1.34 to 1.37 `memorymanager/policy_static.go`.

mod counts;
mod hints;

pub use counts::{Block, Blocks, MemoryCounts, MemoryTable, ZoneMemory};
pub(crate) use hints::{HeldHints, MemoryHints};

use std::sync::Arc;

use smallvec::SmallVec;

use crate::kubelet::hint::{Hint, ZoneMask};
use crate::kubelet::hint_source::Source;
use crate::kubelet::machine::Machine;
use crate::kubelet::pod::{Container, MemoryAmounts, Pod, PodUid};
use crate::kubelet::profile::{Minor, Refusal};
use crate::kubelet::rejection::{MemoryError, Rejection};
use crate::kubelet::topology_manager::{HintSource as _, Hints};
use crate::request::{ContainerKind, Qos};
use crate::resource::ResourceName;

/// The policy `Static` on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPolicy {
    machine: Arc<Machine>,
    minor: Minor,
    reserved: Vec<(u32, ResourceName, u64)>,
    /// More is reserved of a zone than it has. Its amounts wrap around, and so do sums with it.
    is_over_reserved: bool,
}

/// What the memory manager has handed out (kubelet `memory_manager_state`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryState {
    /// Bytes by zone.
    pub counts: MemoryCounts,
    /// What the containers of each pod hold, in the order of admission.
    pub pods: Vec<PodMemory>,
    /// Pods that have ended and still hold what they held.
    pub(crate) stale: Vec<PodUid>,
    /// Whether amounts depend on chance: see [`MemoryState::is_by_chance`].
    by_chance: bool,
}

/// The memory of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodMemory {
    /// The pod.
    pub uid: PodUid,
    /// Blocks by container, in the order of admission.
    pub containers: Vec<(Box<str>, Vec<Block>)>,
    /// The blocks of the pod as a whole, under pod-level managers.
    pub whole: Option<Vec<Block>>,
}

impl StaticPolicy {
    /// The policy, with `reserved` bytes by zone and type.
    #[must_use]
    pub fn new(machine: Arc<Machine>, minor: Minor, reserved: Vec<(u32, ResourceName, u64)>) -> Self {
        let mut policy = Self { machine, minor, reserved, is_over_reserved: false };
        let tables = policy.empty_state().counts.zones.into_iter().flat_map(|zone| zone.tables);
        policy.is_over_reserved = tables.into_iter().any(|table| table.allocatable > table.total);
        policy
    }

    /// The state of a kubelet that has handed out nothing (kubelet `getDefaultMachineState`). Amounts wrap around as
    /// the kubelet's do, where more is reserved than there is.
    #[must_use]
    pub fn empty_state(&self) -> MemoryState {
        let mut zones: Vec<_> = self
            .machine
            .zones()
            .iter()
            .map(|zone| {
                let hugepages: u64 = zone.hugepages.iter().map(|(_, bytes)| *bytes).sum();
                let mut tables: SmallVec<[MemoryTable; 3]> = zone
                    .hugepages
                    .iter()
                    .map(|(name, bytes)| self.table(zone.id, *name, *bytes, 0))
                    .collect();
                tables.push(self.table(zone.id, ResourceName::MEMORY, zone.memory, hugepages));
                tables.sort_unstable_by_key(|table| table.name);
                ZoneMemory { id: zone.id, assignments: 0, group: ZoneMask::of(zone.id), tables }
            })
            .collect();
        zones.sort_unstable_by_key(|zone| zone.id);
        MemoryState { counts: MemoryCounts::new(zones), ..MemoryState::default() }
    }

    fn table(&self, zone: u32, name: ResourceName, total: u64, hugepages: u64) -> MemoryTable {
        let reserved = self.reserved.iter().filter(|(id, of, _)| *id == zone && *of == name);
        let system_reserved = reserved.map(|(.., bytes)| *bytes).next_back().unwrap_or(0);
        let allocatable = total.wrapping_sub(system_reserved).wrapping_sub(hugepages);
        MemoryTable { name, total, system_reserved, allocatable, reserved: 0, free: allocatable }
    }

    /// Whether a kubelet starts with this state (kubelet `validateState`, `areMachineStatesEqual`).
    pub(crate) fn check(&self, state: &MemoryState) -> Result<(), Refusal> {
        let mut expected = self.empty_state();
        state.blocks().for_each(|block| expected.counts.reserve(*block));
        let (state_counts, expected) = (&state.counts, &expected.counts);
        let same = state_counts.zones.iter().zip(&expected.zones).all(|(zone, other)| {
            let sums = |of: &MemoryCounts, name| (of.free(zone.group, name), of.reserved(zone.group, name));
            zone.assignments == other.assignments
                && zone.group == other.group
                && zone
                    .tables
                    .iter()
                    .all(|table| sums(state_counts, table.name) == sums(expected, table.name))
        });
        if same || state.has_mixed_groups() { Ok(()) } else { Err(Refusal::OtherMemory) }
    }

    /// kubelet `GetTopologyHints`.
    pub(crate) fn container_hints<'a>(
        &'a self,
        state: &'a MemoryState,
        pod: &Pod,
        container: &'a Container,
    ) -> Hints<Source<'a>> {
        match container.memory.as_ref().filter(|_| pod.qos == Qos::Guaranteed) {
            None => Hints::Any,
            Some(request) => match state.held(&pod.uid, &container.name) {
                Some(blocks) => held_hints(blocks, request),
                None => self.hints(&state.counts, &pod.uid, request),
            },
        }
    }

    /// kubelet `GetPodTopologyHints`.
    pub(crate) fn pod_hints<'a>(&'a self, state: &'a MemoryState, pod: &'a Pod) -> Hints<Source<'a>> {
        let Some(request) = pod.memory.as_ref().filter(|_| pod.qos == Qos::Guaranteed) else {
            return Hints::Any;
        };
        let held = pod.containers.iter().find_map(|container| state.held(&pod.uid, &container.name));
        match held {
            _ if request.is_empty() => Hints::Any,
            Some(blocks) => held_hints(blocks, request),
            None => self.hints(&state.counts, &pod.uid, request),
        }
    }

    /// The hints are the same for every type. If there are none at all, the kubelet takes that for no preference.
    pub(crate) fn hints<'a>(
        &'a self,
        counts: &'a MemoryCounts,
        uid: &PodUid,
        request: &'a MemoryAmounts,
    ) -> Hints<Source<'a>> {
        if request.is_empty() {
            return Hints::Any;
        }
        let mut hints = MemoryHints::new(self, counts, uid, request);
        if hints.is_possible() { Hints::Of(Source::Memory(hints)) } else { Hints::Any }
    }

    /// Pins the memory of one container (kubelet `Allocate`).
    ///
    /// # Errors
    /// [`Rejection`] with the kubelet's reason.
    pub(crate) fn allocate(
        &self,
        state: &mut MemoryState,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<(), Rejection> {
        if pod.qos != Qos::Guaranteed {
            return Ok(());
        }
        if let Some(blocks) = state.held(&pod.uid, &container.name).map(Blocks::from_slice) {
            state.counts.note_reusable(pod, container.kind, &blocks);
            return Ok(());
        }
        if let Some(blocks) = self.blocks_for(&state.counts, pod, container, hint)? {
            state.counts.take(pod, container.kind, &blocks);
            state.hold(&pod.uid, &container.name, blocks.to_vec());
            state.shrink_init_blocks(pod, &container.name, &blocks);
        }
        Ok(())
    }

    /// The blocks that a container of a guaranteed pod gets; `None` if it takes no part.
    ///
    /// # Errors
    /// [`MemoryError`] with the kubelet's reason.
    pub(crate) fn blocks_for(
        &self,
        counts: &MemoryCounts,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<Option<Blocks>, MemoryError> {
        let zones = self.container_zones(counts, pod, container, hint)?;
        let request = container.memory.iter().flatten();
        let block =
            |zones| request.map(|(name, bytes)| Block { zones, name: *name, bytes: *bytes }).collect();
        Ok(zones.map(block))
    }

    /// The zones of these blocks.
    ///
    /// # Errors
    /// [`MemoryError`] with the kubelet's reason.
    pub(crate) fn container_zones(
        &self,
        counts: &MemoryCounts,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<Option<ZoneMask>, MemoryError> {
        let request = container.memory.as_ref().ok_or(MemoryError::Fraction)?;
        if request.is_empty() && self.minor >= Minor::V37 {
            return Ok(None);
        }
        self.zones_for(counts, &pod.uid, request, hint).map(Some)
    }

    /// The zones that memory is taken from: those of the hint, or more of them (kubelet `getDefaultHint`,
    /// `extendTopologyManagerHint`).
    pub(crate) fn zones_for(
        &self,
        counts: &MemoryCounts,
        uid: &PodUid,
        request: &MemoryAmounts,
        hint: Hint,
    ) -> Result<ZoneMask, MemoryError> {
        let mut hints = MemoryHints::new(self, counts, uid, request);
        let (within, preferred) = match hint.zones {
            Some(zones) => (zones, hint.preferred),
            None => {
                let best = hints.best(ZoneMask::EMPTY).ok_or(MemoryError::NoDefault)?;
                if hint.preferred && !hints.prefers(best) {
                    return Err(MemoryError::NoPreferredDefault);
                }
                (best, hints.prefers(best))
            }
        };
        let is_enough = hints.are_enough(within);
        let zones = if is_enough { within } else { hints.best(within).ok_or(MemoryError::NoExtension)? };
        if !is_enough && preferred && !hints.prefers(zones) {
            return Err(MemoryError::NoPreferredExtension);
        }
        if hints.violates(zones) { Err(MemoryError::Violation) } else { Ok(zones) }
    }

    /// Pins the memory of a pod as a whole and shares it out (kubelet 1.36 `AllocatePod`).
    ///
    /// # Errors
    /// [`Rejection`] with the kubelet's reason.
    pub(crate) fn allocate_pod(
        &self,
        state: &mut MemoryState,
        pod: &Pod,
        hint: Hint,
    ) -> Result<(), Rejection> {
        let Some(whole) = self.pod_blocks_for(&state.counts, pod, hint)? else { return Ok(()) };
        let zones = whole.first().map_or(ZoneMask::EMPTY, |block| block.zones);
        let mut containers = Vec::new();
        let mut pool = whole.to_vec();
        let mut shares: Vec<Option<Vec<Block>>> = Vec::new();
        for container in &pod.containers {
            let request = container.memory.as_ref().ok_or(MemoryError::Fraction)?;
            let own = request.iter().filter(|(_, bytes)| *bytes > 0);
            let own: Vec<Block> =
                own.map(|(name, bytes)| Block { zones, name: *name, bytes: *bytes }).collect();
            shares.push(match (container.kind, request.is_empty()) {
                (ContainerKind::Init, true) => Some(pool.iter().copied().filter(|b| b.bytes > 0).collect()),
                (_, true) => None,
                (ContainerKind::Init, false) => Some(own),
                (ContainerKind::Sidecar | ContainerKind::App, false) => {
                    for block in pool.iter_mut() {
                        let used: u64 = own.iter().filter(|b| b.name == block.name).map(|b| b.bytes).sum();
                        block.bytes = block.bytes.wrapping_sub(used);
                    }
                    Some(own)
                }
            });
        }
        pool.retain(|block| block.bytes > 0);
        for (container, share) in pod.containers.iter().zip(shares) {
            containers.push((container.name.clone(), share.unwrap_or_else(|| pool.clone())));
        }
        whole.iter().for_each(|block| state.counts.reserve(*block));
        // After a restart the kubelet takes all anew, and what the pod had is lost until the node is drained.
        state.pods.retain(|held| held.uid != pod.uid);
        state.pods.push(PodMemory { uid: pod.uid.clone(), containers, whole: Some(whole.to_vec()) });
        Ok(())
    }

    /// The blocks that a pod gets as a whole; `None` if it takes no part. The kubelet logs an amount that is no whole
    /// number of bytes, and goes on.
    ///
    /// # Errors
    /// [`Rejection`] with the kubelet's reason.
    pub(crate) fn pod_blocks_for(
        &self,
        counts: &MemoryCounts,
        pod: &Pod,
        hint: Hint,
    ) -> Result<Option<Blocks>, Rejection> {
        let Some(total) = pod.memory.as_ref().filter(|_| pod.qos == Qos::Guaranteed) else { return Ok(None) };
        if let Some(message) = empty_shared_pool(pod) {
            return Err(Rejection::EmptyPodSharedPool(message));
        }
        let zones = self.zones_for(counts, &pod.uid, total, hint)?;
        Ok(Some(total.iter().map(|(name, bytes)| Block { zones, name: *name, bytes: *bytes }).collect()))
    }

    /// Whether more is reserved of a zone than it has.
    pub(crate) fn is_over_reserved(&self) -> bool {
        self.is_over_reserved
    }
}

/// kubelet 1.36 memorymanager `validatePodScopeResources`: what is wrong with a pod of which a container would be left
/// without memory.
pub(crate) fn empty_shared_pool(pod: &Pod) -> Option<String> {
    let total = pod.memory.as_ref()?;
    let mut exclusive = MemoryAmounts::new();
    let mut shared = false;
    let used_up = |exclusive: &MemoryAmounts| {
        total.iter().find(|(name, bytes)| amount(exclusive, *name) >= *bytes).map(|(name, _)| *name)
    };
    for container in &pod.containers {
        let Some(request) = &container.memory else { return Some(MemoryError::Fraction.to_string()) };
        match (container.kind, request.is_empty()) {
            (ContainerKind::Init, true) => {
                if let Some(name) = used_up(&exclusive) {
                    return Some(format!(
                        "pod rejected, pod has shared init containers but no {name} available for them"
                    ));
                }
            }
            (ContainerKind::Init, false) => {}
            (ContainerKind::Sidecar | ContainerKind::App, true) => shared = true,
            (ContainerKind::Sidecar | ContainerKind::App, false) => {
                request.iter().for_each(|(name, bytes)| add(&mut exclusive, *name, *bytes));
            }
        }
    }
    let name = used_up(&exclusive).filter(|_| shared)?;
    Some(format!(
        "pod rejected, sum of exclusive container {name} requests equals pod budget, leaving no memory for shared containers"
    ))
}

fn amount(amounts: &MemoryAmounts, name: ResourceName) -> u64 {
    amounts.iter().find(|(found, _)| *found == name).map_or(0, |(_, bytes)| *bytes)
}

fn add(amounts: &mut MemoryAmounts, name: ResourceName, bytes: u64) {
    match amounts.iter_mut().find(|(found, _)| *found == name) {
        Some((_, sum)) => *sum += bytes,
        None => amounts.push((name, bytes)),
    }
}

fn held_hints<'a>(blocks: &[Block], request: &MemoryAmounts) -> Hints<Source<'a>> {
    match HeldHints::of(blocks, request) {
        Hints::Of(hints) => Hints::Of(Source::HeldMemory(hints)),
        Hints::Any | Hints::Impossible => Hints::Any,
    }
}

impl MemoryState {
    /// The blocks of a container.
    #[must_use]
    pub fn held(&self, uid: &str, container: &str) -> Option<&[Block]> {
        let pod = self.pods.iter().find(|pod| &*pod.uid == uid)?;
        pod.containers.iter().find(|(name, _)| &**name == container).map(|(_, blocks)| blocks.as_slice())
    }

    /// Blocks of containers; of the pod where it is managed as a whole.
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.pods.iter().flat_map(|pod| match &pod.whole {
            Some(whole) => whole.iter().collect::<Vec<_>>(),
            None => pod.containers.iter().flat_map(|(_, blocks)| blocks).collect(),
        })
    }

    /// Whether what the kubelet's zones have left depends on chance. It lets a container into one zone of a group,
    /// where that zone has enough. Then it gives memory back in the order of a Go map, and amounts end up in the one
    /// zone or the other; and after a restart such a state may or may not be what it expects.
    #[must_use]
    pub fn is_by_chance(&self) -> bool {
        self.by_chance
    }

    fn has_mixed_groups(&self) -> bool {
        let spans = self.blocks().any(|block| block.zones.len() > 1);
        spans
            && self.blocks().any(|one| {
                self.blocks().any(|other| one.zones.meets(other.zones) && one.zones != other.zones)
            })
    }

    pub(crate) fn hold(&mut self, uid: &PodUid, container: &str, blocks: Vec<Block>) {
        let entry = (container.into(), blocks);
        match self.pods.iter_mut().find(|pod| pod.uid == *uid) {
            Some(pod) => pod.containers.push(entry),
            None => self.pods.push(PodMemory { uid: uid.clone(), containers: vec![entry], whole: None }),
        }
    }

    /// Leaves to earlier init containers what this container does not reuse (kubelet
    /// `updateInitContainersMemoryBlocks`).
    fn shrink_init_blocks(&mut self, pod: &Pod, container: &str, blocks: &[Block]) {
        let Some(held) = self.pods.iter_mut().find(|held| held.uid == pod.uid) else { return };
        for block in blocks {
            let mut left = block.bytes;
            let earlier = pod.containers.iter().take_while(|earlier| &*earlier.name != container);
            for init in earlier.filter(|earlier| earlier.kind == ContainerKind::Init) {
                let entry = held.containers.iter_mut().find(|(name, _)| *name == init.name);
                for own in entry.into_iter().flat_map(|(_, blocks)| blocks) {
                    if own.name == block.name && own.zones == block.zones {
                        let reused = own.bytes.min(left);
                        own.bytes -= reused;
                        left -= reused;
                    }
                }
            }
        }
    }

    /// Gives back what a pod holds (kubelet `RemoveContainer` for each of its containers).
    fn release(&mut self, uid: &str) {
        if let Some(at) = self.pods.iter().position(|pod| &*pod.uid == uid) {
            let pod = self.pods.remove(at);
            let blocks = match pod.whole {
                Some(whole) => whole,
                None => pod.containers.into_iter().flat_map(|(_, blocks)| blocks).collect(),
            };
            blocks.into_iter().for_each(|block| self.counts.give_back(block));
        }
    }

    /// Gives back what finished init containers hold: the kubelet does it at the start of the container after them
    /// (kubelet `AddContainer`).
    pub(crate) fn release_init_containers(&mut self, pod: &Pod) {
        let last = pod.containers.len().saturating_sub(1);
        for container in pod.containers.iter().take(last).filter(|c| c.kind == ContainerKind::Init) {
            let Some(held) = self.pods.iter_mut().find(|held| held.uid == pod.uid) else { return };
            let Some(at) = held.containers.iter().position(|(name, _)| *name == container.name) else {
                continue;
            };
            let (_, blocks) = held.containers.remove(at);
            let whole = held.whole.is_some();
            if held.containers.is_empty() && !whole {
                self.pods.retain(|held| held.uid != pod.uid);
            }
            if !whole {
                blocks.into_iter().for_each(|block| self.counts.give_back(block));
            }
        }
    }

    /// Gives back what ended pods hold.
    pub(crate) fn sweep(&mut self) {
        let holds = |uid: &PodUid| self.pods.iter().any(|pod| pod.uid == *uid);
        self.by_chance |= self.stale.iter().any(holds) && self.has_mixed_groups();
        for uid in std::mem::take(&mut self.stale) {
            self.release(&uid);
        }
    }

    /// Forgets what a kubelet keeps in memory only.
    pub(crate) fn restart(&mut self) {
        self.by_chance |= self.has_mixed_groups();
        self.counts.forget_reusable();
    }
}
