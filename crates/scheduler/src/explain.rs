//! What the scheduler would say of every node about one pod: `tholepin explain`.
//!
//! In: a cluster's objects, a pod, a configuration. Out: an [`Explanation`], as JSON, YAML or a table. Never: a
//! binding, or a decision that the scheduler would not make: the same core decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;
use topology::policy::Scope;
use topology::reason::Amount;
use topology::resource::ResourceName;

use crate::core::explain::{Change, Code, NodeVerdict, Verdicts, ZoneAmounts};
use crate::core::{Core, Event, Settings};
use crate::pod::PodView;
use crate::shell::snapshot::Snapshot;

pub mod cli;
mod print;
pub(crate) mod target_pod;
#[cfg(test)]
mod tests;

use target_pod::TargetPod;

/// What is said about one pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Namespace and name.
    pub pod: String,
    /// The scheduler whose profile decides.
    pub scheduler: Arc<str>,
    /// By node name.
    pub nodes: Vec<NodeRow>,
    /// The node that the pod would get; none if it fits nowhere.
    pub chosen: Option<Arc<str>>,
    /// The message of the pod's FailedScheduling event, if it fits nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What is said of one node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// The node.
    pub node: Arc<str>,
    /// Whether the pod fits.
    pub fits: bool,
    /// The code, as plugins return it.
    pub code: &'static str,
    /// The reasons of the first filter that refuses.
    pub reasons: Vec<String>,
    /// Scores by plugin, before weights; of a node that refuses, that of zones alone.
    pub scores: BTreeMap<&'static str, i64>,
    /// The sum of scores and weights, of a node that fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// Whether nodes that are known to align the pod come before, whatever the scores.
    pub second_choice: bool,
    /// The zones, as they are believed to be.
    pub zones: Vec<ZoneRow>,
    /// Changes of which each alone would make the pod fit, the smallest first.
    pub changes: Vec<ChangeRow>,
}

/// One zone.
#[derive(Clone, Debug, Serialize)]
pub struct ZoneRow {
    /// Its id.
    pub zone: u32,
    /// Its resources.
    pub resources: BTreeMap<&'static str, AmountRow>,
}

/// A resource of a zone.
#[derive(Clone, Debug, Serialize)]
pub struct AmountRow {
    /// What pods may have at most.
    pub allocatable: String,
    /// What no pod has.
    pub free: String,
}

/// A change that makes the pod fit.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeRow {
    /// In words.
    pub text: String,
    /// The parts.
    #[serde(flatten)]
    pub change: ChangeParts,
}

/// The parts of a change.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ChangeParts {
    /// A container asks for less.
    Request {
        /// The container.
        container: String,
        /// Resources with the amounts that are asked for, and that fit.
        resources: BTreeMap<&'static str, ReductionRow>,
        /// Pods that have to go as well.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pods: Vec<String>,
    },
    /// Pods of the node go: all of these.
    Leave {
        /// Their namespaces and names.
        pods: Vec<String>,
    },
    /// The node's kubelet has another scope.
    Scope {
        /// The scope.
        scope: &'static str,
    },
}

/// A smaller amount.
#[derive(Clone, Debug, Serialize)]
pub struct ReductionRow {
    /// The amount asked for.
    pub from: String,
    /// The amount that fits.
    pub to: String,
}

/// What is said about a pod on the nodes of a cluster. `objects`: the cluster, as JSON, in any order; others than a
/// scheduler watches do not count. `pod`: a pod that is not there, or the object of a controller with a template.
///
/// # Errors
/// When the pod cannot be read.
pub fn of_objects(
    settings: Settings,
    objects: impl IntoIterator<Item = Value>,
    pod: Value,
    now_ms: u64,
) -> anyhow::Result<Explanation> {
    let mut snapshot = Snapshot::default();
    objects.into_iter().for_each(|object| snapshot.take(object));
    let target = TargetPod::of_manifest(pod).map_err(anyhow::Error::msg)?;
    answer(settings, snapshot, target, now_ms).map(|(explanation, _)| explanation)
}

