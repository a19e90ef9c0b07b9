//! Alerts about exporters.
//!
//! In: the job of their metrics. Out: alerts. Never: one about a kubelet or API server that is away for minutes only;
//! exporters try again by themselves.

use crate::manifests::monitoring::Alert;

/// The alerts, for targets of this job.
#[must_use]
pub fn alerts(job: &str) -> Vec<Alert> {
    // Failures without a success, because a node may have both while its kubelet restarts. Exporters try again within a
    // minute, so each window of a lasting failure has some.
    let lasting = |failures: &str, successes: &str, more: &str| {
        format!(
            "sum by (namespace, pod, node, {more}) (increase({failures}{{job=\"{job}\"}}[10m])) > 0 \
             unless on (namespace, pod) increase({successes}{{job=\"{job}\"}}[10m]) > 0"
        )
    };
    vec![
        Alert {
            name: "TholepinExportersAbsent",
            expr: format!("absent(up{{job=\"{job}\"}})"),
            lasting: "15m",
            summary: "There are no exporters.",
            description: "Prometheus has not found one for 15 minutes. Reports stay as they are, and the scheduler places pods by its own ledger.",
            causes: &[
                "the DaemonSet selects no node, or was removed while its PodMonitor stayed",
                "pods cannot be made: a quota, SecurityContextConstraints, the Pod Security level of the namespace",
                "Prometheus may not discover pods in the namespace",
            ],
            first: "tholepin status",
        },
        Alert {
            name: "TholepinExporterDown",
            expr: format!("up{{job=\"{job}\"}} == 0"),
            lasting: "15m",
            summary: "The exporter {{ $labels.pod }} does not answer.",
            description: "Its metrics could not be read for 15 minutes. Its node keeps the last report, and the scheduler places pods there by its own ledger.",
            causes: &[
                "the container ends again and again: its log names the file, flag or permission",
                "the node does not answer either",
                "a network policy of the cluster keeps Prometheus from the port of metrics",
            ],
            first: "tholepin status",
        },
        Alert {
            name: "TholepinExporterScansFail",
            expr: lasting(
                "tholepin_exporter_scan_failures_total",
                "tholepin_exporter_scan_seconds_count",
                "input",
            ),
            lasting: "15m",
            summary: "The exporter {{ $labels.pod }} cannot read {{ $labels.input }}.",
            description: "No scan of node {{ $labels.node }} has succeeded meanwhile, so its report is older than that. The scheduler counts the pods that it placed there, and does not see those of others.",
            causes: &[
                "podresources: the kubelet's socket is elsewhere, or its feature gate is off",
                "kubelet_config: the file is elsewhere, or the kubelet refuses `/configz`",
                "sysfs: the machine shows no NUMA zones in `/sys/devices/system/node`",
            ],
            first: "tholepin validate --only exporter-not-ready,report-stale",
        },
        Alert {
            name: "TholepinExporterWritesFail",
            expr: lasting(
                "tholepin_exporter_publish_failures_total",
                "tholepin_exporter_publish_seconds_count",
                "code",
            ),
            lasting: "15m",
            summary: "The exporter {{ $labels.pod }} cannot write its report (HTTP status {{ $labels.code }}).",
            description: "The report of node {{ $labels.node }} does not show what runs there now. The scheduler counts the pods that it placed there, and does not see those of others.",
            causes: &[
                "403: the role of the exporter's account was changed, or the admission policy refuses the node",
                "404: the definition of NodeResourceTopology is gone",
                "400 or 422: the definition is another program's and refuses a field",
                "0: no answer; a network policy or firewall keeps the node from the API server",
            ],
            first: "tholepin validate --only crd-missing,exporter-not-ready,report-stale",
        },
    ]
}
