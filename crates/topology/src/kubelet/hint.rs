//! Sets of NUMA zones, and the hints that resource managers give to the Topology Manager.
//!
//! In: zone ids below 64. Out: masks that order as the kubelet's do (kubelet 1.36 `topologymanager/bitmask`), and the
//! subsets of a mask by size. Never: a zone id of 64 or more, which the kubelet cannot represent either.
//!
//! # Example
//! ```
//! use topology::kubelet::hint::ZoneMask;
//!
//! let zones: ZoneMask = [0, 2, 3].into_iter().collect();
//! let pairs: Vec<_> = zones.subsets(2).map(|mask| mask.to_string()).collect();
//! assert_eq!(pairs, ["0,2", "0,3", "2,3"]);
//! assert!(ZoneMask::of(3).is_narrower_than(zones), "fewer zones");
//! assert!(ZoneMask::of(0).is_narrower_than(ZoneMask::of(2)), "lower zones");
//! ```

use std::fmt;

use smallvec::SmallVec;

/// The zone ids that a mask can hold are below this.
pub const MAX_ZONE_ID: u32 = 64;

/// A set of NUMA zones, by id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneMask(u64);

/// One possible alignment (kubelet `TopologyHint`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The zones; `None` where any will do.
    pub zones: Option<ZoneMask>,
    /// Whether no narrower alignment is possible on the machine.
    pub preferred: bool,
}

impl ZoneMask {
    /// No zone.
    pub const EMPTY: Self = Self(0);

    /// One zone; none for an id of 64 or more.
    #[must_use]
    pub const fn of(zone: u32) -> Self {
        if zone < MAX_ZONE_ID { Self(1 << zone) } else { Self(0) }
    }

    /// The number of zones.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is exactly one zone. Cheaper than its number where a machine cannot count bits at once.
    #[must_use]
    pub const fn is_single(self) -> bool {
        self.0.is_power_of_two()
    }

    /// Whether there is no zone.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the zone is in the mask.
    #[must_use]
    pub const fn contains(self, zone: u32) -> bool {
        zone < MAX_ZONE_ID && self.0 & (1 << zone) != 0
    }

    /// Whether all zones of the other mask are in this one.
    #[must_use]
    pub const fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the masks share a zone.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The zones in both masks.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The zones in either mask.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this mask has fewer zones, or as many and the lower ones (kubelet `IsNarrowerThan`).
    #[must_use]
    pub const fn is_narrower_than(self, other: Self) -> bool {
        let (zones, others) = (self.len(), other.len());
        zones < others || (zones == others && self.0 < other.0)
    }

    /// The zones of this mask that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The zones with a lower id.
    #[must_use]
    pub const fn below(self, zone: u32) -> Self {
        if zone < MAX_ZONE_ID { Self(self.0 & ((1 << zone) - 1)) } else { self }
    }

    /// The number of zones with a lower id: the place of a zone in an ascending list of this mask's zones.
    #[must_use]
    pub const fn rank(self, zone: u32) -> usize {
        let below = self.below(zone).0;
        // Nearly all machines number their zones from 0. Their ends are found faster than bits are counted.
        let is_without_gaps = below & below.wrapping_add(1) == 0;
        (if is_without_gaps { below.trailing_ones() } else { below.count_ones() }) as usize
    }

    /// The zone ids, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let zone = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(zone)
        })
    }

    /// Reads ids with commas, ascending, as [`ZoneMask`] is shown; nothing is no zone. `None` for another text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let ids = text.split(',').filter(|_| !text.is_empty());
        let zone = |id: &str| id.parse().ok().filter(|id| *id < MAX_ZONE_ID);
        let zones: Self = ids.map(zone).collect::<Option<Vec<u32>>>()?.into_iter().collect();
        (zones.to_string() == text).then_some(zones)
    }

    /// The masks of `size` zones within this one, narrowest first. Their number is a binomial coefficient.
    pub fn subsets(self, size: u32) -> impl Iterator<Item = Self> {
        let zones: SmallVec<[u32; 8]> = self.iter().collect();
        let count = zones.len();
        let mut next: Option<u128> = (size <= self.len()).then(|| (1 << size) - 1);
        std::iter::from_fn(move || {
            let chosen = next?;
            next = following(chosen).filter(|following| following >> count == 0);
            Some((0..count).filter(|at| chosen >> at & 1 == 1).map(|at| zones[at]).collect())
        })
    }
}

/// The first set of `size` zones that is accepted, in the order of [`ZoneMask::subsets`]. `may_lead` says of chosen
/// zones and of others, of which a number is still to be chosen, whether they can become such a set; sets of which it
/// denies a part are not looked at.
pub(crate) fn first_set(
    domain: ZoneMask,
    size: u32,
    may_lead: &impl Fn(ZoneMask, ZoneMask, u32) -> bool,
    accept: &mut impl FnMut(ZoneMask) -> bool,
) -> Option<ZoneMask> {
    match size {
        0 => None,
        1 => domain.iter().map(ZoneMask::of).find(|zone| accept(*zone)),
        _ => first_with(ZoneMask::EMPTY, domain, size, may_lead, accept),
    }
}

