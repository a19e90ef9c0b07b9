//! The scheduler's metrics: kube-scheduler's names where it has them, and what only a ledger can tell.
//!
//! prometheus-client appends `_total` to counters, so names are given without it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

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

/// All of them.
#[derive(Clone, Debug)]
pub struct Metrics {
    attempts: Family<Attempt, Counter>,
    attempt_seconds: Family<Attempt, Histogram>,
    pod_attempts: Histogram,
    pending: Family<QueueLabel, Gauge>,
    rejections: Family<PluginLabel, Counter>,
    unusable_reports: Counter,
    worlds: Gauge,
    unexplained: Gauge,
    corrections: Gauge,
}

impl Metrics {
    /// Registers all metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_05, 2.0, 16))
            }),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            rejections: Family::default(),
            unusable_reports: Counter::default(),
            worlds: Gauge::default(),
            unexplained: Gauge::default(),
            corrections: Gauge::default(),
        };
        let m = &metrics;
        registry.register(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result",
            m.attempts.clone(),
        );
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one attempt, without binding",
            m.attempt_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Attempts it took to schedule a pod",
            m.pod_attempts.clone(),
        );
        registry.register("scheduler_pending_pods", "Pods waiting, by queue", m.pending.clone());
        registry.register(
            "tholepin_scheduler_rejections",
            "Attempts in which a plugin refused at least one node",
            m.rejections.clone(),
        );
        registry.register(
            "tholepin_scheduler_unusable_reports",
            "NodeResourceTopology objects that could not be used",
            m.unusable_reports.clone(),
        );
        registry.register("tholepin_ledger_worlds", "Most possible worlds any node has", m.worlds.clone());
        registry.register(
            "tholepin_ledger_unexplained_reports",
            "Nodes whose newest report describes pods we do not know",
            m.unexplained.clone(),
        );
        registry.register(
            "tholepin_ledger_corrections",
            "Reports that contradicted every possible world, over all nodes",
            m.corrections.clone(),
        );
        metrics
    }

    /// One attempt ended.
    pub fn attempt(&self, result: &'static str, profile: &str, seconds: f64) {
        let labels = Attempt { result, profile: profile.to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_seconds.get_or_create(&labels).observe(seconds);
    }

    /// A pod is bound after so many attempts.
    pub fn scheduled(&self, attempts: u32) {
        self.pod_attempts.observe(f64::from(attempts));
    }

    /// A plugin refused nodes in an attempt.
    pub fn rejected(&self, plugin: &'static str) {
        self.rejections.get_or_create(&PluginLabel { plugin }).inc();
    }

    /// A report could not be used.
    pub fn unusable_report(&self) {
        self.unusable_reports.inc();
    }

    /// Reads the gauges off the core. Cost: one look at each node; to be called a few times a second at most.
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
        self.worlds.set(worlds);
        self.unexplained.set(unexplained);
        self.corrections.set(corrections);
    }
}
