//! What is free on a node in one world, and what its kubelet would hand out of it.
//!
//! In: a report, and what pods hold. Out: whether the kubelet would admit a pod, and what the pod gets. Never: a pod's
//! stage or order.
//!
//! Reports of tholepin's exporter say by ids what is free and what containers hold. With them the answer is that of the
//! kubelet's model, for every policy and option ([`Amounts::Ids`]). Reports of other exporters have amounts by zone,
//! which suffice for a single zone ([`Amounts::Counts`]).
//!
//! Cost: a check reads the counts of zones; only what they leave open is admitted by ids, on a copy. A change counts
//! anew what all pods of the node hold.

use std::sync::Arc;

use smallvec::SmallVec;
use topology::admit::{self, Grant, MidAdmissionRelease, Placement};
use topology::kubelet::alignment::Alignment;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::start::KubeletStart;
use topology::kubelet::zone_table::{self, Fit, ZoneSummary};
use topology::kubelet::{self, ContainerAllocation};
use topology::policy::{Policy, Rules, Scope};
use topology::reason::Misfit;
use topology::request::{ContainerKind, PodNeeds};
use topology::zone::{Free, MAX_COUNTED};

use super::Location;
use super::kubelet_model_cache::KubeletModelCache;

mod ids;

pub(super) use ids::{HeldIds, Ids, Vacant};

/// Most containers of a pod that are tried one by one as the last that spares CPUs of init containers.
const MAX_SPARING: usize = 6;

/// Working memory of admissions.
#[derive(Debug, Default)]
pub struct Scratch {
    /// That of admissions by amounts.
    pub(crate) counts: admit::Scratch,
    table: zone_table::Scratch,
    /// Models of nodes, to be shared by equal ones.
    pub(super) models: KubeletModelCache,
}

/// A moment within an admission at which managers take back what other pods held.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReleasePoint {
    /// The number of the container before which that is.
    before: usize,
    /// See [`MidAdmissionRelease::sparing_until`].
    sparing_until: usize,
}

/// What is free.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Amounts {
    /// By zone and resource.
    Counts(Free),
    /// By id. Worlds share it until one of them changes.
    Ids(Arc<Ids>),
}

/// What a pod holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Cells(Placement),
    Ids(Arc<HeldIds>),
}

impl Held {
    /// Whether it is nothing.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Cells(placement) => *placement == Placement::default(),
            Self::Ids(held) => {
                held.bounds.is_empty()
                    && held.containers.iter().all(|container| {
                        let ContainerAllocation { name: _, cpus, memory, devices } = container;
                        cpus.is_empty() && memory.is_empty() && devices.is_empty()
                    })
            }
        }
    }
}

impl Default for Held {
    fn default() -> Self {
        Self::Cells(Placement::default())
    }
}

// === reading ===

impl Amounts {
    /// A node without pods.
    pub(super) fn vacant(start: Arc<KubeletStart>) -> Self {
        let vacant = Vacant::new(start, ContainerAllocation::default(), || true);
        Self::Ids(Arc::new(Ids::new(Arc::new(vacant))))
    }

    /// Whether ids are known.
    pub(super) fn is_by_ids(&self) -> bool {
        matches!(self, Self::Ids(_))
    }

    /// The amounts by zone and resource.
    pub(super) fn free(&self) -> &Free {
        match self {
            Self::Counts(free) => free,
            Self::Ids(ids) => &ids.free,
        }
    }

    /// What decides most verdicts, by ids.
    pub(super) fn zone_summary(&self) -> Option<ZoneSummary> {
        match self {
            Self::Counts(_) => None,
            Self::Ids(ids) => ZoneSummary::new(&ids.vacant.start.kubelet, &ids.counts, &ids.free),
        }
    }

    /// Whether pods that the ledger does not know may hold something. Amounts do not tell.
    pub(super) fn has_unknown_pods(&self) -> bool {
        match self {
            Self::Counts(_) => false,
            Self::Ids(ids) => ids.has_unknown_pods(),
        }
    }

    /// Whether more is held than there is.
    pub(super) fn has_debt(&self) -> bool {
        match self {
            Self::Counts(free) => free.has_debt(),
            Self::Ids(ids) => ids.has_debt,
        }
    }

