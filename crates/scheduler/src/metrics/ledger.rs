//! Metrics of ledgers and of the zones that they tell.
//!
//! In: the core. Out: gauges over all nodes, and over the zones of nodes whose reports are trusted. Never: a series for
//! each node; a cluster has thousands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use topology::request::Need;
use topology::resource::{ResourceKind, ResourceName};

use crate::core::Core;
use crate::core::cluster_zones::ClusterZones;
use crate::ledger::Ledger;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShapeLabel {
    /// The resource of which the zone has most.
    most_of: &'static str,
    resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PredictionLabel {
    /// `right` or `wrong`.
    result: &'static str,
}

/// A node of which no report confirms the ledger.
#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    /// Number of reports understood before.
    reports: u64,
    since: Instant,
}

/// What reports have said of one ledger: how often they contradicted it, and how its predictions were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LedgerCounts {
    corrections: u64,
    right: u64,
    wrong: u64,
}

/// A gauge of whole units of a resource: CPUs, bytes, devices.
type UnitGauge = Gauge<f64, AtomicU64>;

/// The handles.
#[derive(Clone, Debug, Default)]
pub(super) struct LedgerMetrics {
    worlds: Gauge,
    unexplained: Gauge,
    corrections: Counter,
    pods_in_doubt: Gauge,
    age_seconds: UnitGauge,
    /// Nodes of which no report confirms the ledger.
    unconfirmed: Arc<Mutex<BTreeMap<Arc<str>, Unconfirmed>>>,
    predictions: Family<PredictionLabel, Counter>,
    /// What was counted of each ledger so far.
    counted: Arc<Mutex<HashMap<Arc<str>, LedgerCounts>>>,
    free: Family<ResourceLabel, UnitGauge>,
    largest: Family<ResourceLabel, UnitGauge>,
    shape: Family<ShapeLabel, UnitGauge>,
    stranded_cpus: UnitGauge,
    /// Resources that have a series, and pairs of them that have one of shapes.
    resources: Arc<Mutex<BTreeSet<ResourceName>>>,
    shapes: Arc<Mutex<BTreeSet<(ResourceName, ResourceName)>>>,
}

impl LedgerMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register(
            "tholepin_ledger_worlds",
            "Largest number of possible worlds of any node",
            m.worlds.clone(),
        );
        registry.register(
            "tholepin_ledger_unexplained_reports",
            "Number of nodes whose newest report describes unknown pods, or shows a pod in part",
            m.unexplained.clone(),
        );
        registry.register(
            "tholepin_ledger_corrections",
            "Number of reports that contradicted every possible world",
            m.corrections.clone(),
        );
        registry.register(
            "tholepin_ledger_pods_in_doubt",
            "Number of pods of which it is not certain what they hold in zones",
            m.pods_in_doubt.clone(),
        );
        registry.register(
            "tholepin_ledger_age_seconds",
            "Seconds since a report last confirmed the ledger, of the node that has waited longest; 0: all are confirmed, \
             with all admitted pods",
            m.age_seconds.clone(),
        );
        registry.register(
            "tholepin_ledger_predictions",
            "Number of pods whose zones a report by ids has told, by whether the ledger had predicted them: right or wrong",
            m.predictions.clone(),
        );
        registry.register(
            "tholepin_zone_free",
            "Free amount of a resource in all zones of nodes with a trusted report: CPUs, bytes or devices",
            m.free.clone(),
        );
        registry.register(
            "tholepin_zone_largest_free",
            "Largest amount of a resource that one zone has free: CPUs, bytes or devices",
            m.largest.clone(),
        );
        registry.register(
            "tholepin_zone_largest_shape",
            "Amounts that are free together in the zone with the most CPUs, or with the most of a device (most_of): CPUs, \
             bytes or devices",
            m.shape.clone(),
        );
        registry.register(
            "tholepin_zone_stranded_cpus",
            "Number of free CPUs on nodes whose zones together have enough for the smallest pod that waits, while no \
             zone alone has",
            m.stranded_cpus.clone(),
        );
        m
    }

    /// Sets the gauges. Cost: nodes x (pods x worlds + zones x resources).
    pub(super) fn observe(&self, core: &Core) {
        let (mut worlds, mut unexplained, mut in_doubt) = (0, 0, 0);
        let mut unconfirmed = Vec::new();
        for node in core.nodes() {
            let summary = node.ledger.summary();
            let is_unconfirmed = summary.unconfirmed || summary.unreported > 0;
            unconfirmed.extend(is_unconfirmed.then(|| (Arc::clone(&node.name), summary.reports)));
            worlds = worlds.max(count(summary.worlds as u64));
            unexplained += i64::from(summary.unexplained);
            in_doubt += count(summary.in_doubt as u64);
        }
        self.worlds.set(worlds);
        self.unexplained.set(unexplained);
        self.pods_in_doubt.set(in_doubt);
        self.age_seconds.set(self.age(unconfirmed, Instant::now()).as_secs_f64());
        self.count_up(core.ledgers().map(|(node, ledger)| (node, LedgerCounts::of(ledger))));
        let zones = core.cluster_zones();
        let mut known = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<ResourceName> = zones.by_resource.keys().copied().collect();
        for name in known.difference(&now) {
            let label = ResourceLabel { resource: name.as_str() };
            self.free.remove(&label);
            self.largest.remove(&label);
        }
        *known = now;
        for (name, amounts) in &zones.by_resource {
            let label = ResourceLabel { resource: name.as_str() };
            self.free.get_or_create(&label).set(units(*name, amounts.free));
            self.largest.get_or_create(&label).set(units(*name, amounts.largest.into()));
        }
        self.set_shapes(&zones);
        self.stranded_cpus.set(units(ResourceName::CPU, zones.stranded_cpu.into()));
    }

    /// Counts what ledgers have counted since the last time. A node that went takes nothing away.
    fn count_up<'a>(&self, ledgers: impl Iterator<Item = (&'a Arc<str>, LedgerCounts)>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = HashMap::new();
        for (node, counts) in ledgers.filter(|(_, counts)| *counts != LedgerCounts::default()) {
            let before = counted.get(node).copied().unwrap_or_default();
            self.corrections.inc_by(counts.corrections.saturating_sub(before.corrections));
            let results = [("right", counts.right, before.right), ("wrong", counts.wrong, before.wrong)];
            for (result, number, before) in results {
                let counter = self.predictions.get_or_create(&PredictionLabel { result });
                counter.inc_by(number.saturating_sub(before));
            }
            now.insert(Arc::clone(node), counts);
        }
        *counted = now;
    }

    /// The series of the largest shapes. Not by memory: the zone with most of it is seldom what a pod waits for.
    fn set_shapes(&self, zones: &ClusterZones) {
        let mut known = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = BTreeSet::new();
        let is_counted =
            |name: &ResourceName| matches!(name.kind(), ResourceKind::Cpu | ResourceKind::Device);
        for (most_of, amounts) in zones.by_resource.iter().filter(|(name, _)| is_counted(name)) {
            for Need { name, amount } in &amounts.shape {
                let label = ShapeLabel { most_of: most_of.as_str(), resource: name.as_str() };
                self.shape.get_or_create(&label).set(units(*name, (*amount).into()));
                now.insert((*most_of, *name));
            }
        }
        for (most_of, name) in known.difference(&now) {
            self.shape.remove(&ShapeLabel { most_of: most_of.as_str(), resource: name.as_str() });
        }
        *known = now;
    }

    /// The time since the first of these nodes, with the number of its reports, was not confirmed any more. It goes on
    /// while the node is among them and no further report was understood.
    fn age(&self, nodes: Vec<(Arc<str>, u64)>, now: Instant) -> Duration {
        let mut known = self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |(node, reports): (Arc<str>, u64)| {
            let before = known.get(&node).filter(|before| before.reports == reports);
            let since = before.map_or(now, |before| before.since);
            (node, Unconfirmed { reports, since })
        };
        *known = nodes.into_iter().map(since).collect();
        let first = known.values().map(|node| node.since).min();
        first.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Gives each family a sample.
    pub(super) fn specimen(&self) {
        drop(self.predictions.get_or_create(&PredictionLabel { result: "right" }));
        let label = ResourceLabel { resource: "cpu" };
        drop(self.free.get_or_create(&label));
        drop(self.largest.get_or_create(&label));
        drop(self.shape.get_or_create(&ShapeLabel { most_of: "cpu", resource: "memory" }));
    }
}

