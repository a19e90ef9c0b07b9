//! Every metric of the exporter, by name.
//!
//! In: events of the other modules. Out: a registry. Never: a peer's name with another meaning. The `rte_*` and `nfd_*`
//! names and labels are the peers', with two corrections: patches count as `update` writes, and the trigger of an
//! update is the true one.

use std::time::Duration;

use node::podresources::Call;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets, linear_buckets};
use prometheus_client::registry::{Registry, Unit};
use runtime::specimen;

/// Labels as (name, value) pairs; each family uses one fixed set of names.
type Labels = Vec<(&'static str, String)>;
/// A gauge of milliseconds with fractions.
type Millis = Gauge<f64, std::sync::atomic::AtomicU64>;

/// The exporter's metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    node: String,
    call_failures: Family<Labels, Counter>,
    writes: Family<Labels, Counter>,
    operation_delay: Family<Labels, Millis>,
    wakeup_delay: Family<Labels, Millis>,
    patch_failures: Family<Labels, Counter>,
    patch_ratio: Family<NodeLabel, Histogram>,
    scan_seconds: Histogram,
    publish_seconds: Histogram,
    last_write: Family<NodeLabel, Gauge>,
    scan_failures: Family<Labels, Counter>,
    scan_errors: Counter,
    publish_failures: Family<Labels, Counter>,
    remarks: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

/// A write that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object was created.
    Create,
    /// It was patched.
    Update,
}

