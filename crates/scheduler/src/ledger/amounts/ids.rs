//! The state of a kubelet's managers in one world, by ids.
//!
//! In: a node at the moment of its last report, and what pods hold since. Out: the state, its counts by zone, and
//! whether something is held twice. Never: devices by name, which no report tells; those near the same zones are alike.
//!
//! A pod may hold what another one holds too, while it is not known which of them was first. So nothing is given back
//! by itself: the state is made anew of all that is left. What a pod holds in one case or another comes after what is
//! known. What it holds at most, wherever that is, comes last, and is taken of whatever is free then.
//!
//! Cost of a change: the counts of zones. Where something is given back, or a bound is among what is held, all
//! containers of the node besides.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use topology::admit::Grant;
use topology::kubelet::device_manager::{Device, DeviceId, DeviceIds, HeldDevices, Lowest};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::memory_manager::Block;
use topology::kubelet::pod::{Pod, PodUid};
use topology::kubelet::rejection::Rejection;
use topology::kubelet::start::KubeletStart;
use topology::kubelet::zone_table::ZoneTable;
use topology::kubelet::{self, Allocation, ContainerAllocation, MidAdmissionRelease, NodeState};
use topology::request::PodNeeds;
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::Free;

mod misfit;

/// Most zones in groups of which every set may be on its own.
const MAX_REGROUPED: usize = 3;

/// What a pod holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::ledger) struct HeldIds {
    /// Exactly known; of a union, what each of its cases says.
    pub(in crate::ledger) containers: Vec<ContainerAllocation>,
    /// Whether the containers hold this in one case or another.
    pub(in crate::ledger) is_union: bool,
    /// At most so much of each cell, whichever it is.
    pub(in crate::ledger) bounds: SmallVec<[Grant; 2]>,
}

/// A node at the moment of its last report, without the pods that the ledger knows.
#[derive(Debug)]
pub(in crate::ledger) struct Vacant {
    pub(in crate::ledger) start: Arc<KubeletStart>,
    /// With what unknown containers hold. Equal nodes on which there are none share it.
    state: Arc<NodeState>,
    /// Pods that the ledger does not know may hold something.
    has_unknown_pods: bool,
}

/// The state of a kubelet's managers.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Ids {
    pub(super) vacant: Arc<Vacant>,
    held: Vec<Arc<HeldIds>>,
    pub(super) state: NodeState,
    pub(super) counts: ZoneTable,
    /// The projection on zones and resources, for scores.
    pub(super) free: Free,
    /// Something is held twice.
    pub(super) has_debt: bool,
}

/// The name in the managers' state of the pod at this place in [`Ids::held`].
fn uid(number: usize) -> PodUid {
    format!("held {number}").into()
}

impl HeldIds {
    /// What containers hold, all of it known.
    pub(in crate::ledger) fn exactly(containers: Vec<ContainerAllocation>) -> Self {
        Self { containers, ..Self::default() }
    }

    fn is_known(&self) -> bool {
        !self.is_union && self.bounds.is_empty()
    }
}

impl Vacant {
    /// The node of a report, on which unknown containers hold `residents`. `names_known_pods`: they have ended, and the
    /// kubelet's managers have not noticed yet.
    pub(in crate::ledger) fn new(
        start: Arc<KubeletStart>,
        residents: ContainerAllocation,
        names_known_pods: impl FnOnce() -> bool,
    ) -> Self {
        let is_empty = residents.cpus.is_empty()
            && residents.memory.iter().all(|block| block.bytes == 0 && block.zones.len() == 1)
            && residents.devices.values().all(DeviceIds::is_empty);
        let state = if is_empty { Arc::clone(&start.vacant) } else { Arc::new(start.state_with(residents)) };
        Self { state, start, has_unknown_pods: !is_empty && !names_known_pods() }
    }

    /// What zones may give to pods.
    pub(in crate::ledger) fn allocatable(&self) -> &Free {
        &self.start.allocatable
    }

    /// Whether an empty zone would hold all that the pod asks for.
    pub(super) fn has_zone_for(&self, needs: &PodNeeds) -> bool {
        let allocatable = self.allocatable();
        let layout = allocatable.layout();
        let holds = |row: usize| {
            needs.pod_scope.iter().all(|need| {
                layout.column(need.name).is_none_or(|column| allocatable.get(row, column) >= need.amount)
            })
        };
        (0..layout.zones().len()).any(holds)
    }
}

