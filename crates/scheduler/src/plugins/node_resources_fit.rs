//! NodeResourcesFit: a node's totals must hold a pod, and score by how full they are with it.
//!
//! In: the totals of a node, the requests of a pod, [`Args`]. Out: the resources that are short, and a score of 0 to
//! 100. Never: zones. Source: kube-scheduler 1.36 `noderesources` (`fit`, `least_allocated`, `most_allocated`,
//! `requested_to_capacity_ratio`).

use smallvec::SmallVec;
use topology::request::{Need, PodNeeds};
use topology::resource::ResourceName;
use topology::score::percent;

use crate::devices::Devices;
use crate::node::{self, Node, NodeView};

/// `NodeResourcesFitArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// `ignoredResources`: extended resources that are not checked.
    pub ignored: Vec<ResourceName>,
    /// `ignoredResourceGroups`: the same by the part of the name before the `/`.
    pub ignored_groups: Vec<String>,
    /// `scoringStrategy.type`.
    pub strategy: Strategy,
    /// `scoringStrategy.resources` with weights of 1 to 100.
    pub resources: Vec<(ResourceName, i64)>,
}

/// `scoringStrategy.type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Empty nodes score high.
    LeastAllocated,
    /// Full nodes score high.
    MostAllocated,
    /// A function of the use in percent: points of it in rising order, each with a score of 0 to 100. Between two
    /// points it is linear, and beyond the outer ones it is constant.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// What a pod asks for, in the order of [`Args::resources`]. Made once for a pod and cycle.
pub type Requests = SmallVec<[i64; 4]>;

impl Default for Args {
    fn default() -> Self {
        Self {
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: Strategy::LeastAllocated,
            resources: vec![(ResourceName::CPU, 1), (ResourceName::MEMORY, 1)],
        }
    }
}

impl Args {
    fn ignores(&self, resource: ResourceName) -> bool {
        let name = resource.as_str();
        let Some((group, _)) = name.split_once('/') else { return false };
        // Only extended resources can be ignored (1.36 `IsExtendedResourceName`).
        !name.contains("kubernetes.io/")
            && (self.ignored.contains(&resource)
                || self.ignored_groups.iter().any(|ignored| ignored == group))
    }

    /// What a pod asks for in scores: for CPU and memory with kube-scheduler's defaults for containers that request
    /// none. Requests of the pod as a whole do not count (1.36 `NewFit` leaves the gate of its scorer off).
    #[must_use]
    pub fn requests(&self, needs: &PodNeeds) -> Requests {
        let nonzero = node::nonzero_of_containers(needs);
        let request = |name| {
            let overhead = counted(name, (0, 0), &needs.overhead);
            counted(name, nonzero, &needs.pod_scope).saturating_add(overhead)
        };
        self.resources.iter().map(|(name, _)| request(*name)).collect()
    }

    /// The score of a node with the pod: 0 to 100. `devices`: those that may serve extended resources. Cost: resources
    /// x log(resources of the node), and the devices of the node for each resource that these serve.
    #[must_use]
    pub fn score(&self, node: &Node, view: &NodeView, requests: &Requests, devices: Option<&Devices>) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ((name, weight), request) in self.resources.iter().zip(requests) {
            let Some((allocatable, taken)) = scored(view, *name, *request, devices) else { continue };
            let used = taken.unwrap_or_else(|| counted(*name, node.used_nonzero, &node.used));
            let score = self.strategy.score(used.saturating_add(*request), allocatable);
            // A resource for which the function is 0 counts for nothing there (1.36 `requested_to_capacity_ratio`).
            if score > 0 || !matches!(self.strategy, Strategy::RequestedToCapacityRatio(_)) {
                sum += score * weight;
                weights += weight;
            }
        }
        match (&self.strategy, weights) {
            (_, 0) => 0,
            (Strategy::RequestedToCapacityRatio(_), _) => (2 * sum + weights) / (2 * weights),
            _ => sum / weights,
        }
    }
}