impl Metrics {
    /// Registers the metrics in `registry`, labelled with the node's name.
    pub fn register(registry: &mut Registry, node: &str) -> Self {
        let metrics = Self {
            node: node.to_owned(),
            call_failures: Family::default(),
            writes: Family::default(),
            operation_delay: Family::default(),
            wakeup_delay: Family::default(),
            patch_failures: Family::default(),
            patch_ratio: Family::new_with_constructor(|| Histogram::new(linear_buckets(0.1, 0.1, 10))),
            // 0.1 ms to 0.8 s; a scan usually takes one or two milliseconds.
            scan_seconds: Histogram::new(exponential_buckets(0.000_1, 2.0, 14)),
            // 1 ms to 65 s: the API server may be unavailable.
            publish_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 17)),
            last_write: Family::default(),
            scan_failures: Family::default(),
            scan_errors: Counter::default(),
            publish_failures: Family::default(),
            remarks: Gauge::default(),
        };
        metrics.register_peers(registry);
        metrics.register_own(registry);
        metrics
    }

    fn register_peers(&self, registry: &mut Registry) {
        let calls = "Failed calls to the kubelet's podresources service";
        registry.register("rte_podresource_api_call_failures", calls, self.call_failures.clone());
        let writes = "Successful writes of the NodeResourceTopology object";
        registry.register("rte_noderesourcetopology_writes", writes, self.writes.clone());
        let operation = "Duration of the last operation of this kind, in milliseconds";
        registry.register("rte_operation_delay_milliseconds", operation, self.operation_delay.clone());
        let wakeup = "Time between the last two scans, in milliseconds";
        registry.register("rte_wakeup_delay_milliseconds", wakeup, self.wakeup_delay.clone());
        let patches = "Failed patches of the object, by stage";
        registry.register("rte_noderesourcetopology_patch_failures", patches, self.patch_failures.clone());
        let ratio = "Size of a patch relative to the whole object";
        registry.register("rte_noderesourcetopology_patch_size_ratio", ratio, self.patch_ratio.clone());
        let errors = "Failed scans";
        registry.register("nfd_topology_updater_scan_errors", errors, self.scan_errors.clone());
        let build = Family::<Labels, Gauge>::default();
        // As in NFD, the value is the time of the start, in seconds since 1970.
        let since = jiff::Timestamp::now().as_second();
        build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION").to_owned())]).set(since);
        registry.register("nfd_topology_updater_build_info", "Version of the exporter", build);
    }

    fn register_own(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("tholepin_exporter");
        let scan = "Duration of a scan of the node";
        registry.register_with_unit("scan", scan, Unit::Seconds, self.scan_seconds.clone());
        let publish = "Time from the notice of a change until the API server has stored it";
        registry.register_with_unit("publish", publish, Unit::Seconds, self.publish_seconds.clone());
        let last = "Time of the last write of the object by this process, since 1970; none before the first";
        registry.register_with_unit("last_write_timestamp", last, Unit::Seconds, self.last_write.clone());
        let scans = "Failed scans, by the input that could not be read";
        registry.register("scan_failures", scans, self.scan_failures.clone());
        let publishes = "Failed writes of the object, by HTTP status (0: no answer)";
        registry.register("publish_failures", publishes, self.publish_failures.clone());
        let remarks = "Contradictions between kubelet and kernel in the last scan; details are in the log";
        registry.register("remarks", remarks, self.remarks.clone());
    }

    /// Counts a failed call to the kubelet.
    pub fn call_failed(&self, call: Call) {
        self.call_failures.get_or_create(&self.with([("function_name", call.as_str())])).inc();
    }

    /// Notes a scan of this duration; the one before ended `since_last` ago.
    pub fn scanned(&self, took: Duration, since_last: Option<Duration>, trigger: &str, remarks: usize) {
        self.scan_seconds.observe(took.as_secs_f64());
        self.delay("podresources_scan", trigger, took);
        if let Some(delay) = since_last {
            let delay = delay.as_secs_f64() * 1e3;
            self.wakeup_delay.get_or_create(&self.with([("trigger", trigger)])).set(delay);
        }
        self.remarks.set(i64::try_from(remarks).unwrap_or(i64::MAX));
    }

    /// Counts a scan that failed because `input` could not be read.
    pub fn scan_failed(&self, input: &'static str) {
        self.scan_failures.get_or_create(&self.with([("input", input)])).inc();
        self.scan_errors.inc();
    }

    /// Notes a write of the object: its duration, and the time since the change was noticed.
    pub fn published(&self, operation: Operation, trigger: &str, took: Duration, since_noticed: Duration) {
        let name = match operation {
            Operation::Create => "create",
            Operation::Update => "update",
        };
        self.writes.get_or_create(&self.with([("operation", name), ("trigger", trigger)])).inc();
        self.delay("node_resource_object_update", trigger, took);
        self.publish_seconds.observe(since_noticed.as_secs_f64());
        let node = NodeLabel { node: self.node.clone() };
        self.last_write.get_or_create(&node).set(jiff::Timestamp::now().as_second());
    }

    /// Notes the size of a patch, as a share of the whole object.
    pub fn patch_size(&self, share: f64) {
        self.patch_ratio.get_or_create(&NodeLabel { node: self.node.clone() }).observe(share);
    }

    /// Counts a write that failed with this HTTP status, or without an answer.
    pub fn publish_failed(&self, status: Option<u16>, was_patch: bool) {
        let status = status.unwrap_or_default().to_string();
        self.publish_failures.get_or_create(&self.with([("code", status.as_str())])).inc();
        if was_patch {
            self.patch_failures.get_or_create(&self.with([("trigger", "send_patch")])).inc();
        }
    }

    /// Notes one of each event.
    fn sample(&self) {
        self.call_failed(Call::List);
        self.scanned(Duration::from_millis(2), Some(Duration::from_millis(1500)), "periodic", 3);
        self.scan_failed("sysfs");
        self.published(Operation::Update, "reactive", Duration::from_millis(4), Duration::from_millis(7));
        self.patch_size(0.25);
        self.publish_failed(Some(409), true);
        self.publish_failed(None, false);
    }

    fn delay(&self, operation: &str, trigger: &str, took: Duration) {
        let labels = self.with([("operation_name", operation), ("trigger", trigger)]);
        self.operation_delay.get_or_create(&labels).set(took.as_secs_f64() * 1e3);
    }

    fn with<const N: usize>(&self, labels: [(&'static str, &str); N]) -> Labels {
        let own = labels.into_iter().map(|(name, value)| (name, value.to_owned()));
        std::iter::once(("node", self.node.clone())).chain(own).collect()
    }
}

/// All families of the process, each with a sample, for the documentation and its tests.
///
/// # Errors
/// When no certificate can be made.
pub fn specimen() -> Result<Registry, runtime::tls::Error> {
    let mut registry = Registry::default();
    specimen::process(&mut registry);
    Metrics::register(&mut registry, "n1").sample();
    specimen::watches(&mut registry);
    specimen::certificate(&mut registry)?;
    Ok(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_label() {
        let mut registry = Registry::default();
        Metrics::register(&mut registry, "n1").sample();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"rte_podresource_api_call_failures_total{node="n1",function_name="list"} 1"#,
            r#"rte_noderesourcetopology_writes_total{node="n1",operation="update",trigger="reactive"} 1"#,
            r#"rte_operation_delay_milliseconds{node="n1",operation_name="podresources_scan",trigger="periodic"} 2.0"#,
            r#"rte_operation_delay_milliseconds{node="n1",operation_name="node_resource_object_update",trigger="reactive"} 4.0"#,
            r#"rte_wakeup_delay_milliseconds{node="n1",trigger="periodic"} 1500.0"#,
            r#"rte_noderesourcetopology_patch_failures_total{node="n1",trigger="send_patch"} 1"#,
            r#"rte_noderesourcetopology_patch_size_ratio_count{node="n1"} 1"#,
            "nfd_topology_updater_scan_errors_total 1",
            "tholepin_exporter_scan_seconds_count 1",
            "tholepin_exporter_publish_seconds_sum 0.007",
            r#"tholepin_exporter_scan_failures_total{node="n1",input="sysfs"} 1"#,
            r#"tholepin_exporter_publish_failures_total{node="n1",code="409"} 1"#,
            r#"tholepin_exporter_publish_failures_total{node="n1",code="0"} 1"#,
            "tholepin_exporter_remarks 3",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
