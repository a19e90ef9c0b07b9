//! A node as the scheduler keeps it, with the requests of its pods.
//!
//! In: `Node` objects, and pods as they are placed and released. Out: whether a pod fits the node's totals, and the
//! scores of kube-scheduler's NodeResourcesFit and NodeResourcesBalancedAllocation. Never: zones; those are in the
//! ledger.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use topology::quantity::Quantity;
use topology::request::{Need, PodNeeds};
use topology::resource::ResourceName;

use crate::affinity::{Labels, Taint};
use crate::ledger::Ledger;
use crate::over_reserve::OverReserve;
use crate::plugins::node_ports::UsedPorts;

/// The fields of a Node object that the scheduler uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.creationTimestamp`, milliseconds since the epoch.
    pub created_ms: u64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `status.allocatable` in base units, rounded down, in name order.
    pub allocatable: Vec<Need>,
}

/// A node: its object, its pods' totals and its ledger.
#[derive(Debug, Default)]
pub struct Node {
    /// The object; `None` while only pods or a report of the node are known.
    pub view: Option<NodeView>,
    /// The node's name.
    pub name: Arc<str>,
    /// Sum of the pods' requests, in name order.
    pub used: Vec<Need>,
    /// CPU (thousandths) and memory (bytes) requests, with kube-scheduler's defaults for containers that request
    /// nothing.
    pub used_nonzero: (i64, i64),
    /// Number of pods.
    pub pods: i64,
    /// Their host ports.
    pub ports: UsedPorts,
    /// The free amounts of the zones.
    pub ledger: Ledger,
    /// The free amounts by upstream's accounting, where a profile counts that way.
    pub over_reserve: OverReserve,
}

/// CPU of a container without a request in scores, in thousandths (kube-scheduler 1.36 `util.DefaultMilliCPURequest`).
const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory of a container without a request in scores, in bytes (`util.DefaultMemoryRequest`).
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

impl NodeView {
    /// Reads a node. Amounts that are not quantities count as 0.
    #[must_use]
    pub fn read(node: &wire::Node) -> Self {
        let meta = &node.metadata;
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let spec = node.spec.as_ref();
        let mut allocatable: Vec<Need> = node
            .status
            .iter()
            .flat_map(|status| status.allocatable.iter().flatten())
            .filter_map(|(name, quantity)| {
                let name = ResourceName::new(name).ok()?;
                let quantity = Quantity::parse(quantity.0.trim()).ok();
                let amount = quantity
                    .map_or(0, |q| if name == ResourceName::CPU { q.floor_milli() } else { q.floor_value() });
                Some(Need { name, amount: amount.max(0) })
            })
            .collect();
        allocatable.sort_unstable_by_key(|need| need.name);
        let created = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
        Self {
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            created_ms: u64::try_from(created).unwrap_or(0),
            labels: meta.labels.clone().unwrap_or_default(),
            taints: spec.iter().flat_map(|s| s.taints.iter().flatten()).filter_map(Taint::read).collect(),
            unschedulable: spec.is_some_and(|s| s.unschedulable == Some(true)),
            allocatable,
        }
    }

    /// The allocatable amount of a resource; 0 if the node lacks it.
    #[must_use]
    pub fn allocatable(&self, name: ResourceName) -> i64 {
        amount(&self.allocatable, name)
    }
}

impl Node {
    /// Adds a pod's needs to the totals.
    pub fn add(&mut self, needs: &PodNeeds) {
        self.shift(needs, 1);
    }

    /// Takes a pod's needs off the totals.
    pub fn remove(&mut self, needs: &PodNeeds) {
        self.shift(needs, -1);
    }

    fn shift(&mut self, needs: &PodNeeds, sign: i64) {
        for need in &needs.totals {
            match self.used.binary_search_by_key(&need.name, |n| n.name) {
                Ok(at) => self.used[at].amount = self.used[at].amount.saturating_add(sign * need.amount),
                Err(at) => self.used.insert(at, Need { name: need.name, amount: sign * need.amount }),
            }
        }
        let (cpu, memory) = nonzero(needs);
        self.used_nonzero.0 += sign * cpu;
        self.used_nonzero.1 += sign * memory;
        self.pods += sign;
    }

    /// The resources that are short on the node, in kube-scheduler's order: pods, then the pod's resources.
    pub fn shortages<'a>(
        &'a self,
        view: &'a NodeView,
        needs: &'a PodNeeds,
    ) -> impl Iterator<Item = ResourceName> + 'a {
        let pods = (self.pods + 1 > view.allocatable(ResourceName::PODS)).then_some(ResourceName::PODS);
        let short = |need: &&Need| {
            need.amount > view.allocatable(need.name).saturating_sub(amount(&self.used, need.name))
        };
        pods.into_iter().chain(needs.totals.iter().filter(short).map(|need| need.name))
    }

    /// kube-scheduler's LeastAllocated over cpu and memory: 0 to 100.
    #[must_use]
    pub fn least_allocated(&self, view: &NodeView, needs: &PodNeeds) -> i64 {
        let (cpu, memory) = nonzero(needs);
        let part = |allocatable: i64, used: i64| {
            (allocatable > 0).then(|| {
                if used > allocatable {
                    0
                } else {
                    i64::try_from(i128::from(allocatable - used) * 100 / i128::from(allocatable)).unwrap_or(0)
                }
            })
        };
        let parts = [
            part(view.allocatable(ResourceName::CPU), self.used_nonzero.0.saturating_add(cpu)),
            part(view.allocatable(ResourceName::MEMORY), self.used_nonzero.1.saturating_add(memory)),
        ];
        let count = i64::from(parts[0].is_some()) + i64::from(parts[1].is_some());
        if count == 0 { 0 } else { parts.iter().flatten().sum::<i64>() / count }
    }

    /// kube-scheduler 1.36's BalancedAllocation over cpu and memory: 50 if the pod leaves the balance unchanged, more
    /// if it improves the balance.
    #[must_use]
    pub fn balanced(&self, view: &NodeView, needs: &PodNeeds) -> i64 {
        let evenness = |with: bool| {
            let mut fractions = [ResourceName::CPU, ResourceName::MEMORY].into_iter().filter_map(|name| {
                let allocatable = view.allocatable(name);
                let more = if with { amount(&needs.totals, name) } else { 0 };
                let used = amount(&self.used, name).saturating_add(more);
                (allocatable > 0).then(|| (used as f64 / allocatable as f64).min(1.0))
            });
            let std = match (fractions.next(), fractions.next()) {
                (Some(a), Some(b)) => (a - b).abs() / 2.0,
                _ => 0.0,
            };
            ((1.0 - std) * 100.0) as i64
        };
        50 + (50 + evenness(true) - evenness(false)) / 2
    }
}

fn amount(list: &[Need], name: ResourceName) -> i64 {
    list.binary_search_by_key(&name, |need| need.name).map_or(0, |at| list[at].amount)
}

fn nonzero(needs: &PodNeeds) -> (i64, i64) {
    let running = needs.containers.iter().filter(|c| c.kind.keeps_running());
    running.fold((0, 0), |(cpu, memory), container| {
        let or_default = |name, default| match amount(&container.needs, name) {
            0 => default,
            amount => amount,
        };
        (
            cpu + or_default(ResourceName::CPU, DEFAULT_MILLI_CPU),
            memory + or_default(ResourceName::MEMORY, DEFAULT_MEMORY),
        )
    })
}