impl Ids {
    pub(in crate::ledger) fn new(vacant: Arc<Vacant>) -> Self {
        let counts = ZoneTable::new(&vacant.start.kubelet, &vacant.state);
        let mut ids = Self {
            held: Vec::new(),
            state: NodeState::clone(&vacant.state),
            free: vacant.allocatable().clone(),
            vacant,
            counts,
            has_debt: false,
        };
        ids.project();
        ids
    }

    /// Whether pods that the ledger does not know may hold something.
    pub(super) fn has_unknown_pods(&self) -> bool {
        self.vacant.has_unknown_pods
    }

    pub(super) fn charge(&mut self, held: &Arc<HeldIds>) {
        self.held.push(Arc::clone(held));
        if self.held.iter().all(|held| held.is_known()) {
            self.hold(self.held.len() - 1, &held.containers);
            self.project();
        } else {
            self.recount();
        }
    }

    /// Gives back what pods hold.
    pub(super) fn release<'a>(&mut self, all: impl Iterator<Item = &'a Arc<HeldIds>>) {
        let before = self.held.len();
        for held in all {
            if let Some(at) = self.held.iter().position(|known| known == held) {
                self.held.remove(at);
            }
        }
        if self.held.len() < before {
            self.recount();
        }
    }

    /// What the kubelet would give to the pod, if the managers take back what `ended` pods hold before its container of
    /// this number.
    pub(super) fn admit_with_release<'a>(
        &self,
        pod: &Pod,
        before: usize,
        ended: impl Iterator<Item = &'a Arc<HeldIds>>,
    ) -> Result<Allocation, Rejection> {
        let place = |held: &Arc<HeldIds>| self.held.iter().position(|known| known == held);
        let pods: Vec<PodUid> = ended.filter_map(place).map(uid).collect();
        let mut state = self.state.clone();
        let release = Some(MidAdmissionRelease { before, pods: &pods });
        kubelet::admit_with_release(&self.vacant.start.kubelet, &mut state, pod, &Lowest, release)
    }

    /// The same state with zones of groups on their own in the memory manager: each set of up to [`MAX_REGROUPED`]
    /// zones, of more each one and all of them.
    pub(super) fn regrouped(&self) -> Vec<Self> {
        let zones = self.state.memory.counts.zones.iter();
        let grouped: Vec<u32> = zones.filter(|zone| zone.group.len() > 1).map(|zone| zone.id).collect();
        let sets: Vec<ZoneMask> = if grouped.len() <= MAX_REGROUPED {
            let chosen = |set: usize| {
                let zones = grouped.iter().enumerate().filter(move |(bit, _)| set >> bit & 1 == 1);
                zones.map(|(_, zone)| *zone).collect()
            };
            (1..1_usize << grouped.len()).map(chosen).collect()
        } else {
            let each = grouped.iter().map(|zone| ZoneMask::of(*zone));
            each.chain([grouped.iter().copied().collect()]).collect()
        };
        sets.into_iter().map(|alone| self.with_zones_alone(alone)).collect()
    }

    fn with_zones_alone(&self, alone: ZoneMask) -> Self {
        let mut other = self.clone();
        for zone in other.state.memory.counts.zones.iter_mut().filter(|zone| alone.contains(zone.id)) {
            zone.group = ZoneMask::of(zone.id);
        }
        other.counts.update(&self.vacant.start.kubelet, &other.state);
        other
    }

    fn recount(&mut self) {
        self.state.clone_from(&self.vacant.state);
        self.has_debt = false;
        let all = self.held.clone();
        let (unions, known): (Vec<_>, Vec<_>) = all.iter().enumerate().partition(|(_, held)| held.is_union);
        for (number, held) in known {
            self.hold(number, &held.containers);
        }
        for (number, held) in unions {
            let containers = self.in_whole_groups(&held.containers);
            self.hold(number, &containers);
        }
        for (number, held) in all.iter().enumerate() {
            for grant in &held.bounds {
                self.take(number, *grant);
            }
        }
        self.project();
    }

    /// Adds what the containers of a pod of this number hold.
    fn hold(&mut self, number: usize, containers: &[ContainerAllocation]) {
        let (shared, memory) = (self.state.cpus.shared.clone(), self.state.memory.counts.clone());
        let names = containers.iter().flat_map(|container| container.devices.keys());
        let used: BTreeMap<ResourceName, DeviceIds> =
            names.map(|name| (*name, self.state.devices.in_use(*name))).collect();
        for (at, container) in containers.iter().enumerate() {
            let devices: Option<HeldDevices> = container
                .devices
                .iter()
                .map(|(name, ids)| Some((*name, self.free_ones(used.get(name)?, *name, ids)?)))
                .collect();
            let short = |block: &Block| memory.free(block.zones, block.name) < block.bytes;
            self.has_debt |=
                !container.cpus.is_subset(&shared) || container.memory.iter().any(short) || devices.is_none();
            let name = at.to_string().into();
            let devices = devices.unwrap_or_else(|| container.devices.clone());
            self.state.hold(&uid(number), ContainerAllocation { devices, name, ..container.clone() });
        }
    }

    /// The same with memory in whole groups: a group stays one in each case, and keeps out pods of its zones alone.
    fn in_whole_groups(&self, containers: &[ContainerAllocation]) -> Vec<ContainerAllocation> {
        let zones = self.state.memory.counts.zones.iter();
        let mut groups: BTreeMap<u32, ZoneMask> = zones.map(|zone| (zone.id, zone.group)).collect();
        let whole = |groups: &BTreeMap<u32, ZoneMask>, block: &Block| {
            let groups = block.zones.iter().filter_map(|zone| groups.get(&zone).copied());
            groups.fold(block.zones, ZoneMask::union)
        };
        for block in containers.iter().flat_map(|container| &container.memory) {
            let group = whole(&groups, block);
            groups.extend(group.iter().map(|zone| (zone, group)));
        }
        let in_groups = |block: &Block| Block { zones: whole(&groups, block), ..*block };
        let memory = |of: &ContainerAllocation| of.memory.iter().map(in_groups).collect();
        containers.iter().map(|of| ContainerAllocation { memory: memory(of), ..of.clone() }).collect()
    }

    /// Takes an amount of a cell, of what is free there.
    fn take(&mut self, number: usize, grant: Grant) {
        let layout = self.vacant.allocatable().layout();
        let columns = layout.resources().len().max(1);
        let cell = grant.cell as usize;
        let (Some(zone), Some(name)) =
            (layout.zones().get(cell / columns), layout.resources().get(cell % columns).copied())
        else {
            return;
        };
        let here = ZoneMask::of(zone.0);
        let count = usize::try_from(grant.held / name.base_units()).unwrap_or(0);
        let mut held =
            ContainerAllocation { name: format!("{number}@{cell}").into(), ..ContainerAllocation::default() };
        let is_all = match name.kind() {
            ResourceKind::Cpu => {
                let kubelet = &self.vacant.start.kubelet;
                let free = kubelet.free_cpus(&self.state).unwrap_or_default();
                held.cpus = kubelet.machine().core_by_core(&free, here, count);
                held.cpus.len() == count
            }
            ResourceKind::Memory => {
                let wanted = u64::try_from(grant.held).unwrap_or(0);
                let counts = &self.state.memory.counts;
                // A group stays one: it keeps out pods of its zones alone, and of others.
                let zones = counts
                    .zones
                    .iter()
                    .find(|memory| memory.id == zone.0)
                    .map_or(here, |memory| memory.group);
                let bytes = wanted.min(counts.free(zones, name));
                held.memory.push(Block { zones, name, bytes });
                bytes == wanted
            }
            ResourceKind::Device => {
                let ids: DeviceIds =
                    self.free_near(zone.0, name).map(|(id, _)| id.clone()).take(count).collect();
                let is_all = ids.len() == count;
                held.devices.insert(name, ids);
                is_all
            }
            ResourceKind::Host => true,
        };
        self.has_debt |= !is_all;
        self.state.hold(&uid(number), held);
    }

    /// As many devices near the same zones that are free beside `used`, these ones if they are; `None` if there are too
    /// few.
    fn free_ones(&self, used: &DeviceIds, name: ResourceName, ids: &DeviceIds) -> Option<DeviceIds> {
        let listed = &self.state.devices.resources.get(&name)?.devices;
        let mut left: DeviceIds = listed.keys().filter(|id| !used.contains(*id)).cloned().collect();
        let mut chosen = DeviceIds::new();
        for id in ids {
            let zones = listed.get(id)?.zones;
            let is_alike = |free: &&DeviceId| listed.get(*free).is_some_and(|device| device.zones == zones);
            let same = left.get(id).cloned();
            let found = same.or_else(|| left.iter().find(is_alike).cloned())?;
            left.remove(&found);
            chosen.insert(found);
        }
        Some(chosen)
    }

    /// Free devices near a zone.
    fn free_near(&self, zone: u32, name: ResourceName) -> impl Iterator<Item = (&DeviceId, &Device)> {
        let used = self.state.devices.in_use(name);
        let listed = self.state.devices.resources.get(&name).into_iter().flat_map(|listed| &listed.devices);
        listed.filter(move |(id, device)| {
            device.zones.is_some_and(|zones| zones.contains(zone)) && !used.contains(*id)
        })
    }

    /// Counts what is free by zone.
    fn project(&mut self) {
        let kubelet = &self.vacant.start.kubelet;
        self.counts.update(kubelet, &self.state);
        let free_cpus = kubelet.free_cpus(&self.state);
        let layout = self.vacant.allocatable().layout();
        for (row, zone) in layout.zones().iter().enumerate() {
            let here = ZoneMask::of(zone.0);
            for (column, name) in layout.resources().iter().enumerate() {
                let amount = match name.kind() {
                    ResourceKind::Cpu => free_cpus.as_ref().map(|free| {
                        let here = kubelet.machine().cpus_of(here).count_shared(free);
                        amount(here).saturating_mul(ResourceName::CPU.base_units())
                    }),
                    ResourceKind::Memory if !self.state.memory.counts.zones.is_empty() => {
                        let free = self.state.memory.counts.free(here, *name);
                        Some(i64::try_from(free).unwrap_or(i64::MAX))
                    }
                    ResourceKind::Device => Some(amount(self.free_near(zone.0, *name).count())),
                    ResourceKind::Memory | ResourceKind::Host => None,
                };
                if let Some(amount) = amount {
                    let cell = self.free.index(row, column);
                    self.free.add(cell, amount - self.free.cells()[cell]);
                }
            }
        }
    }

    /// What a pod holds at most in a cell. Memory of several zones counts in each of them.
    pub(in crate::ledger) fn held_in(&self, held: &HeldIds, row: usize, column: usize) -> i64 {
        let layout = self.vacant.allocatable().layout();
        let (zone, name) = (layout.zones()[row].0, layout.resources()[column]);
        let of_container = |container: &ContainerAllocation| match name.kind() {
            ResourceKind::Cpu => {
                let here = self.vacant.start.kubelet.machine().cpus_of(ZoneMask::of(zone));
                amount(here.count_shared(&container.cpus)).saturating_mul(name.base_units())
            }
            ResourceKind::Memory => {
                let here =
                    container.memory.iter().filter(|block| block.name == name && block.zones.contains(zone));
                here.map(|block| i64::try_from(block.bytes).unwrap_or(i64::MAX)).fold(0, i64::saturating_add)
            }
            ResourceKind::Device => {
                let listed = self.state.devices.resources.get(&name);
                let zones = |id: &DeviceId| listed?.devices.get(id)?.zones;
                let held = container.devices.get(&name).into_iter().flatten();
                amount(held.filter(|id| zones(id).is_some_and(|zones| zones.contains(zone))).count())
            }
            ResourceKind::Host => 0,
        };
        let cell = self.free.index(row, column);
        let bounds = held.bounds.iter().filter(|grant| grant.cell as usize == cell).map(|grant| grant.held);
        held.containers.iter().map(of_container).chain(bounds).fold(0, i64::saturating_add)
    }

    /// The zones of all that a pod holds.
    pub(super) fn zones_of(&self, held: &HeldIds) -> ZoneMask {
        let zones_of = |container: &ContainerAllocation| {
            let cpus = self.vacant.start.kubelet.machine().zones_of(&container.cpus);
            let memory = container.memory.iter().map(|block| block.zones);
            let devices = container.devices.iter().flat_map(|(name, ids)| {
                let listed = self.state.devices.resources.get(name);
                ids.iter().filter_map(move |id| listed?.devices.get(id)?.zones)
            });
            memory.chain(devices).fold(cpus, ZoneMask::union)
        };
        held.containers.iter().map(zones_of).fold(ZoneMask::EMPTY, ZoneMask::union)
    }
}

impl PartialEq for Ids {
    /// Whether a kubelet would admit the same pods.
    fn eq(&self, other: &Self) -> bool {
        self.has_debt == other.has_debt
            && self.free == other.free
            && self.state.cpus.shared == other.state.cpus.shared
            && self.state.memory.counts == other.state.memory.counts
    }
}

fn amount(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
