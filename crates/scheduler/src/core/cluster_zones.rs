//! What the zones of all nodes have free, as one look at the cluster.
//!
//! In: ledgers whose report is trusted, and the pods that wait. Out: sums and maxima by resource. Never: a verdict
//! about a pod.

use std::collections::BTreeMap;

use topology::policy::Scope;
use topology::request::{Need, PodNeeds, Qos};
use topology::resource::ResourceName;
use topology::zone::Cells;

use super::Core;

/// Free amounts of zones, in base units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterZones {
    /// By resource.
    pub by_resource: BTreeMap<ResourceName, FreeInZones>,
    /// CPU on nodes whose zones together have enough for the smallest pod that waits, while no zone alone has.
    pub stranded_cpu: i64,
}

/// What zones have of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeInZones {
    /// In all zones together.
    pub free: i128,
    /// In the zone that has most.
    pub largest: i64,
    /// All that this zone has: the largest pod by this resource that fits one zone. Of several zones that of which the
    /// amounts are larger in the order of names.
    pub shape: Vec<Need>,
}

impl FreeInZones {
    /// Counts a zone with so much of the resource. Cost: its resources, if none of those before had more.
    pub(super) fn add(&mut self, amount: i64, zones: &Cells<'_>, row: usize) {
        self.free += i128::from(amount);
        if amount < self.largest || amount == 0 {
            return;
        }
        let row = zones.row(row);
        let is_larger =
            || row.iter().map(|amount| (*amount).max(0)).gt(self.shape.iter().map(|need| need.amount));
        if amount > self.largest || is_larger() {
            let needs = zones.resources.iter().zip(row);
            let needs = needs.map(|(name, amount)| Need { name: *name, amount: (*amount).max(0) });
            (self.largest, self.shape) = (amount, needs.collect());
        }
    }
}

impl Core {
    /// The free amounts of all zones. Cost: nodes x zones x resources, and the waiting classes.
    #[must_use]
    pub fn cluster_zones(&self) -> ClusterZones {
        let smallest_under = |scope| {
            let waiting = self.queue.heads().map(|(_, head)| cpus_of_one_zone(&head.spec.needs, scope));
            waiting.filter(|cpu| *cpu > 0).min()
        };
        let (by_container, by_pod) = (smallest_under(Scope::Container), smallest_under(Scope::Pod));
        let mut all = ClusterZones::default();
        for node in self.nodes().filter(|node| node.ledger.is_trusted()) {
            let Some(free) = node.ledger.free() else { continue };
            let zones = free.as_cells();
            let smallest = match node.ledger.topology().map(|topology| topology.rules.scope) {
                Some(Scope::Pod) => by_pod,
                Some(Scope::Container) | None => by_container,
            };
            for (column, name) in zones.resources.iter().enumerate() {
                let of_zones = || (0..zones.zones).map(|row| zones.row(row)[column].max(0));
                let of_name = all.by_resource.entry(*name).or_default();
                of_zones().enumerate().for_each(|(row, amount)| of_name.add(amount, &zones, row));
                let (sum, largest) = (of_zones().sum::<i64>(), of_zones().max().unwrap_or(0));
                let strands = |smallest| largest < smallest && smallest <= sum;
                if *name == ResourceName::CPU && smallest.is_some_and(strands) {
                    all.stranded_cpu = all.stranded_cpu.saturating_add(sum);
                }
            }
        }
        all
    }
}

/// The CPUs that one zone has to have for a pod: whole ones of Guaranteed pods, of the largest container or of all.
fn cpus_of_one_zone(needs: &PodNeeds, scope: Scope) -> i64 {
    let is_cpu = |need: &&Need| need.name == ResourceName::CPU && need.is_whole();
    match (needs.qos, scope) {
        (Qos::Guaranteed, Scope::Pod) => needs.pod_scope_whole_cpu,
        (Qos::Guaranteed, Scope::Container) => {
            let all = needs.containers.iter().flat_map(|container| &container.needs);
            all.filter(is_cpu).map(|need| need.amount).max().unwrap_or(0)
        }
        (Qos::Burstable | Qos::BestEffort, _) => 0,
    }
}
