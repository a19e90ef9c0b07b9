//! A node as an exporter describes it: NUMA zones with their resources, and the kubelet's alignment settings.
//!
//! In: numbers already converted to base units (`api::convert` does that from NRT objects). Out: [`NodeTopology`], the
//! description, and [`Free`], the dense availability table that admission reads and the scheduler's ledger changes.
//! Zone ids are opaque keys: sparse ids and zones without CPUs are ordinary.
//!
//! # Example
//! ```
//! use topology::resource::ResourceName;
//! use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};
//!
//! let memory = ResourceName::MEMORY;
//! let resources = vec![ZoneResource { name: memory, capacity: 64, allocatable: 60, available: 20 }];
//! let zone = Zone { id: ZoneId(3), resources, distances: vec![] };
//! let node = NodeTopology { zones: vec![zone], ..NodeTopology::default() };
//!
//! let mut free = node.available();
//! assert_eq!(free.amount(ZoneId(3), memory), 20);
//! free.add(free.index(0, 0), -30);
//! assert_eq!((free.amount(ZoneId(3), memory), free.has_debt()), (-10, true));
//! assert_eq!(free.amount(ZoneId(0), memory), 0, "there is no zone 0");
//! ```

use crate::fingerprint::{Fingerprint, Method};
use crate::kubelet::report::KubeletReport;
use crate::policy::Rules;
use crate::resource::ResourceName;

/// The most zones a node can have; the kubelet's bit masks and the NRT peers share this limit.
pub const MAX_ZONES: usize = 64;

/// The limit for an amount of a resource in one zone, in base units: sums over all zones of a node cannot overflow.
pub const MAX_AMOUNT: i64 = i64::MAX / MAX_ZONES as i64;

/// The most that is counted of what one pod asks for, in base units: 1 PiB, 10^12 CPUs. No node has as much. Of so
/// many, thousands of pods can be counted on one node before a sum wraps.
pub const MAX_COUNTED: i64 = 1 << 50;

/// A NUMA zone id as the kernel numbers it (`node-3` has id 3). A key, never an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u32);

/// One resource of one zone, in base units ([`ResourceName::base_units`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneResource {
    /// The resource.
    pub name: ResourceName,
    /// The amount the zone has.
    pub capacity: i64,
    /// The amount that pods may use.
    pub allocatable: i64,
    /// The amount that running pods do not hold exclusively.
    pub available: i64,
}

/// One NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The id, unique within the node.
    pub id: ZoneId,
    /// The zone's resources, ordered by name, each name once.
    pub resources: Vec<ZoneResource>,
    /// Distances to other zones and to the zone itself, as in the ACPI SLIT; may be empty.
    pub distances: Vec<(ZoneId, u32)>,
}

/// Everything an NRT object says about a node, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTopology {
    /// How the node's kubelet admits pods.
    pub rules: Rules,
    /// Zones, ascending by id, each id once.
    pub zones: Vec<Zone>,
    /// Which pods `available` accounts for; `None` when the exporter does not say.
    pub fingerprint: Option<(Fingerprint, Method)>,
    /// Threads of a core; `None` when the exporter does not say.
    pub threads_per_core: Option<u8>,
    /// The most zones for which the Topology Manager starts; `None` when the exporter does not say.
    pub max_numa_nodes: Option<u32>,
    /// The node by ids, and what its containers hold; `None` when the exporter does not say.
    pub kubelet: Option<Box<KubeletReport>>,
}

/// The rows and columns of a node's availability table: zones and resources.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    zones: Vec<ZoneId>,
    resources: Vec<ResourceName>,
    threads_per_core: u8,
}

/// Threads of a core where no exporter says: with more threads, more CPUs may be held than are reported.
const USUAL_THREADS: u8 = 2;

/// Availability per zone and resource, dense: a row for each zone, ascending by id; a column for each resource that any
/// zone lists.
///
/// A zone that does not list a resource has 0 of it. Amounts may be negative: the ledger charges a pod to a zone that a
/// leaving pod still holds, so the zone is in debt until the release arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    layout: std::sync::Arc<Layout>,
    cells: Box<[i64]>,
}

/// Amounts by zone and resource, wherever they are kept.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a> {
    /// The number of rows.
    pub zones: usize,
    /// The columns.
    pub resources: &'a [ResourceName],
    /// Row by row.
    pub amounts: &'a [i64],
}

#[inline]
fn column_of(resources: &[ResourceName], name: ResourceName) -> Option<usize> {
    resources.iter().position(|listed| *listed == name)
}

impl<'a> Cells<'a> {
    /// The amounts of a zone, by column.
    #[must_use]
    #[inline]
    pub fn row(&self, row: usize) -> &'a [i64] {
        let columns = self.resources.len();
        &self.amounts[row * columns..(row + 1) * columns]
    }

    /// The column of a resource, if any zone lists it.
    #[must_use]
    #[inline]
    pub fn column(&self, name: ResourceName) -> Option<usize> {
        column_of(self.resources, name)
    }
}

