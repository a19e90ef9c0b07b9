//! The scheduler's metrics, with kube-scheduler's names where it has them, and those of the ledger.
//!
//! In: attempts, refusals, the state of the core. Out: a registry's metrics. Never: names with `_total`, which
//! prometheus-client appends to counters itself. Names, help texts and buckets of the stable metrics are those of
//! kube-scheduler 1.36 `pkg/scheduler/metrics`, and dashboards made for it read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use runtime::specimen;

use crate::core::{Core, Lap, RejectedPod};
use crate::queue::Incoming;

mod ledger;
mod rejection;

use ledger::LedgerMetrics;
use rejection::RejectionMetrics;

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
struct IncomingLabels {
    queue: &'static str,
    event: &'static str,
}

/// Labels of a step of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    extension_point: &'static str,
    status: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptsLabel {
    attempts: String,
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
    decision_seconds: Histogram,
    steps: Family<StepLabels, Histogram, fn() -> Histogram>,
    sli_seconds: Family<AttemptsLabel, Histogram, fn() -> Histogram>,
    incoming: Family<IncomingLabels, Counter>,
    pod_attempts: Histogram,
    pending: Family<QueueLabel, Gauge>,
    rejections: Family<PluginLabel, Counter>,
    preemptions: Counter,
    victims: Histogram,
    unusable_reports: Counter,
    kubelet_rejections: RejectionMetrics,
    held: Gauge,
    ledgers: LedgerMetrics,
}

impl Metrics {
    /// Registers all metrics and returns their handles.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: Family::default(),
            attempt_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            decision_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            steps: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 12))),
            sli_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.01, 2.0, 20))),
            incoming: Family::default(),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            rejections: Family::default(),
            preemptions: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            unusable_reports: Counter::default(),
            kubelet_rejections: RejectionMetrics::register(registry),
            held: Gauge::default(),
            ledgers: LedgerMetrics::register(registry),
        };
        let m = &metrics;
        m.register_attempts(registry);
        registry.register(
            "scheduler_pending_pods",
            "[STABLE] Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' \
             means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the \
             scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the \
             scheduler never attempted to schedule because they are gated",
            m.pending.clone(),
        );
        registry.register(
            "scheduler_queue_incoming_pods",
            "[STABLE] Number of pods added to scheduling queues by event and queue type",
            m.incoming.clone(),
        );
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
        metrics
    }

    fn register_attempts(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_schedule_attempts",
            "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be \
             scheduled, while 'error' means an internal scheduler problem",
            self.attempts.clone(),
        );
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            self.attempt_seconds.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "[STABLE] Number of attempts to successfully schedule a pod",
            self.pod_attempts.clone(),
        );
        registry.register(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might \
             involve multiple scheduling attempts",
            self.sli_seconds.clone(),
        );
        registry.register(
            "scheduler_framework_extension_point_duration_seconds",
            "[STABLE] Latency for running all plugins of a specific extension point",
            self.steps.clone(),
        );
        registry.register(
            "tholepin_scheduler_decision_duration_seconds",
            "Duration of one decision, without API calls",
            self.decision_seconds.clone(),
        );
    }

    fn register_preemption(&self, registry: &mut Registry) {
        registry.register(
            "scheduler_preemption_attempts",
            "[STABLE] Total preemption attempts in the cluster till now",
            self.preemptions.clone(),
        );
        registry.register(
            "scheduler_preemption_victims",
            "[STABLE] Number of selected preemption victims",
            self.victims.clone(),
        );
    }

    /// Counts a decision that took `seconds`.
    pub fn decided(&self, seconds: f64) {
        self.decision_seconds.observe(seconds);
    }

    /// Counts an attempt that ended after `seconds`, binding included.
    pub fn attempt(&self, result: &'static str, profile: &str, seconds: f64) {
        let labels = Attempt { result, profile: profile.to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_seconds.get_or_create(&labels).observe(seconds);
    }

    /// Counts a pod that was scheduled after this number of attempts, `seconds` after the first began.
    pub fn scheduled(&self, attempts: u32, seconds: f64) {
        self.pod_attempts.observe(f64::from(attempts));
        let attempts = if attempts < 15 { attempts.to_string() } else { "15+".to_owned() };
        self.sli_seconds.get_or_create(&AttemptsLabel { attempts }).observe(seconds);
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

    /// Counts a pod that a kubelet has rejected.
    pub fn rejected_by_kubelet(&self, rejected: &RejectedPod) {
        self.kubelet_rejections.count(rejected);
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
        set("gated", core.gated());
        for ((queue, event), number) in core.incoming().iter().filter(|(_, number)| *number > 0) {
            let counter = self.incoming.get_or_create(&IncomingLabels { queue, event });
            counter.inc_by(number.saturating_sub(counter.get()));
        }
        self.held.set(i64::from(core.held().is_some()));
        self.kubelet_rejections.observe(core);
        self.ledgers.observe(core);
    }
}

/// The histograms of steps, by extension point, status and profile. A step costs one look-up in a small map.
#[derive(Debug)]
pub struct Steps {
    family: Family<StepLabels, Histogram, fn() -> Histogram>,
    known: BTreeMap<(Arc<str>, &'static str, &'static str), Histogram>,
}

impl Steps {
    /// Those of these metrics.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        Self { family: metrics.steps.clone(), known: BTreeMap::new() }
    }

    /// Counts a step of an attempt.
    pub fn observe(&mut self, profile: &Arc<str>, lap: Lap) {
        let Lap { point: extension_point, status, took } = lap;
        let histogram =
            self.known.entry((Arc::clone(profile), extension_point, status)).or_insert_with(|| {
                let labels = StepLabels { extension_point, status, profile: profile.as_ref().to_owned() };
                self.family.get_or_create(&labels).clone()
            });
        histogram.observe(took.as_secs_f64());
    }
}

/// All families of the process, each with a sample, for the documentation and its tests.
#[must_use]
pub fn specimen() -> Registry {
    let mut registry = Registry::default();
    specimen::process(&mut registry);
    let metrics = Metrics::register(&mut registry);
    metrics.attempt("scheduled", "topo-aware-scheduler", 0.001);
    metrics.decided(0.001);
    metrics.scheduled(1, 0.001);
    let lap = Lap { point: "Filter", status: "Success", took: std::time::Duration::from_millis(1) };
    Steps::new(&metrics).observe(&"topo-aware-scheduler".into(), lap);
    let (queue, event) = Incoming::NAMES[0];
    drop(metrics.incoming.get_or_create(&IncomingLabels { queue, event }));
    metrics.rejected("NodeResourceTopologyMatch");
    metrics.tried_preemption();
    metrics.preempted(1);
    metrics.unusable_report();
    metrics.kubelet_rejections.specimen();
    metrics.ledgers.specimen();
    drop(metrics.pending.get_or_create(&QueueLabel { queue: "active" }));
    specimen::watches(&mut registry);
    specimen::events(&mut registry);
    specimen::lease(&mut registry);
    registry
}
