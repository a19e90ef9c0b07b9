//! The state of a DeviceConfig, by an ordered table of rules.
//!
//! In: [`Evidence`]. Out: the [`Verdict`] of the first rule in [`RULES`] that applies. Never: a rule that depends on
//! the result of an earlier one.

use std::collections::BTreeMap;

use api::hardware::{NodeCounts, Phase};
use api::kmm::image::DOES_NOT_EXIST;

use super::conditions::ConditionDraft;
use super::nodes::{counts, missing_images, missing_plugins};
use super::problem::not_ready_text;
use super::{StatusInputs, conflict_text, list, overdue_text};
use crate::claim::Conflict;
use crate::cluster_state::{ClusterState, Config, Kmm};
use crate::node_states::{NodeState, NodeStates, Ownership};
use crate::plan::{ConfigState, Plan};
use crate::reasons::Reason;
use crate::rollout::Wait;

/// The state, as drafts of conditions.
pub(super) struct Verdict {
    /// The phase.
    pub(super) phase: Phase,
    /// `Ready`.
    pub(super) ready: ConditionDraft,
    /// `Errored`, if it is true.
    pub(super) errored: Option<ConditionDraft>,
    /// `Progressing`, if it is true.
    pub(super) progressing: Option<ConditionDraft>,
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
    /// Images that KMM has not found, with KMM's state of each.
    missing_images: BTreeMap<String, String>,
    /// Nodes that should have the device plugin, and do not.
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
    reload_blocked,
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
    found.unwrap_or_else(|| evidence.progressing(Reason::Progressing, ready_text(&evidence.counts)))
}

impl<'a> Evidence<'a> {
    pub(super) fn new(
        cluster: &'a ClusterState,
        config: &'a Config,
        plan: &'a Plan<'a>,
        inputs: &'a StatusInputs,
    ) -> Self {
        let states = plan.node_states.as_ref();
        Self {
            cluster,
            config,
            plan,
            inputs,
            states: states.map(|states| states.nodes.as_slice()).unwrap_or_default(),
            counts: states.map(|states| counts(config, plan, states)).unwrap_or_default(),
            conflicts: cluster.claims.conflicts(&config.id()),
            missing_images: states.map(|states| missing_images(cluster, states)).unwrap_or_default(),
            missing_plugins: states
                .map(|states| missing_plugins(cluster, config, states))
                .unwrap_or_default(),
        }
    }

    /// Conflicts in which the other DeviceConfig has the nodes.
    pub(super) fn lost_conflicts(&self) -> Vec<&Conflict> {
        self.conflicts.iter().filter(|conflict| !conflict.won).collect()
    }

