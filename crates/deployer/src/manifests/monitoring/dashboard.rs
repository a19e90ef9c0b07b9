//! The dashboard for Grafana.
//!
//! In: nothing. Out: rows of panels with their queries, and the JSON that Grafana imports. Never: the name of a job or
//! namespace; metrics have names of their own, so one dashboard shows every installation.

use serde_json::{Value, json};

/// Panels in a row of the grid, and the columns and lines of each.
const PANELS: usize = 3;
const WIDTH: usize = 24 / PANELS;
const HEIGHT: usize = 8;

/// A row with its panels.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The title.
    pub title: &'static str,
    /// The panels.
    pub panels: &'static [Panel],
}

/// A graph of one or more queries.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The title.
    pub title: &'static str,
    /// The unit of the values, as Grafana names it.
    pub unit: &'static str,
    /// Expressions in PromQL, each with the text of its legend.
    pub queries: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, unit, queries }
}

/// The rows, from the outcome to the parts.
pub const ROWS: [Row; 5] = [
    Row {
        title: "Cluster",
        panels: &[
            panel(
                "Pods rejected with TopologyAffinityError, in an hour",
                "short",
                &[(
                    "sum by (instance) (increase(kubelet_topology_manager_admission_errors_total[1h]))",
                    "{{instance}}",
                )],
            ),
            panel("Exporters that answer", "short", &[("count(tholepin_exporter_remarks)", "exporters")]),
            panel(
                "Age of the last change of reports",
                "s",
                &[("time() - tholepin_exporter_last_write_timestamp_seconds", "{{node}}")],
            ),
        ],
    },
    Row {
        title: "Exporters",
        panels: &[
            panel(
                "Duration of scans, 99 of 100",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le) (rate(tholepin_exporter_scan_seconds_bucket[5m])))",
                    "scan",
                )],
            ),
            panel(
                "Time from a change to the stored report",
                "s",
                &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(tholepin_exporter_publish_seconds_bucket[5m])))",
                        "half",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(tholepin_exporter_publish_seconds_bucket[5m])))",
                        "99 of 100",
                    ),
                ],
            ),
            panel(
                "Reports written",
                "ops",
                &[("sum by (trigger) (rate(rte_noderesourcetopology_writes_total[5m]))", "{{trigger}}")],
            ),
            panel(
                "Failures",
                "ops",
                &[
                    ("sum by (input) (rate(tholepin_exporter_scan_failures_total[5m]))", "scan: {{input}}"),
                    ("sum by (code) (rate(tholepin_exporter_publish_failures_total[5m]))", "write: {{code}}"),
                ],
            ),
            panel(
                "Contradictions between kubelet and kernel",
                "short",
                &[("sum by (instance) (tholepin_exporter_remarks) > 0", "{{instance}}")],
            ),
            panel(
                "Memory",
                "bytes",
                &[(
                    "max(process_resident_memory_bytes and on (job, instance) tholepin_exporter_remarks)",
                    "largest",
                )],
            ),
        ],
    },
    Row {
        title: "Scheduler",
        panels: &[
            panel(
                "Attempts",
                "ops",
                &[("sum by (result) (rate(scheduler_schedule_attempts_total[5m]))", "{{result}}")],
            ),
            panel(
                "Duration of attempts, 99 of 100",
                "s",
                &[(
                    "histogram_quantile(0.99, sum by (le, result) \
                     (rate(scheduler_scheduling_attempt_duration_seconds_bucket[5m])))",
                    "{{result}}",
                )],
            ),
            panel("Pending pods", "short", &[("max by (queue) (scheduler_pending_pods)", "{{queue}}")]),
            panel(
                "Refusals",
                "ops",
                &[("sum by (plugin) (rate(tholepin_scheduler_rejections_total[5m]))", "{{plugin}}")],
            ),
            panel(
                "Ledger",
                "short",
                &[
                    ("max(tholepin_ledger_worlds)", "possible worlds"),
                    ("max(tholepin_ledger_unexplained_reports)", "unexplained reports"),
                    ("max(tholepin_ledger_pods_in_doubt)", "pods in doubt"),
                    ("max(tholepin_scheduler_held_nodes)", "held nodes"),
                ],
            ),
            panel(
                "Reports against the ledger, in an hour",
                "short",
                &[
                    ("sum(increase(tholepin_ledger_corrections_total[1h]))", "contradictions"),
                    (
                        "sum(increase(tholepin_ledger_predictions_total{result=\"right\"}[1h]))",
                        "right predictions",
                    ),
                    (
                        "sum(increase(tholepin_ledger_predictions_total{result=\"wrong\"}[1h]))",
                        "wrong predictions",
                    ),
                    ("sum(increase(tholepin_scheduler_unusable_reports_total[1h]))", "unusable"),
                ],
            ),
            panel(
                "Time since a report confirmed the ledger, of the oldest node",
                "s",
                &[("max(tholepin_ledger_age_seconds)", "age")],
            ),
        ],
    },
    Row {
        title: "Zones",
        panels: &[
            panel(
                "Free CPUs",
                "short",
                &[
                    ("max(tholepin_zone_free{resource=\"cpu\"})", "in all zones"),
                    ("max(tholepin_zone_stranded_cpus)", "stranded"),
                ],
            ),
            panel(
                "Largest container that fits one zone, CPUs",
                "short",
                &[("max(tholepin_zone_largest_free{resource=\"cpu\"})", "CPUs")],
            ),
            panel(
                "Largest shape by devices: CPUs beside them in their zone",
                "short",
                &[(
                    "max by (most_of) (tholepin_zone_largest_shape{resource=\"cpu\", most_of!=\"cpu\"})",
                    "beside most {{most_of}}",
                )],
            ),
            panel(
                "Free devices",
                "short",
                &[(
                    "max by (resource) (tholepin_zone_free{resource!~\"cpu|memory|hugepages-.*\"})",
                    "{{resource}}",
                )],
            ),
            panel(
                "Pods rejected by kubelets, in an hour",
                "short",
                &[(
                    // A series begins with its first rejection, which `increase` does not see.
                    "sum by (owner, placed_by) ((tholepin_scheduler_kubelet_rejections_total unless tholepin_scheduler_kubelet_rejections_total offset 1h) or increase(tholepin_scheduler_kubelet_rejections_total[1h])) > 0",
                    "{{owner}}, placed by {{placed_by}}",
                )],
            ),
        ],
    },
    Row {
        title: "Operator",
        panels: &[
            panel(
                "Conditions that are true",
                "short",
                &[(
                    "max by (controller, condition) (tholepin_operator_condition) == 1",
                    "{{controller}} {{condition}}",
                )],
            ),
            panel(
                "Reconciles and errors",
                "ops",
                &[
                    ("sum by (controller) (rate(tholepin_operator_reconciles_total[5m]))", "{{controller}}"),
                    (
                        "sum by (controller) (rate(tholepin_operator_errors_total[5m]))",
                        "{{controller}}: errors",
                    ),
                ],
            ),
            panel(
                "DeviceConfigs",
                "short",
                &[
                    (
                        "max by (namespace, name) (tholepin_deviceconfig_ready)",
                        "{{namespace}}/{{name}} ready",
                    ),
                    (
                        "max by (namespace, name) (tholepin_deviceconfig_failed)",
                        "{{namespace}}/{{name}} failed",
                    ),
                ],
            ),
        ],
    },
];