    /// Whether the kubelet may reject the pod for what it has in zones.
    pub(super) fn needs_alignment(&self, rules: Rules, needs: &PodNeeds) -> bool {
        match self {
            Self::Counts(free) => admit::needs_alignment(rules, free, needs),
            Self::Ids(_) => needs.may_align(),
        }
    }

    /// Whether the kubelet would admit the pod.
    ///
    /// # Errors
    /// The [`Misfit`].
    pub(super) fn check(&self, rules: Rules, needs: &PodNeeds, scratch: &mut Scratch) -> Result<(), Misfit> {
        let Self::Ids(ids) = self else { return self.admit(rules, needs, scratch).map(drop) };
        match zone_table::fits(&ids.vacant.start.kubelet, &ids.counts, &needs.pod, &mut scratch.table) {
            Fit::Yes => Ok(()),
            Fit::No(rejection) => Err(ids.misfit(&rejection, rules, needs, scratch)),
            Fit::Undetermined => self.admit(rules, needs, scratch).map(drop),
        }
    }

    /// What the kubelet would give to the pod.
    ///
    /// # Errors
    /// The [`Misfit`] when it would reject the pod.
    pub(super) fn admit(
        &self,
        rules: Rules,
        needs: &PodNeeds,
        scratch: &mut Scratch,
    ) -> Result<Held, Misfit> {
        match self {
            Self::Counts(free) => admit::admit(rules, free, needs, &mut scratch.counts).map(Held::Cells),
            Self::Ids(ids) => {
                let mut state = ids.state.clone();
                kubelet::admit(&ids.vacant.start.kubelet, &mut state, &needs.pod, &Lowest)
                    .map(|allocation| Held::Ids(Arc::new(HeldIds::exactly(allocation.containers))))
                    .map_err(|rejection| ids.misfit(&rejection, rules, needs, scratch))
            }
        }
    }

    /// The values of [`MidAdmissionRelease::sparing_until`] that may differ in their result: none is spared, or those
    /// before each container that another one may have left CPUs to. Of many containers only the last.
    fn sparing(&self, needs: &PodNeeds) -> impl Iterator<Item = usize> + use<> {
        let containers = needs.containers.len();
        let has_init = || needs.containers.iter().any(|container| container.kind == ContainerKind::Init);
        let may_differ = !self.is_by_ids() && containers > 2 && has_init();
        let first = if containers > MAX_SPARING { containers } else { 3 };
        std::iter::once(0).chain((first..=containers).filter(move |_| may_differ))
    }

    /// The moments within the admission of a pod at which the managers may take back what pods held that end meanwhile,
    /// each with all that may follow.
    pub(super) fn release_points(&self, needs: &PodNeeds) -> impl Iterator<Item = ReleasePoint> + use<> {
        let containers = match self {
            Self::Counts(_) => needs.containers.len(),
            Self::Ids(_) => needs.pod.containers.len(),
        };
        let sparing: SmallVec<[usize; 4]> = self.sparing(needs).collect();
        let points = move |before| {
            sparing.clone().into_iter().map(move |sparing_until| ReleasePoint { before, sparing_until })
        };
        (1..containers).flat_map(points)
    }