/// The same, with notes for people.
fn answer(
    settings: Settings,
    snapshot: Snapshot,
    mut target: TargetPod,
    now_ms: u64,
) -> anyhow::Result<(Explanation, Vec<String>)> {
    let profile = target.choose_profile(&settings)?;
    target.leave_out_kinds(|kind| snapshot.leaves_out(kind));
    let mut core = snapshot.into_core(settings, now_ms);
    ask(&mut core, profile, target, now_ms)
}

/// What a core says about a pod, with notes for people. `profile`: the one that schedules it. The core stays as it was.
pub(crate) fn ask(
    core: &mut Core,
    profile: Arc<str>,
    target: TargetPod,
    now_ms: u64,
) -> anyhow::Result<(Explanation, Vec<String>)> {
    let TargetPod { mut pod, is_new, mut notes } = target;
    let spec = pod.spec.get_or_insert_default();
    if let Some(group) = spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.as_deref()) {
        notes.push(format!(
            "the pod belongs to PodGroup {group}, which is placed as a whole; explained alone"
        ));
    }
    let view = PodView::read(&pod);
    let request = api::convert::pod_request(&pod).unwrap_or_default();
    let (key, uid) = (view.key(), Arc::clone(&view.uid));
    let known = core.pod_with_uid(&uid).cloned();
    if is_new {
        core.handle(Event::Pod(view), now_ms);
    }
    let verdicts = core.explain(&uid, &request, now_ms);
    match known {
        _ if !is_new => {}
        Some(known) => core.handle(Event::Pod(known), now_ms),
        None => core.handle(Event::PodVanished(uid), now_ms),
    }
    let verdicts = verdicts.context("the pod cannot be asked about")?;
    Ok((Explanation::new(key, profile, verdicts), notes))
}

impl Explanation {
    fn new(pod: String, scheduler: Arc<str>, verdicts: Verdicts) -> Self {
        let Verdicts { nodes, chosen, message } = verdicts;
        Self { pod, scheduler, nodes: nodes.into_iter().map(NodeRow::from).collect(), chosen, message }
    }
}

impl From<NodeVerdict> for NodeRow {
    fn from(verdict: NodeVerdict) -> Self {
        let NodeVerdict { node, code, reasons, scores, total, is_second_choice, zones, changes } = verdict;
        Self {
            node,
            fits: code == Code::Success,
            code: code.as_str(),
            reasons,
            scores: scores.into_iter().collect(),
            total,
            second_choice: is_second_choice,
            zones: zones.into_iter().map(ZoneRow::from).collect(),
            changes: changes.into_iter().map(ChangeRow::from).collect(),
        }
    }
}

impl From<ZoneAmounts> for ZoneRow {
    fn from(amounts: ZoneAmounts) -> Self {
        let row = |(name, allocatable, free): (ResourceName, i64, i64)| {
            let row = AmountRow { allocatable: text(name, allocatable), free: text(name, free.max(0)) };
            (name.as_str(), row)
        };
        Self { zone: amounts.zone.0, resources: amounts.resources.into_iter().map(row).collect() }
    }
}

impl From<Change> for ChangeRow {
    fn from(change: Change) -> Self {
        let words = change.to_string();
        let change = match change {
            Change::Request { container, reductions, without } => {
                let resources = reductions.into_iter().map(|it| {
                    let row = ReductionRow { from: text(it.resource, it.from), to: text(it.resource, it.to) };
                    (it.resource.as_str(), row)
                });
                ChangeParts::Request {
                    container: container.into(),
                    resources: resources.collect(),
                    pods: without,
                }
            }
            Change::Leave { pods } => ChangeParts::Leave { pods },
            Change::Scope(scope) => ChangeParts::Scope { scope: Scope::as_str(scope) },
        };
        Self { text: words, change }
    }
}

fn text(name: ResourceName, amount: i64) -> String {
    Amount(name, amount).to_string()
}
