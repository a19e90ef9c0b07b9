//! Problems of nodes that need attention, with reasons.
//!
//! In: a [`Plan`]. Out: problems, the worst first. Never: a node whose change is merely under way.

use api::hardware::NodeProblem;

use crate::kernel::KernelSupport;
use crate::node_states::{NodeState, Ownership};
use crate::plan::{ConfigState, Plan};
use crate::reasons::ProblemReason;
use crate::rollout::Wait;
use crate::taints::UNSCHEDULABLE;

use super::awaited::Awaited;
use super::{StatusInputs, list};

/// The problems, including those of nodes whose change takes too long.
pub(super) fn problems(plan: &Plan<'_>, inputs: &StatusInputs) -> Vec<NodeProblem> {
    let mut all: Vec<(u8, NodeProblem)> = Vec::new();
    let leaving = matches!(plan.state, ConfigState::Deleting(_));
    for state in plan.node_states.iter().flat_map(|states| &states.nodes) {
        let found = match leaving {
            // The driver is unloaded after that.
            true if !plan.round.waiting.is_empty() => None,
            true => still_loaded(state),
            false => node_problem(state, inputs.late.contains(&Awaited::Driver(state.name.to_owned()))),
        };
        all.extend(found.map(|(rank, reason, message)| {
            (rank, NodeProblem { node: state.name.to_owned(), reason: reason.word().to_owned(), message })
        }));
    }
    for one in &inputs.overdue {
        let (pods, seconds) = (list(&one.pods), one.after.as_secs());
        let message = format!(
            "pods {pods} were asked to go more than {seconds} s ago and are still there; a disruption budget or a finalizer may keep them"
        );
        let reason = ProblemReason::EvictionTimeout.word().to_owned();
        all.push((1, NodeProblem { node: one.node.clone(), reason, message }));
    }
    let is_overdue = |node: &str| inputs.overdue.iter().any(|one| one.node == node);
    for (node, wait) in plan.round.waiting.iter().filter(|(node, _)| !is_overdue(node)) {
        if let Some((reason, message)) = waiting(wait) {
            all.push((3, NodeProblem { node: node.clone(), reason: reason.word().to_owned(), message }));
        }
    }
    all.sort_by(|one, other| (one.0, &one.1.node).cmp(&(other.0, &other.1.node)));
    all.into_iter().map(|(_, problem)| problem).collect()
}

fn still_loaded(state: &NodeState<'_>) -> Option<(u8, ProblemReason, String)> {
    let mut message = "KMM has not unloaded the driver yet".to_owned();
    if let Some(users) = state.users.summary() {
        message += &format!("; the devices are used by {users}");
    }
    state.in_use.then_some((0, ProblemReason::StillLoaded, message))
}

fn node_problem(state: &NodeState<'_>, late: bool) -> Option<(u8, ProblemReason, String)> {
    match &state.ownership {
        Ownership::Blocked(by) => {
            return Some((2, ProblemReason::WaitingForFormer, format!("{by} has not left the node yet")));
        }
        Ownership::Owned => {}
        _ => return None,
    }
    match &state.support {
        KernelSupport::Unsupported => {
            let message = format!("no entry of spec.kernelMappings matches kernel {}", state.node.kernel);
            return Some((1, ProblemReason::UnsupportedKernel, message));
        }
        KernelSupport::Invalid(why) => return Some((1, ProblemReason::UnsupportedKernel, why.clone())),
        KernelSupport::Supported(_) => {}
    }
    if let Some(taint) = &state.taint {
        let message = if taint == UNSCHEDULABLE {
            "it is cordoned, and the driver is unloaded meanwhile".to_owned()
        } else {
            format!("taint {taint} is not among spec.tolerations")
        };
        return Some((4, ProblemReason::Maintenance, message));
    }
    if state.rebooted {
        return Some((
            2,
            ProblemReason::Rebooted,
            "it was started anew and the driver is not loaded again yet".to_owned(),
        ));
    }
    if state.ready || !late {
        return None;
    }
    Some((0, ProblemReason::NotLoaded, not_ready_text(state)))
}

/// The reason why a node has no working driver, from the reports of KMM.
pub(super) fn not_ready_text(state: &NodeState<'_>) -> String {
    match state.loaded {
        Some(version) => format!("version {version} is loaded, which is not what is asked for"),
        None if state.in_use => "KMM has not loaded the driver".to_owned(),
        None => "KMM has not begun to load the driver".to_owned(),
    }
}

fn waiting(wait: &Wait) -> Option<(ProblemReason, String)> {
    match wait {
        Wait::Pods(first, count) => {
            Some((ProblemReason::PodsUseDevices, format!("{count} pods use the devices, such as {first}")))
        }
        Wait::Unknown => {
            Some((ProblemReason::PodsUnknown, "it is not known yet which pods use the devices".to_owned()))
        }
        Wait::MaxUnavailable | Wait::Paused | Wait::Maintenance => None,
    }
}
