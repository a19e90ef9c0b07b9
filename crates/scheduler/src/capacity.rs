//! How many more pods like one fit, and where: `tholepin capacity`.
//!
//! In: a cluster's objects, a pod, a configuration. Out: a [`Capacity`]. Never: a binding, or another rule than the
//! scheduler's. The core fills node after node (`core::headroom`). Where a pod on one node counts on another, it places
//! pod after pod, each runs at once, and the first that fits nowhere ends it. Pods of the cluster that have no node
//! take nothing.
//!
//! Cost: a filter and a charge for each pod that fits; where pods are placed, what each costs the scheduler.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use topology::fingerprint::PodHash;
use topology::reason::Amount;
use topology::request::Need;
use topology::resource::ResourceName;

use crate::core::headroom::Headroom;
use crate::core::{Core, Decision, Event, Settings};
use crate::explain::target_pod::TargetPod;
use crate::node::Node;
use crate::pod::PodView;
use crate::shell::snapshot::Snapshot;

pub mod cli;
pub(crate) mod shape;
#[cfg(test)]
mod tests;

/// How many more pods fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// What each of the pods asks for.
    pub requests: BTreeMap<&'static str, String>,
    /// The scheduler whose profile decides.
    pub scheduler: Arc<str>,
    /// How many fit.
    pub fits: usize,
    /// Whether counting ended at the limit; more may fit.
    pub limited: bool,
    /// By node name, all nodes.
    pub nodes: Vec<NodeCapacity>,
    /// Why the next pod fits nowhere, as in its FailedScheduling event, without what preemption adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How many fit on one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCapacity {
    /// The node.
    pub node: Arc<str>,
    /// How many fit there.
    pub fits: usize,
    /// What is free beside them of what they ask for, and is of no use to more of them.
    pub left: BTreeMap<&'static str, String>,
    /// The same, CPUs in thousandths.
    #[serde(skip)]
    left_cpus: i64,
}

/// The order of nodes in the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum NodeOrder {
    /// By name
    #[default]
    Name,
    /// The node that fits most first
    Fits,
    /// The node with most free CPUs that are of no use first
    Left,
}

/// What is free of each node, by what pods ask for.
type FreeAmounts = BTreeMap<Arc<str>, Vec<Need>>;

/// How many more pods like `target` fit in a cluster, at most `limit` on a node, or in all where they are placed one
/// after the other; with notes for people.
///
/// # Errors
/// When the configuration has no profile.
pub(crate) fn count(
    mut settings: Settings,
    snapshot: Snapshot,
    mut target: TargetPod,
    limit: usize,
    now_ms: u64,
) -> anyhow::Result<(Capacity, Vec<String>)> {
    let scheduler = target.choose_profile(&settings)?;
    target.leave_out_kinds(|kind| snapshot.leaves_out(kind));
    place_only(&mut settings);
    let mut core = Core::new(settings);
    let has_place = |event: &Event| !matches!(event, Event::Pod(pod) if pod.node.is_none());
    snapshot.into_events().filter(has_place).for_each(|event| core.handle(event, now_ms));
    let pod = asked(&target, now_ms);
    let free = free_amounts(&core, &pod);
    let headroom = core.headroom(&pod, limit, now_ms);
    let headroom = headroom.unwrap_or_else(|| fill(&mut core, &pod, limit, now_ms));
    Ok((Capacity::new(&pod, scheduler, headroom, &free), target.notes))
}

/// How many more pods of a shape such as `cpu=4,memory=8Gi` a core has room for, at most `limit` on a node.
pub(crate) fn of_shape(
    core: &mut Core,
    shape: &str,
    scheduler: &str,
    limit: usize,
    now_ms: u64,
) -> anyhow::Result<Capacity> {
    let pod = asked(&shape::target(shape, scheduler)?, now_ms);
    let headroom = core.headroom(&pod, limit, now_ms);
    let headroom = headroom.context("this scheduler's settings do not let nodes be counted one by one")?;
    Ok(Capacity::new(&pod, scheduler.into(), headroom, &free_amounts(core, &pod)))
}

/// The pod, as one that is created now, and alone.
pub(crate) fn asked(target: &TargetPod, now_ms: u64) -> PodView {
    PodView { group: None, created_s: now_ms / 1_000, ..PodView::read(&target.pod) }
}

/// What a pod asks for, as text.
pub(crate) fn requests(pod: &PodView) -> BTreeMap<&'static str, String> {
    texts(&pod.spec.needs.totals)
}

fn texts(needs: &[Need]) -> BTreeMap<&'static str, String> {
    let text = |need: &Need| (need.name.as_str(), Amount(need.name, need.amount).to_string());
    needs.iter().map(text).collect()
}

/// `cpu 4, memory 8Gi`.
pub(crate) fn listed(amounts: &BTreeMap<&'static str, String>) -> String {
    let parts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    parts.join(", ")
}

/// What nodes have free of what a pod asks for.
fn free_amounts(core: &Core, pod: &PodView) -> FreeAmounts {
    let of = |node: &Node| {
        let free = |need: &Need| {
            let amount = node.view.as_ref().map_or(0, |view| node.left_of(view, need.name));
            Need { name: need.name, amount }
        };
        (Arc::clone(&node.name), pod.spec.needs.totals.iter().map(free).collect())
    };
    core.nodes().map(of).collect()
}

