//! How good a node's zones are for a pod: 0 (worst) to 100.
//!
//! In: a node's [`Free`] table and a pod's needs. Out: the score of the NodeResourceTopologyMatch strategies, bit for
//! bit where the peer's arithmetic is sound: amounts rounded up to whole units, integer division, the smallest non-zero
//! zone score, the mean over containers. Zone ids are opaque here; the peer panics on sparse ids.

use smallvec::{SmallVec, smallvec};

use crate::policy::Scope;
use crate::request::{Need, PodNeeds, Qos};
use crate::resource::ResourceName;
use crate::zone::{Cells, Free, NodeTopology};

mod least_numa_nodes;

/// The best score.
pub const MAX_SCORE: i64 = 100;

/// `scoringStrategy.type` of NodeResourceTopologyMatchArgs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Prefers zones with the most left over.
    #[default]
    LeastAllocated,
    /// Prefers zones that become fullest.
    MostAllocated,
    /// Prefers zones whose resources are used evenly.
    BalancedAllocation,
    /// Prefers few zones that are close to each other. Weights do not count.
    LeastNumaNodes,
}

/// Weights by resource; a resource that is not listed weighs 1, and no weight counts less than 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weights(pub Vec<(ResourceName, i64)>);

impl Weights {
    fn of(&self, name: ResourceName) -> i64 {
        self.0.iter().find(|(n, _)| *n == name).map_or(1, |(_, weight)| (*weight).max(1))
    }
}

/// Scores a node for a pod, 0 to [`MAX_SCORE`]. Pods that are not Guaranteed score [`MAX_SCORE`] everywhere: the
/// strategies are neutral for them. `free`: what is free in the zones of `node`. Cost: containers x zones x needs; no
/// allocation for up to 8 needs. That of LeastNUMANodes: a copy of `free`, and sets of zones.
///
/// # Example
/// ```
/// use topology::request::{ContainerKind, ContainerNeeds, Need, PodNeeds, Qos};
/// use topology::resource::ResourceName;
/// use topology::score::{Strategy, Weights, score};
/// use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};
///
/// let cpu = ResourceName::CPU;
/// let resources = vec![ZoneResource { name: cpu, capacity: 8_000, allocatable: 8_000, available: 8_000 }];
/// let zone = Zone { id: ZoneId(0), resources, distances: vec![] };
/// let node = NodeTopology { zones: vec![zone], ..NodeTopology::default() };
/// let free = node.available();
/// let needs = vec![Need { name: cpu, amount: 2_000 }];
/// let pod = PodNeeds {
///     qos: Qos::Guaranteed,
///     containers: vec![ContainerNeeds { name: "main".into(), kind: ContainerKind::App, needs: needs.clone() }],
///     totals: needs.clone(),
///     pod_scope: needs,
///     overhead: vec![],
///     pod_scope_whole_cpu: 2_000,
///     pod: Default::default(),
/// };
/// let score = |strategy| score(strategy, &Weights::default(), &node, &free, &pod);
/// assert_eq!((score(Strategy::LeastAllocated), score(Strategy::MostAllocated)), (75, 25));
/// ```
#[must_use]
pub fn score(
    strategy: Strategy,
    weights: &Weights,
    node: &NodeTopology,
    free: &Free,
    needs: &PodNeeds,
) -> i64 {
    ZoneScorer::new(strategy, weights, needs).score(node, free)
}

/// What zone scores need of a pod and a profile, made once for all nodes.
#[derive(Clone, Debug)]
pub struct ZoneScorer<'a> {
    strategy: Strategy,
    needs: &'a PodNeeds,
    pod: Demand,
    containers: SmallVec<[Demand; 1]>,
}

/// What one zone is asked for.
#[derive(Clone, Debug)]
struct Demand {
    wanted: SmallVec<[Wanted; 4]>,
    weight_sum: i64,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    name: ResourceName,
    /// In base units.
    amount: i64,
    /// In whole units.
    whole: i64,
    weight: i64,
}

impl<'a> ZoneScorer<'a> {
    /// The scorer for a pod. Cost: its containers and resources.
    #[must_use]
    pub fn new(strategy: Strategy, weights: &Weights, needs: &'a PodNeeds) -> Self {
        let of_containers = needs.containers.iter().map(|container| Demand::new(weights, &container.needs));
        Self {
            strategy,
            needs,
            pod: Demand::new(weights, &needs.pod_scope),
            containers: of_containers.collect(),
        }
    }

