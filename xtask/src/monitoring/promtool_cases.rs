//! For each alert series in which it fires, and series like them in which it does not.

/// A series with its values, one a minute, as promtool writes them: `0+1x60` rises by one, `1x60` stays.
pub(super) type Series = (&'static str, &'static str);

/// An alert with its tests.
pub(super) struct Case {
    pub(super) alert: &'static str,
    /// When both are looked at.
    pub(super) at: &'static str,
    /// It fires.
    pub(super) fires: &'static [Series],
    /// The labels with which it does, without the severity.
    pub(super) labels: &'static [(&'static str, &'static str)],
    /// It does not: the trouble is over soon, or is none.
    pub(super) quiet: &'static [Series],
}

const fn case(
    (alert, at): (&'static str, &'static str),
    fires: &'static [Series],
    labels: &'static [(&'static str, &'static str)],
    quiet: &'static [Series],
) -> Case {
    Case { alert, at, fires, labels, quiet }
}

macro_rules! exporter {
    ($name:literal $labels:literal) => {
        concat!($name, "{job=\"tholepin/tholepin-exporter\",namespace=\"tholepin\",pod=\"e\"", $labels, "}")
    };
}
macro_rules! scheduler {
    ($name:literal $labels:literal) => {
        concat!(
            $name,
            "{job=\"tholepin-scheduler/tholepin-scheduler\",namespace=\"tholepin-scheduler\",pod=\"s\"",
            $labels,
            "}"
        )
    };
}
const EXPORTER: (&str, &str) = ("job", "tholepin/tholepin-exporter");
const SCHEDULER: (&str, &str) = ("job", "tholepin-scheduler/tholepin-scheduler");
const OPERATOR_UP: &str = "up{job=\"numaresources-controller-manager-metrics-service\"}";
const HARDWARE_UP: &str = "up{job=\"tholepin-hardware-metrics\"}";
const DEGRADED: &str =
    "tholepin_operator_condition{condition=\"Degraded\",controller=\"numaresourcesoperator\"}";
const PROGRESSING: &str =
    "tholepin_operator_condition{condition=\"Progressing\",controller=\"numaresourcesoperator\"}";
const REJECTED: &str =
    "kubelet_topology_manager_admission_errors_total{instance=\"n:10250\",job=\"kubelet\"}";
const UNREADABLE: &str = "tholepin_operator_unreadable_objects{kind=\"NUMAResourcesOperator\"}";

