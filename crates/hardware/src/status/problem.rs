//! Problems of nodes that need a look, with reasons.
//!
//! In: a [`Plan`]. Out: problems, the worst first. Never: a node that is merely on its way.

use api::hardware::NodeProblem;

use crate::kernel::Served;
use crate::node_states::{NodeState, Ownership};
use crate::plan::{Plan, State};
use crate::reasons::ProblemReason;
use crate::rollout::Wait;
use crate::taints::UNSCHEDULABLE;

use super::awaited::Awaited;
use super::{StatusInputs, some};

/// The problems. Nodes that have been on their way for long have one too.
pub(super) fn problems(plan: &Plan<'_>, inputs: &StatusInputs) -> Vec<NodeProblem> {
    let mut all: Vec<(u8, NodeProblem)> = Vec::new();
    let leaving = matches!(plan.state, State::Leaving(_));
    for state in plan.node_states.iter().flat_map(|node_states| &node_states.nodes) {
        let found = match leaving {
            // Nothing is unloaded before that.
            true if !plan.round.waiting.is_empty() => None,
            true => unloading(state),
            false => of(state, inputs.late.contains(&Awaited::Driver(state.name.to_owned()))),
        };
        all.extend(found.map(|(rank, reason, message)| {
            (rank, NodeProblem { node: state.name.to_owned(), reason: reason.word().to_owned(), message })
        }));
    }
    for one in &inputs.overdue {
        let (pods, seconds) = (some(&one.pods), one.after.as_secs());
        let message = format!(
            "pods {pods} were asked to go more than {seconds} s ago and are still there; a disruption budget or a finalizer may keep them"
        );
        let reason = ProblemReason::EvictionTimeout.word().to_owned();
        all.push((1, NodeProblem { node: one.node.clone(), reason, message }));
    }
    let is_told = |node: &str| inputs.overdue.iter().any(|one| one.node == node);
    for (node, wait) in plan.round.waiting.iter().filter(|(node, _)| !is_told(node)) {
        if let Some((reason, message)) = waiting(wait) {
            all.push((3, NodeProblem { node: node.clone(), reason: reason.word().to_owned(), message }));
        }
    }
    all.sort_by(|one, other| (one.0, &one.1.node).cmp(&(other.0, &other.1.node)));
    all.into_iter().map(|(_, problem)| problem).collect()
}

fn unloading(state: &NodeState<'_>) -> Option<(u8, ProblemReason, String)> {
    let mut message = "KMM has not unloaded the driver yet".to_owned();
    if let Some(users) = state.users.text() {
        message += &format!("; the devices are used by {users}");
    }
    state.in_use.then_some((0, ProblemReason::StillLoaded, message))
}

fn of(state: &NodeState<'_>, late: bool) -> Option<(u8, ProblemReason, String)> {
    match &state.ownership {
        Ownership::Blocked(by) => {
            return Some((2, ProblemReason::WaitingForFormer, format!("{by} has not left the node yet")));
        }
        Ownership::Mine => {}
        _ => return None,
    }
    match &state.served {
        Served::Unsupported => {
            let message = format!("no entry of spec.kernelMappings matches kernel {}", state.node.kernel);
            return Some((1, ProblemReason::UnsupportedKernel, message));
        }
        Served::Unclear(why) => return Some((1, ProblemReason::UnsupportedKernel, why.clone())),
        Served::By(_) => {}
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
    Some((0, ProblemReason::NotLoaded, unloaded(state)))
}

/// Why a node has no working driver, as far as KMM says.
pub(super) fn unloaded(state: &NodeState<'_>) -> String {
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
        Wait::Turn | Wait::Paused | Wait::Maintenance => None,
    }
}