    /// Names of nodes.
    fn nodes(&self, holds: fn(&NodeState<'_>) -> bool) -> Vec<String> {
        self.states.iter().filter(|state| holds(state)).map(|state| state.name.to_owned()).collect()
    }

    /// Nodes that are claimed and no longer match.
    fn unmatched(&self) -> Vec<String> {
        self.nodes(|state| state.ownership == Ownership::Unmatched)
    }

    /// Whether nodes are to be claimed.
    fn has_unclaimed(&self) -> bool {
        let is_unclaimed =
            |state: &NodeState<'_>| matches!(state.ownership, Ownership::Claimable | Ownership::Blocked(_));
        self.states.iter().any(is_unclaimed)
    }

    /// Nodes that keep their version, for one of these reasons.
    fn waiting(&self, wanted: fn(&Wait) -> bool) -> Vec<String> {
        let waiting = self.plan.round.waiting.iter().filter(|(_, wait)| wanted(wait));
        waiting.map(|(node, _)| node.clone()).collect()
    }

    /// Whether a node has, or gets, another version than the desired one.
    fn is_upgrading(&self) -> bool {
        let wanted = self.config.object.spec.driver_version.as_str();
        let owned = self.states.iter().filter(|state| state.ownership == Ownership::Owned);
        owned.flat_map(|state| [state.version, state.loaded]).flatten().any(|version| version != wanted)
    }

    /// `Degraded`: because of pods that do not go, or with this reason if `otherwise` says so.
    fn degraded(&self, otherwise: bool, reason: Reason, message: &str) -> Option<ConditionDraft> {
        match self.inputs.overdue.as_slice() {
            [] => otherwise.then(|| ConditionDraft::yes(reason, message)),
            overdue => Some(ConditionDraft::yes(Reason::EvictionTimeout, overdue_text(overdue))),
        }
    }

    /// `Progressing` is true. `Degraded` as well, if that takes too long, or an image does not exist.
    fn progressing(&self, reason: Reason, message: String) -> Verdict {
        let no_image = self.missing_images.values().any(|state| state == DOES_NOT_EXIST);
        let waits = matches!(reason, Reason::WaitingForPods | Reason::Paused);
        let degraded = self.degraded(no_image || !self.inputs.late.is_empty() && !waits, reason, &message);
        Verdict {
            phase: if degraded.is_some() { Phase::Degraded } else { Phase::Progressing },
            ready: ConditionDraft::no(reason, message.clone()),
            errored: None,
            progressing: Some(ConditionDraft::yes(reason, message)),
            degraded,
        }
    }
}

/// `Ready` is false, and nothing is under way.
fn still(phase: Phase, reason: Reason, message: &str) -> Verdict {
    Verdict {
        phase,
        ready: ConditionDraft::no(reason, message),
        errored: None,
        progressing: None,
        degraded: (phase == Phase::Degraded).then(|| ConditionDraft::yes(reason, message)),
    }
}

/// `Errored` is true.
fn failed(phase: Phase, reason: Reason, message: &str) -> Verdict {
    Verdict {
        ready: ConditionDraft::no(Reason::Errored, message),
        errored: Some(ConditionDraft::yes(reason, message)),
        ..still(phase, reason, message)
    }
}

fn deleting(evidence: &Evidence<'_>) -> Option<Verdict> {
    let nodes = match &evidence.plan.state {
        ConfigState::Deleting(nodes) => nodes.as_slice(),
        ConfigState::Released => &[],
        _ => return None,
    };
    let users = |state: &NodeState<'_>| Some(format!("{} by {}", state.name, state.users.summary()?));
    let claimed = evidence.plan.node_states.iter().flat_map(NodeStates::claimed);
    let used: Vec<String> = claimed.filter_map(users).collect();
    let waits = !evidence.plan.round.waiting.is_empty();
    let message = match nodes {
        _ if waits => format!(
            "the Module is deleted when no pod uses the devices any more: {}; spec.upgradePolicy.podsUsingDevices says whether to wait",
            list(&used)
        ),
        [] => "the Module is gone or about to go; nodes are given back".to_owned(),
        nodes if used.is_empty() => format!("waiting until KMM has unloaded the driver on {}", list(nodes)),
        nodes => format!(
            "waiting until KMM has unloaded the driver on {}; pods use the devices: {}",
            list(nodes),
            list(&used)
        ),
    };
    let failure = evidence.inputs.errors.first();
    let message = failure.map_or(message, |failure| failure.text.clone());
    let is_stuck = !evidence.inputs.late.is_empty() && !waits && !nodes.is_empty();
    let reason = if waits { Reason::WaitingForPods } else { Reason::Deleting };
    Some(Verdict {
        phase: Phase::Deleting,
        ready: ConditionDraft::no(Reason::Deleting, message.clone()),
        errored: failure.map(|failure| ConditionDraft::yes(Reason::WriteFailed, failure.text.clone())),
        degraded: evidence.degraded(is_stuck, Reason::DeletionStuck, &message),
        progressing: Some(ConditionDraft::yes(reason, message)),
    })
}

fn invalid(evidence: &Evidence<'_>) -> Option<Verdict> {
    let ConfigState::Invalid(reason, message) = &evidence.plan.state else { return None };
    Some(failed(Phase::Degraded, *reason, message))
}

fn no_kmm(evidence: &Evidence<'_>) -> Option<Verdict> {
    let message = match &evidence.cluster.kmm {
        _ if evidence.plan.state != ConfigState::NoKmm => return None,
        Some(Kmm::Terminating(_)) => {
            "KMM is being taken away: the definition of Modules is being deleted, and they with it"
        }
        _ => "the cluster has no KMM: install Kernel Module Management (kmm.sigs.x-k8s.io)",
    };
    Some(failed(Phase::Pending, Reason::KMMNotInstalled, message))
}

fn foreign_module(evidence: &Evidence<'_>) -> Option<Verdict> {
    let ConfigState::ForeignModule(owner) = &evidence.plan.state else { return None };
    let name = &evidence.plan.node_states.as_ref()?.object_names.module;
    let message = format!("Module {name} is there and not ours: {owner}; rename or delete one of the two");
    Some(failed(Phase::Degraded, Reason::ForeignModule, &message))
}

fn write_failed(evidence: &Evidence<'_>) -> Option<Verdict> {
    let failure = evidence.inputs.errors.iter().max_by_key(|failure| failure.module)?;
    let reason = if failure.module { Reason::ModuleFailed } else { Reason::WriteFailed };
    Some(failed(Phase::Degraded, reason, &failure.text))
}

/// Other DeviceConfigs have all of the nodes.
fn nodes_lost(evidence: &Evidence<'_>) -> Option<Verdict> {
    let lost = evidence.lost_conflicts();
    let applies = !lost.is_empty() && evidence.counts.claimed == 0 && !evidence.has_unclaimed();
    applies.then(|| failed(Phase::Conflict, Reason::ConflictingNodeSelector, &conflict_text(&lost)))
}

fn nothing_known(evidence: &Evidence<'_>) -> Option<Verdict> {
    evidence.plan.node_states.is_none().then(|| still(Phase::Pending, Reason::Pending, ""))
}

/// Nothing is left to do: ready, or no node can have the driver.
fn settled(evidence: &Evidence<'_>) -> Option<Verdict> {
    let counts = &evidence.counts;
    let is_complete = counts.ready == counts.desired
        && !evidence.has_unclaimed()
        && evidence.unmatched().is_empty()
        && evidence.missing_plugins.is_empty();
    if !is_complete || evidence.plan.state != ConfigState::InSync {
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
    Some(Verdict { ready, ..still(Phase::Ready, Reason::Reconciled, "") })
}

fn reload_blocked(evidence: &Evidence<'_>) -> Option<Verdict> {
    let ConfigState::ReloadBlocked(nodes) = &evidence.plan.state else { return None };
    let message = format!(
        "the driver is to be loaded in another way under the same version; that waits until no pod uses the devices of {}; \
         a new driverVersion goes node by node",
        list(nodes)
    );
    Some(evidence.progressing(Reason::WaitingForPods, message))
}

fn former_module(evidence: &Evidence<'_>) -> Option<Verdict> {
    let message = || "waiting until the former Module of this name is gone".to_owned();
    let is_former = evidence.plan.state == ConfigState::FormerModule;
    is_former.then(|| evidence.progressing(Reason::FormerModule, message()))
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
    let not_ready = evidence.nodes(|state| state.is_desired() && !state.ready);
    let blocked = evidence.waiting(|wait| *wait == Wait::MaxUnavailable);
    let is_upgrading = evidence.is_upgrading();
    let goes_on = !round.steps.is_empty() || !blocked.is_empty();
    if not_ready.is_empty() && !(is_upgrading && goes_on) {
        return None;
    }
    let mut message = ready_text(&evidence.counts);
    if !not_ready.is_empty() {
        message += &format!("; not {}", list(&not_ready));
    }
    if !blocked.is_empty() && !round.unavailable.is_empty() {
        let is_unavailable = |state: &&NodeState<'_>| round.unavailable.iter().any(|name| name == state.name);
        let unavailable = evidence.states.iter().filter(is_unavailable);
        let why = unavailable.map(|state| format!("{} ({})", state.name, not_ready_text(state)));
        message += &format!(
            "; {} nodes wait for their turn (spec.upgradePolicy.maxUnavailable) until there is a working driver on {}",
            blocked.len(),
            list(&why.collect::<Vec<_>>())
        );
    }
    Some(evidence.progressing(if is_upgrading { Reason::Upgrading } else { Reason::Loading }, message))
}

fn pods_use_devices(evidence: &Evidence<'_>) -> Option<Verdict> {
    let waiting =
        evidence.waiting(|wait| matches!(wait, Wait::Pods(..) | Wait::Returning(..) | Wait::Unknown));
    let nodes = if waiting.is_empty() { evidence.unmatched() } else { waiting };
    let message = || format!("pods use the devices of {}", list(&nodes));
    (!nodes.is_empty()).then(|| evidence.progressing(Reason::WaitingForPods, message()))
}

fn paused(evidence: &Evidence<'_>) -> Option<Verdict> {
    let nodes = evidence.waiting(|wait| *wait == Wait::Paused);
    let message = || format!("spec.upgradePolicy.paused: {} keep their version", list(&nodes));
    (!nodes.is_empty()).then(|| evidence.progressing(Reason::Paused, message()))
}

fn plugin_missing(evidence: &Evidence<'_>) -> Option<Verdict> {
    let nodes = &evidence.missing_plugins;
    let plugin = if evidence.config.object.spec.dra.is_some() { "DRA driver" } else { "device plugin" };
    let message = || format!("the {plugin} does not run on {}", list(nodes));
    (!nodes.is_empty()).then(|| evidence.progressing(Reason::DevicePluginNotReady, message()))
}

fn ready_text(counts: &NodeCounts) -> String {
    format!("{} of {} nodes are ready", counts.ready, counts.desired)
}
