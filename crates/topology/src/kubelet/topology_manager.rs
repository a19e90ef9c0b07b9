//! The Topology Manager: one alignment out of the hints of all resource managers.
//!
//! In: for each resource, whether a set of zones would do, and whether a narrower one could. Out: the best alignment
//! and whether the policy admits it. Never: an amount, a CPU or a device.
//!
//! Source: kubelet 1.34 to 1.37 `topologymanager` (`HintMerger.Merge`, `filterProvidersHints`, `policy_*.go`). The
//! kubelet builds every combination of hints, which is exponential in zones and resources. The best combination follows
//! a total order, so this module walks sets of zones in that order instead, and stops at the first that all prefer.
//! Only under `best-effort`, and only when there is none, are the combinations built, each resulting set of zones once.

use smallvec::SmallVec;

use crate::kubelet::hint::{Hint, ZoneMask};
use crate::kubelet::machine::Machine;
use crate::kubelet::profile::KubeletProfile;
use crate::policy::Policy;

/// The alignments that are possible for one resource.
pub trait HintSource {
    /// The zones of which the resource manager considers sets.
    fn domain(&self) -> ZoneMask;

    /// Whether these zones, a non-empty part of the domain, hold what is asked for.
    fn satisfies(&self, zones: ZoneMask) -> bool;

    /// The size of the smallest sets of zones that could hold what is asked for if nothing were in use.
    fn narrowest(&self) -> u32;

    /// Whether an alignment to zones that satisfy is marked as preferred.
    fn prefers(&self, zones: ZoneMask) -> bool {
        zones.len() == self.narrowest()
    }

    /// The number of resources with these very hints.
    fn resources(&self) -> usize {
        1
    }

    /// Whether sets of zones of other sizes than [`HintSource::narrowest`] may be preferred.
    fn prefers_any_size(&self) -> bool {
        false
    }
}

/// What one resource says (kubelet `filterProvidersHints`).
pub enum Hints<'a> {
    /// Any zones will do.
    Any,
    /// No zones will do.
    Impossible,
    /// These.
    Of(Box<dyn HintSource + 'a>),
}

impl Hints<'_> {
    fn source(&self) -> Option<&dyn HintSource> {
        match self {
            Self::Of(source) => Some(&**source),
            Self::Any | Self::Impossible => None,
        }
    }
}

/// The alignment that the Topology Manager chooses. `None`: the policy rejects the pod. Not for the policy `none`,
/// under which nothing is merged.
///
/// Cost: under `single-numa-node` zones x resources; under `restricted` sets of zones of the preferred size x
/// resources; under `best-effort` the same if an alignment is preferred, otherwise all sets of zones.
#[must_use]
pub fn merge(profile: &KubeletProfile, machine: &Machine, hints: &[Hints<'_>]) -> Option<Hint> {
    let sources: Sources<'_> = hints.iter().filter_map(Hints::source).collect();
    let impossible = hints.iter().any(|hints| matches!(hints, Hints::Impossible));
    let all = machine.zone_mask();
    let merger =
        Merger { machine, closest: profile.prefer_closest && profile.policy != Policy::SingleNumaNode };
    match profile.policy {
        Policy::None => Some(Hint::default()),
        Policy::SingleNumaNode => {
            let zones = if sources.is_empty() { Some(all) } else { single(&sources) };
            let zones = zones.filter(|_| !impossible)?;
            // The kubelet forgets an alignment to all zones, even if there is but one.
            Some(Hint { zones: (zones != all).then_some(zones), preferred: true })
        }
        Policy::Restricted | Policy::BestEffort => {
            let preferred = if impossible {
                None
            } else if sources.is_empty() {
                Some(all)
            } else {
                merger.preferred(&sources)
            };
            match preferred {
                Some(zones) => Some(Hint { zones: Some(zones), preferred: true }),
                None if profile.policy == Policy::Restricted => None,
                None => Some(Hint { zones: Some(merger.fallback(&sources, all)), preferred: false }),
            }
        }
    }
}

type Sources<'a> = SmallVec<[&'a dyn HintSource; 4]>;

/// The lowest zone that does for all resources. One zone that holds what is asked for is always preferred, since no
/// narrower set exists.
fn single(sources: &Sources<'_>) -> Option<ZoneMask> {
    let shared = sources.iter().fold(ZoneMask::EMPTY, |mask, source| mask.union(source.domain()));
    shared.iter().map(ZoneMask::of).find(|zone| sources.iter().all(|source| allows(*source, *zone)))
}

