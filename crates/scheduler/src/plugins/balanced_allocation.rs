//! NodeResourcesBalancedAllocation: nodes on which a pod makes the use of resources more even score higher.
//!
//! In: the totals of a node, the requests of a pod, [`Args`]. Out: a score of 0 to 100. Never: a filter. Source:
//! kube-scheduler 1.36 `noderesources/balanced_allocation`. Release 1.35 scores the evenness with the pod alone.

use smallvec::SmallVec;
use topology::request::PodNeeds;
use topology::resource::ResourceName;

use crate::devices::Devices;
use crate::node::{self, Node, NodeView};
use crate::plugins::node_resources_fit::{Requests, scored};

/// `NodeResourcesBalancedAllocationArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// `resources`; each weighs 1.
    pub resources: Vec<ResourceName>,
}

impl Default for Args {
    fn default() -> Self {
        Self { resources: vec![ResourceName::CPU, ResourceName::MEMORY] }
    }
}

impl Args {
    /// What a pod asks for, in the order of [`Args::resources`]. `None`: nothing of any of them, so the pod is not
    /// scored.
    #[must_use]
    pub fn requests(&self, needs: &PodNeeds) -> Option<Requests> {
        let requests: Requests =
            self.resources.iter().map(|name| node::amount(&needs.totals, *name)).collect();
        requests.iter().any(|request| *request > 0).then_some(requests)
    }

    /// The score of a node: 75 if the pod leaves the evenness unchanged, more if it improves it. `devices`: those that
    /// may serve extended resources. Cost: that of NodeResourcesFit's score.
    #[must_use]
    pub fn score(&self, node: &Node, view: &NodeView, requests: &Requests, devices: Option<&Devices>) -> i64 {
        let (mut before, mut after) = (Fractions::new(), Fractions::new());
        for (name, request) in self.resources.iter().zip(requests) {
            let Some((allocatable, taken)) = scored(view, *name, *request, devices) else { continue };
            let fraction = |used: i64| (used as f64 / allocatable as f64).min(1.0);
            let used = taken.unwrap_or_else(|| node::amount(&node.used, *name));
            before.push(fraction(used));
            after.push(fraction(used.saturating_add(*request)));
        }
        50 + (50 + evenness(&after) - evenness(&before)) / 2
    }
}

/// The parts of resources that are in use.
type Fractions = SmallVec<[f64; 4]>;

/// 100 less the standard deviation in percent: 50 to 100.
fn evenness(fractions: &Fractions) -> i64 {
    let deviation = match fractions.as_slice() {
        [] | [_] => 0.0,
        [one, other] => ((one - other) / 2.0).abs(),
        all => {
            let count = all.len() as f64;
            let mean = all.iter().sum::<f64>() / count;
            (all.iter().map(|fraction| (fraction - mean).powi(2)).sum::<f64>() / count).sqrt()
        }
    };
    ((1.0 - deviation) * 100.0) as i64
}

#[cfg(test)]
mod tests {
    use topology::request::{Need, PodRequest};

    use super::*;

    fn needs(cpu: i64, memory: i64, storage: i64) -> Vec<Need> {
        let names = [ResourceName::CPU, ResourceName::EPHEMERAL_STORAGE, ResourceName::MEMORY];
        let mut needs: Vec<Need> = names
            .into_iter()
            .zip([cpu, storage, memory])
            .map(|(name, amount)| Need { name, amount })
            .collect();
        needs.sort_unstable_by_key(|need| need.name);
        needs
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let two = || Args::default();
        let three = || Args {
            resources: vec![ResourceName::CPU, ResourceName::MEMORY, ResourceName::EPHEMERAL_STORAGE],
        };
        for (args, [allocatable, used, pod], wanted) in [
            // Even before and after: 50 + 50 / 2.
            (two(), [[1_000, 1_000, 0], [200, 200, 0], [100, 100, 0]], 75),
            // 0.4 apart before: 80; even after: 100.
            (two(), [[1_000, 1_000, 0], [600, 200, 0], [0, 400, 0]], 85),
            // Even before: 100; 0.4 apart after: 80.
            (two(), [[1_000, 1_000, 0], [200, 200, 0], [400, 0, 0]], 65),
            // More than there is counts as all of it: 1 and 0 after, which is 50.
            (two(), [[1_000, 1_000, 0], [0, 0, 0], [5_000, 0, 0]], 50),
            // One resource alone is even.
            (two(), [[1_000, 0, 0], [200, 0, 0], [400, 0, 0]], 75),
            // Before 0, 0, 0.5: mean 1/6, deviation sqrt(1/18) = 0.236, 76. After 0.5, 0.5, 0.5: 100.
            (three(), [[1_000, 1_000, 1_000], [0, 0, 500], [500, 500, 0]], 87),
        ] {
            let list = |[cpu, memory, storage]: [i64; 3]| needs(cpu, memory, storage);
            let view = NodeView { allocatable: list(allocatable), ..NodeView::default() };
            let node = Node { used: list(used), ..Node::default() };
            let pod = PodNeeds { totals: list(pod), ..PodRequest::default().needs() };
            let requests = args.requests(&pod).unwrap();
            assert_eq!(args.score(&node, &view, &requests, None), wanted, "{allocatable:?} {used:?}");
        }
        let other = PodNeeds { totals: needs(0, 0, 100), ..PodRequest::default().needs() };
        assert!(two().requests(&other).is_none() && three().requests(&other).is_some());
    }
}