impl Strategy {
    /// The score of one resource; `allocatable` is above 0.
    fn score(&self, used: i64, allocatable: i64) -> i64 {
        let percent = |part: i64| percent(part.clamp(0, allocatable), allocatable);
        match self {
            Self::LeastAllocated => percent(allocatable.saturating_sub(used)),
            Self::MostAllocated => percent(used),
            Self::RequestedToCapacityRatio(shape) => interpolated(shape, percent(used)),
        }
    }
}

/// The amount of a resource in scores: of CPU and memory the one with defaults, of others the real one.
fn counted(name: ResourceName, (cpu, memory): (i64, i64), real: &[Need]) -> i64 {
    if name == ResourceName::CPU {
        cpu
    } else if name == ResourceName::MEMORY {
        memory
    } else {
        node::amount(real, name)
    }
}

/// The value of a function at `at` percent.
fn interpolated(shape: &[(i64, i64)], at: i64) -> i64 {
    let next = shape.partition_point(|(percent, _)| *percent < at);
    match (next.checked_sub(1).and_then(|before| shape.get(before)), shape.get(next)) {
        (Some((x, y)), Some((next_x, next_y))) => y + (next_y - y) * (at - x) / (next_x - x),
        (Some((_, y)), None) | (None, Some((_, y))) => *y,
        (None, None) => 0,
    }
}

/// The allocatable amount of a resource that a score counts, and if devices serve it, how many of these are taken.
/// `None`: the node has none, or the pod asks for nothing of a resource that only some pods ask for.
pub(super) fn scored(
    view: &NodeView,
    name: ResourceName,
    request: i64,
    devices: Option<&Devices>,
) -> Option<(i64, Option<i64>)> {
    let of_all = [ResourceName::CPU, ResourceName::MEMORY, ResourceName::EPHEMERAL_STORAGE].contains(&name);
    if request <= 0 && !of_all {
        return None;
    }
    match view.allocatable(name) {
        0 => {
            let (all, taken) = devices.and_then(|it| Some(it.totals(it.class_behind(name)?, view)))?;
            (all > 0).then_some((all, Some(taken)))
        }
        allocatable => Some((allocatable, None)),
    }
}

