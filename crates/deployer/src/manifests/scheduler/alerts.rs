//! Alerts about the scheduler, and about pods that kubelets reject.
//!
//! In: the job of its metrics. Out: alerts. Never: one about a single pod, or a report that is late once.

use crate::manifests::monitoring::Alert;

/// The kubelet's count of pods that it rejected with TopologyAffinityError.
pub const REJECTIONS: &str = "kubelet_topology_manager_admission_errors_total";

/// The alerts, for targets of this job.
#[must_use]
pub fn alerts(job: &str) -> Vec<Alert> {
    [process(job), placement(job)].concat()
}

/// Whether it works at all.
fn process(job: &str) -> Vec<Alert> {
    vec![
        Alert {
            name: "TholepinSchedulerDown",
            expr: format!("absent(up{{job=\"{job}\"}} == 1)"),
            lasting: "10m",
            summary: "The NUMA-aware scheduler does not run.",
            description: "No metrics of it have been seen for 10 minutes. Pods with its name in schedulerName stay pending; pods that run are not touched.",
            causes: &[
                "the container ends again and again: its log names the field of the configuration, or the permission",
                "the pod is pending: no node with its labels, or a taint that it does not tolerate",
                "a network policy of the cluster keeps Prometheus from the port of metrics",
            ],
            first: "tholepin status",
        },
        Alert {
            name: "TholepinSchedulerWithoutLeader",
            expr: format!("max(leader_election_master_status{{job=\"{job}\"}}) == 0"),
            lasting: "10m",
            summary: "No replica of the NUMA-aware scheduler leads.",
            description: "Replicas run and wait for the lease, so no pod with its name in schedulerName is placed.",
            causes: &[
                "another process holds the lease: `kubectl get leases -A` names the holder",
                "the role for the lease was changed; the log has the answer of the API server",
            ],
            first: "tholepin status",
        },
        Alert {
            name: "TholepinSchedulerWatchesFail",
            expr: format!(
                "sum by (namespace, pod, resource) (increase(tholepin_watch_errors_total{{job=\"{job}\"}}[10m])) > 3"
            ),
            lasting: "30m",
            summary: "The scheduler {{ $labels.pod }} cannot watch {{ $labels.resource }}.",
            description: "It places pods by what it saw last, and does not notice changes of {{ $labels.resource }}.",
            causes: &[
                "the cluster role of its account was changed",
                "the definition of NodeResourceTopology is gone",
                "the API server is overloaded; its own metrics show that",
            ],
            first: "tholepin validate --only crd-missing,scheduler-not-ready",
        },
    ]
}