impl NodeTopology {
    /// The table of available amounts, as the exporter saw them. Allocates; cost: zones x resources.
    #[must_use]
    pub fn available(&self) -> Free {
        self.table(|resource| resource.available)
    }

    /// The table of allocatable amounts. Allocates; cost: zones x resources.
    #[must_use]
    pub fn allocatable(&self) -> Free {
        self.table(|resource| resource.allocatable)
    }

    fn table(&self, amount: impl Fn(&ZoneResource) -> i64) -> Free {
        let mut resources: Vec<_> =
            self.zones.iter().flat_map(|z| z.resources.iter().map(|r| r.name)).collect();
        resources.sort_unstable();
        resources.dedup();
        let zones = self.zones.iter().map(|z| z.id).collect();
        let threads_per_core = self.threads_per_core.unwrap_or(USUAL_THREADS).max(1);
        let layout = Layout { zones, resources, threads_per_core };
        let mut cells = vec![0; layout.zones.len() * layout.resources.len()].into_boxed_slice();
        for (row, zone) in self.zones.iter().enumerate() {
            for resource in &zone.resources {
                if let Some(column) = layout.column(resource.name) {
                    cells[row * layout.resources.len() + column] = amount(resource);
                }
            }
        }
        Free { layout: std::sync::Arc::new(layout), cells }
    }
}

impl Layout {
    /// Zone ids, ascending.
    #[must_use]
    #[inline]
    pub fn zones(&self) -> &[ZoneId] {
        &self.zones
    }

    /// Resources, in name order.
    #[must_use]
    #[inline]
    pub fn resources(&self) -> &[ResourceName] {
        &self.resources
    }

    /// Threads of a core, at least 1; 2 where it is not known.
    #[must_use]
    pub fn threads_per_core(&self) -> u8 {
        self.threads_per_core
    }

    /// The column of a resource, if any zone lists it. A linear search over the node's resources, a handful.
    #[must_use]
    #[inline]
    pub fn column(&self, name: ResourceName) -> Option<usize> {
        column_of(&self.resources, name)
    }
}

impl Free {
    /// The zones and resources of the table.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The same, to keep.
    pub(crate) fn shared_layout(&self) -> std::sync::Arc<Layout> {
        std::sync::Arc::clone(&self.layout)
    }

    /// The amounts with their columns.
    #[must_use]
    pub fn as_cells(&self) -> Cells<'_> {
        Cells { zones: self.layout.zones.len(), resources: &self.layout.resources, amounts: &self.cells }
    }

    /// All amounts, row by row.
    #[must_use]
    pub fn cells(&self) -> &[i64] {
        &self.cells
    }

    /// The index into [`Free::cells`] of a row and column.
    #[must_use]
    pub fn index(&self, row: usize, column: usize) -> usize {
        row * self.layout.resources.len() + column
    }

    /// The amount of all zones together.
    #[must_use]
    pub fn sum(&self, column: usize) -> i64 {
        (0..self.layout.zones.len()).map(|row| self.get(row, column)).fold(0, i64::saturating_add)
    }

    /// The amount at a row and column; 0 out of range.
    #[must_use]
    pub fn get(&self, row: usize, column: usize) -> i64 {
        self.cells.get(self.index(row, column)).copied().unwrap_or(0)
    }

    /// The amount of a resource in a zone; 0 when the zone or the resource is unknown.
    #[must_use]
    pub fn amount(&self, zone: ZoneId, name: ResourceName) -> i64 {
        let row = self.layout.zones.binary_search(&zone);
        match (row, self.layout.column(name)) {
            (Ok(row), Some(column)) => self.get(row, column),
            _ => 0,
        }
    }

    /// Adds `delta`, which may be negative, at an index of [`Free::cells`]. Wraps, so that what was taken can always be
    /// given back. Out of range does nothing.
    pub fn add(&mut self, index: usize, delta: i64) {
        if let Some(cell) = self.cells.get_mut(index) {
            *cell = cell.wrapping_add(delta);
        }
    }

    /// Lowers every cell to the smaller of the two tables: what is free in both views. Tables of different layouts have
    /// nothing in common, so every cell becomes 0.
    pub fn meet(&mut self, other: &Self) {
        let same = self.layout == other.layout;
        for (index, cell) in self.cells.iter_mut().enumerate() {
            *cell = if same { (*cell).min(other.cells[index]) } else { 0 };
        }
    }

    /// Whether any cell is below zero.
    #[must_use]
    pub fn has_debt(&self) -> bool {
        self.cells.iter().any(|amount| *amount < 0)
    }
}
