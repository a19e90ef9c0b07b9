//! The state of a DeviceConfig, by an ordered table of rules.
//!
//! In: [`Evidence`]. Out: the [`Verdict`] of the first rule in [`RULES`] that applies. Never: a rule that depends on
//! what an earlier one found.

use std::collections::BTreeMap;

use api::hardware::{NodeCounts, Phase};
use api::kmm::image::DOES_NOT_EXIST;

use super::conditions::ConditionDraft;
use super::nodes::{counts, missing_images, missing_plugins};
use super::problem::unloaded;
use super::{StatusInputs, conflict_text, overdue_text, some};
use crate::claim::Conflict;
use crate::cluster_state::{ClusterState, Config, Kmm};
use crate::node_states::{NodeState, NodeStates, Ownership};
use crate::plan::{Plan, State};
use crate::reasons::Reason;
use crate::rollout::Wait;

/// The state, in the words of the conditions.
pub(super) struct Verdict {
    /// The phase.
    pub(super) phase: Phase,
    /// `Ready`, with the reason why not.
    pub(super) ready: ConditionDraft,
    /// `Errored`, if it is true.
    pub(super) errored: Option<ConditionDraft>,
    /// `Progressing`, if it is true.
    pub(super) moving: Option<ConditionDraft>,
    /// `Degraded`, if it is true.
    pub(super) degraded: Option<ConditionDraft>,
}

/// Everything that the rules read.
pub(super) struct Evidence<'a> {
    pub(super) cluster: &'a ClusterState,
    pub(super) config: &'a Config,
    pub(super) plan: &'a Plan<'a>,
    pub(super) inputs: &'a StatusInputs,
    /// The nodes that match or are claimed.
    pub(super) states: &'a [NodeState<'a>],
    pub(super) counts: NodeCounts,
    pub(super) conflicts: Vec<Conflict>,
    /// Images that KMM has not found, with its word for each.
    missing_images: BTreeMap<String, String>,
    /// Nodes without the device plugin that they should have.
    missing_plugins: Vec<String>,
}

