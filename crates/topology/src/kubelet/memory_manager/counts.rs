//! The bytes of each zone and the groups of zones: all that hints for memory and its allocation depend on.
//!
//! In: zones, ascending by id, and blocks that are taken and given back. Out: free and allocatable bytes of sets of
//! zones. Never: which container holds a block, but for what the init containers of one pod leave to its next ones.

use smallvec::SmallVec;

use crate::kubelet::hint::ZoneMask;
use crate::kubelet::pod::{MemoryAmounts, Pod, PodUid};
use crate::request::ContainerKind;
use crate::resource::ResourceName;

/// Blocks of memory, one for each type.
pub type Blocks = SmallVec<[Block; 2]>;

/// What zones have, and what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryCounts {
    /// Zones, ascending by id.
    pub zones: Vec<ZoneMemory>,
    /// Memory of init containers that the next containers of this pod may use.
    reusable: Option<(PodUid, Blocks)>,
}

/// The memory of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZoneMemory {
    /// The zone.
    pub id: u32,
    /// Blocks that include the zone.
    pub assignments: i64,
    /// The zones of those blocks; the zone itself if there are none (`cells`).
    pub group: ZoneMask,
    /// By type, ordered by name.
    pub tables: SmallVec<[MemoryTable; 3]>,
}

/// Bytes of one type in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryTable {
    /// `memory`, or a size of huge pages.
    pub name: ResourceName,
    /// All bytes.
    pub total: u64,
    /// Bytes kept for the system.
    pub system_reserved: u64,
    /// Bytes for pods.
    pub allocatable: u64,
    /// Bytes that containers hold.
    pub reserved: u64,
    /// Bytes left.
    pub free: u64,
}

/// Memory of one type that a container holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The zones.
    pub zones: ZoneMask,
    /// The type.
    pub name: ResourceName,
    /// Bytes. Of an init container: those that no later container reuses.
    pub bytes: u64,
}

impl ZoneMemory {
    /// The bytes of one type; none where the zone does not have it.
    pub(super) fn table(&self, name: ResourceName) -> Option<&MemoryTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Whether the zone alone has so much for a container that reuses nothing.
    pub(crate) fn holds(&self, amounts: &MemoryAmounts) -> bool {
        let has = |(name, bytes): &(ResourceName, u64)| {
            self.table(*name).is_some_and(|table| table.allocatable >= *bytes && table.free >= *bytes)
        };
        !self.refuses(ZoneMask::of(self.id)) && amounts.iter().all(has)
    }

    /// Whether the zone cannot be in an alignment to `zones`, because of what is in it already.
    pub(super) fn refuses(&self, zones: ZoneMask) -> bool {
        (zones.is_single() || self.assignments > 0) && self.group != zones
    }
}

impl MemoryCounts {
    pub(super) fn new(zones: Vec<ZoneMemory>) -> Self {
        Self { zones, reusable: None }
    }

    /// The zones of a mask. `all` is the mask of all zones.
    pub(super) fn within(&self, all: ZoneMask, zones: ZoneMask) -> impl Iterator<Item = &ZoneMemory> {
        zones.intersection(all).iter().filter_map(move |zone| self.zones.get(all.rank(zone)))
    }

    /// All zones.
    pub(super) fn mask(&self) -> ZoneMask {
        self.zones.iter().map(|zone| zone.id).collect()
    }

    /// Free bytes in these zones.
    #[must_use]
    pub fn free(&self, zones: ZoneMask, name: ResourceName) -> u64 {
        self.sum(zones, name, |table| table.free)
    }

    /// Bytes that containers hold in these zones.
    pub(super) fn reserved(&self, zones: ZoneMask, name: ResourceName) -> u64 {
        self.sum(zones, name, |table| table.reserved)
    }

    fn sum(&self, zones: ZoneMask, name: ResourceName, of: impl Fn(&MemoryTable) -> u64) -> u64 {
        let tables = self.within(self.mask(), zones).filter_map(|zone| zone.table(name));
        tables.fold(0, |sum, table| sum.wrapping_add(of(table)))
    }

    /// Takes bytes, from the lowest zone on (kubelet `updateMachineState`).
    pub(crate) fn reserve(&mut self, block: Block) {
        let mut left = block.bytes;
        for zone in self.zones.iter_mut().filter(|zone| block.zones.contains(zone.id)) {
            zone.assignments += 1;
            zone.group = block.zones;
            for table in zone.tables.iter_mut().filter(|table| table.name == block.name) {
                let taken = left.min(table.free);
                table.reserved += taken;
                table.free -= taken;
                left -= taken;
            }
        }
    }

    /// Gives bytes back, to the lowest zone first (kubelet `releaseMemory`).
    pub(super) fn give_back(&mut self, block: Block) {
        let mut left = block.bytes;
        for zone in self.zones.iter_mut().filter(|zone| block.zones.contains(zone.id)) {
            zone.assignments -= 1;
            if zone.assignments == 0 {
                zone.group = ZoneMask::of(zone.id);
            }
            for table in zone.tables.iter_mut().filter(|table| table.name == block.name) {
                let given = left.min(table.reserved);
                table.free = table.free.wrapping_add(given);
                table.reserved -= given;
                left -= given;
            }
        }
    }

    /// Takes the blocks of a container, but for what it reuses (kubelet `Allocate`, `updatePodReusableMemory`).
    pub(crate) fn take(&mut self, pod: &Pod, kind: ContainerKind, blocks: &[Block]) {
        for block in blocks {
            let reusable = self.reusable(&pod.uid).iter().filter(|r| r.zones == block.zones);
            let reused: u64 = reusable.filter(|r| r.name == block.name).map(|r| r.bytes).sum();
            self.reserve(Block { bytes: block.bytes.saturating_sub(reused), ..*block });
        }
        self.note_reusable(pod, kind, blocks);
    }

    /// What the next containers of this pod may use of its init containers' memory.
    pub(super) fn reusable(&self, uid: &PodUid) -> &[Block] {
        self.reusable.as_ref().filter(|(of, _)| of == uid).map_or(&[], |(_, blocks)| blocks)
    }

    /// kubelet `updatePodReusableMemory`.
    pub(super) fn note_reusable(&mut self, pod: &Pod, kind: ContainerKind, blocks: &[Block]) {
        let mut reusable =
            self.reusable.take().filter(|(of, _)| *of == pod.uid).map(|(_, r)| r).unwrap_or_default();
        for block in blocks {
            let known = reusable.iter_mut().find(|r| r.zones == block.zones && r.name == block.name);
            match (kind, known) {
                (ContainerKind::Init, Some(known)) => known.bytes = known.bytes.max(block.bytes),
                (ContainerKind::Init, None) => reusable.push(*block),
                (_, Some(known)) => known.bytes = known.bytes.saturating_sub(block.bytes),
                (_, None) => {}
            }
        }
        self.reusable = Some((pod.uid.clone(), reusable));
    }

    /// Forgets what a kubelet keeps in memory only.
    pub(crate) fn forget_reusable(&mut self) {
        self.reusable = None;
    }

    /// Takes over other counts, in the memory that these have.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.zones.clone_from(&other.zones);
        self.reusable.clone_from(&other.reusable);
    }
}
