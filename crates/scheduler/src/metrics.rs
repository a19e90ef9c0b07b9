//! The scheduler's metrics, with kube-scheduler's names where it has them, and those of the ledger.
//!
//! In: attempts, refusals, the state of the core. Out: a registry's metrics. Never: names with `_total`, which
//! prometheus-client appends to counters itself.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use runtime::specimen;

use crate::core::Core;

/// Labels of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Attempt {
    /// `scheduled`, `unschedulable` or `error`.
    pub result: &'static str,
    /// The profile.
    pub profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabel {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabel {
    plugin: &'static str,
}

/// The handles of all metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    attempts: Family<Attempt, Counter>,
    attempt_seconds: Family<Attempt, Histogram>,
    pod_attempts: Histogram,
    pending: Family<QueueLabel, Gauge>,
    rejections: Family<PluginLabel, Counter>,
    preemptions: Counter,
    victims: Histogram,
    unusable_reports: Counter,
    held: Gauge,
    worlds: Gauge,
    unexplained: Gauge,
    corrections: Gauge,
}

impl Metrics {
    /// Registers all metrics and returns their handles.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_05, 2.0, 16))
            }),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            rejections: Family::default(),
            preemptions: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            unusable_reports: Counter::default(),
            held: Gauge::default(),
            worlds: Gauge::default(),
            unexplained: Gauge::default(),
            corrections: Gauge::default(),
        };
        let m = &metrics;
        registry.register(
            "scheduler_schedule_attempts",
            "Number of attempts to schedule pods, by result",
            m.attempts.clone(),
        );
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of one scheduling attempt, without binding",
            m.attempt_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts needed to schedule a pod",
            m.pod_attempts.clone(),
        );
        registry.register("scheduler_pending_pods", "Number of pending pods, by queue", m.pending.clone());
        m.register_preemption(registry);
        registry.register(
            "tholepin_scheduler_rejections",
            "Number of attempts in which a plugin refused at least one node",
            m.rejections.clone(),
        );
        registry.register(
            "tholepin_scheduler_unusable_reports",
            "Number of NodeResourceTopology objects that could not be used",
            m.unusable_reports.clone(),
        );
        registry.register(
            "tholepin_scheduler_held_nodes",
            "Number of nodes held for a pod that waits long, 0 or 1",
            m.held.clone(),
        );
        registry.register(
            "tholepin_ledger_worlds",
            "Largest number of possible worlds of any node",
            m.worlds.clone(),
        );
        registry.register(
            "tholepin_ledger_unexplained_reports",
            "Number of nodes whose newest report describes unknown pods",
            m.unexplained.clone(),
        );
        registry.register(
            "tholepin_ledger_corrections",
            "Number of reports that contradicted every possible world, over all nodes",
            m.corrections.clone(),
        );
        metrics
    }

    fn register_preemption(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_preemption_attempts",
            "Number of attempts to make room for a pod by evicting others",
            self.preemptions.clone(),
        );
        registry.register(
            "scheduler_preemption_victims",
            "Number of pods evicted for one pod",
            self.victims.clone(),
        );
    }

    /// Counts an attempt that ended after `seconds`.
    pub fn attempt(&self, result: &'static str, profile: &str, seconds: f64) {
        let labels = Attempt { result, profile: profile.to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_seconds.get_or_create(&labels).observe(seconds);
    }

    /// Counts a pod that was scheduled after this number of attempts.
    pub fn scheduled(&self, attempts: u32) {
        self.pod_attempts.observe(f64::from(attempts));
    }

    /// Counts an attempt in which a plugin refused nodes.
    pub fn rejected(&self, plugin: &'static str) {
        self.rejections.get_or_create(&PluginLabel { plugin }).inc();
    }

    /// Counts an attempt to preempt.
    pub fn tried_preemption(&self) {
        self.preemptions.inc();
    }

    /// Counts the pods of a decision to preempt.
    pub fn preempted(&self, victims: usize) {
        self.victims.observe(victims as f64);
    }

    /// Counts a report that could not be used.
    pub fn unusable_report(&self) {
        self.unusable_reports.inc();
    }

    /// Sets the gauges from the core. Visits each node, so call this a few times a second at most.
    pub fn observe(&self, core: &Core) {
        let set = |queue, length: usize| {
            self.pending.get_or_create(&QueueLabel { queue }).set(i64::try_from(length).unwrap_or(i64::MAX));
        };
        let (active, backoff, waiting) = core.queue_lengths();
        set("active", active);
        set("backoff", backoff);
        set("unschedulable", waiting);
        let (mut worlds, mut unexplained, mut corrections) = (0, 0, 0);
        for node in core.nodes() {
            let summary = node.ledger.summary();
            worlds = worlds.max(i64::try_from(summary.worlds).unwrap_or(i64::MAX));
            unexplained += i64::from(summary.unexplained);
            corrections += i64::try_from(summary.corrections).unwrap_or(i64::MAX);
        }
        self.held.set(i64::from(core.held().is_some()));
        self.worlds.set(worlds);
        self.unexplained.set(unexplained);
        self.corrections.set(corrections);
    }
}

/// All families of the process, each with a sample, for the documentation and its tests.
#[must_use]
pub fn specimen() -> Registry {
    let mut registry = Registry::default();
    specimen::process(&mut registry);
    let metrics = Metrics::register(&mut registry);
    metrics.attempt("scheduled", "topo-aware-scheduler", 0.001);
    metrics.scheduled(1);
    metrics.rejected("NodeResourceTopologyMatch");
    metrics.tried_preemption();
    metrics.preempted(1);
    metrics.unusable_report();
    drop(metrics.pending.get_or_create(&QueueLabel { queue: "active" }));
    specimen::watches(&mut registry);
    specimen::events(&mut registry);
    specimen::lease(&mut registry);
    registry
}
