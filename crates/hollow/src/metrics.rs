//! The metrics of hollow nodes.
//!
//! In: what happens. Out: numbers for `/metrics`. Never: a label with unbounded values; the reasons are the
//! kubelet's.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use runtime::specimen;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// The metrics.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    nodes: Gauge,
    running: Gauge,
    ending: Gauge,
    waiting: Gauge,
    admitted: Counter,
    adopted: Counter,
    rejected: Family<Reason, Counter>,
    writes: Family<Kind, Counter>,
    failures: Family<Kind, Counter>,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let it = Self::default();
        registry.register("tholepin_hollow_nodes", "Hollow nodes of this process", it.nodes.clone());
        registry.register(
            "tholepin_hollow_pods_running",
            "Pods that run on hollow nodes",
            it.running.clone(),
        );
        registry.register(
            "tholepin_hollow_pods_to_end",
            "Pods among them that end by themselves",
            it.ending.clone(),
        );
        registry.register(
            "tholepin_hollow_writes_waiting",
            "Writes that wait for their turn",
            it.waiting.clone(),
        );
        registry.register(
            "tholepin_hollow_pods_admitted",
            "Pods that hollow kubelets admitted",
            it.admitted.clone(),
        );
        registry.register(
            "tholepin_hollow_pods_adopted",
            "Pods that ran before the process started",
            it.adopted.clone(),
        );
        registry.register(
            "tholepin_hollow_pods_rejected",
            "Pods that hollow kubelets rejected, by the kubelet's reason",
            it.rejected.clone(),
        );
        registry.register("tholepin_hollow_writes", "Writes to the API server", it.writes.clone());
        registry.register(
            "tholepin_hollow_write_failures",
            "Writes that failed, and are tried again unless their object is gone",
            it.failures.clone(),
        );
        it
    }

    /// The nodes are registered.
    pub(crate) fn nodes(&self, count: usize) {
        self.nodes.set(whole(count));
    }

    /// So many pods will end by themselves, and so many run.
    pub(crate) fn pods(&self, ending: usize, running: usize) {
        self.ending.set(whole(ending));
        self.running.set(whole(running));
    }

    pub(crate) fn admitted(&self) {
        self.admitted.inc();
    }

    pub(crate) fn adopted(&self) {
        self.adopted.inc();
    }

    pub(crate) fn rejected(&self, reason: &str) {
        self.rejected.get_or_create(&Reason { reason: reason.to_owned() }).inc();
    }

    pub(crate) fn waiting(&self, count: usize) {
        self.waiting.set(whole(count));
    }

    /// A write of a kind (`pod`, `report`, `lease`, `node`) ended.
    pub(crate) fn wrote(&self, kind: &'static str, succeeded: bool) {
        self.writes.get_or_create(&Kind { kind }).inc();
        if !succeeded {
            self.failures.get_or_create(&Kind { kind }).inc();
        }
    }
}

/// All metrics of the program, each with a sample.
#[must_use]
pub fn specimen() -> Registry {
    let mut registry = Registry::default();
    specimen::process(&mut registry);
    specimen::watches(&mut registry);
    let metrics = Metrics::register(&mut registry);
    metrics.rejected("TopologyAffinityError");
    metrics.wrote("pod", false);
    registry
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
