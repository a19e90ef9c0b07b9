//! Objects, and answers of kubelets.
//!
//! In: the API. Out: files in the layout of `oc adm inspect`: `cluster-scoped-resources/GROUP/RESOURCE/NAME.yaml`,
//! `namespaces/NAMESPACE/GROUP/RESOURCE.yaml`; of unrelated pods only their requests. Never: a Secret.

use std::collections::{BTreeMap, BTreeSet};

use deployer::validate::collect::REJECTIONS;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use runtime::client::{self, brief, percent_encode};
use serde_json::Value;

use super::pods::tail;
use super::stack::{Part, Stack};
use super::{Gatherer, MAX_CONCURRENT, trim};

/// Largest answer of a kubelet about its configuration.
const MAX_CONFIGZ_BYTES: usize = 4 << 20;

/// Cluster-scoped kinds: group, versions of which the first one served is used, resource, kind.
const CLUSTER: [(&str, &[&str], &str, &str); 13] = [
    ("", &["v1"], "nodes", "Node"),
    ("topology.node.k8s.io", &["v1alpha2", "v1alpha1"], "noderesourcetopologies", "NodeResourceTopology"),
    ("nodetopology.openshift.io", &["v1", "v1alpha1"], "numaresourcesoperators", "NUMAResourcesOperator"),
    ("nodetopology.openshift.io", &["v1", "v1alpha1"], "numaresourcesschedulers", "NUMAResourcesScheduler"),
    ("config.openshift.io", &["v1"], "featuregates", "FeatureGate"),
    ("config.openshift.io", &["v1"], "clusterversions", "ClusterVersion"),
    ("config.openshift.io", &["v1"], "infrastructures", "Infrastructure"),
    ("machineconfiguration.openshift.io", &["v1"], "machineconfigs", "MachineConfig"),
    ("machineconfiguration.openshift.io", &["v1"], "machineconfigpools", "MachineConfigPool"),
    ("machineconfiguration.openshift.io", &["v1"], "kubeletconfigs", "KubeletConfig"),
    ("performance.openshift.io", &["v2"], "performanceprofiles", "PerformanceProfile"),
    ("scheduling.k8s.io", &["v1"], "priorityclasses", "PriorityClass"),
    ("node.k8s.io", &["v1"], "runtimeclasses", "RuntimeClass"),
];

/// CustomResourceDefinitions of the stack's kinds.
const DEFINITIONS: [&str; 3] = [
    "noderesourcetopologies.topology.node.k8s.io",
    "numaresourcesoperators.nodetopology.openshift.io",
    "numaresourcesschedulers.nodetopology.openshift.io",
];

