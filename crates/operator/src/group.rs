//! Node groups and the pools they stand for.
//!
//! In: a NUMAResourcesOperator's node groups, the cluster's pools. Out: groups with their pools, and which nodes are in each; what is wrong with
//! them. Never: a call, nor a node in two pools.
//!
//! On OpenShift a pool is a MachineConfigPool, and a node is in the one that the Machine Config Operator says it is in: `master` before pools with
//! other names, and `worker` last. On HyperShift it is a NodePool. On Kubernetes each group is a pool of its own, and a node that several groups
//! select is in the first of them.

use std::collections::BTreeMap;

use api::numaresources::keys::{CUSTOM, ENABLED, LABEL_NODE_POOL, MULTIPLE_POOLS, SELINUX_POLICY};
use api::numaresources::{NodeGroup, NodeGroupConfig, NumaResourcesOperator};
use deployer::platform::Platform;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::world::{MachineConfigPool, World};

mod check;
pub mod choice;
pub mod requirement;

use choice::Choice;
use requirement::Requirement;
pub use requirement::selects;

/// The pool of control plane nodes, which no other pool can take nodes from.
const MASTER: &str = "master";
/// The pool of all nodes that are in no other.
const WORKER: &str = "worker";

/// A NUMAResourcesOperator's node groups.
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    /// In the order in which they were written.
    pub all: Vec<Group<'a>>,
    /// What people should change, although exporters work as it is.
    pub objection: Option<String>,
}

/// A node group.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// As it was written.
    pub spec: &'a NodeGroup,
    /// How its exporters work, with nothing left open.
    pub config: NodeGroupConfig,
    /// Its pools; there is at least one.
    pub pools: Vec<Pool<'a>>,
}

/// A pool of nodes.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// Its name.
    pub name: &'a str,
    /// OpenShift: what it says.
    pub machine_config_pool: Option<&'a MachineConfigPool>,
    /// Which nodes are in it; `Err`: it has none that could be told, and why.
    pub nodes: Result<Choice, String>,
}

impl<'a> Groups<'a> {
    /// The node groups of `operator` in this cluster.
    ///
    /// # Errors
    /// What is wrong with them, a line each, in the words of the Go operator.
    pub fn new(world: &'a World, operator: &'a NumaResourcesOperator) -> Result<Self, String> {
        let groups = &operator.spec.node_groups;
        if let Some(mistakes) = check::check(groups, world.place.platform) {
            return Err(mistakes);
        }
        let mut names: Vec<Vec<&str>> = Vec::new();
        let mut lost = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let pools = pools_of(world, group);
            if pools.is_empty() {
                lost.push(format!(
                    "failed to find MachineConfigPool for the node group {index}: {}",
                    described(group)
                ));
            }
            names.push(pools);
        }
        if !lost.is_empty() {
            return Err(lost.join("\n"));
        }
        shared(&names)?;
        let mut all = Vec::new();
        let mut before: Vec<&str> = Vec::new();
        for (group, names) in groups.iter().zip(&names) {
            let mut pools = Vec::new();
            for name in names {
                let nodes = nodes(world, group, groups, name, &before);
                pools.push(Pool { name, machine_config_pool: world.pools.get(*name), nodes });
                before.push(name);
            }
            all.push(Group { spec: group, config: group.normalized_config(), pools });
        }
        let objection = objection(operator, &all);
        Ok(Self { all, objection })
    }

    /// All pools with their groups, in order.
    pub fn pools(&self) -> impl Iterator<Item = (&Group<'a>, &Pool<'a>)> {
        self.all.iter().flat_map(|group| group.pools.iter().map(move |pool| (group, pool)))
    }

    /// The pool that a node with these labels is in.
    pub fn pool_of<'l>(&self, label: impl Fn(&str) -> Option<&'l str> + Copy) -> Option<&Pool<'a>> {
        let is_in = |pool: &&Pool<'a>| pool.nodes.as_ref().is_ok_and(|nodes| nodes.holds(label));
        self.pools().map(|(_, pool)| pool).find(is_in)
    }
}

impl Group<'_> {
    /// Whether its exporters have a SELinux policy of their own.
    #[must_use]
    pub fn has_custom_policy(&self) -> bool {
        self.spec.annotations.get(SELINUX_POLICY).is_some_and(|value| value == CUSTOM)
    }
}

