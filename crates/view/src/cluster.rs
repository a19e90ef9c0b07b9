//! The cluster: a row for each node with the free amounts of its zones, and the pods that wait.
//!
//! In: a core. Out: rows that are small enough for thousands of nodes. Never: cores or containers, which one node alone
//! shows ([`crate::node`]).
//!
//! Amounts are in base units: CPUs in thousandths, memory in bytes, devices by number.

use std::sync::Arc;

use scheduler::core::Core;
use scheduler::node::Node;
use scheduler::pod::PodView;
use serde::Serialize;

/// Most waiting pods that are listed.
const MAX_WAITING: usize = 1_000;

/// A cluster at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// When it was looked at, milliseconds since the epoch.
    pub taken_ms: u64,
    /// By name.
    pub nodes: Vec<NodeRow>,
    /// Pods without a node.
    pub waiting: Waiting,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its name.
    pub name: Arc<str>,
    /// The Topology Manager's policy; none without a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<&'static str>,
    /// Its scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<&'static str>,
    /// How well its zones are known.
    pub state: ReportStatus,
    /// Whether it is closed to new pods (`spec.unschedulable`).
    #[serde(skip_serializing_if = "is_false")]
    pub cordoned: bool,
    /// Number of its pods.
    pub pods: i64,
    /// Pods bound to it that its report does not show yet.
    #[serde(skip_serializing_if = "is_zero")]
    pub on_their_way: usize,
    /// Pods that its kubelet has rejected and that are still there.
    #[serde(skip_serializing_if = "is_zero")]
    pub rejected: usize,
    /// The resources of its zones.
    pub resources: Vec<&'static str>,
    /// Its zones, by id.
    pub zones: Vec<ZoneRow>,
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneRow {
    /// Its id.
    pub id: u32,
    /// What no pod has, by resource as in [`NodeRow::resources`].
    pub free: Vec<i64>,
    /// What pods may have at most.
    pub allocatable: Vec<i64>,
}

/// How well the zones of a node are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReportStatus {
    /// The newest report says what was expected.
    Confirmed,
    /// What some pods hold is known within bounds.
    InDoubt,
    /// The newest report is not explained, cannot be read, or is gone.
    Unconfirmed,
    /// There is no report: no exporter runs there, or it has not reported yet.
    Unreported,
}

/// Pods without a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// How many there are.
    pub number: usize,
    /// The oldest of them.
    pub pods: Vec<WaitingPod>,
}

/// A pod without a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The scheduler that is to place it.
    pub scheduler: Arc<str>,
    /// Its creation, seconds since the epoch.
    pub created_s: u64,
    /// Why it has no node, as its scheduler said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

impl ClusterView {
    /// The cluster as a core has it, with the oldest of the pods that wait. Cost: nodes x zones x resources, and all
    /// pods.
    #[must_use]
    pub fn of(core: &Core, now_ms: u64) -> Self {
        Self::listing(core, now_ms, MAX_WAITING)
    }

    /// The same with all pods that wait.
    #[must_use]
    pub fn with_all_waiting(core: &Core, now_ms: u64) -> Self {
        Self::listing(core, now_ms, usize::MAX)
    }

    fn listing(core: &Core, now_ms: u64, most_waiting: usize) -> Self {
        let rejected = core.rejected_pods();
        let rejected = |node: &Node| rejected.get(&node.name).copied().unwrap_or_default();
        let mut nodes: Vec<NodeRow> = core.nodes().map(|node| NodeRow::of(node, rejected(node))).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Self { taken_ms: now_ms, nodes, waiting: Waiting::oldest(core, most_waiting) }
    }
}

impl NodeRow {
    /// A node, with the number of pods that its kubelet has rejected. Cost: zones x resources, and pods x worlds.
    #[must_use]
    pub fn of(node: &Node, rejected: usize) -> Self {
        let summary = node.ledger.summary();
        let rules = node.ledger.topology().map(|topology| topology.rules);
        let state = match () {
            () if summary.unconfirmed => ReportStatus::Unconfirmed,
            () if !node.ledger.has_report() => ReportStatus::Unreported,
            () if summary.in_doubt > 0 => ReportStatus::InDoubt,
            () => ReportStatus::Confirmed,
        };
        let (resources, zones) = zones(node);
        Self {
            name: Arc::clone(&node.name),
            policy: rules.map(|rules| rules.policy.as_str()),
            scope: rules.map(|rules| rules.scope.as_str()),
            state,
            cordoned: node.view.as_ref().is_some_and(|view| view.unschedulable),
            pods: node.pods,
            on_their_way: summary.pending,
            rejected,
            resources,
            zones,
        }
    }

    /// The place of a resource in its zones' amounts.
    #[must_use]
    pub fn column(&self, resource: &str) -> Option<usize> {
        self.resources.iter().position(|name| *name == resource)
    }

    /// What is free of a resource, zone by zone; nothing if its zones do not have it.
    pub fn free(&self, resource: &str) -> impl Iterator<Item = i64> {
        let column = self.column(resource);
        self.zones.iter().filter_map(move |zone| Some(zone.free[column?].max(0)))
    }
}

/// The resources of a node's zones, and the zones.
fn zones(node: &Node) -> (Vec<&'static str>, Vec<ZoneRow>) {
    let Some(topology) = node.ledger.topology() else { return (Vec::new(), Vec::new()) };
    let allocatable = topology.allocatable();
    let reported = topology.available();
    let free = node.ledger.free().unwrap_or(&reported);
    let layout = allocatable.layout();
    let columns = 0..layout.resources().len();
    let row = |row: usize| ZoneRow {
        id: layout.zones()[row].0,
        free: columns.clone().map(|column| free.get(row, column)).collect(),
        allocatable: columns.clone().map(|column| allocatable.get(row, column)).collect(),
    };
    let names = layout.resources().iter().map(|name| name.as_str()).collect();
    (names, (0..layout.zones().len()).map(row).collect())
}

impl Waiting {
    /// The pods without a node, of which a bounded number is listed. Cost: all pods.
    #[must_use]
    pub fn of(core: &Core) -> Self {
        Self::oldest(core, MAX_WAITING)
    }

    fn oldest(core: &Core, most: usize) -> Self {
        let mut pods: Vec<&PodView> = core.waiting().collect();
        pods.sort_by_key(|pod| (pod.created_s, &pod.namespace, &pod.name));
        let listed = pods.iter().take(most).map(|pod| WaitingPod {
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
            scheduler: Arc::clone(&pod.scheduler),
            created_s: pod.created_s,
            message: pod.unschedulable.clone(),
        });
        Self { number: pods.len(), pods: listed.collect() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_that_cannot_be_read_confirms_nothing() {
        let mut snapshot = scheduler::shell::snapshot::Snapshot::default();
        for name in ["silent", "wrong"] {
            snapshot.take(json!({"kind": "Node", "metadata": {"name": name}}));
        }
        snapshot.take(json!({"kind": "NodeResourceTopology", "metadata": {"name": "wrong"}, "zones": 5}));
        let core = snapshot.into_core(scheduler::config::default_settings(0), 0);
        let states: Vec<ReportStatus> =
            ClusterView::of(&core, 0).nodes.iter().map(|node| node.state).collect();
        assert_eq!(states, [ReportStatus::Unreported, ReportStatus::Unconfirmed]);
    }
}