    /// Whether all nodes score the same: the pod is not Guaranteed.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.needs.qos != Qos::Guaranteed
    }

    /// The strategy.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// The score of a node, as [`score`].
    #[must_use]
    pub fn score(&self, node: &NodeTopology, free: &Free) -> i64 {
        match self.score_zones(node.rules.scope, &free.as_cells()) {
            Some(score) => score,
            None => least_numa_nodes::score(node, free, self.needs),
        }
    }

    /// The score by the amounts of zones alone; `None` for LeastNUMANodes, which goes by distances.
    #[must_use]
    pub fn score_zones(&self, scope: Scope, zones: &Cells<'_>) -> Option<i64> {
        if self.is_neutral() {
            return Some(MAX_SCORE);
        }
        if self.strategy == Strategy::LeastNumaNodes {
            return None;
        }
        Some(match scope {
            Scope::Pod => self.pod.lowest_zone(self.strategy, zones),
            Scope::Container => match &*self.containers {
                [only] => only.lowest_zone(self.strategy, zones),
                all => {
                    let scores = all.iter().map(|it| it.lowest_zone(self.strategy, zones));
                    scores.sum::<i64>() / i64::try_from(all.len()).unwrap_or(i64::MAX).max(1)
                }
            },
        })
    }
}

impl Demand {
    fn new(weights: &Weights, needs: &[Need]) -> Self {
        let wanted = needs.iter().map(|Need { name, amount }| Wanted {
            name: *name,
            amount: *amount,
            whole: name.whole_units(*amount),
            weight: weights.of(*name),
        });
        let wanted: SmallVec<[Wanted; 4]> = wanted.collect();
        Self { weight_sum: wanted.iter().map(|it| it.weight).sum(), wanted }
    }

    /// The smallest non-zero zone score; 0 when all are 0. Cost: zones x resources; nothing is allocated for up to 8
    /// zones.
    fn lowest_zone(&self, strategy: Strategy, zones: &Cells<'_>) -> i64 {
        if strategy == Strategy::BalancedAllocation {
            return self.lowest_balanced(zones);
        }
        let mut sums: SmallVec<[i64; 8]> = smallvec![0; zones.zones];
        for wanted in &self.wanted {
            let Some(column) = zones.column(wanted.name) else { continue };
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum += wanted.points(strategy, zones.row(row)[column]);
            }
        }
        // A sum below that of the weights is a score of 0. The lowest sum is that of the lowest score.
        let lowest = sums.iter().filter(|sum| **sum >= self.weight_sum.max(1)).min();
        lowest.map_or(0, |sum| sum / self.weight_sum)
    }

    fn lowest_balanced(&self, zones: &Cells<'_>) -> i64 {
        let columns: SmallVec<[Option<usize>; 4]> =
            self.wanted.iter().map(|it| zones.column(it.name)).collect();
        let scores = (0..zones.zones).map(|row| {
            let zone = zones.row(row);
            let available = columns.iter().map(|column| column.map_or(0, |at| zone[at]));
            balanced(self.wanted.iter().zip(available))
        });
        scores.filter(|score| *score != 0).min().unwrap_or(0)
    }
}

impl Wanted {
    /// The weighted percentage that a zone counts; 0 if it has too little.
    #[inline]
    fn points(&self, strategy: Strategy, available: i64) -> i64 {
        let all = self.name.whole_units(available);
        if all <= 0 || self.amount > available {
            return 0;
        }
        let part = if strategy == Strategy::LeastAllocated { all - self.whole } else { self.whole };
        self.weight * percent(part, all)
    }
}

/// A part in percent of all, rounded down: `0 <= part <= all`, and `all` is more than 0.
///
/// Up to 2^46 a float is exact and takes a fraction of the time: the product is below 2^53, and the distance of the
/// quotient to a larger integer, 2^-46 at least, is more than the rounding of a number up to 100.
#[must_use]
#[inline]
pub fn percent(part: i64, all: i64) -> i64 {
    const EXACT: i64 = 1 << 46;
    if all <= EXACT {
        return (part as f64 * MAX_SCORE as f64 / all as f64) as i64;
    }
    (i128::from(part) * i128::from(MAX_SCORE) / i128::from(all)) as i64
}