fn first_with(
    chosen: ZoneMask,
    others: ZoneMask,
    count: u32,
    may_lead: &impl Fn(ZoneMask, ZoneMask, u32) -> bool,
    accept: &mut impl FnMut(ZoneMask) -> bool,
) -> Option<ZoneMask> {
    if count == 0 {
        return accept(chosen).then_some(chosen);
    }
    if others.len() < count || !may_lead(chosen, others, count) {
        return None;
    }
    // The highest of the zones to come, lower ones first; enough zones must be below it.
    others.iter().skip(count as usize - 1).find_map(|zone| {
        first_with(chosen.union(ZoneMask::of(zone)), others.below(zone), count - 1, may_lead, accept)
    })
}

/// The sum of the `count` largest amounts: the most that so many zones can have.
pub(crate) fn sum_of_largest(count: u32, amounts: impl Iterator<Item = u64>) -> u64 {
    if count == 1 {
        return amounts.max().unwrap_or(0);
    }
    let mut amounts: SmallVec<[u64; 32]> = amounts.collect();
    let count = count as usize;
    if 0 < count && count < amounts.len() {
        amounts.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
        amounts.truncate(count);
    }
    amounts.iter().fold(0, |sum, amount| sum.saturating_add(*amount))
}

/// The next larger number with as many bits set; `None` for zero.
fn following(bits: u128) -> Option<u128> {
    let lowest = bits & bits.wrapping_neg();
    (bits != 0).then(|| {
        let ripple = bits + lowest;
        ripple | (((bits ^ ripple) / lowest) >> 2)
    })
}

impl FromIterator<u32> for ZoneMask {
    fn from_iter<T: IntoIterator<Item = u32>>(zones: T) -> Self {
        zones.into_iter().fold(Self::EMPTY, |mask, zone| mask.union(Self::of(zone)))
    }
}

impl fmt::Display for ZoneMask {
    /// Writes ids with commas: `0,2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for zone in self.iter() {
            write!(f, "{separator}{zone}")?;
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_come_by_value_and_are_complete() {
        let zones: ZoneMask = [1, 4, 5, 63].into_iter().collect();
        let sizes: Vec<usize> = (0..=5).map(|size| zones.subsets(size).count()).collect();
        assert_eq!(sizes, [1, 4, 6, 4, 1, 0]);
        for size in 1..=4 {
            let all: Vec<_> = zones.subsets(size).collect();
            assert!(all.is_sorted(), "{all:?}");
            assert!(all.iter().all(|mask| zones.contains_all(*mask) && mask.len() == size));
        }
        let full: ZoneMask = (0..64).collect();
        assert_eq!(full.subsets(64).collect::<Vec<_>>(), [full]);
        assert_eq!(full.subsets(63).count(), 64);
    }

    #[test]
    fn ranks_are_places_among_the_zones() {
        for zones in [0..4, 0..64, 2..5, 60..64].map(|ids| ids.collect::<ZoneMask>()) {
            let gap = zones.without(ZoneMask::of(3));
            for mask in [zones, gap] {
                assert!(mask.iter().enumerate().all(|(at, zone)| mask.rank(zone) == at), "{mask}");
                assert_eq!(mask.rank(64), mask.len() as usize);
            }
        }
    }

    #[test]
    fn the_first_set_is_the_first_of_all_sets() {
        let zones: ZoneMask = [0, 1, 3, 4, 6].into_iter().collect();
        let amount = |zone: u32| [5_u64, 1, 0, 7, 2, 0, 9][zone as usize];
        let sum = |mask: ZoneMask| mask.iter().map(amount).sum::<u64>();
        for (size, wanted) in (1..=5).flat_map(|size| (0..=26).map(move |wanted| (size, wanted))) {
            let mut looked_at = 0;
            let may = |chosen: ZoneMask, others: ZoneMask, count| {
                sum(chosen) + sum_of_largest(count, others.iter().map(amount)) >= wanted
            };
            let found = first_set(zones, size, &may, &mut |mask| {
                looked_at += 1;
                sum(mask) >= wanted
            });
            assert_eq!(found, zones.subsets(size).find(|mask| sum(*mask) >= wanted), "{size} {wanted}");
            assert!(looked_at <= zones.len(), "only the last zone is tried: {size} {wanted} {looked_at}");
        }
    }

    #[test]
    fn ids_that_do_not_fit_are_left_out() {
        assert!(ZoneMask::of(64).is_empty() && !ZoneMask::of(63).contains(64));
    }
}
