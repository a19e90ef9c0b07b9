//! NodeResourceTopology objects and their definition.

use serde_json::json;

use super::{Seed, also, seed};
use crate::validate::finding::Severity::{Error, Warning};
use crate::validate::tests::fixture::{ClusterFixture, pod};

const NRT: &str = "NodeResourceTopology node-0";
const CRD: &str = "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io";

fn version_of(w: &mut ClusterFixture, name: &str) -> usize {
    let crd = w.get(CRD);
    crd["spec"]["versions"].as_array().unwrap().iter().position(|v| v["name"] == name).unwrap()
}

pub(super) const REPORTS: &[Seed] = &[
    also(
        seed(
            "crd-missing",
            Error,
            "Cluster",
            "noderesourcetopologies.topology.node.k8s.io is not installed",
            |w| {
                w.objects.retain(|key, _| !key.starts_with("NodeResourceTopology ") && key != CRD);
            },
        ),
        // What publishes has nowhere to publish to; an exporter is there all the same.
        &[],
    ),
    seed("crd-versions", Error, CRD, "version v1alpha2 is not served", |w| {
        let at = version_of(w, "v1alpha2");
        w.get(CRD)["spec"]["versions"][at]["served"] = false.into();
    }),
    seed("crd-versions", Warning, CRD, "version v1alpha1 is not served", |w| {
        let at = version_of(w, "v1alpha1");
        w.get(CRD)["spec"]["versions"][at]["served"] = false.into();
    }),
    seed("crd-versions", Warning, CRD, "objects are stored as v1alpha1", |w| {
        let (old, new) = (version_of(w, "v1alpha1"), version_of(w, "v1alpha2"));
        w.get(CRD)["spec"]["versions"][old]["storage"] = true.into();
        w.get(CRD)["spec"]["versions"][new]["storage"] = false.into();
    }),
    seed("crd-versions", Error, CRD, "the API server has not established the definition", |w| {
        w.get(CRD)["status"]["conditions"][0]["status"] = "False".into();
    }),
    seed("report-missing", Error, "Node node-1", "the node has no NodeResourceTopology object", |w| {
        w.remove("NodeResourceTopology node-1");
    }),
    seed("report-orphan", Warning, "NodeResourceTopology node-7", "no node has this name", |w| {
        let mut report = w.get(NRT).clone();
        report["metadata"]["name"] = "node-7".into();
        w.add(report);
    }),
    seed(
        "report-invalid",
        Error,
        NRT,
        "schedulers cannot read the object: zones[1].name: \"node-0\" is listed twice",
        |w| {
            w.get(NRT)["zones"][1]["name"] = "node-0".into();
        },
    ),
    also(
        seed("report-invalid", Warning, NRT, "zones[1].name", |w| {
            w.get(NRT)["zones"][1]["name"] = "second".into();
        }),
        &["report-totals"],
    ),
    seed("report-invalid", Error, NRT, "the object has no zone", |w| w.get(NRT)["zones"] = json!([])),
];

pub(super) const MORE_REPORTS: &[Seed] = &[
    seed(
        "report-policy",
        Error,
        NRT,
        "the object states topologyManagerPolicy restricted, but the kubelet has single-numa-node",
        |w| {
            w.attribute("node-0", "topologyManagerPolicy", "restricted");
        },
    ),
    seed(
        "report-policy",
        Error,
        NRT,
        "the object states topologyManagerScope pod, but the kubelet has container",
        |w| {
            w.attribute("node-0", "topologyManagerScope", "pod");
        },
    ),
    seed(
        "report-policy",
        Error,
        NRT,
        "the object states cpuManagerPolicy none, but the kubelet has static",
        |w| {
            w.attribute("node-0", "cpuManagerPolicy", "none");
        },
    ),
    seed("report-policy", Error, NRT, "the object states no kubelet policy", |w| {
        let attributes = w.get(NRT)["attributes"].as_array_mut().unwrap();
        attributes.retain(|attribute| attribute["name"] != "topologyManagerPolicy");
    }),
    seed("report-totals", Warning, NRT, "cpu: the zones have 23 for pods, the node has 30 of 32", |w| {
        w.get(NRT)["zones"][1]["resources"][0]["allocatable"] = "9".into();
        w.get(NRT)["zones"][1]["resources"][0]["available"] = "9".into();
    }),
    seed("report-totals", Warning, NRT, "memory: the zones have", |w| {
        w.get(NRT)["zones"][1]["resources"][1]["allocatable"] = "163Gi".into();
    }),
    seed(
        "report-totals",
        Warning,
        NRT,
        "example.com/fpga: the zones have 2, but the node does not list it",
        |w| {
            w.get(NRT)["zones"][1]["resources"][3]["name"] = "example.com/fpga".into();
        },
    ),
    seed(
        "report-writers",
        Error,
        NRT,
        "the object has more than one writer: nfd-topology-updater and tholepin-exporter",
        |w| {
            let entry = json!({ "manager": "nfd-topology-updater", "fieldsV1": { "f:zones": {} } });
            w.get(NRT)["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
        },
    ),
    seed(
        "report-owner",
        Warning,
        NRT,
        "the owner is Node node-0 with UID old, but the node has UID uid-node-0",
        |w| {
            w.get(NRT)["metadata"]["ownerReferences"][0]["uid"] = "old".into();
        },
    ),
    seed("report-fingerprint", Warning, NRT, "the object has no pod fingerprint", |w| {
        let attributes = w.get(NRT)["attributes"].as_array_mut().unwrap();
        attributes.retain(|attribute| attribute["name"] != "nodeTopologyPodsFingerprint");
    }),
    seed("report-stale", Warning, NRT, "the fingerprint does not match the 3 pods on the node", |w| {
        w.add(pod("shop", "web", Some("node-0"), "topo-aware-scheduler", "2", "Running"));
    }),
];