/// What is left of the free amounts beside so many pods.
fn left_over(pod: &PodView, pods: usize, free: &[Need]) -> Vec<Need> {
    let pods = i64::try_from(pods).unwrap_or(i64::MAX);
    let left = |(free, need): (&Need, &Need)| {
        let taken = need.amount.saturating_mul(pods);
        Need { name: need.name, amount: free.amount.saturating_sub(taken).max(0) }
    };
    free.iter().zip(&pod.spec.needs.totals).map(left).collect()
}

/// Leaves out all that makes room: evictions, claims that are taken back, nodes that are held.
pub(crate) fn place_only(settings: &mut Settings) {
    settings.hold_after_ms = None;
    for profile in &mut settings.profiles {
        let plugins = Arc::make_mut(&mut profile.plugins);
        (plugins.preemption, plugins.deallocates) = (None, false);
    }
}

/// Places pods until one fits nowhere, at most `limit`.
fn fill(core: &mut Core, pod: &PodView, limit: usize, now_ms: u64) -> Headroom {
    let mut placed: BTreeMap<Arc<str>, usize> =
        core.nodes().map(|node| (Arc::clone(&node.name), 0)).collect();
    let mut message = None;
    for number in 0..limit {
        match place(core, numbered(pod, number), now_ms) {
            Ok(node) => *placed.entry(node).or_default() += 1,
            Err(reason) => {
                message = Some(reason);
                break;
            }
        }
    }
    Headroom { nodes: placed.into_iter().collect(), message }
}

/// One more pod like this, without a node.
pub(crate) fn numbered(pod: &PodView, number: usize) -> PodView {
    let name = format!("{}-{number}", pod.name);
    PodView {
        uid: format!("asked about {number}").into(),
        hash: PodHash::of(&pod.namespace, &name),
        name: name.into(),
        ..pod.clone()
    }
}

/// Places a pod, and lets it run; its node, or why it has none.
pub(crate) fn place(core: &mut Core, pod: PodView, now_ms: u64) -> Result<Arc<str>, String> {
    core.handle(Event::Pod(pod.clone()), now_ms);
    loop {
        match core.next(now_ms) {
            Some(Decision::Bind(binding)) => {
                core.handle(Event::Bound(binding.id), now_ms);
                let mut running = PodView { node: Some(Arc::clone(&binding.node)), ..pod };
                (running.progress.admitted, running.progress.initialized) = (true, true);
                core.handle(Event::Pod(running), now_ms);
                return Ok(binding.node);
            }
            Some(Decision::Refuse(refused)) => return Err(refused.message),
            Some(Decision::Preempt(preemption)) => return Err(preemption.refused.message),
            Some(Decision::BindVolumes(_) | Decision::ReserveClaims(_)) => {
                return Err("the pod has volumes or claims of its own, of which there are no more".to_owned());
            }
            Some(
                Decision::ReleaseClaims(_)
                | Decision::FailVolumes(_)
                | Decision::NoteRejection(_)
                | Decision::Withdraw(_)
                | Decision::SetGroupCondition(_),
            ) => {}
            None => return Err("the scheduler would not try it".to_owned()),
        }
    }
}

impl Capacity {
    fn new(
        pod: &PodView,
        scheduler: Arc<str>,
        Headroom { nodes, message }: Headroom,
        free: &FreeAmounts,
    ) -> Self {
        let on_node = |(node, fits): (Arc<str>, usize)| {
            let left = left_over(pod, fits, free.get(&node).map_or(&[], Vec::as_slice));
            let left_cpus = crate::node::amount(&left, ResourceName::CPU);
            NodeCapacity { node, fits, left: texts(&left), left_cpus }
        };
        let placed: BTreeMap<Arc<str>, usize> = nodes.into_iter().collect();
        Self {
            requests: requests(pod),
            scheduler,
            fits: placed.values().sum(),
            limited: message.is_none(),
            nodes: placed.into_iter().map(on_node).collect(),
            message,
        }
    }

    /// The same with its nodes in this order.
    #[must_use]
    pub fn sorted(mut self, order: NodeOrder) -> Self {
        match order {
            NodeOrder::Name => {}
            NodeOrder::Fits => self.nodes.sort_by_key(|node| Reverse(node.fits)),
            NodeOrder::Left => self.nodes.sort_by_key(|node| Reverse(node.left_cpus)),
        }
        self
    }

    /// Text for people. `wide`: also nodes where none fits.
    fn text(&self, wide: bool) -> String {
        let at_least = if self.limited { "at least " } else { "" };
        let (fits, pods) = (self.fits, if self.fits == 1 { "pod" } else { "pods" });
        let mut text = format!(
            "{at_least}{fits} more {pods} of {} would fit, by {}.\n",
            if self.requests.is_empty() { "no requests".to_owned() } else { listed(&self.requests) },
            self.scheduler
        );
        if let Some(message) = &self.message {
            text += &format!("The next one: {message}\n");
        }
        let shown = self.nodes.iter().filter(|node| wide || node.fits > 0);
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["NODE", "FITS", "LEFT OVER"]);
        let mut is_empty = true;
        for NodeCapacity { node, fits, left, .. } in shown {
            is_empty = false;
            table.add_row([&**node, &fits.to_string(), &listed(left)]);
        }
        if !is_empty {
            text += &format!("\n{}\n", table.trim_fmt());
        }
        text
    }
}
