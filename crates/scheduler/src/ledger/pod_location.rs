//! Where the pods of a node are, as the ledger has it, for people.
//!
//! In: the ledger. Out: for each pod that holds something or may, its stage and what it holds. Never: a choice between
//! worlds; where they differ the first one's answer is given, and marked.

use topology::kubelet::ContainerAllocation;
use topology::kubelet::hint::ZoneMask;

use super::amounts::Held;
use super::row::Row;
use super::{Ledger, Location, PodId, PodNames, Stage};

/// A pod, and where it is.
#[derive(Clone, Debug)]
pub struct PodLocation<'a> {
    /// The pod.
    pub id: PodId,
    /// Its names.
    pub names: &'a PodNames,
    /// Its stage in the kubelet.
    pub stage: Stage,
    /// What it holds.
    pub held: PodHoldings<'a>,
    /// Whether every possible world says so, and exactly so.
    pub is_certain: bool,
}

/// What a pod holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodHoldings<'a> {
    /// The ledger does not know.
    Unknown,
    /// Something in these zones; of other exporters' reports no more is known.
    Zones(ZoneMask),
    /// What each container holds, by ids.
    Containers(&'a [ContainerAllocation]),
}

impl Ledger {
    /// The pods that hold something or may, in the order in which the kubelet sees them. Cost: rows x worlds.
    pub fn pod_locations(&self) -> impl Iterator<Item = PodLocation<'_>> {
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.stage != Stage::Released);
        rows.map(|(at, row)| self.place(at, row))
    }

    fn place<'a>(&'a self, at: usize, row: &'a Row) -> PodLocation<'a> {
        let (id, names, stage) = (row.id, &row.names, row.stage);
        let held = match self.worlds.first().map(|world| &world.locations[at]) {
            None | Some(Location::Unknown) => PodHoldings::Unknown,
            Some(Location::Charged { held: Held::Ids(held), .. }) => {
                PodHoldings::Containers(&held.containers)
            }
            Some(Location::Charged { held: Held::Cells(placement), .. }) => {
                let layout = self.free().or_else(|| self.worlds.first().map(|world| world.amounts.free()));
                let zone = |cell: u32| {
                    let layout = layout?.layout();
                    layout.zones().get(cell as usize / layout.resources().len().max(1)).map(|zone| zone.0)
                };
                PodHoldings::Zones(placement.grants.iter().filter_map(|grant| zone(grant.cell)).collect())
            }
        };
        PodLocation { id, names, stage, held, is_certain: self.is_certain(at) }
    }

    /// Whether a row holds the same, exactly known, in every world.
    pub(super) fn is_certain(&self, at: usize) -> bool {
        let mut worlds = self.worlds.iter().map(|world| &world.locations[at]);
        let first = worlds.next();
        first.is_none_or(|first| {
            matches!(first, Location::Charged { exact: true, .. }) && worlds.all(|other| other == first)
        })
    }
}