/// Whether it places pods where they fit.
fn placement(job: &str) -> Vec<Alert> {
    vec![
        Alert {
            name: "TholepinPodsRejected",
            expr: format!("sum by (instance) (increase({REJECTIONS}[1h])) >= 3"),
            lasting: "15m",
            summary: "The kubelet {{ $labels.instance }} rejects pods with TopologyAffinityError.",
            description: "At least three pods were lost in an hour: they were bound to a node where no zone has room for them, and their controllers make new ones again and again.",
            causes: &[
                "the pods do not name our scheduler in schedulerName, so they are placed without a look at zones",
                "two schedulers place pods with exclusive resources on the same nodes",
                "the node's report is old or wrong",
            ],
            first: "tholepin validate --only pod-rejected,report-stale",
        },
        Alert {
            name: "TholepinControllersBackOff",
            expr: format!("max(tholepin_scheduler_controllers_backing_off{{job=\"{job}\"}}) > 0"),
            lasting: "15m",
            summary: "Kubelets reject the pods of a controller again and again.",
            description: "The scheduler lets the next pods of such controllers wait, up to half an hour each, so few are lost and few are placed. Events of the waiting pods name the kubelet's reason.",
            causes: &[
                "SMTAlignmentError: an exporter that says nothing of full-pcpus-only, or pods whose CPUs are no whole cores",
                "UnexpectedAdmissionError: a device plugin of a node that fails to hand out its devices",
                "TopologyAffinityError: another scheduler on the same nodes, or a report that is wrong",
            ],
            first: "kubectl get pods -A --field-selector status.phase=Failed",
        },
        Alert {
            name: "TholepinPodsWaitLong",
            expr: format!(
                "max_over_time(scheduler_pending_pods{{job=\"{job}\",queue=\"unschedulable\"}}[5m]) > 0"
            ),
            lasting: "1h",
            summary: "For an hour there was always a pod that fits no node.",
            description: "The scheduler {{ $labels.pod }} had at least one pod without a place all the time. The conditions and events of pending pods say what each lacks.",
            causes: &[
                "a pod requests more than any zone of any node has, so it will never fit",
                "the zones are full: more nodes or fewer pods help, nothing else",
                "reports were deleted or cannot be read, or the profile has nodesWithoutTopology: Reject",
            ],
            first: "tholepin validate --only pod-never-fits",
        },
        Alert {
            name: "TholepinReportsUnexplained",
            expr: format!("tholepin_ledger_unexplained_reports{{job=\"{job}\"}} > 0"),
            lasting: "1h",
            summary: "Reports of nodes describe pods that the scheduler does not know, or show a pod in part.",
            description: "On these nodes it counts the smaller of what the report and its own ledger have free, so pods may wait although they would fit.",
            causes: &[
                "two exporters write the report of one node",
                "an exporter does not see new pods any more: its report stays the same while pods come and go",
                "pods outside of the cluster, or static pods whose mirror pod the API server refuses, hold exclusive resources of the node",
                "the exporter leaves pods out of the fingerprint (podExclude): after three minutes its amounts alone count",
                "a device failed together with the pod that had it: the next pod that comes or goes there settles it",
            ],
            first: "tholepin validate --only report-writers,report-stale,exporter-twice",
        },
        Alert {
            name: "TholepinLedgerOld",
            expr: format!("max(tholepin_ledger_age_seconds{{job=\"{job}\"}}) > 900"),
            lasting: "1m",
            summary: "No report has confirmed the scheduler's ledger of a node for a quarter of an hour.",
            description: "The newest report of some node is not understood, cannot be read, is gone, or does not show a pod that the kubelet has admitted since. Pods that need zones may wait although they would fit there.",
            causes: &[
                "the exporter of the node is down, or its object was deleted by hand",
                "an exporter without fingerprints, beside pods that another scheduler binds",
                "the exporter leaves out a pod that holds something in zones (podExcludes)",
                "two exporters write the report of one node",
                "a device failed together with the pod that had it: the next pod that comes or goes there settles it",
            ],
            first: "tholepin validate --only report-stale,report-writers,report-invalid",
        },
        Alert {
            name: "TholepinPredictionsWrong",
            expr: format!(
                "sum(increase(tholepin_ledger_predictions_total{{job=\"{job}\",result=\"wrong\"}}[1h])) > 0.05 * sum(increase(tholepin_ledger_predictions_total{{job=\"{job}\"}}[1h]))"
            ),
            lasting: "1h",
            summary: "More than one prediction in twenty about the zones of pods is wrong.",
            description: "Kubelets put pods into other zones than the scheduler's model of them. Events LedgerDrift of nodes name the pods. Where predictions are wrong, pods may be rejected.",
            causes: &[
                "another scheduler binds pods with exclusive resources to the same nodes at the same time",
                "a kubelet of a version or with a feature gate that the model does not know",
                "the report of a node names other options than its kubelet has",
            ],
            first: "kubectl get events -A --field-selector reason=LedgerDrift",
        },
        Alert {
            name: "TholepinCpusStranded",
            expr: format!("max(tholepin_zone_stranded_cpus{{job=\"{job}\"}}) > 0"),
            lasting: "6h",
            summary: "Pods wait while CPUs are free that no zone alone has enough of.",
            description: "For six hours the smallest waiting pod has fitted the free CPUs of some node, but not those of one zone. Its events say what it lacks; tholepin explain says what would help.",
            causes: &[
                "small pods are spread over all zones: a scoring strategy that fills zones leaves whole ones free",
                "the pod needs more CPUs than one zone has after others took theirs; fewer CPUs, or the scope container, may fit",
                "pods of long life hold a part of every zone",
            ],
            first: "tholepin explain pod NAMESPACE/NAME",
        },
        Alert {
            name: "TholepinLedgerContradicted",
            // Each replica counts all of them.
            expr: format!(
                "max(sum by (namespace, pod) (increase(tholepin_ledger_corrections_total{{job=\"{job}\"}}[1h]))) > 10"
            ),
            lasting: "1h",
            summary: "Reports contradict the scheduler's ledger again and again.",
            description: "The ledger takes over what reports say, so each contradiction ends by itself; that they do not stop means that kubelets decide differently from the model.",
            causes: &[
                "another scheduler binds pods with exclusive resources to the same nodes",
                "options of the topology manager or of the CPU manager were changed on nodes whose report says otherwise",
                "a kubelet of a version that is newer than this scheduler",
            ],
            first: "tholepin validate",
        },
        Alert {
            name: "TholepinReportsUnusable",
            expr: format!(
                "sum(increase(tholepin_scheduler_unusable_reports_total{{job=\"{job}\"}}[30m])) > 0"
            ),
            lasting: "1h",
            summary: "Reports of nodes cannot be used by the scheduler.",
            description: "An exporter keeps writing reports with values that are not allowed. Pods that need zones do not go to that node; the scheduler's log names node and field.",
            causes: &[
                "an exporter of another project or version writes a field in another form",
                "a person or program changes the objects by hand",
            ],
            first: "tholepin validate --only report-invalid",
        },
    ]
}