/// `(1 - sample variance of the used fractions) * 100`. One resource alone is perfectly balanced; the peer divides by
/// zero there.
fn balanced<'a>(amounts: impl Iterator<Item = (&'a Wanted, i64)>) -> i64 {
    let fractions: SmallVec<[f64; 8]> = amounts
        .map(|(need, available)| {
            let available = need.name.whole_units(available);
            if available <= 0 { 1.0 } else { need.whole as f64 / available as f64 }
        })
        .collect();
    if fractions.iter().any(|fraction| *fraction > 1.0) {
        return 0;
    }
    let count = fractions.len() as f64;
    let mean = fractions.iter().sum::<f64>() / count.max(1.0);
    let variance = if fractions.len() < 2 {
        0.0
    } else {
        fractions.iter().map(|fraction| (fraction - mean).powi(2)).sum::<f64>() / (count - 1.0)
    };
    ((1.0 - variance) * MAX_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Rules;
    use crate::request::{ContainerKind, ContainerNeeds};
    use crate::zone::{NodeTopology, Zone, ZoneId, ZoneResource};

    fn node(zones: &[(u32, &[(ResourceName, i64)])]) -> NodeTopology {
        let zones = zones
            .iter()
            .map(|(id, resources)| Zone {
                id: ZoneId(*id),
                distances: vec![],
                resources: resources
                    .iter()
                    .map(|(name, n)| ZoneResource {
                        name: *name,
                        capacity: *n,
                        allocatable: *n,
                        available: *n,
                    })
                    .collect(),
            })
            .collect();
        NodeTopology { zones, ..NodeTopology::default() }
    }

    /// The score where all is free.
    fn score_of(strategy: Strategy, node: &NodeTopology, pod: &PodNeeds) -> i64 {
        score(strategy, &Weights::default(), node, &node.available(), pod)
    }

    fn pod(needs: &[(ResourceName, i64)]) -> PodNeeds {
        let needs: Vec<_> =
            needs.iter().map(|(name, amount)| Need { name: *name, amount: *amount }).collect();
        PodNeeds {
            qos: Qos::Guaranteed,
            containers: vec![ContainerNeeds {
                name: "c".into(),
                kind: ContainerKind::App,
                needs: needs.clone(),
            }],
            totals: needs.clone(),
            pod_scope: needs,
            overhead: vec![],
            pod_scope_whole_cpu: 0,
            pod: Default::default(),
        }
    }

    #[test]
    fn strategies_give_the_published_examples() {
        use Strategy::{BalancedAllocation, LeastAllocated, MostAllocated};
        const MI: i64 = 1 << 20;
        let zones = |cpu: i64, memory: i64| -> NodeTopology {
            let cells = [(ResourceName::CPU, cpu * 1000), (ResourceName::MEMORY, memory * MI)];
            node(&[(0, &cells), (1, &cells)])
        };
        let request = pod(&[(ResourceName::CPU, 2000), (ResourceName::MEMORY, 20 * MI)]);
        for (strategy, free, expected) in [
            (LeastAllocated, zones(4, 500), 73),
            (MostAllocated, zones(4, 500), 27),
            (BalancedAllocation, zones(4, 500), 89),
            (MostAllocated, zones(2, 50), 70),
            (BalancedAllocation, zones(6, 60), 100),
        ] {
            for scope in [Scope::Container, Scope::Pod] {
                let rules = Rules { scope, ..Rules::default() };
                let node = NodeTopology { rules, ..free.clone() };
                assert_eq!(score_of(strategy, &node, &request), expected, "{strategy:?}");
            }
        }
    }

    #[test]
    fn unusual_tables_and_requests_never_panic() {
        let cpu = ResourceName::CPU;
        let sparse = node(&[(0, &[(cpu, 4000)]), (7, &[(cpu, -2000)]), (40, &[])]);
        for strategy in [
            Strategy::LeastAllocated,
            Strategy::MostAllocated,
            Strategy::BalancedAllocation,
            Strategy::LeastNumaNodes,
        ] {
            for request in [pod(&[]), pod(&[(cpu, 1000)]), pod(&[(cpu, i64::MAX)])] {
                let score = score_of(strategy, &sparse, &request);
                assert!((0..=MAX_SCORE).contains(&score), "{strategy:?} {score}");
            }
        }
    }

    #[test]
    fn percentages_are_those_of_integers() {
        let exactly = |part: i64, all: i64| (i128::from(part) * 100 / i128::from(all)) as i64;
        for all in (1..600).chain([(1 << 46) - 1, 1 << 46, (1 << 46) + 1, 281_474_976_710_597, i64::MAX]) {
            // Around each whole percentage, where rounding would show.
            let near = (0..=100).map(|percent| (i128::from(all) * percent / 100) as i64);
            for part in near
                .flat_map(|part| [part - 1, part, part.saturating_add(1)])
                .filter(|part| (0..=all).contains(part))
            {
                assert_eq!(percent(part, all), exactly(part, all), "{part} of {all}");
            }
        }
    }

    #[test]
    fn other_qos_classes_are_neutral() {
        let mut burstable = pod(&[(ResourceName::CPU, 1000)]);
        burstable.qos = Qos::Burstable;
        assert_eq!(score_of(Strategy::LeastAllocated, &node(&[]), &burstable), MAX_SCORE);
    }
}
