//! Problems of nodes that need attention, with reasons.
//!
//! In: a [`Plan`]. Out: problems, the worst first. Never: a node whose change is merely under way.

use api::hardware::NodeProblem;

use crate::cluster_state::CORDON_TAINT;
use crate::kernel::KernelSupport;
use crate::node_states::{NodeState, Ownership};
use crate::plan::{ConfigState, Plan};
use crate::reasons::ProblemReason;
use crate::rollout::Wait;
use crate::taints::UNSCHEDULABLE;

use super::awaited::Awaited;
use super::{StatusInputs, list};

/// A problem of a node: reason and message.
type Problem = (ProblemReason, String);

/// The problems, including those of nodes whose change takes too long.
pub(super) fn problems(plan: &Plan<'_>, inputs: &StatusInputs) -> Vec<NodeProblem> {
    let mut found: Vec<(&str, Problem)> = Vec::new();
    let deleting = matches!(plan.state, ConfigState::Deleting(_));
    for state in plan.node_states.iter().flat_map(|states| &states.nodes) {
        let problem = match deleting {
            // The driver is unloaded after that.
            true if !plan.round.waiting.is_empty() => None,
            true => still_loaded(state),
            false => node_problem(state, inputs.late.contains(&Awaited::Driver(state.name.to_owned()))),
        };
        found.extend(problem.map(|problem| (state.name, problem)));
    }
    for overdue in &inputs.overdue {
        let (pods, seconds) = (list(&overdue.pods), overdue.after.as_secs());
        let message = format!(
            "pods {pods} were asked to go more than {seconds} s ago and are still there; a disruption budget or a finalizer may keep them"
        );
        found.push((&overdue.node, (ProblemReason::EvictionTimeout, message)));
    }
    let is_overdue = |node: &str| inputs.overdue.iter().any(|overdue| overdue.node == node);
    let waiting = plan.round.waiting.iter().filter(|(node, _)| !is_overdue(node));
    found.extend(waiting.filter_map(|(node, wait)| Some((node.as_str(), waiting_for(wait)?))));
    found.sort_by_key(|(node, (reason, _))| (rank(*reason), *node));
    let problem = |(node, (reason, message)): (&str, Problem)| NodeProblem {
        node: node.to_owned(),
        reason: reason.as_ref().to_owned(),
        message,
    };
    found.into_iter().map(problem).collect()
}

/// The position in the list: the worst problems come first.
fn rank(reason: ProblemReason) -> u8 {
    match reason {
        ProblemReason::StillLoaded | ProblemReason::NotLoaded => 0,
        ProblemReason::EvictionTimeout | ProblemReason::UnsupportedKernel => 1,
        ProblemReason::WaitingForFormer | ProblemReason::Rebooted => 2,
        ProblemReason::PodsUseDevices | ProblemReason::PodsUnknown => 3,
        ProblemReason::Maintenance => 4,
    }
}

fn still_loaded(state: &NodeState<'_>) -> Option<Problem> {
    let users = state.users.summary().map(|users| format!("; the devices are used by {users}"));
    let message = format!("KMM has not unloaded the driver yet{}", users.unwrap_or_default());
    state.in_use.then_some((ProblemReason::StillLoaded, message))
}

fn node_problem(state: &NodeState<'_>, late: bool) -> Option<Problem> {
    let kernel = &state.node.kernel;
    Some(match (&state.ownership, &state.support, &state.taint) {
        (Ownership::Blocked(by), ..) => {
            (ProblemReason::WaitingForFormer, format!("{by} has not left the node yet"))
        }
        (Ownership::Owned, KernelSupport::Unsupported, _) => (
            ProblemReason::UnsupportedKernel,
            format!("no entry of spec.kernelMappings matches kernel {kernel}"),
        ),
        (Ownership::Owned, KernelSupport::Invalid(why), _) => (ProblemReason::UnsupportedKernel, why.clone()),
        (Ownership::Owned, _, Some(taint)) if taint == UNSCHEDULABLE => {
            (ProblemReason::Maintenance, "it is cordoned, and the driver is unloaded meanwhile".to_owned())
        }
        (Ownership::Owned, _, Some(taint)) => {
            (ProblemReason::Maintenance, format!("taint {taint} is not among spec.tolerations"))
        }
        (Ownership::Owned, ..) if state.rebooted => {
            (ProblemReason::Rebooted, "it was started anew and the driver is not loaded again yet".to_owned())
        }
        (Ownership::Owned, ..) if late && !state.ready => (ProblemReason::NotLoaded, not_ready_text(state)),
        _ => return None,
    })
}

/// The reason why a node has no working driver, from the reports of KMM.
pub(super) fn not_ready_text(state: &NodeState<'_>) -> String {
    match state.loaded {
        Some(version) => format!("version {version} is loaded, which is not what is asked for"),
        None if state.in_use => "KMM has not loaded the driver".to_owned(),
        None => "KMM has not begun to load the driver".to_owned(),
    }
}

fn waiting_for(wait: &Wait) -> Option<Problem> {
    Some(match wait {
        Wait::Pods(first, count) => {
            (ProblemReason::PodsUseDevices, format!("{count} pods use the devices, such as {first}"))
        }
        Wait::Returning(first, count) => (
            ProblemReason::PodsUseDevices,
            format!(
                "{count} pods that use the devices would come back after an eviction, such as {first}: their DaemonSet \
                 tolerates the taint {CORDON_TAINT}"
            ),
        ),
        Wait::Unknown => {
            (ProblemReason::PodsUnknown, "it is not known yet which pods use the devices".to_owned())
        }
        Wait::MaxUnavailable | Wait::Paused | Wait::Maintenance => return None,
    })
}