/// All of them.
pub(super) const CASES: [Case; 23] = [
    case(
        ("TholepinExportersAbsent", "20m"),
        &[(scheduler!("up" ""), "1x20")],
        &[EXPORTER],
        &[(exporter!("up" ""), "0x20")],
    ),
    case(
        ("TholepinExporterDown", "20m"),
        &[(exporter!("up" ""), "0x20")],
        &[EXPORTER, ("namespace", "tholepin"), ("pod", "e")],
        &[(exporter!("up" ""), "0x13 1x10")],
    ),
    case(
        ("TholepinExporterScansFail", "40m"),
        &[
            (
                exporter!("tholepin_exporter_scan_failures_total" ",node=\"n\",input=\"podresources\""),
                "0+1x40",
            ),
            (exporter!("tholepin_exporter_scan_seconds_count" ""), "5x40"),
        ],
        &[("input", "podresources"), ("namespace", "tholepin"), ("node", "n"), ("pod", "e")],
        &[
            (
                exporter!("tholepin_exporter_scan_failures_total" ",node=\"n\",input=\"podresources\""),
                "0+1x40",
            ),
            (exporter!("tholepin_exporter_scan_seconds_count" ""), "0+1x40"),
        ],
    ),
    case(
        ("TholepinExporterWritesFail", "40m"),
        &[
            (exporter!("tholepin_exporter_publish_failures_total" ",node=\"n\",code=\"403\""), "0+1x40"),
            (exporter!("tholepin_exporter_publish_seconds_count" ""), "0x40"),
        ],
        &[("code", "403"), ("namespace", "tholepin"), ("node", "n"), ("pod", "e")],
        // An API server that was away for some minutes.
        &[
            (exporter!("tholepin_exporter_publish_failures_total" ",node=\"n\",code=\"0\""), "0+1x5 5x40"),
            (exporter!("tholepin_exporter_publish_seconds_count" ""), "0x10 1x40"),
        ],
    ),
    case(
        ("TholepinSchedulerDown", "20m"),
        &[(scheduler!("up" ""), "0x20")],
        &[],
        &[(scheduler!("up" ""), "0x5 1x20")],
    ),
    case(
        ("TholepinSchedulerWithoutLeader", "20m"),
        &[(scheduler!("leader_election_master_status" ",name=\"l\""), "0x20")],
        &[],
        &[
            (scheduler!("leader_election_master_status" ",name=\"l\""), "0x20"),
            (scheduler!("leader_election_master_status" ",name=\"l\",instance=\"other\""), "1x20"),
        ],
    ),
    case(
        ("TholepinSchedulerWatchesFail", "1h"),
        &[(scheduler!("tholepin_watch_errors_total" ",resource=\"nodes\""), "0+1x60")],
        &[("namespace", "tholepin-scheduler"), ("pod", "s"), ("resource", "nodes")],
        // Broken once, with some attempts.
        &[(scheduler!("tholepin_watch_errors_total" ",resource=\"nodes\""), "0x30 6x30")],
    ),
    case(
        ("TholepinPodsRejected", "60m"),
        &[(REJECTED, "0x20 3x60")],
        &[("instance", "n:10250")],
        &[(REJECTED, "0x20 2x60")],
    ),
    case(
        ("TholepinControllersBackOff", "40m"),
        &[(scheduler!("tholepin_scheduler_controllers_backing_off" ""), "0x10 1x30")],
        &[],
        &[(scheduler!("tholepin_scheduler_controllers_backing_off" ""), "0x10 1x10 0 1x10 0x10")],
    ),
    case(
        ("TholepinPodsWaitLong", "90m"),
        &[(scheduler!("scheduler_pending_pods" ",queue=\"unschedulable\""), "0 1x20 0 1x70")],
        &[SCHEDULER, ("namespace", "tholepin-scheduler"), ("pod", "s"), ("queue", "unschedulable")],
        &[(scheduler!("scheduler_pending_pods" ",queue=\"unschedulable\""), "1x40 0x10 1x40")],
    ),
    case(
        ("TholepinReportsUnexplained", "90m"),
        &[(scheduler!("tholepin_ledger_unexplained_reports" ""), "2x90")],
        &[SCHEDULER, ("namespace", "tholepin-scheduler"), ("pod", "s")],
        &[(scheduler!("tholepin_ledger_unexplained_reports" ""), "1x20 0 1x20 0 1x20 0 1x30")],
    ),
    case(
        ("TholepinLedgerOld", "60m"),
        &[(scheduler!("tholepin_ledger_age_seconds" ""), "0+60x60")],
        &[],
        // Several nodes, one after the other, each for less than a quarter of an hour.
        &[(scheduler!("tholepin_ledger_age_seconds" ""), "0+60x14 0+60x14 0+60x14 0+60x14")],
    ),
    case(
        ("TholepinPredictionsWrong", "150m"),
        &[
            (scheduler!("tholepin_ledger_predictions_total" ",result=\"right\""), "0+2x150"),
            (scheduler!("tholepin_ledger_predictions_total" ",result=\"wrong\""), "0+1x150"),
        ],
        &[],
        &[
            (scheduler!("tholepin_ledger_predictions_total" ",result=\"right\""), "0+40x150"),
            (scheduler!("tholepin_ledger_predictions_total" ",result=\"wrong\""), "0+1x150"),
        ],
    ),
    case(
        ("TholepinCpusStranded", "420m"),
        &[(scheduler!("tholepin_zone_stranded_cpus" ""), "4x420")],
        &[],
        &[(scheduler!("tholepin_zone_stranded_cpus" ""), "4x200 0 4x219")],
    ),
    case(
        ("TholepinLedgerContradicted", "150m"),
        &[(scheduler!("tholepin_ledger_corrections_total" ""), "0+1x150")],
        &[],
        &[(scheduler!("tholepin_ledger_corrections_total" ""), "0x60 9x90")],
    ),
    case(
        ("TholepinReportsUnusable", "90m"),
        &[(scheduler!("tholepin_scheduler_unusable_reports_total" ""), "0+1x90")],
        &[],
        &[(scheduler!("tholepin_scheduler_unusable_reports_total" ""), "0x50 1x40")],
    ),
    case(("NUMAResourcesOperatorDown", "20m"), &[(OPERATOR_UP, "0x20")], &[], &[(OPERATOR_UP, "1x20")]),
    case(
        ("NUMAResourcesDegraded", "20m"),
        &[(DEGRADED, "1x20")],
        &[("condition", "Degraded"), ("controller", "numaresourcesoperator")],
        &[(DEGRADED, "1x10 0 1x10"), (PROGRESSING, "1x20")],
    ),
    case(
        ("NUMAResourcesProgressingLong", "70m"),
        &[(PROGRESSING, "1x70")],
        &[("condition", "Progressing"), ("controller", "numaresourcesoperator")],
        &[(PROGRESSING, "1x30 0x10 1x30"), (DEGRADED, "1x70")],
    ),
    case(
        ("NUMAResourcesObjectUnreadable", "10m"),
        &[(UNREADABLE, "1x10")],
        &[("kind", "NUMAResourcesOperator")],
        &[(UNREADABLE, "0x6 1x4")],
    ),
    case(("HardwareControllerDown", "20m"), &[(HARDWARE_UP, "0x20")], &[], &[(HARDWARE_UP, "1x20")]),
    case(
        ("DeviceConfigFailed", "20m"),
        &[("tholepin_deviceconfig_failed{namespace=\"a\",name=\"b\"}", "1x20")],
        &[("name", "b"), ("namespace", "a")],
        &[("tholepin_deviceconfig_failed{namespace=\"a\",name=\"b\"}", "1x10 0 1x10")],
    ),
    case(
        ("DeviceConfigNotReady", "70m"),
        &[("tholepin_deviceconfig_ready{namespace=\"a\",name=\"b\"}", "0x70")],
        &[("name", "b"), ("namespace", "a")],
        &[("tholepin_deviceconfig_ready{namespace=\"a\",name=\"b\"}", "0x50 1x20")],
    ),
];
