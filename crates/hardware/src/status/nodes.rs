//! What the nodes say for the status: counts, versions, images and device plugins that are missing.
//!
//! In: the [`NodeStates`] of the nodes. Out: numbers and names. Never: a condition.

use std::collections::{BTreeMap, BTreeSet};

use api::hardware::{ModuleRef, NodeCounts};

use super::whole;
use crate::cluster_state::{ClusterState, Config};
use crate::kernel::Served;
use crate::node_states::{NodeState, NodeStates, Ownership};
use crate::plan::Plan;
use crate::rollout::Wait;

pub(super) fn counts(config: &Config, plan: &Plan<'_>, node_states: &NodeStates<'_>) -> NodeCounts {
    let wanted = config.object.spec.driver_version.as_str();
    let count =
        |holds: &dyn Fn(&&NodeState<'_>) -> bool| whole(node_states.nodes.iter().filter(holds).count());
    let mine = |state: &&NodeState<'_>| state.ownership == Ownership::Mine;
    let on_pods = |wait: &Wait| matches!(wait, Wait::Pods(..) | Wait::Unknown);
    NodeCounts {
        matching: count(&|state| !matches!(state.ownership, Ownership::Ending | Ownership::Leaving)),
        claimed: count(&|state| state.ownership.is_ours()),
        desired: count(&|state| state.is_desired()),
        available: count(&|state| state.is_desired() && state.works),
        ready: count(&|state| state.is_desired() && state.ready && state.version == Some(wanted)),
        updated: count(&|state| mine(state) && state.version == Some(wanted)),
        unsupported: count(&|state| mine(state) && !state.is_supported()),
        maintenance: count(&|state| mine(state) && state.is_supported() && state.taint.is_some()),
        waiting: whole(plan.round.waiting.iter().filter(|(_, wait)| on_pods(wait)).count()),
    }
}

pub(super) fn module_ref(cluster: &ClusterState, node_states: &NodeStates<'_>) -> Option<ModuleRef> {
    let live = cluster.modules.get(&node_states.object_names.module)?;
    let version = live.text("/spec/moduleLoader/container/version");
    let version = Some(version.to_owned()).filter(|version| !version.is_empty());
    Some(ModuleRef { name: node_states.object_names.module.name.clone(), version })
}

/// The version that all nodes have that should have one.
pub(super) fn common_version(node_states: &NodeStates<'_>) -> Option<String> {
    let mut loaded = node_states.nodes.iter().filter(|state| state.is_desired()).map(|state| state.loaded);
    let first = loaded.next()??;
    loaded.all(|version| version == Some(first)).then(|| first.to_owned())
}

/// The version that nodes come from. Once the last of them has unloaded it only the status knows, so it stays there
/// until all have the one that is asked for.
pub(super) fn upgrading_from(config: &Config, node_states: &NodeStates<'_>) -> Option<String> {
    let wanted = config.object.spec.driver_version.as_str();
    let mut mine = node_states.nodes.iter().filter(|state| state.ownership == Ownership::Mine).peekable();
    if mine.peek().is_none() || common_version(node_states).as_deref() == Some(wanted) {
        return None;
    }
    let known = &config.object.status;
    let known = [&known.upgrading_from, &known.driver_version].into_iter().flatten().map(String::as_str);
    let on_nodes =
        mine.filter(|state| state.is_desired()).flat_map(|state| [state.loaded, state.version]).flatten();
    known.chain(on_nodes).find(|version| !version.is_empty() && *version != wanted).map(str::to_owned)
}

/// Images that were not found, of kernels that nodes of ours have, with what KMM says of them.
pub(super) fn missing_images(
    cluster: &ClusterState,
    node_states: &NodeStates<'_>,
) -> BTreeMap<String, String> {
    let needed: BTreeSet<&str> = node_states
        .nodes
        .iter()
        .filter(|state| state.is_desired() && !state.ready)
        .filter_map(|state| match &state.served {
            Served::By(source) => Some(source.image.as_str()),
            _ => None,
        })
        .collect();
    let images = cluster.images.get(&node_states.object_names.module);
    let missing = images.into_iter().flat_map(|images| &images.missing);
    let missing = missing.filter(|(image, _)| needed.contains(image.as_str()));
    missing.map(|(image, state)| (image.clone(), state.clone())).collect()
}

/// Ready nodes without a device plugin that they should have. KMM says it by labels, and as a number of the Module.
pub(super) fn missing_plugins(
    cluster: &ClusterState,
    config: &Config,
    node_states: &NodeStates<'_>,
) -> Vec<String> {
    if config.object.spec.device_plugin.is_none() {
        return Vec::new();
    }
    let live = cluster.modules.get(&node_states.object_names.module);
    let available = live.and_then(|live| live.body.pointer("/status/devicePlugin/availableNumber")?.as_u64());
    let desired = node_states.nodes.iter().filter(|state| state.is_desired());
    if available.is_some_and(|count| count >= desired.clone().count() as u64) {
        return Vec::new();
    }
    desired.filter(|state| !state.plugin).map(|state| state.name.to_owned()).collect()
}
