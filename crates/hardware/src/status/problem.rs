//! Which nodes somebody should look at, and why.
//!
//! In: a [`Plan`]. Out: problems, the worst first. Never: a node that is merely on its way.

use api::hardware::NodeProblem;

use crate::facts::{Spot, Standing};
use crate::kernel::Served;
use crate::plan::{Plan, State};
use crate::rollout::Wait;
use crate::taints::CORDON;
use crate::words::Trouble;

use super::awaited::Awaited;
use super::{Heard, some};

/// The problems. Nodes that have been on their way for long have one too.
pub(super) fn problems(plan: &Plan<'_>, heard: &Heard) -> Vec<NodeProblem> {
    let mut all: Vec<(u8, NodeProblem)> = Vec::new();
    let leaving = matches!(plan.state, State::Leaving(_));
    for spot in plan.facts.iter().flat_map(|facts| &facts.nodes) {
        let found = match leaving {
            // Nothing is unloaded before that.
            true if !plan.round.waiting.is_empty() => None,
            true => unloading(spot),
            false => of(spot, heard.late.contains(&Awaited::Driver(spot.name.to_owned()))),
        };
        all.extend(found.map(|(rank, reason, message)| {
            (rank, NodeProblem { node: spot.name.to_owned(), reason: reason.word().to_owned(), message })
        }));
    }
    for one in &heard.overdue {
        let (pods, seconds) = (some(&one.pods), one.after.as_secs());
        let message = format!(
            "pods {pods} were asked to go more than {seconds} s ago and are still there; a disruption budget or a finalizer may keep them"
        );
        let reason = Trouble::EvictionTimeout.word().to_owned();
        all.push((1, NodeProblem { node: one.node.clone(), reason, message }));
    }
    let is_told = |node: &str| heard.overdue.iter().any(|one| one.node == node);
    for (node, wait) in plan.round.waiting.iter().filter(|(node, _)| !is_told(node)) {
        if let Some((reason, message)) = waiting(wait) {
            all.push((3, NodeProblem { node: node.clone(), reason: reason.word().to_owned(), message }));
        }
    }
    all.sort_by(|one, other| (one.0, &one.1.node).cmp(&(other.0, &other.1.node)));
    all.into_iter().map(|(_, problem)| problem).collect()
}

fn unloading(spot: &Spot<'_>) -> Option<(u8, Trouble, String)> {
    let mut message = "KMM has not unloaded the driver yet".to_owned();
    if let Some(users) = spot.users.text() {
        message += &format!("; the devices are used by {users}");
    }
    spot.in_use.then_some((0, Trouble::StillLoaded, message))
}

fn of(spot: &Spot<'_>, late: bool) -> Option<(u8, Trouble, String)> {
    match &spot.standing {
        Standing::Blocked(by) => {
            return Some((2, Trouble::WaitingForFormer, format!("{by} has not left the node yet")));
        }
        Standing::Mine => {}
        _ => return None,
    }
    match &spot.served {
        Served::Unsupported => {
            let message = format!("no entry of spec.kernelMappings matches kernel {}", spot.node.kernel);
            return Some((1, Trouble::UnsupportedKernel, message));
        }
        Served::Unclear(why) => return Some((1, Trouble::UnsupportedKernel, why.clone())),
        Served::By(_) => {}
    }
    if let Some(taint) = &spot.taint {
        let message = if taint == CORDON {
            "it is cordoned, and the driver is unloaded meanwhile".to_owned()
        } else {
            format!("taint {taint} is not among spec.tolerations")
        };
        return Some((4, Trouble::Maintenance, message));
    }
    if spot.rebooted {
        return Some((
            2,
            Trouble::Rebooted,
            "it was started anew and the driver is not loaded again yet".to_owned(),
        ));
    }
    if spot.ready || !late {
        return None;
    }
    Some((0, Trouble::NotLoaded, unloaded(spot)))
}

/// Why a node has no working driver, as far as KMM says.
pub(super) fn unloaded(spot: &Spot<'_>) -> String {
    match spot.loaded {
        Some(version) => format!("version {version} is loaded, which is not what is asked for"),
        None if spot.in_use => "KMM has not loaded the driver".to_owned(),
        None => "KMM has not begun to load the driver".to_owned(),
    }
}

fn waiting(wait: &Wait) -> Option<(Trouble, String)> {
    match wait {
        Wait::Pods(first, count) => {
            Some((Trouble::PodsUseDevices, format!("{count} pods use the devices, such as {first}")))
        }
        Wait::Unknown => {
            Some((Trouble::PodsUnknown, "it is not known yet which pods use the devices".to_owned()))
        }
        Wait::Turn | Wait::Paused | Wait::Maintenance => None,
    }
}