fn allows(source: &dyn HintSource, zones: ZoneMask) -> bool {
    source.domain().contains_all(zones) && source.satisfies(zones)
}

/// The order among alignments.
struct Merger<'a> {
    machine: &'a Machine,
    /// The option `prefer-closest-numa-nodes`.
    closest: bool,
}

impl Merger<'_> {
    /// The best alignment that every resource prefers (kubelet `mergePermutation`: all masks equal and preferred).
    fn preferred(&self, sources: &Sources<'_>) -> Option<ZoneMask> {
        let domain = sources.iter().map(|source| source.domain()).reduce(ZoneMask::intersection)?;
        let fixed =
            sources.iter().filter(|source| !source.prefers_any_size()).map(|source| source.narrowest());
        let (fewest, most) = (fixed.clone().max().unwrap_or(1), fixed.min().unwrap_or(domain.len()));
        (fewest.max(1)..=most.min(domain.len())).find_map(|size| {
            let mut fitting = domain.subsets(size).filter(|zones| {
                sources.iter().all(|source| source.satisfies(*zones) && source.prefers(*zones))
            });
            let first = fitting.next()?;
            Some(if self.closest {
                fitting.fold(first, |best, zones| self.better(best, zones))
            } else {
                first
            })
        })
    }

    /// The best of two sets of zones (kubelet `CompareNUMAAffinityMasks`).
    fn better(&self, current: ZoneMask, candidate: ZoneMask) -> ZoneMask {
        if self.closest && current.len() == candidate.len() {
            let (here, there) = (self.machine.mean_distance(current), self.machine.mean_distance(candidate));
            #[expect(clippy::float_cmp, reason = "the kubelet compares the same sums for equality")]
            let equal = here == there;
            return if equal {
                current.min(candidate)
            } else if here < there {
                current
            } else {
                candidate
            };
        }
        if current.is_narrower_than(candidate) { current } else { candidate }
    }

    /// The best alignment that is not preferred (kubelet `HintMerger.compare`, cases 1 to 3): as many zones as the
    /// resource that needs most of them, or else fewer, or else more.
    fn fallback(&self, sources: &Sources<'_>, all: ZoneMask) -> ZoneMask {
        let lists: Vec<(usize, Vec<ZoneMask>)> = sources
            .iter()
            .map(|source| (source.resources(), satisfying(*source)))
            .filter(|(_, list)| !list.is_empty())
            .collect();
        let narrowest = lists.iter().filter_map(|(_, list)| list.first());
        let wanted = narrowest.map(|zones| zones.len()).max().unwrap_or(0);
        let mut reached = vec![all];
        for list in lists.iter().flat_map(|(resources, list)| std::iter::repeat_n(list, *resources)) {
            reached =
                reached.iter().flat_map(|zones| list.iter().map(|more| zones.intersection(*more))).collect();
            reached.sort_unstable();
            reached.dedup();
        }
        reached
            .into_iter()
            .filter(|zones| !zones.is_empty())
            .reduce(|best, zones| self.closer_to(wanted, best, zones))
            .unwrap_or(all)
    }

    fn closer_to(&self, wanted: u32, current: ZoneMask, candidate: ZoneMask) -> ZoneMask {
        // Exactly as many zones as wanted, then fewer, then more.
        let rank = |zones: ZoneMask| match zones.len() {
            size if size == wanted => (0, 0),
            size if size < wanted => (1, wanted - size),
            size => (2, size),
        };
        match rank(current).cmp(&rank(candidate)) {
            std::cmp::Ordering::Less => current,
            std::cmp::Ordering::Greater => candidate,
            std::cmp::Ordering::Equal => self.better(current, candidate),
        }
    }
}

/// Every set of zones that will do, narrowest first.
fn satisfying(source: &dyn HintSource) -> Vec<ZoneMask> {
    let domain = source.domain();
    (1..=domain.len())
        .flat_map(|size| domain.subsets(size))
        .filter(|zones| source.satisfies(*zones))
        .collect()
}

/// Whether any set of zones will do.
pub(crate) fn is_possible(source: &dyn HintSource) -> bool {
    let domain = source.domain();
    (1..=domain.len()).rev().flat_map(|size| domain.subsets(size)).any(|zones| source.satisfies(zones))
}