impl LedgerCounts {
    fn of(ledger: &Ledger) -> Self {
        let predictions = ledger.predictions();
        Self { corrections: ledger.corrections(), right: predictions.right, wrong: predictions.wrong }
    }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn units(name: ResourceName, amount: i128) -> f64 {
    amount as f64 / name.base_units() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_that_of_the_node_that_waits_longest() {
        let metrics = LedgerMetrics::default();
        let start = Instant::now();
        let age = |nodes: &[(&str, u64)], seconds| {
            let nodes = nodes.iter().map(|(node, reports)| (Arc::from(*node), *reports)).collect();
            metrics.age(nodes, start + Duration::from_secs(seconds)).as_secs()
        };
        let ages = [
            age(&[("a", 1)], 0),
            age(&[("a", 1), ("b", 4)], 5),
            age(&[("b", 4)], 7),
            age(&[("b", 5)], 8),
            age(&[("b", 5)], 9),
            age(&[], 10),
            age(&[("b", 5)], 11),
        ];
        assert_eq!(ages, [0, 5, 2, 0, 1, 0, 0]);
    }

    /// A node goes, another comes under its name, and one comes back with its ledger.
    #[test]
    fn what_was_counted_stays_counted() {
        let metrics = LedgerMetrics::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let of = |corrections, right, wrong| LedgerCounts { corrections, right, wrong };
        let count = |ledgers: &[(&Arc<str>, LedgerCounts)]| {
            metrics.count_up(ledgers.iter().copied());
            let result = |result| metrics.predictions.get_or_create(&PredictionLabel { result }).get();
            (metrics.corrections.get(), result("right"), result("wrong"))
        };
        assert_eq!(count(&[(&a, of(1, 10, 0)), (&b, of(0, 5, 1))]), (1, 15, 1));
        assert_eq!(count(&[(&a, of(2, 12, 0)), (&b, of(0, 5, 1))]), (2, 17, 1));
        assert_eq!(count(&[(&b, of(0, 5, 1))]), (2, 17, 1));
        assert_eq!(count(&[(&a, of(0, 1, 0)), (&b, of(0, 5, 1))]), (2, 18, 1));
        assert_eq!(count(&[(&a, of(0, 1, 0)), (&b, of(0, 5, 2))]), (2, 18, 2));
    }
}
