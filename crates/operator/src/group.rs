//! Node groups and their pools.
//!
//! In: a NUMAResourcesOperator's node groups, the cluster's pools. Out: groups with their pools and nodes, or the
//! mistakes in them. Never: a call, or a node in two pools.
//!
//! On OpenShift a pool is a MachineConfigPool, and the Machine Config Operator's rules place a node: `master` comes
//! before custom pools, and `worker` last. On HyperShift a pool is a NodePool. On Kubernetes each group is a pool, and
//! a node that several groups select is in the first of them.

use std::collections::BTreeMap;

use api::numaresources::keys::{CUSTOM, ENABLED, LABEL_NODE_POOL, MULTIPLE_POOLS, SELINUX_POLICY};
use api::numaresources::{NodeGroup, NodeGroupConfig, NumaResourcesOperator};
use deployer::manifests::meta;
use deployer::options::Kubelet;
use deployer::platform::Platform;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::cluster_state::{ClusterState, MachineConfigPool};

mod check;
pub mod choice;
mod kubelet;
pub mod passed_over;
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
    /// The groups, in the order of the object.
    pub all: Vec<Group<'a>>,
    /// A mistake in the request that exporters can work with.
    pub objection: Option<String>,
}

/// A node group.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The group of the object.
    pub spec: &'a NodeGroup,
    /// The configuration of its exporters, with defaults filled in.
    pub config: NodeGroupConfig,
    /// Its kubelets.
    pub kubelet: Kubelet,
    /// Its pools, at least one.
    pub pools: Vec<Pool<'a>>,
}

/// A pool of nodes.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// Its name.
    pub name: &'a str,
    /// OpenShift: the MachineConfigPool.
    pub machine_config_pool: Option<&'a MachineConfigPool>,
    /// The nodes in it; `Err`: why they are not known.
    pub nodes: Result<Choice, String>,
}

impl<'a> Groups<'a> {
    /// The node groups of `operator` in this cluster.
    ///
    /// # Errors
    /// The mistakes in them, a line each, in the words of the Go operator.
    pub fn new(cluster: &'a ClusterState, operator: &'a NumaResourcesOperator) -> Result<Self, String> {
        let groups = &operator.spec.node_groups;
        if let Some(mistakes) = check::check(groups, cluster.environment.platform) {
            return Err(mistakes);
        }
        let names: Vec<Vec<&str>> = groups.iter().map(|group| pools_of(cluster, group)).collect();
        let lost = names.iter().zip(groups).enumerate().filter(|(_, (pools, _))| pools.is_empty());
        let lost: Vec<String> = lost
            .map(|(index, (_, group))| {
                let group = described(group);
                format!("failed to find MachineConfigPool for the node group {index}: {group}")
            })
            .collect();
        if !lost.is_empty() {
            return Err(lost.join("\n"));
        }
        refuse_shared_pools(&names)?;
        let kubelets = kubelets(cluster, operator)?;
        let updater = operator.spec.updater_type.unwrap_or_default();
        let mut all = Vec::new();
        let mut before: Vec<&str> = Vec::new();
        for ((group, names), kubelet) in groups.iter().zip(&names).zip(kubelets) {
            let mut pools = Vec::new();
            for name in names {
                let nodes = nodes(cluster, group, groups, name, &before);
                pools.push(Pool { name, machine_config_pool: cluster.pools.get(*name), nodes });
                before.push(name);
            }
            all.push(Group { spec: group, config: group.normalized_config(updater), kubelet, pools });
        }
        let objection = objection(operator, &all);
        Ok(Self { all, objection })
    }

    /// All pools with their groups, in order.
    pub fn pools(&self) -> impl Iterator<Item = (&Group<'a>, &Pool<'a>)> {
        self.all.iter().flat_map(|group| group.pools.iter().map(move |pool| (group, pool)))
    }

    /// The kubelets of a pool.
    #[must_use]
    pub fn kubelet(&self, pool: &str) -> Option<&Kubelet> {
        self.pools().find(|(_, one)| one.name == pool).map(|(group, _)| &group.kubelet)
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

/// The kubelets of each group, or all mistakes in them.
fn kubelets(cluster: &ClusterState, operator: &NumaResourcesOperator) -> Result<Vec<Kubelet>, String> {
    let groups = operator.spec.node_groups.iter().enumerate();
    let (mut good, mut mistakes) = (Vec::new(), Vec::new());
    for group in groups {
        match kubelet::kubelet(&cluster.environment, operator, group) {
            Ok(kubelet) => good.push(kubelet),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    mistakes.dedup();
    if mistakes.is_empty() { Ok(good) } else { Err(mistakes.join("\n")) }
}

/// The names of a group's pools that exist.
fn pools_of<'a>(cluster: &'a ClusterState, group: &'a NodeGroup) -> Vec<&'a str> {
    let name = group.pool_name.as_deref();
    if cluster.environment.platform != Platform::OpenShift {
        return name.into_iter().collect();
    }
    if let Some(name) = name {
        return cluster.pools.get_key_value(name).map(|(name, _)| name.as_str()).into_iter().collect();
    }
    let selector = group.machine_config_pool_selector.as_ref();
    let selected =
        |pool: &MachineConfigPool| selects(selector, |key| pool.labels.get(key).map(String::as_str));
    cluster.pools.iter().filter(|(_, pool)| selected(pool)).map(|(name, _)| name.as_str()).collect()
}

/// Refuses pools that several groups select.
fn refuse_shared_pools(names: &[Vec<&str>]) -> Result<(), String> {
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

/// Names the groups with several pools, unless an annotation allows that.
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

/// The name of a group in messages: its pool, or its selector.
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

/// The nodes in a pool of `group`; `before` are the pools of earlier groups.
fn nodes(
    cluster: &ClusterState,
    group: &NodeGroup,
    groups: &[NodeGroup],
    name: &str,
    before: &[&str],
) -> Result<Choice, String> {
    match cluster.environment.platform {
        Platform::OpenShift => machine_config_pool(cluster, name, before),
        Platform::HyperShift => Choice::new(&meta::selector(&meta::labels([(LABEL_NODE_POOL, name)])), &[]),
        Platform::Kubernetes => {
            let earlier = groups.iter().take_while(|other| other.pool_name != group.pool_name);
            let selectors = earlier.filter_map(|other| other.node_selector.as_ref());
            let others: Vec<_> = selectors.filter_map(|selector| Requirement::all(selector).ok()).collect();
            Choice::new(&group.node_selector.clone().unwrap_or_default(), &others)
        }
    }
}

/// The nodes of this pool according to the Machine Config Operator.
///
/// That refuses a node of two custom pools. Here such a node is in the pool of the first group, so that it never has
/// two exporters.
fn machine_config_pool(cluster: &ClusterState, name: &str, before: &[&str]) -> Result<Choice, String> {
    // To the Machine Config Operator, an empty selector selects nothing.
    let is_empty = |selector: &&LabelSelector| Requirement::all(selector).is_ok_and(|all| all.is_empty());
    let selector = |name: &str| {
        let selector = cluster.pools.get(name)?.node_selector.as_ref();
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
    let others = cluster.pools.keys().map(String::as_str).filter(wins);
    let others: Vec<_> = others.filter_map(|name| Requirement::all(selector(name)?).ok()).collect();
    Choice::new(own, &others)
}

#[cfg(test)]
mod tests;