/// The dashboard, with a final line end.
#[must_use]
pub fn text() -> String {
    let mut panels = Vec::new();
    let mut line = 0;
    for row in ROWS {
        panels.push(json!({
            "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": line, "w": 24, "h": 1 },
        }));
        line += 1;
        for (place, panel) in row.panels.iter().enumerate() {
            let (x, y) = (place % PANELS * WIDTH, line + place / PANELS * HEIGHT);
            panels.push(graph(panel, x, y));
        }
        line += row.panels.len().div_ceil(PANELS) * HEIGHT;
    }
    for (number, panel) in panels.iter_mut().enumerate() {
        panel["id"] = (number + 1).into();
    }
    let source = json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
    });
    let dashboard = json!({
        "uid": "tholepin", "title": "tholepin", "tags": ["numa", "scheduling"], "schemaVersion": 39,
        "time": { "from": "now-6h", "to": "now" }, "refresh": "1m", "editable": true,
        "templating": { "list": [source] }, "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn graph(panel: &Panel, x: usize, y: usize) -> Value {
    let reference = |number: usize| char::from_u32('A' as u32 + u32::try_from(number).unwrap_or(0));
    let targets = panel.queries.iter().enumerate().map(|(number, (expr, legend))| {
        json!({ "expr": expr, "legendFormat": legend, "refId": reference(number).unwrap_or('A').to_string() })
    });
    json!({
        "type": "timeseries", "title": panel.title,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "fieldConfig": { "defaults": { "unit": panel.unit, "min": 0 }, "overrides": [] },
        "gridPos": { "x": x, "y": y, "w": WIDTH, "h": HEIGHT },
        "targets": targets.collect::<Vec<_>>(),
    })
}
