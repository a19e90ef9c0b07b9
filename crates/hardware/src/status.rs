//! The status of a DeviceConfig.
//!
//! In: a [`Plan`] and what went wrong, the status as it is, a time. Out: the status as it has to be. Never: a clock, a
//! new time where nothing has turned, a list without an end.
//!
//! `Ready` and `Errored` and their reasons are those of the sample operator of the authoring guide; the others say
//! more.

use std::collections::BTreeSet;

use api::hardware::{Conflict, Status};
use jiff::Timestamp;

use super::claim;
use super::cluster_state::{ClusterState, Config};
use super::node_states::Ownership;
use super::plan::Plan;
use awaited::Awaited;
use conditions::{conditions, dated};
use nodes::{common_version, module_ref, upgrading_from};
use overdue::Overdue;
use rules::Evidence;

pub mod awaited;
mod conditions;
pub mod events;
mod nodes;
pub mod overdue;
mod problem;
mod rules;

/// The longest lists of a status.
const MOST: usize = 16;
/// The most nodes of one conflict.
const MOST_NODES: usize = 8;

/// Inputs of the status that the cluster state does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusInputs {
    /// What could not be written, one line each; the Module first.
    pub errors: Vec<Failure>,
    /// Things that have been awaited for too long.
    pub late: BTreeSet<Awaited>,
    /// Pods that should have gone.
    pub overdue: Vec<Overdue>,
}

/// Something that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// It was the Module.
    pub module: bool,
    /// What it was and what the API server said.
    pub text: String,
}

/// The status as it has to be.
#[must_use]
pub fn status(
    cluster: &ClusterState,
    config: &Config,
    plan: &Plan<'_>,
    inputs: &StatusInputs,
    now: Timestamp,
) -> Status {
    let known = &config.object.status;
    let evidence = Evidence::new(cluster, config, plan, inputs);
    let verdict = rules::verdict(&evidence);
    let generation = config.object.metadata.generation;
    let conditions = conditions(&evidence, &verdict);
    let node_states = plan.node_states.as_ref();
    let unsupported =
        evidence.states.iter().filter(|state| state.ownership == Ownership::Mine && !state.is_supported());
    let kernels: BTreeSet<String> = unsupported.map(|state| state.node.kernel.to_string()).collect();
    Status {
        observed_generation: generation,
        phase: Some(verdict.phase),
        module: node_states.and_then(|node_states| module_ref(cluster, node_states)),
        driver_version: node_states.and_then(common_version),
        upgrading_from: node_states.and_then(|node_states| upgrading_from(config, node_states)),
        problems: problem::problems(plan, inputs).into_iter().take(MOST).collect(),
        conflicts: evidence.conflicts.iter().take(MOST).map(told_conflict).collect(),
        kernels_without_mapping: kernels.into_iter().take(MOST).collect(),
        conditions: dated(conditions, &known.conditions, generation, now),
        nodes: Some(evidence.counts),
    }
}

fn whole(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn told_conflict(conflict: &claim::Conflict) -> Conflict {
    Conflict {
        namespace: conflict.other.namespace.clone(),
        name: conflict.other.name.clone(),
        nodes: conflict.nodes.iter().take(MOST_NODES).cloned().collect(),
        count: whole(conflict.nodes.len()),
        won: conflict.won,
    }
}

fn conflict_text(lost: &[&claim::Conflict]) -> String {
    let each = lost.iter().map(|conflict| format!("{} has {}", conflict.other, some(&conflict.nodes)));
    let all: Vec<String> = each.take(4).collect();
    format!(
        "Conflicting DeviceConfig NodeSelectors found: DeviceConfig {}; change spec.nodeSelector of one of them",
        all.join("; DeviceConfig ")
    )
}

fn overdue_text(overdue: &[Overdue]) -> String {
    let each = overdue.iter().take(MOST_NODES).map(|one| format!("{} on {}", some(&one.pods), one.node));
    let all: Vec<String> = each.collect();
    format!("pods were asked to go from {} nodes and are still there: {}", overdue.len(), all.join("; "))
}

/// A few of many.
pub(super) fn some(names: &[String]) -> String {
    let mut text = names.iter().take(MOST_NODES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NODES {
        text += &format!(" and {} more", names.len() - MOST_NODES);
    }
    text
}

#[cfg(test)]
mod tests;
