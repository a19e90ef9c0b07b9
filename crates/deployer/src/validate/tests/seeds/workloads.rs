//! Exporters and schedulers.

use serde_json::json;

use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Info, Warning};
use crate::validate::tests::fixture::pod;

const SCHEDULER: &str = "Deployment tholepin/tholepin-scheduler";
const DEPLOYMENT: &str = "Deployment tholepin-scheduler";

pub(super) const EXPORTERS: &[Seed] = &[
    also(
        seed("exporter-absent", Error, "Node node-1", "no exporter runs on this node", |w| {
            w.remove("Pod exporter-node-1");
            w.sign("node-1");
        }),
        &[],
    ),
    also(
        seed("exporter-absent", Error, "Cluster", "no exporter is installed", |w| {
            let gone = ["DaemonSet ", "NodeResourceTopology ", "Pod exporter-"];
            w.objects.retain(|key, _| !gone.iter().any(|prefix| key.starts_with(prefix)));
        }),
        &["report-missing"],
    ),
    seed("exporter-absent", Info, "Cluster", "no exporter runs as a pod", |w| {
        w.objects.retain(|key, _| !key.starts_with("DaemonSet ") && !key.starts_with("Pod exporter-"));
        w.sign("node-0");
        w.sign("node-1");
    }),
    seed(
        "exporter-not-ready",
        Error,
        "DaemonSet tholepin/tholepin-exporter",
        "1 of 2 pods of the exporter are ready",
        |w| {
            w.get("DaemonSet tholepin-exporter")["status"]["numberReady"] = 1.into();
        },
    ),
    seed("exporter-not-ready", Warning, "DaemonSet tholepin/idle", "the exporter matches no node", |w| {
        let mut set = w.get("DaemonSet tholepin-exporter").clone();
        set["metadata"]["name"] = "idle".into();
        set["status"] = json!({ "desiredNumberScheduled": 0, "numberReady": 0 });
        w.add(set);
    }),
    seed(
        "exporter-twice",
        Error,
        "Node node-0",
        "more than one exporter runs here: DaemonSet rte/rte and DaemonSet tholepin/",
        |w| {
            let mut other = w.get("Pod exporter-node-0").clone();
            other["metadata"] = json!({ "namespace": "rte", "name": "rte-x", "uid": "rte-x", "ownerReferences":
                [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "rte", "uid": "rte", "controller": true }] });
            other["spec"]["containers"][0] =
                json!({ "name": "rte", "image": "quay.io/x/resource-topology-exporter:v0.25" });
            w.add(other);
            w.sign("node-0");
        },
    ),
];

pub(super) const SCHEDULERS: &[Seed] = &[
    seed("scheduler-absent", Warning, "Cluster", "no NUMA-aware scheduler is installed", |w| {
        w.remove(DEPLOYMENT)
    }),
    seed("scheduler-not-ready", Error, SCHEDULER, "none of the 1 pods of the scheduler is ready", |w| {
        w.get(DEPLOYMENT)["status"] = json!({});
    }),
    also(
        seed("scheduler-not-ready", Error, SCHEDULER, "the scheduler is scaled to 0", |w| {
            w.get(DEPLOYMENT)["spec"]["replicas"] = 0.into();
            w.get(DEPLOYMENT)["status"] = json!({});
        }),
        &[],
    ),
    seed("scheduler-not-ready", Warning, SCHEDULER, "1 of 3 pods of the scheduler are ready", |w| {
        w.get(DEPLOYMENT)["spec"]["replicas"] = 3.into();
    }),
    seed(
        "scheduler-leader",
        Error,
        SCHEDULER,
        "the lease tholepin/topo-aware-scheduler does not exist",
        |w| {
            w.remove("Lease topo-aware-scheduler");
        },
    ),
    seed("scheduler-leader", Error, SCHEDULER, "has not renewed it for more than 45 s", |w| {
        w.get("Lease topo-aware-scheduler")["spec"]["renewTime"] = "2026-03-01T11:59:00.000000Z".into();
    }),
    seed("scheduler-leader", Error, SCHEDULER, "has no holder", |w| {
        w.get("Lease topo-aware-scheduler")["spec"]["holderIdentity"] = "".into();
    }),
    seed(
        "scheduler-names-clash",
        Error,
        SCHEDULER,
        "the profile name \"topo-aware-scheduler\" is also that of Deployment tholepin/other",
        |w| {
            let mut other = w.get(DEPLOYMENT).clone();
            other["metadata"]["name"] = "other".into();
            w.add(other);
        },
    ),
    seed(
        "scheduler-name-unknown",
        Error,
        "Pod shop/lost",
        "no scheduler has the name \"topology-scheduler\"; the existing names are default-scheduler, topo-aware-scheduler",
        |w| {
            w.add(pod("shop", "lost", None, "topology-scheduler", "2", "Pending"));
        },
    ),
    seed(
        "schedulers-overlap",
        Warning,
        "Scheduler default-scheduler",
        "the scheduler placed 1 pod with exclusive resources on nodes that enforce alignment, such as shop/other on node-1",
        |w| {
            w.add(pod("shop", "other", Some("node-1"), "default-scheduler", "2", "Running"));
            w.sign("node-1");
        },
    ),
];