    /// What the kubelet would give to the pod, if the managers take back what `ended` pods hold at one of
    /// [`Self::release_points`].
    ///
    /// # Errors
    /// The [`Misfit`] when it would reject the pod.
    pub(super) fn admit_with_release<'a>(
        &self,
        rules: Rules,
        needs: &PodNeeds,
        point: ReleasePoint,
        ended: impl Iterator<Item = &'a Location>,
        scratch: &mut Scratch,
    ) -> Result<Held, Misfit> {
        match self {
            Self::Counts(free) => {
                let mut later = free.clone();
                for location in ended {
                    if let Location::Charged { held: Held::Cells(placement), .. } = location {
                        placement.release(&mut later);
                    }
                }
                let ReleasePoint { before, sparing_until } = point;
                let release = MidAdmissionRelease { later: &later, before, sparing_until };
                admit::admit_with_release(rules, free, release, needs, &mut scratch.counts).map(Held::Cells)
            }
            Self::Ids(ids) => {
                let ended = ended.filter_map(|location| match location {
                    Location::Charged { held: Held::Ids(held), .. } => Some(held),
                    Location::Charged { held: Held::Cells(_), .. } | Location::Unknown => None,
                });
                ids.admit_with_release(&needs.pod, point.before, ended)
                    .map(|allocation| Held::Ids(Arc::new(HeldIds::exactly(allocation.containers))))
                    .map_err(|rejection| ids.misfit(&rejection, rules, needs, scratch))
            }
        }
    }

    /// How well the kubelet would align a pod that it admits; `None` if it would not admit it, or amounts do not tell.
    pub(super) fn alignment(
        &self,
        rules: Rules,
        needs: &PodNeeds,
        scratch: &mut Scratch,
    ) -> Option<Alignment> {
        match self {
            Self::Ids(ids) => {
                let kubelet = &ids.vacant.start.kubelet;
                let mut state = ids.state.clone();
                let allocation = kubelet::admit(kubelet, &mut state, &needs.pod, &Lowest).ok()?;
                Some(Alignment::of(kubelet, &state, &allocation))
            }
            // What fits one zone is a preferred hint, which the kubelet takes.
            Self::Counts(free) if rules.policy == Policy::BestEffort => {
                let rules = Rules { policy: Policy::SingleNumaNode, ..rules };
                let fits = admit::admit(rules, free, needs, &mut scratch.counts).is_ok();
                Some(if fits { Alignment::Aligned } else { Alignment::Misaligned })
            }
            Self::Counts(_) => None,
        }
    }

    /// The same with other groups of zones in the memory manager, as far as they may be the kubelet's. Where no policy
    /// keeps pods in the zones that they prefer, a pod may be in one zone of a group, and the zone is alone from then
    /// on, until the next pod of the group (kubelet memorymanager `updateMachineState`). What pods hold does not tell.
    pub(super) fn regrouped(&self, rules: Rules) -> Vec<Self> {
        match self {
            Self::Ids(ids) if !rules.policy.enforces() => {
                ids.regrouped().into_iter().map(|ids| Self::Ids(Arc::new(ids))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether an empty zone would hold all that the pod asks for. By amounts no other pod is ever let in.
    pub(super) fn has_zone_for(&self, needs: &PodNeeds) -> bool {
        match self {
            Self::Counts(_) => true,
            Self::Ids(ids) => ids.vacant.has_zone_for(needs),
        }
    }

    /// Whether more room can make the pod not fit.
    ///
    /// With several containers aligned one by one, the first may move to the zone that a later one needs. A pod in
    /// several zones depends on which ones others are in. For such pods a check against the current room is not enough,
    /// and the worlds with early releases are checked as well.
    pub(super) fn is_non_monotonic(&self, rules: Rules, needs: &PodNeeds) -> bool {
        let aligned = needs.containers.iter().filter(|container| {
            let mut needs = container.needs.iter().map(|need| (need, needs.qos));
            needs.any(|(need, qos)| admit::charged_column(rules, self.free(), qos, *need).is_some())
        });
        let aligned = aligned.count();
        let spans = match self {
            Self::Counts(_) => false,
            Self::Ids(ids) => match rules.policy {
                Policy::SingleNumaNode => false,
                Policy::Restricted => !ids.vacant.has_zone_for(needs),
                // Only the memory manager refuses zones then.
                Policy::None | Policy::BestEffort => !ids.state.memory.counts.zones.is_empty(),
            },
        };
        aligned > usize::from(!spans) && (spans || rules.scope == Scope::Container)
    }
}

// === changes ===

impl Amounts {
    /// Takes what a pod holds.
    pub(super) fn charge(&mut self, held: &Held) {
        match (self, held) {
            (Self::Counts(free), Held::Cells(placement)) => placement.charge(free),
            (Self::Ids(ids), Held::Ids(held)) => Arc::make_mut(ids).charge(held),
            // A pod that holds nothing, or amounts of a table that is gone.
            _ => {}
        }
    }

    /// Gives back what a pod holds.
    pub(super) fn release(&mut self, held: &Held) {
        self.release_all(std::slice::from_ref(held));
    }

    /// Gives back what pods hold.
    pub(super) fn release_all(&mut self, all: &[Held]) {
        match self {
            Self::Counts(free) => all.iter().for_each(|held| {
                if let Held::Cells(placement) = held {
                    placement.release(free);
                }
            }),
            Self::Ids(ids) => {
                let mut held = all.iter().filter_map(Held::ids).peekable();
                if held.peek().is_some() {
                    Arc::make_mut(ids).release(held);
                }
            }
        }
    }

    /// The position of the highest zone of which a pod holds something.
    pub(super) fn highest_zone(&self, held: &Held) -> Option<usize> {
        let zones = self.free().layout().zones();
        match (self, held) {
            (Self::Ids(ids), Held::Ids(held)) => {
                let highest = ids.zones_of(held).iter().last()?;
                zones.iter().position(|zone| zone.0 == highest)
            }
            (_, Held::Cells(placement)) => {
                let columns = self.free().layout().resources().len().max(1);
                placement.grants.iter().map(|grant| grant.cell as usize / columns).max()
            }
            (Self::Counts(_), Held::Ids(_)) => None,
        }
    }

    /// What the pod would hold if it were in each of the lowest `rows` zones: a bound for a pod that may be in any of
    /// them.
    pub(super) fn in_lowest_zones(&self, rules: Rules, needs: &PodNeeds, rows: usize) -> Held {
        let free = self.free();
        let mut sums = vec![0_i64; free.layout().resources().len()];
        for need in needs.containers.iter().flat_map(|container| &container.needs) {
            if let Some(column) = admit::charged_column(rules, free, needs.qos, *need) {
                sums[column] = sums[column].saturating_add(need.amount);
            }
        }
        let cells =
            (0..rows).flat_map(|row| sums.iter().enumerate().map(move |(column, sum)| (row, column, *sum)));
        let grants = cells.filter(|(.., sum)| *sum > 0).map(|(row, column, held)| {
            let cell = u32::try_from(free.index(row, column)).unwrap_or(u32::MAX);
            // No zone has more.
            Grant { cell, held: held.min(MAX_COUNTED), visible: 0 }
        });
        self.bounded_by(grants.collect())
    }

    /// The holdings of a pod that has at most these amounts, whichever they are.
    pub(super) fn bounded_by(&self, grants: SmallVec<[Grant; 2]>) -> Held {
        match self {
            Self::Counts(_) => Held::Cells(Placement { grants }),
            Self::Ids(_) => Held::Ids(Arc::new(HeldIds { bounds: grants, ..HeldIds::default() })),
        }
    }
}

impl Held {
    fn ids(&self) -> Option<&Arc<HeldIds>> {
        match self {
            Self::Ids(ids) => Some(ids),
            Self::Cells(_) => None,
        }
    }

    /// What a pod holds that has either of these: each part once.
    pub(super) fn union(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Cells(one), Self::Cells(other)) => {
                Self::Cells(Placement { grants: most(&one.grants, &other.grants) })
            }
            (Self::Ids(one), Self::Ids(other)) => {
                let mut containers = one.containers.clone();
                let new = other.containers.iter().filter(|container| !one.containers.contains(container));
                containers.extend(new.cloned());
                let bounds = most(&one.bounds, &other.bounds);
                Self::Ids(Arc::new(HeldIds { containers, is_union: true, bounds }))
            }
            (Self::Cells(placement), ids @ Self::Ids(_)) | (ids @ Self::Ids(_), Self::Cells(placement)) => {
                debug_assert!(placement.grants.is_empty(), "amounts of two kinds of reports");
                ids.clone()
            }
        }
    }
}

/// In each cell the larger amount.
fn most(one: &[Grant], other: &[Grant]) -> SmallVec<[Grant; 2]> {
    let mut grants: SmallVec<[Grant; 2]> = one.iter().copied().collect();
    for grant in other {
        match grants.iter_mut().find(|known| known.cell == grant.cell) {
            Some(known) => known.held = known.held.max(grant.held),
            None => grants.push(*grant),
        }
    }
    grants.sort_unstable_by_key(|grant| grant.cell);
    grants.iter_mut().for_each(|grant| grant.visible = 0);
    grants
}