/// A rule: the verdict, if the rule applies.
type Rule = fn(&Evidence<'_>) -> Option<Verdict>;

/// All rules. The first that applies decides.
const RULES: [Rule; 15] = [
    deleting,
    invalid,
    no_kmm,
    foreign_module,
    write_failed,
    nodes_lost,
    nothing_known,
    settled,
    reload_waits,
    former_module,
    image_missing,
    loading,
    pods_use_devices,
    paused,
    plugin_missing,
];

/// The verdict of the first rule that applies.
pub(super) fn verdict(evidence: &Evidence<'_>) -> Verdict {
    let found = RULES.iter().find_map(|rule| rule(evidence));
    let under_way = || evidence.progressing(Reason::Progressing, ready_text(&evidence.counts));
    found.unwrap_or_else(under_way)
}

impl<'a> Evidence<'a> {
    pub(super) fn new(
        cluster: &'a ClusterState,
        config: &'a Config,
        plan: &'a Plan<'a>,
        inputs: &'a StatusInputs,
    ) -> Self {
        let node_states = plan.node_states.as_ref();
        Self {
            cluster,
            config,
            plan,
            inputs,
            states: node_states.map(|node_states| node_states.nodes.as_slice()).unwrap_or_default(),
            counts: node_states.map(|node_states| counts(config, plan, node_states)).unwrap_or_default(),
            conflicts: cluster.claims.conflicts(&config.id()),
            missing_images: node_states
                .map(|node_states| missing_images(cluster, node_states))
                .unwrap_or_default(),
            missing_plugins: node_states
                .map(|node_states| missing_plugins(cluster, config, node_states))
                .unwrap_or_default(),
        }
    }

    /// Conflicts in which the other DeviceConfig has the nodes.
    pub(super) fn lost_conflicts(&self) -> Vec<&Conflict> {
        self.conflicts.iter().filter(|conflict| !conflict.won).collect()
    }

    /// Nodes that are to be claimed.
    fn coming(&self) -> usize {
        let is_coming =
            |state: &&NodeState<'_>| matches!(state.ownership, Ownership::Open | Ownership::Blocked(_));
        self.states.iter().filter(is_coming).count()
    }

    /// Nodes that are claimed and match no more.
    fn ending(&self) -> Vec<String> {
        let ending = self.states.iter().filter(|state| state.ownership == Ownership::Ending);
        ending.map(|state| state.name.to_owned()).collect()
    }

    /// Nodes that should have the driver, and are not ready.
    fn behind(&self) -> Vec<String> {
        let behind = self.states.iter().filter(|state| state.is_desired() && !state.ready);
        behind.map(|state| state.name.to_owned()).collect()
    }

    /// Nodes that the rollout leaves as they are, for one of these reasons.
    fn waiting(&self, wanted: fn(&Wait) -> bool) -> Vec<String> {
        let waiting = self.plan.round.waiting.iter().filter(|(_, wait)| wanted(wait));
        waiting.map(|(node, _)| node.clone()).collect()
    }

    /// Some node has, or is told, another version than the desired one.
    fn is_upgrading(&self) -> bool {
        let wanted = self.config.object.spec.driver_version.as_str();
        let differs = |version: Option<&str>| version.is_some_and(|version| version != wanted);
        let mut mine = self.states.iter().filter(|state| state.ownership == Ownership::Mine);
        mine.any(|state| differs(state.version) || differs(state.loaded))
    }

    /// On its way: degraded as well if that takes too long, or cannot end well.
    fn progressing(&self, reason: Reason, message: String) -> Verdict {
        let refused = self.missing_images.values().any(|state| state == DOES_NOT_EXIST);
        let waits = matches!(reason, Reason::WaitingForPods | Reason::Paused);
        let degraded = match self.inputs.overdue.as_slice() {
            [] => (refused || !self.inputs.late.is_empty() && !waits)
                .then(|| ConditionDraft::yes(reason, message.clone())),
            overdue => Some(ConditionDraft::yes(Reason::EvictionTimeout, overdue_text(overdue))),
        };
        Verdict {
            phase: if degraded.is_some() { Phase::Degraded } else { Phase::Progressing },
            ready: ConditionDraft::no(reason, message.clone()),
            errored: None,
            moving: Some(ConditionDraft::yes(reason, message)),
            degraded,
        }
    }
}

/// `Errored` is true.
fn failed(phase: Phase, reason: Reason, message: String) -> Verdict {
    Verdict {
        phase,
        ready: ConditionDraft::no(Reason::Errored, message.clone()),
        degraded: (phase == Phase::Degraded).then(|| ConditionDraft::yes(reason, message.clone())),
        errored: Some(ConditionDraft::yes(reason, message)),
        moving: None,
    }
}

/// Nothing is under way, and the DeviceConfig is not ready.
fn still(phase: Phase, reason: Reason, message: impl Into<String>) -> Verdict {
    let message = message.into();
    Verdict {
        phase,
        ready: ConditionDraft::no(reason, message.clone()),
        errored: None,
        moving: None,
        degraded: (phase == Phase::Degraded).then(|| ConditionDraft::yes(reason, message)),
    }
}

fn deleting(evidence: &Evidence<'_>) -> Option<Verdict> {
    match &evidence.plan.state {
        State::Leaving(nodes) => Some(leaving(evidence.plan, nodes, evidence.inputs)),
        State::Gone => Some(leaving(evidence.plan, &[], evidence.inputs)),
        _ => None,
    }
}

fn invalid(evidence: &Evidence<'_>) -> Option<Verdict> {
    let State::Invalid(reason, message) = &evidence.plan.state else { return None };
    Some(failed(Phase::Degraded, *reason, message.clone()))
}

fn no_kmm(evidence: &Evidence<'_>) -> Option<Verdict> {
    let message = match &evidence.cluster.kmm {
        _ if evidence.plan.state != State::NoKmm => return None,
        Some(Kmm::Going(_)) => {
            "KMM is being taken away: the definition of Modules is being deleted, and they with it"
        }
        _ => "the cluster has no KMM: install Kernel Module Management (kmm.sigs.x-k8s.io)",
    };
    Some(failed(Phase::Pending, Reason::KMMNotInstalled, message.to_owned()))
}

fn foreign_module(evidence: &Evidence<'_>) -> Option<Verdict> {
    let State::Foreign(whose) = &evidence.plan.state else { return None };
    let node_states = evidence.plan.node_states.as_ref();
    let name = node_states.map(|node_states| node_states.object_names.module.to_string()).unwrap_or_default();
    let message = format!("Module {name} is there and not ours: {whose}; rename or delete one of the two");
    Some(failed(Phase::Degraded, Reason::ForeignModule, message))
}

fn write_failed(evidence: &Evidence<'_>) -> Option<Verdict> {
    let failure = evidence.inputs.errors.iter().max_by_key(|failure| failure.module)?;
    let reason = if failure.module { Reason::ModuleFailed } else { Reason::WriteFailed };
    Some(failed(Phase::Degraded, reason, failure.text.clone()))
}

/// Other DeviceConfigs have all of the nodes.
fn nodes_lost(evidence: &Evidence<'_>) -> Option<Verdict> {
    let lost = evidence.lost_conflicts();
    let applies = !lost.is_empty() && evidence.counts.claimed == 0 && evidence.coming() == 0;
    let verdict = || failed(Phase::Conflict, Reason::ConflictingNodeSelector, conflict_text(&lost));
    applies.then(verdict)
}

fn nothing_known(evidence: &Evidence<'_>) -> Option<Verdict> {
    evidence.plan.node_states.is_none().then(|| still(Phase::Pending, Reason::Pending, ""))
}

/// Nothing is left to do: ready, or no node can have the driver.
fn settled(evidence: &Evidence<'_>) -> Option<Verdict> {
    let counts = &evidence.counts;
    let complete = counts.ready == counts.desired
        && evidence.coming() == 0
        && evidence.ending().is_empty()
        && evidence.missing_plugins.is_empty();
    if !complete || evidence.plan.state != State::Good {
        return None;
    }
    if counts.claimed == 0 {
        let message = "no node has the labels of spec.nodeSelector";
        return Some(still(Phase::Pending, Reason::NoMatchingNodes, message));
    }
    if counts.desired == 0 && counts.maintenance == 0 {
        let message = "no node's kernel is matched by spec.kernelMappings";
        return Some(still(Phase::Degraded, Reason::UnsupportedKernel, message));
    }
    if counts.desired == 0 {
        let message = "all nodes are cordoned, or have taints that spec.tolerations do not name";
        return Some(still(Phase::Pending, Reason::Maintenance, message));
    }
    let message =
        format!("All resources have been successfully reconciled; {} nodes are ready", counts.ready);
    let ready = ConditionDraft::yes(Reason::Reconciled, message);
    Some(Verdict { phase: Phase::Ready, ready, errored: None, moving: None, degraded: None })
}

fn reload_waits(evidence: &Evidence<'_>) -> Option<Verdict> {
    let State::Held(nodes) = &evidence.plan.state else { return None };
    let message = format!(
        "the driver is to be loaded in another way under the same version; that waits until no pod uses the devices of {}; \
         a new driverVersion goes node by node",
        some(nodes)
    );
    Some(evidence.progressing(Reason::WaitingForPods, message))
}

fn former_module(evidence: &Evidence<'_>) -> Option<Verdict> {
    if evidence.plan.state != State::Former {
        return None;
    }
    Some(
        evidence.progressing(
            Reason::FormerModule,
            "waiting until the former Module of this name is gone".to_owned(),
        ),
    )
}

fn image_missing(evidence: &Evidence<'_>) -> Option<Verdict> {
    let missing = &evidence.missing_images;
    let image = missing.keys().next()?;
    let message = format!("KMM has not found image {image}; {} images are missing", missing.len());
    Some(evidence.progressing(Reason::ImageNotAvailable, message))
}

/// Nodes get their first version, or another one.
fn loading(evidence: &Evidence<'_>) -> Option<Verdict> {
    let round = &evidence.plan.round;
    let (behind, upgrading) = (evidence.behind(), evidence.is_upgrading());
    let turn = evidence.waiting(|wait| *wait == Wait::Turn);
    let goes_on = !round.steps.is_empty() || !turn.is_empty();
    if behind.is_empty() && !(upgrading && goes_on) {
        return None;
    }
    let mut message = ready_text(&evidence.counts);
    if !behind.is_empty() {
        message += &format!("; not {}", some(&behind));
    }
    if !turn.is_empty() && !round.unavailable.is_empty() {
        let missing =
            evidence.states.iter().filter(|state| round.unavailable.iter().any(|name| name == state.name));
        let why: Vec<String> = missing.map(|state| format!("{} ({})", state.name, unloaded(state))).collect();
        message += &format!(
            "; {} nodes wait for their turn (spec.upgradePolicy.maxUnavailable) until there is a working driver on {}",
            turn.len(),
            some(&why)
        );
    }
    Some(evidence.progressing(if upgrading { Reason::Upgrading } else { Reason::Loading }, message))
}

fn pods_use_devices(evidence: &Evidence<'_>) -> Option<Verdict> {
    let pods = evidence.waiting(|wait| matches!(wait, Wait::Pods(..) | Wait::Unknown));
    let nodes = if pods.is_empty() { evidence.ending() } else { pods };
    if nodes.is_empty() {
        return None;
    }
    Some(evidence.progressing(Reason::WaitingForPods, format!("pods use the devices of {}", some(&nodes))))
}

fn paused(evidence: &Evidence<'_>) -> Option<Verdict> {
    let paused = evidence.waiting(|wait| *wait == Wait::Paused);
    if paused.is_empty() {
        return None;
    }
    Some(evidence.progressing(
        Reason::Paused,
        format!("spec.upgradePolicy.paused: {} keep their version", some(&paused)),
    ))
}

fn plugin_missing(evidence: &Evidence<'_>) -> Option<Verdict> {
    if evidence.missing_plugins.is_empty() {
        return None;
    }
    let message = format!("the device plugin does not run on {}", some(&evidence.missing_plugins));
    Some(evidence.progressing(Reason::DevicePluginNotReady, message))
}

fn ready_text(counts: &NodeCounts) -> String {
    format!("{} of {} nodes are ready", counts.ready, counts.desired)
}

fn leaving(plan: &Plan<'_>, nodes: &[String], inputs: &StatusInputs) -> Verdict {
    let used: Vec<String> =
        plan.node_states.iter().flat_map(NodeStates::ours).filter_map(told_users).collect();
    let waits = !plan.round.waiting.is_empty();
    let message = match nodes {
        _ if waits => format!(
            "the Module is deleted when no pod uses the devices any more: {}; spec.upgradePolicy.podsUsingDevices says whether to wait",
            some(&used)
        ),
        [] => "the Module is gone or about to go; nodes are given back".to_owned(),
        nodes if used.is_empty() => {
            format!("waiting until KMM has unloaded the driver on {}", some(nodes))
        }
        nodes => format!(
            "waiting until KMM has unloaded the driver on {}; pods use the devices: {}",
            some(nodes),
            some(&used)
        ),
    };
    let failure = inputs.errors.first();
    let message = failure.map_or(message, |failure| failure.text.clone());
    let stuck = !inputs.late.is_empty() && !waits && !nodes.is_empty();
    Verdict {
        phase: Phase::Deleting,
        ready: ConditionDraft::no(Reason::Deleting, message.clone()),
        errored: failure.map(|failure| ConditionDraft::yes(Reason::WriteFailed, failure.text.clone())),
        degraded: match inputs.overdue.as_slice() {
            [] => stuck.then(|| ConditionDraft::yes(Reason::DeletionStuck, message.clone())),
            overdue => Some(ConditionDraft::yes(Reason::EvictionTimeout, overdue_text(overdue))),
        },
        moving: Some(ConditionDraft::yes(
            if waits { Reason::WaitingForPods } else { Reason::Deleting },
            message,
        )),
    }
}

/// A node whose devices are used, and who uses them.
fn told_users(state: &NodeState<'_>) -> Option<String> {
    Some(format!("{} by {}", state.name, state.users.text()?))
}
