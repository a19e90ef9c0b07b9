//! The conditions of a DeviceConfig.
//!
//! In: [`Evidence`] and its [`Verdict`]. Out: all conditions in their order. Never: a new transition time for a
//! condition that stays as it was.

use api::hardware::{Phase, keys};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::rules::{Evidence, Verdict};
use super::{conflict_text, list};
use crate::reasons::Reason;

/// The longest message in bytes. The API server accepts 32,768, more than anyone reads.
const LONGEST: usize = 2_048;

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConditionDraft {
    pub(super) holds: bool,
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl ConditionDraft {
    pub(super) fn yes(reason: Reason, message: impl Into<String>) -> Self {
        Self { holds: true, reason, message: message.into() }
    }

    pub(super) fn no(reason: Reason, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }
}

/// All conditions, in their order.
pub(super) fn conditions(evidence: &Evidence<'_>, verdict: &Verdict) -> Vec<(&'static str, ConditionDraft)> {
    let ready = &verdict.ready;
    let none = |reason| ConditionDraft::no(reason, "");
    let errored = verdict.errored.clone().unwrap_or_else(|| none(Reason::Ready));
    let progressing = verdict.progressing.clone().unwrap_or_else(|| none(ready.reason));
    let degraded = verdict.degraded.clone().unwrap_or_else(|| none(Reason::AsExpected));
    vec![
        (keys::READY, ready.clone()),
        (keys::ERRORED, errored),
        (keys::PROGRESSING, progressing),
        (keys::DEGRADED, degraded),
        (keys::NODE_SELECTOR_VALID, node_selector_valid(evidence)),
        (keys::DEVICE_PLUGIN_READY, device_plugin_ready(evidence, verdict.phase)),
        (keys::UPGRADEABLE, upgradeable(evidence, ready)),
    ]
}

fn node_selector_valid(evidence: &Evidence<'_>) -> ConditionDraft {
    let lost = evidence.lost_conflicts();
    let may_overlap: Vec<String> = evidence
        .cluster
        .claims
        .may_overlap(&evidence.config.id())
        .filter(|other| !evidence.conflicts.iter().any(|conflict| conflict.other == **other))
        .map(ToString::to_string)
        .collect();
    match (lost.as_slice(), may_overlap.as_slice()) {
        ([], []) => ConditionDraft::yes(Reason::NoConflict, ""),
        ([], others) => ConditionDraft::yes(
            Reason::NodeSelectorMayOverlap,
            format!(
                "a node can have the labels of spec.nodeSelector and those of DeviceConfig {}; the older of them would get it",
                list(others)
            ),
        ),
        (lost, _) => ConditionDraft::no(Reason::ConflictingNodeSelector, conflict_text(lost)),
    }
}

fn device_plugin_ready(evidence: &Evidence<'_>, phase: Phase) -> ConditionDraft {
    if !evidence.config.object.spec.offers_devices() {
        return ConditionDraft::yes(Reason::NotAskedFor, "no device plugin is asked for");
    }
    if phase == Phase::Ready {
        return ConditionDraft::yes(Reason::Running, "");
    }
    let desired = evidence.states.iter().filter(|state| state.is_desired());
    let (running, wanted) = (desired.clone().filter(|state| state.plugin).count(), desired.count());
    let message = format!("it runs on {running} of {wanted} nodes");
    if running == wanted && running > 0 {
        ConditionDraft::yes(Reason::Running, message)
    } else {
        ConditionDraft::no(Reason::NotRunning, message)
    }
}

fn upgradeable(evidence: &Evidence<'_>, ready: &ConditionDraft) -> ConditionDraft {
    let paused = evidence.config.object.spec.upgrade_policy.as_ref().is_some_and(|policy| policy.paused);
    match (ready.holds, paused) {
        (true, false) => ConditionDraft::yes(Reason::Ready, ""),
        (_, true) => ConditionDraft::no(Reason::Paused, "spec.upgradePolicy.paused"),
        (false, false) => ConditionDraft::no(ready.reason, ready.message.clone()),
    }
}

/// Adds transition times, and the conditions of other writers at the end.
pub(super) fn with_times(
    all: Vec<(&'static str, ConditionDraft)>,
    known: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let others = known
        .iter()
        .filter(|one| !all.iter().any(|(name, _)| *name == one.type_))
        .cloned()
        .collect::<Vec<_>>();
    let ours = all.into_iter().map(|(name, draft)| {
        let status = if draft.holds { "True" } else { "False" };
        let before = known.iter().find(|one| one.type_ == name && one.status == status);
        let mut message = draft.message;
        if message.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
        }
        Condition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: draft.reason.as_ref().to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: before.map_or_else(|| now.clone(), |one| one.last_transition_time.clone()),
        }
    });
    ours.chain(others).collect()
}
