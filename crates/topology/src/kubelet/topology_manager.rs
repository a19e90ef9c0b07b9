//! The Topology Manager: one alignment out of the hints of all resource managers.
//!
//! In: for each resource, whether a set of zones would do, and whether a narrower one could. Out: the best alignment
//! and whether the policy admits it. Never: an amount, a CPU or a device.
//!
//! Source: kubelet 1.34 to 1.37 `topologymanager` (`HintMerger.Merge`, `filterProvidersHints`, `policy_*.go`). The
//! kubelet builds every combination of hints, which is exponential in zones and resources. The best combination
//! follows a total order, so this module walks sets of zones in that order instead, and stops at the first that all
//! prefer. Sets that hold too little whatever is added to them are not walked. Only under `best-effort`, and only when
//! no set is preferred, are the combinations built, each resulting set of zones once.

use smallvec::SmallVec;

use crate::kubelet::hint::{Hint, ZoneMask, first_set};
use crate::kubelet::machine::Machine;
use crate::kubelet::profile::KubeletProfile;
use crate::policy::Policy;

/// The alignments that are possible for one resource.
pub trait HintSource {
    /// The zones of which the resource manager considers sets.
    fn domain(&self) -> ZoneMask;

    /// Whether these zones, a non-empty part of the domain, hold what is asked for.
    fn satisfies(&self, zones: ZoneMask) -> bool;

    /// Whether the chosen zones with `count` of the others may satisfy. True where a set of them does; a guess
    /// otherwise.
    fn may_satisfy(&self, chosen: ZoneMask, others: ZoneMask, count: u32) -> bool;

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
#[derive(Clone, Debug)]
pub enum Hints<S> {
    /// Any zones will do.
    Any,
    /// No zones will do.
    Impossible,
    /// These.
    Of(S),
}

impl<S> Hints<S> {
    /// The alignments, where it matters.
    pub(crate) fn source(&self) -> Option<&S> {
        match self {
            Self::Of(source) => Some(source),
            Self::Any | Self::Impossible => None,
        }
    }
}

/// The alignment that the Topology Manager chooses. `None`: the policy rejects the pod. Not for the policy `none`,
/// under which nothing is merged.
///
/// Cost: under `single-numa-node` zones x resources; under `restricted` sets of zones of the preferred size that may
/// satisfy x resources; under `best-effort` the same if an alignment is preferred, otherwise all sets of zones.
#[must_use]
pub fn merge<S: HintSource>(profile: &KubeletProfile, machine: &Machine, hints: &[Hints<S>]) -> Option<Hint> {
    merge_by(profile.policy, profile.prefer_closest, machine, hints)
}

/// The same, with or without a look at distances.
pub(crate) fn merge_by<S: HintSource>(
    policy: Policy,
    closest: bool,
    machine: &Machine,
    hints: &[Hints<S>],
) -> Option<Hint> {
    let sources = Sources(hints);
    let impossible = hints.iter().any(|hints| matches!(hints, Hints::Impossible));
    let all = machine.zone_mask();
    let merger = Merger { machine, closest: closest && policy != Policy::SingleNumaNode };
    match policy {
        Policy::None => Some(Hint::default()),
        Policy::SingleNumaNode => {
            let zones = if sources.is_empty() { Some(all) } else { single(sources) };
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
                merger.preferred(sources)
            };
            match preferred {
                Some(zones) => Some(Hint { zones: Some(zones), preferred: true }),
                None if policy == Policy::Restricted => None,
                None => Some(Hint { zones: Some(merger.fallback(sources, all)), preferred: false }),
            }
        }
    }
}

/// The hints of resources to which alignment matters.
struct Sources<'a, S>(&'a [Hints<S>]);

impl<S> Clone for Sources<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Sources<'_, S> {}

impl<'a, S: HintSource> Sources<'a, S> {
    fn iter(self) -> impl Iterator<Item = &'a S> {
        self.0.iter().filter_map(Hints::source)
    }

    fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }

    /// The zones that all resources consider.
    fn domain(self) -> Option<ZoneMask> {
        self.iter().map(|source| source.domain()).reduce(ZoneMask::intersection)
    }
}

type Zones = SmallVec<[ZoneMask; 16]>;

/// The lowest zone that does for all resources. One zone that holds what is asked for is always preferred, since no
/// narrower set exists.
fn single<S: HintSource>(sources: Sources<'_, S>) -> Option<ZoneMask> {
    sources
        .domain()?
        .iter()
        .map(ZoneMask::of)
        .find(|zone| sources.iter().all(|source| source.satisfies(*zone)))
}

/// The order among alignments.
struct Merger<'a> {
    machine: &'a Machine,
    /// The option `prefer-closest-numa-nodes`.
    closest: bool,
}

impl Merger<'_> {
    /// The best alignment that every resource prefers (kubelet `mergePermutation`: all masks equal and preferred).
    fn preferred<S: HintSource>(&self, sources: Sources<'_, S>) -> Option<ZoneMask> {
        let domain = sources.domain()?;
        let (mut fewest, mut most) = (1, domain.len());
        for source in sources.iter().filter(|source| !source.prefers_any_size()) {
            let size = source.narrowest();
            (fewest, most) = (fewest.max(size), most.min(size));
        }
        (fewest..=most).find_map(|size| self.preferred_of_size(sources, domain, size))
    }

    fn preferred_of_size<S: HintSource>(
        &self,
        sources: Sources<'_, S>,
        domain: ZoneMask,
        size: u32,
    ) -> Option<ZoneMask> {
        let may =
            |chosen, others, count| sources.iter().all(|source| source.may_satisfy(chosen, others, count));
        let fits = |zones| {
            let prefers = |source: &S| !source.prefers_any_size() || source.prefers(zones);
            sources.iter().all(|source| source.satisfies(zones) && prefers(source))
        };
        if !self.closest {
            return first_set(domain, size, &may, &mut |zones| fits(zones));
        }
        let mut best: Option<ZoneMask> = None;
        let _ = first_set(domain, size, &may, &mut |zones| {
            if fits(zones) {
                best = Some(best.map_or(zones, |best| self.better(best, zones)));
            }
            false
        });
        best
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
    fn fallback<S: HintSource>(&self, sources: Sources<'_, S>, all: ZoneMask) -> ZoneMask {
        let lists: SmallVec<[(usize, Zones); 4]> = sources
            .iter()
            .map(|source| (source.resources(), satisfying(source)))
            .filter(|(_, list)| !list.is_empty())
            .collect();
        let narrowest = lists.iter().filter_map(|(_, list)| list.first());
        let wanted = narrowest.map(|zones| zones.len()).max().unwrap_or(0);
        let mut reached = Zones::from_slice(&[all]);
        for list in lists.iter().flat_map(|(resources, list)| std::iter::repeat_n(list, *resources)) {
            let mut next = Zones::new();
            for zones in reached.iter().flat_map(|zones| list.iter().map(|more| zones.intersection(*more))) {
                if let Err(at) = next.binary_search(&zones) {
                    next.insert(at, zones);
                }
            }
            reached = next;
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
fn satisfying<S: HintSource>(source: &S) -> Zones {
    let domain = source.domain();
    (1..=domain.len())
        .flat_map(|size| domain.subsets(size))
        .filter(|zones| source.satisfies(*zones))
        .collect()
}