/// The resources that are short on the node, `pods` first. Of `delegated` those that the node does not have are left to
/// devices (1.36 `shouldDelegateResourceToDRA`). Cost: resources of the pod x log(resources of the node).
pub fn shortages<'a>(
    args: &'a Args,
    node: &'a Node,
    view: &'a NodeView,
    (needs, delegated): (&'a PodNeeds, &'a [ResourceName]),
) -> impl Iterator<Item = ResourceName> + 'a {
    let is_left = |resource| delegated.contains(&resource) && view.allocatable(resource) == 0;
    node.shortages(view, needs).filter(move |resource| !args.ignores(*resource) && !is_left(*resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Strategy::{LeastAllocated, MostAllocated, RequestedToCapacityRatio};

    const GI: i64 = 1 << 30;

    fn name(text: &str) -> ResourceName {
        ResourceName::new(text).unwrap()
    }

    fn amounts(list: &[(&str, i64)]) -> Vec<Need> {
        let mut needs: Vec<Need> =
            list.iter().map(|(text, amount)| Need { name: name(text), amount: *amount }).collect();
        needs.sort_unstable_by_key(|need| need.name);
        needs
    }

    /// A node of 10 CPUs, 20 GiB and 8 devices, of which 2 CPUs, 10 GiB and 4 devices are in use.
    fn node() -> (Node, NodeView) {
        let allocatable = [("cpu", 10_000), ("memory", 20 * GI), ("a.io/nic", 8), ("pods", 10)];
        let view = NodeView { allocatable: amounts(&allocatable), ..NodeView::default() };
        let used = amounts(&[("cpu", 2_000), ("memory", 10 * GI), ("a.io/nic", 4)]);
        (Node { used, used_nonzero: (2_000, 10 * GI), ..Node::default() }, view)
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let (node, view) = node();
        let both = [("cpu", 1), ("memory", 1)];
        let shape = || RequestedToCapacityRatio(vec![(0, 0), (40, 20), (100, 100)]);
        let falling = || RequestedToCapacityRatio(vec![(20, 100), (80, 0)]);
        // The pod asks for 3 CPUs, 5 GiB, which makes 50 % and 75 %, and for 2 devices, which makes 75 %.
        let nic = [("cpu", 1), ("a.io/nic", 3)];
        for (strategy, resources, with_nic, wanted) in [
            // (50 + 25) / 2
            (LeastAllocated, &both[..], 0, 37),
            // (50 + 75) / 2
            (MostAllocated, &both[..], 0, 62),
            // (3 * 50 + 25) / 4
            (LeastAllocated, &[("cpu", 3), ("memory", 1)][..], 0, 43),
            // (50 + 3 * 25) / 4
            (LeastAllocated, &nic[..], 2, 31),
            // The pod asks for no device.
            (LeastAllocated, &nic[..], 0, 50),
            // 12 of 8 devices: 0.
            (LeastAllocated, &nic[1..], 8, 0),
            (MostAllocated, &nic[1..], 8, 100),
            // No node has it; `pods` are not scored.
            (LeastAllocated, &[("b.io/gpu", 1), ("pods", 1)][..], 0, 0),
            // 20 + 80 * 10 / 60 = 33 and 20 + 80 * 35 / 60 = 66; their mean is 49.5.
            (shape(), &both[..], 0, 50),
            // 100 - 100 * 30 / 60 = 50 and 100 - 100 * 55 / 60 = 9; their mean is 29.5.
            (falling(), &both[..], 0, 30),
            // Beyond the last point it is 0, and does not count: CPU alone.
            (falling(), &nic[..], 4, 50),
        ] {
            let resources = resources.iter().map(|(text, weight)| (name(text), *weight)).collect();
            let args = Args { strategy, resources, ..Args::default() };
            let requests = args.resources.iter().map(|(resource, _)| match resource.as_str() {
                "cpu" => 3_000,
                "memory" => 5 * GI,
                "a.io/nic" => with_nic,
                _ => 0,
            });
            let found = args.score(&node, &view, &requests.collect(), None);
            assert_eq!(found, wanted, "{args:?}");
        }
    }

    #[test]
    fn functions_are_constant_beyond_their_points() {
        let shape = [(20, 10), (60, 90)];
        for (at, wanted) in [(0, 10), (20, 10), (21, 12), (40, 50), (60, 90), (100, 90)] {
            assert_eq!(interpolated(&shape, at), wanted, "{at}");
        }
        assert_eq!(interpolated(&[], 50), 0);
    }

    #[test]
    fn extended_resources_can_be_ignored() {
        let (node, view) = node();
        let needs = PodNeeds {
            totals: amounts(&[
                ("cpu", 9_000),
                ("a.io/nic", 5),
                ("a.io/x", 1),
                ("b.io/y", 1),
                ("hugepages-2Mi", 1),
            ]),
            ..topology::request::PodRequest::default().needs()
        };
        for (ignored, groups, wanted) in [
            (vec![], vec![], "a.io/nic a.io/x b.io/y cpu hugepages-2Mi"),
            (vec!["a.io/x", "cpu", "hugepages-2Mi"], vec![], "a.io/nic b.io/y cpu hugepages-2Mi"),
            (vec!["b.io/y"], vec!["a.io", "cpu"], "cpu hugepages-2Mi"),
        ] {
            let args = Args {
                ignored: ignored.into_iter().map(name).collect(),
                ignored_groups: groups.into_iter().map(str::to_owned).collect(),
                ..Args::default()
            };
            let mut short: Vec<_> =
                shortages(&args, &node, &view, (&needs, &[])).map(|resource| resource.as_str()).collect();
            short.sort_unstable();
            assert_eq!(short.join(" "), wanted);
        }
    }
}
