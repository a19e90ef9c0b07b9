//! The status of a DeviceConfig.
//!
//! In: a [`Plan`], errors, the status as it is, a time. Out: the desired status. Never: a clock, a new transition time
//! for a condition that stays, a list without a limit.
//!
//! `Ready` and `Errored` and their reasons are those of the sample operator of the authoring guide; the other
//! conditions add details.

use std::collections::BTreeSet;

use api::hardware::{Conflict, Status};
use jiff::Timestamp;

use super::claim;
use super::cluster_state::{ClusterState, Config};
use super::node_states::Ownership;
use super::plan::Plan;
use awaited::Awaited;
use conditions::{conditions, with_times};
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

/// The most entries of a list in the status.
const MOST: usize = 16;
/// The most names in a message, and the most nodes of one conflict.
const MOST_NODES: usize = 8;

/// Inputs of the status that the cluster state does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusInputs {
    /// Failed writes.
    pub errors: Vec<Failure>,
    /// Changes that have been awaited for too long.
    pub late: BTreeSet<Awaited>,
    /// Pods that still run after the eviction timeout.
    pub overdue: Vec<Overdue>,
}

/// A failed write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// The object was the Module.
    pub module: bool,
    /// The object, and the error of the API server.
    pub text: String,
}

/// The desired status.
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
    let states = plan.node_states.as_ref();
    let unsupported =
        evidence.states.iter().filter(|state| state.ownership == Ownership::Owned && !state.is_supported());
    let kernels: BTreeSet<String> = unsupported.map(|state| state.node.kernel.to_string()).collect();
    Status {
        observed_generation: generation,
        phase: Some(verdict.phase),
        module: states.and_then(|states| module_ref(cluster, states)),
        driver_version: states.and_then(common_version),
        upgrading_from: states.and_then(|states| upgrading_from(config, states)),
        problems: problem::problems(plan, inputs).into_iter().take(MOST).collect(),
        conflicts: evidence.conflicts.iter().take(MOST).map(conflict_entry).collect(),
        kernels_without_mapping: kernels.into_iter().take(MOST).collect(),
        conditions: with_times(conditions, &known.conditions, generation, now),
        nodes: Some(evidence.counts),
    }
}

/// A count as the API has it.
fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn conflict_entry(conflict: &claim::Conflict) -> Conflict {
    Conflict {
        namespace: conflict.other.namespace.clone(),
        name: conflict.other.name.clone(),
        nodes: conflict.nodes.iter().take(MOST_NODES).cloned().collect(),
        count: count(conflict.nodes.len()),
        won: conflict.won,
    }
}

fn conflict_text(lost: &[&claim::Conflict]) -> String {
    let each = lost.iter().map(|conflict| format!("{} has {}", conflict.other, list(&conflict.nodes)));
    let all: Vec<String> = each.take(4).collect();
    format!(
        "Conflicting DeviceConfig NodeSelectors found: DeviceConfig {}; change spec.nodeSelector of one of them",
        all.join("; DeviceConfig ")
    )
}

fn overdue_text(overdue: &[Overdue]) -> String {
    let each = overdue.iter().take(MOST_NODES).map(|one| format!("{} on {}", list(&one.pods), one.node));
    let all: Vec<String> = each.collect();
    format!("pods were asked to go from {} nodes and are still there: {}", overdue.len(), all.join("; "))
}

/// The first names of a list, and the number of the others.
fn list(names: &[String]) -> String {
    let mut text = names.iter().take(MOST_NODES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NODES {
        text += &format!(" and {} more", names.len() - MOST_NODES);
    }
    text
}

#[cfg(test)]
mod tests;