/// Namespaced kinds: group, version, resource, kind.
const NAMESPACED: [(&str, &str, &str, &str); 14] = [
    ("", "v1", "pods", "Pod"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "events", "Event"),
    ("", "v1", "services", "Service"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("apps", "v1", "daemonsets", "DaemonSet"),
    ("apps", "v1", "deployments", "Deployment"),
    ("apps", "v1", "replicasets", "ReplicaSet"),
    ("batch", "v1", "jobs", "Job"),
    ("coordination.k8s.io", "v1", "leases", "Lease"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
];

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// Name of a group in file paths.
fn folder(group: &str) -> &str {
    if group.is_empty() { "core" } else { group }
}

fn name(item: &Value) -> &str {
    item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Fetches all pods of the cluster: complete, and trimmed for the case that they are unrelated.
pub(super) async fn pods(gatherer: &Gatherer) -> (Vec<Pod>, Vec<Value>) {
    let pods = match gatherer.list("/api/v1/pods", "", "Pod").await {
        Ok(pods) => pods.unwrap_or_default(),
        Err(error) => {
            gatherer.folder.report_missing(&format!("pods: {}", brief(&error)));
            return (Vec::new(), Vec::new());
        }
    };
    gatherer.folder.progress(&format!("pods: {}", pods.len()));
    let trimmed = pods.iter().map(trim::foreign_pod).collect();
    (pods.into_iter().filter_map(|pod| serde_json::from_value(pod).ok()).collect(), trimmed)
}

/// Writes the unrelated pods. Readers of the folder take the first file with a pod, so no pod is written twice.
pub(super) fn others(gatherer: &Gatherer, mut pods: Vec<Value>, namespaces: &[String]) {
    pods.retain(|pod| {
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        namespaces.iter().all(|collected| collected != namespace)
    });
    gatherer.folder.list("other-pods.yaml", "Pod", &pods);
}

/// Writes cluster-scoped objects.
pub(super) async fn cluster(gatherer: &Gatherer) {
    for (group, versions, resource, kind) in CLUSTER {
        for version in versions {
            let path = format!("{}/{resource}", root(group, version));
            match gatherer.list(&path, "", kind).await {
                // Another version may be served, or the kind does not exist.
                Ok(None) => {}
                Ok(Some(items)) => {
                    gatherer.folder.progress(&format!("{resource}: {}", items.len()));
                    write(gatherer, &format!("cluster-scoped-resources/{}/{resource}", folder(group)), items);
                    break;
                }
                Err(error) => {
                    gatherer.folder.report_missing(&format!("{resource}: {}", brief(&error)));
                    break;
                }
            }
        }
    }
    for definition in DEFINITIONS {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}");
        match gatherer.get(&path).await {
            Ok(item) => write(
                gatherer,
                "cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions",
                vec![item],
            ),
            Err(error) if client::is_not_found(&error) => {}
            Err(error) => gatherer.folder.report_missing(&format!("{definition}: {}", brief(&error))),
        }
    }
    hosted(gatherer).await;
}

/// Writes the ConfigMaps in which HyperShift keeps kubelet configurations.
async fn hosted(gatherer: &Gatherer) {
    const NAMESPACE: &str = "openshift-config-managed";
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let query = "&labelSelector=hypershift.openshift.io%2Fkubeletconfig-config";
    match gatherer.list(&path, query, "ConfigMap").await {
        Ok(Some(mut items)) if !items.is_empty() => {
            items.iter_mut().for_each(trim::object);
            gatherer.folder.list(
                &format!("namespaces/{NAMESPACE}/core/configmaps.yaml"),
                "ConfigMap",
                &items,
            );
        }
        Ok(_) => {}
        Err(error) => {
            gatherer.folder.report_missing(&format!("configmaps of {NAMESPACE}: {}", brief(&error)))
        }
    }
}

fn write(gatherer: &Gatherer, folder: &str, items: Vec<Value>) {
    for mut item in items {
        trim::object(&mut item);
        gatherer.folder.yaml(&format!("{folder}/{}.yaml", name(&item)), &item);
    }
}

/// Writes the objects of a namespace.
pub(super) async fn namespace(gatherer: &Gatherer, namespace: &str) {
    let at = format!("namespaces/{namespace}");
    match gatherer.get(&format!("/api/v1/namespaces/{}", percent_encode(namespace))).await {
        Ok(mut item) => {
            trim::object(&mut item);
            gatherer.folder.yaml(&format!("{at}/{namespace}.yaml"), &item);
        }
        Err(error) => {
            return gatherer.folder.report_missing(&format!("namespace {namespace}: {}", brief(&error)));
        }
    }
    for (group, version, resource, kind) in NAMESPACED {
        let path = format!("{}/namespaces/{}/{resource}", root(group, version), percent_encode(namespace));
        match gatherer.list(&path, "", kind).await {
            Ok(items) => {
                let mut items = items.unwrap_or_default();
                items.iter_mut().for_each(trim::object);
                gatherer.folder.list(&format!("{at}/{}/{resource}.yaml", folder(group)), kind, &items);
                if kind == "Pod" {
                    for item in &items {
                        let pod = name(item);
                        gatherer.folder.yaml(&format!("{at}/pods/{pod}/{pod}.yaml"), item);
                    }
                }
            }
            Err(error) => {
                gatherer.folder.report_missing(&format!("{resource} of {namespace}: {}", brief(&error)))
            }
        }
    }
    gatherer.folder.progress(&format!("namespace {namespace}: objects"));
}

async fn all_leases(gatherer: &Gatherer) -> Result<Vec<Value>, kube::Error> {
    // Without the unrelated leases of nodes.
    let query = "&fieldSelector=metadata.namespace!%3Dkube-node-lease";
    let all = gatherer.list("/apis/coordination.k8s.io/v1/leases", query, "Lease").await?;
    Ok(all.unwrap_or_default())
}

/// Writes the leases of all namespaces, since a scheduler's lease may be in any of them.
pub(super) async fn leases(gatherer: &Gatherer) {
    match all_leases(gatherer).await {
        Ok(mut items) => {
            items.iter_mut().for_each(trim::object);
            gatherer.folder.list("leases.yaml", "Lease", &items);
            gatherer.folder.progress(&format!("leases: {}", items.len()));
        }
        Err(error) => gatherer.folder.report_missing(&format!("leases: {}", brief(&error))),
    }
}

/// The names of pods that hold a lease.
pub(super) async fn holders(gatherer: &Gatherer) -> BTreeSet<String> {
    let leases = all_leases(gatherer).await.unwrap_or_default();
    let holder = |lease: &Value| {
        let identity = lease.pointer("/spec/holderIdentity").and_then(Value::as_str)?;
        Some(identity.rsplit_once('_').map_or(identity, |(name, _)| name).to_owned())
    };
    leases.iter().filter_map(holder).collect()
}

/// Writes the events about rejected pods of all namespaces.
pub(super) async fn events(gatherer: &Gatherer) {
    let mut all = Vec::new();
    for reason in REJECTIONS {
        let query = format!("&fieldSelector=reason%3D{reason}");
        match gatherer.list("/api/v1/events", &query, "Event").await {
            Ok(items) => all.extend(items.unwrap_or_default()),
            Err(error) => gatherer.folder.report_missing(&format!("events {reason}: {}", brief(&error))),
        }
    }
    all.iter_mut().for_each(trim::object);
    gatherer.folder.progress(&format!("rejections: {}", all.len()));
    gatherer.folder.list("events.yaml", "Event", &all);
}

async fn nodes(gatherer: &Gatherer) -> Vec<String> {
    let nodes = gatherer.list("/api/v1/nodes", "", "Node").await.unwrap_or_default().unwrap_or_default();
    nodes.iter().map(|node| name(node).to_owned()).collect()
}

/// Writes the configuration of each kubelet.
pub(super) async fn kubelets(gatherer: &Gatherer) {
    let ask = |node: String| async move {
        let path = format!("/api/v1/nodes/{}/proxy/configz", percent_encode(&node));
        let answer = client::get_text(&gatherer.client, &path, MAX_CONFIGZ_BYTES).await;
        match answer {
            Ok(text) => gatherer.folder.write(&format!("configz/{node}.json"), text.as_bytes()),
            Err(error) => {
                gatherer.folder.report_missing(&format!("kubelet configuration of {node}: {}", brief(&error)))
            }
        }
    };
    let nodes = nodes(gatherer).await;
    gatherer.folder.progress(&format!("kubelets: {}", nodes.len()));
    futures::stream::iter(nodes).map(ask).buffer_unordered(MAX_CONCURRENT).collect::<Vec<()>>().await;
}

/// Writes lines of the nodes' audit logs about SELinux and the podresources socket, where kubelets serve them
/// (OpenShift).
pub(super) async fn audit(gatherer: &Gatherer, stack: &Stack) {
    let path = "/apis/security.openshift.io/v1/securitycontextconstraints?limit=1";
    if gatherer.get(path).await.is_err() {
        return;
    }
    let nodes: BTreeSet<&str> = stack.of(Part::Exporter).map(|member| member.node.as_str()).collect();
    let files: BTreeMap<&str, [&str; 2]> = BTreeMap::from([
        ("audit_selinux.log", ["avc", "denied"]),
        ("audit_podresources.log", ["pod-resources", ""]),
    ]);
    let look = |node: String| {
        let files = &files;
        async move {
            let path = format!("/api/v1/nodes/{}/proxy/logs/audit/audit.log", percent_encode(&node));
            match tail(gatherer, &path, 256 << 20).await {
                Ok(text) => {
                    let text = String::from_utf8_lossy(&text);
                    for (file, words) in files {
                        let of = |line: &&str| words.iter().all(|word| line.contains(word));
                        let lines: String = text.lines().filter(of).flat_map(|line| [line, "\n"]).collect();
                        gatherer.folder.write(&format!("selinux_info/{node}/{file}"), lines.as_bytes());
                    }
                }
                Err(error) => {
                    gatherer.folder.report_missing(&format!("audit log of {node}: {}", brief(&error)))
                }
            }
        }
    };
    let nodes: Vec<String> = nodes.into_iter().filter(|node| !node.is_empty()).map(str::to_owned).collect();
    // Audit logs are large, so few at a time.
    futures::stream::iter(nodes).map(look).buffer_unordered(2).collect::<Vec<()>>().await;
}
