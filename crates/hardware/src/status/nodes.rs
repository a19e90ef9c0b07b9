//! Facts about the nodes for the status: counts, versions, missing images and device plugins.
//!
//! In: the [`NodeStates`]. Out: numbers and names. Never: a condition.

use std::collections::{BTreeMap, BTreeSet};

use api::hardware::{ModuleRef, NodeCounts};

use super::count;
use crate::cluster_state::{ClusterState, Config};
use crate::kernel::KernelSupport;
use crate::node_states::{NodeState, NodeStates, Ownership};
use crate::plan::Plan;
use crate::rollout::Wait;

pub(super) fn counts(config: &Config, plan: &Plan<'_>, node_states: &NodeStates<'_>) -> NodeCounts {
    let wanted = Some(config.object.spec.driver_version.as_str());
    let all = |holds: &dyn Fn(&NodeState<'_>) -> bool| {
        count(node_states.nodes.iter().filter(|state| holds(state)).count())
    };
    let owned = |holds: &dyn Fn(&NodeState<'_>) -> bool| {
        all(&|state| state.ownership == Ownership::Owned && holds(state))
    };
    let on_pods = |wait: &Wait| matches!(wait, Wait::Pods(..) | Wait::Returning(..) | Wait::Unknown);
    NodeCounts {
        matching: all(&|state| !matches!(state.ownership, Ownership::Unmatched | Ownership::Deleting)),
        claimed: all(&|state| state.ownership.is_claimed()),
        desired: all(&|state| state.is_desired()),
        available: all(&|state| state.is_desired() && state.works),
        ready: all(&|state| state.is_desired() && state.ready && state.version == wanted),
        updated: owned(&|state| state.version == wanted),
        unsupported: owned(&|state| !state.is_supported()),
        maintenance: owned(&|state| state.is_supported() && state.taint.is_some()),
        waiting: count(plan.round.waiting.iter().filter(|(_, wait)| on_pods(wait)).count()),
    }
}

pub(super) fn module_ref(cluster: &ClusterState, node_states: &NodeStates<'_>) -> Option<ModuleRef> {
    let module = &node_states.object_names.module;
    let version = cluster.modules.get(module)?.driver_version();
    let version = Some(version.to_owned()).filter(|version| !version.is_empty());
    Some(ModuleRef { name: module.name.clone(), version })
}

/// The version on all nodes that should have the driver; `None` if they differ, or one has none.
pub(super) fn common_version(node_states: &NodeStates<'_>) -> Option<String> {
    let mut loaded = node_states.desired().map(|state| state.loaded);
    let first = loaded.next()??;
    loaded.all(|version| version == Some(first)).then(|| first.to_owned())
}

/// The version that an upgrade replaces. Once no node has it any more, only the status knows it; so it stays there
/// until all nodes have the desired version.
pub(super) fn upgrading_from(config: &Config, node_states: &NodeStates<'_>) -> Option<String> {
    let wanted = config.object.spec.driver_version.as_str();
    let is_owned = node_states.nodes.iter().any(|state| state.ownership == Ownership::Owned);
    if !is_owned || common_version(node_states).as_deref() == Some(wanted) {
        return None;
    }
    let status = &config.object.status;
    let known = [&status.upgrading_from, &status.driver_version].into_iter().flatten().map(String::as_str);
    let on_nodes = node_states.desired().flat_map(|state| [state.loaded, state.version]).flatten();
    known.chain(on_nodes).find(|version| !version.is_empty() && *version != wanted).map(str::to_owned)
}

/// Images that KMM has not found and nodes need, with KMM's state of each.
pub(super) fn missing_images(
    cluster: &ClusterState,
    node_states: &NodeStates<'_>,
) -> BTreeMap<String, String> {
    let image = |state: &'_ NodeState<'_>| match &state.support {
        KernelSupport::Supported(source) => Some(source.image.clone()),
        _ => None,
    };
    let needed = node_states.desired().filter(|state| !state.ready);
    let needed: BTreeSet<String> = needed.filter_map(image).collect();
    let images = cluster.images.get(&node_states.object_names.module);
    let missing = images.into_iter().flat_map(|images| &images.missing);
    let missing = missing.filter(|(image, _)| needed.contains(image.as_str()));
    missing.map(|(image, state)| (image.clone(), state.clone())).collect()
}

/// Nodes that should have the device plugin or the DRA driver, and do not. KMM reports it by labels, and as a number of
/// the Module.
pub(super) fn missing_plugins(
    cluster: &ClusterState,
    config: &Config,
    node_states: &NodeStates<'_>,
) -> Vec<String> {
    let spec = &config.object.spec;
    if !spec.offers_devices() {
        return Vec::new();
    }
    let count = if spec.dra.is_some() { "/status/dra" } else { "/status/devicePlugin" };
    let live = cluster.modules.get(&node_states.object_names.module);
    let available = live.and_then(|live| live.body.pointer(count)?["availableNumber"].as_u64());
    if available.is_some_and(|count| count >= node_states.desired().count() as u64) {
        return Vec::new();
    }
    let missing = node_states.desired().filter(|state| !state.plugin);
    missing.map(|state| state.name.to_owned()).collect()
}