/// The names of a group's pools, as far as there are such pools.
fn pools_of<'a>(world: &'a World, group: &'a NodeGroup) -> Vec<&'a str> {
    let name = group.pool_name.as_deref();
    if world.place.platform != Platform::OpenShift {
        return name.into_iter().collect();
    }
    if let Some(name) = name {
        return world.pools.get_key_value(name).map(|(name, _)| name.as_str()).into_iter().collect();
    }
    let selector = group.machine_config_pool_selector.as_ref();
    let selected =
        |pool: &MachineConfigPool| selects(selector, |key| pool.labels.get(key).map(String::as_str));
    world.pools.iter().filter(|(_, pool)| selected(pool)).map(|(name, _)| name.as_str()).collect()
}

/// Refuses pools that are in two groups.
fn shared(names: &[Vec<&str>]) -> Result<(), String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for name in names.iter().flatten() {
        *counts.entry(name).or_default() += 1;
    }
    let shared = counts.into_iter().filter(|(_, count)| *count > 1);
    let lines: Vec<String> = shared
        .map(|(name, _)| format!("the MachineConfigPool {name:?} selected by at least two node groups"))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

/// Names the groups with several pools, unless that is allowed.
fn objection(operator: &NumaResourcesOperator, groups: &[Group<'_>]) -> Option<String> {
    let annotations = operator.metadata.annotations.as_ref();
    if annotations.and_then(|all| all.get(MULTIPLE_POOLS)).is_some_and(|value| value == ENABLED) {
        return None;
    }
    let several = groups.iter().filter(|group| group.pools.len() > 1).map(|group| {
        let names: Vec<&str> = group.pools.iter().map(|pool| pool.name).collect();
        let (group, names) = (described(group.spec), names.join(", "));
        format!("found multiple pools matches for node group {group} but expected one: {names}")
    });
    let lines: Vec<String> = several.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// As messages name a group: by its pool, or by its selector.
fn described(group: &NodeGroup) -> String {
    match (&group.pool_name, &group.machine_config_pool_selector) {
        (Some(name), _) => format!("{name:?}"),
        (None, Some(selector)) => {
            let all = Requirement::all(selector).unwrap_or_default();
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("{:?}", all.join(","))
        }
        (None, None) => "<missing>".to_owned(),
    }
}

/// Which nodes are in a pool of `group`; `before`: those before it in the order of groups.
fn nodes(
    world: &World,
    group: &NodeGroup,
    groups: &[NodeGroup],
    name: &str,
    before: &[&str],
) -> Result<Choice, String> {
    match world.place.platform {
        Platform::OpenShift => machine_config_pool(world, name, before),
        Platform::HyperShift => {
            let labels = BTreeMap::from([(LABEL_NODE_POOL.to_owned(), name.to_owned())]);
            let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
            Choice::new(&selector, &[])
        }
        Platform::Kubernetes => {
            let earlier = groups.iter().take_while(|other| other.pool_name != group.pool_name);
            let selectors = earlier.filter_map(|other| other.node_selector.as_ref());
            let others: Vec<_> = selectors.filter_map(|selector| Requirement::all(selector).ok()).collect();
            Choice::new(&group.node_selector.clone().unwrap_or_default(), &others)
        }
    }
}

/// The nodes that the Machine Config Operator says are in this pool.
///
/// It refuses a node of two pools with names of their own; here the one whose group comes first has it, so that there are never two exporters.
fn machine_config_pool(world: &World, name: &str, before: &[&str]) -> Result<Choice, String> {
    // To the Machine Config Operator, an empty selector selects nothing.
    let is_empty = |selector: &&LabelSelector| Requirement::all(selector).is_ok_and(|all| all.is_empty());
    let selector = |name: &str| {
        let selector = world.pools.get(name)?.node_selector.as_ref();
        selector.filter(|selector| !is_empty(selector))
    };
    let Some(own) = selector(name) else {
        return Err("it has no node selector, so no node is in it".to_owned());
    };
    let wins = |other: &&str| match (*other, name) {
        _ if *other == name => false,
        (_, MASTER) | (WORKER, _) => false,
        (MASTER, _) | (_, WORKER) => true,
        _ => before.contains(other),
    };
    let others = world.pools.keys().map(String::as_str).filter(wins);
    let others: Vec<_> = others.filter_map(|name| Requirement::all(selector(name)?).ok()).collect();
    Choice::new(own, &others)
}

#[cfg(test)]
mod tests;
