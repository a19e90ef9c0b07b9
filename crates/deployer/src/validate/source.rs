//! Evidence from an API server.
//!
//! In: a connection, the areas that checks need. Out: [`Evidence`], with a gap for each area without evidence. Never: a
//! write (access reviews store nothing), an unbounded number of concurrent requests, a list without pages.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use api::nrt;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client, Resource as _};
use objects::ObjectKind;
use runtime::client::{self, Connection, pages, percent_encode};
use serde_json::{Value, json};

use super::collect::{Collector, REJECTIONS};
use super::evidence::{Area, Evidence};

/// The time limit of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Concurrent requests to kubelets.
const AT_ONCE: usize = 16;
/// The greatest size of a kubelet's answer.
const MAX_CONFIGZ_BYTES: usize = 1 << 20;

/// Group, version, kind and plural of a list to read.
type ListKind = [&'static str; 4];

/// The lists to read, with their areas. Custom resources are read if they exist.
const LISTS: [(Area, ListKind); 9] = [
    (Area::Nodes, ["", "v1", "Node", "nodes"]),
    (Area::Pods, ["", "v1", "Pod", "pods"]),
    (Area::Workloads, ["apps", "v1", "DaemonSet", "daemonsets"]),
    (Area::Workloads, ["apps", "v1", "Deployment", "deployments"]),
    (Area::Leases, ["coordination.k8s.io", "v1", "Lease", "leases"]),
    (Area::Reports, [nrt::GROUP, nrt::VERSION, nrt::KIND, nrt::PLURAL]),
    (Area::Reports, [nrt::GROUP, nrt::v1alpha1::VERSION, nrt::KIND, nrt::PLURAL]),
    (Area::KubeletConfig, [MACHINE_CONFIG, "v1", "KubeletConfig", "kubeletconfigs"]),
    (Area::KubeletConfig, [MACHINE_CONFIG, "v1", "MachineConfigPool", "machineconfigpools"]),
];
const EVENTS: ListKind = ["", "v1", "Event", "events"];
/// The query of leases: those of nodes are not needed.
const LEASES: &str = "fieldSelector=metadata.namespace!%3Dkube-node-lease";
const MACHINE_CONFIG: &str = "machineconfiguration.openshift.io";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/noderesourcetopologies.topology.node.k8s.io";

/// The needed permissions: area, verb, group, resource.
pub const RIGHTS: [(Area, &str, &str, &str); 9] = [
    (Area::Nodes, "list", "", "nodes"),
    (Area::KubeletConfig, "get", "", "nodes/proxy"),
    (Area::Definition, "get", "apiextensions.k8s.io", "customresourcedefinitions"),
    (Area::Reports, "list", nrt::GROUP, nrt::PLURAL),
    (Area::Pods, "list", "", "pods"),
    (Area::Workloads, "list", "apps", "daemonsets"),
    (Area::Workloads, "list", "apps", "deployments"),
    (Area::Leases, "list", "coordination.k8s.io", "leases"),
    (Area::Events, "list", "", "events"),
];

/// The rules of a ClusterRole that permits all checks.
#[must_use]
pub fn rules() -> Vec<PolicyRule> {
    let more = [
        // Configurations of schedulers.
        ("get", "", "configmaps"),
        // The platform, and OpenShift's kubelet configurations.
        ("list", "config.openshift.io", "clusterversions"),
        ("get", "config.openshift.io", "infrastructures"),
        ("list", MACHINE_CONFIG, "kubeletconfigs"),
        ("list", MACHINE_CONFIG, "machineconfigpools"),
    ];
    let rights = RIGHTS.into_iter().map(|(_, verb, group, resource)| (verb, group, resource)).chain(more);
    rights.map(|(verb, group, resource)| api::rbac::rule(group, &[resource], &[verb])).collect()
}

/// Gathers evidence for these areas.
///
/// # Errors
/// When there is no client or the API server does not answer. Later failures become gaps.
pub async fn gather(connection: &Connection, areas: &BTreeSet<Area>) -> anyhow::Result<Evidence> {
    gather_into(Collector::default(), connection, areas).await
}

/// The same, with what a scheduler makes of nodes, reports and pods.
///
/// # Errors
/// Those of [`gather`].
pub async fn gather_with_cluster(
    connection: &Connection,
    areas: &BTreeSet<Area>,
) -> anyhow::Result<Evidence> {
    gather_into(Collector::with_cluster(), connection, areas).await
}

async fn gather_into(
    mut collector: Collector,
    connection: &Connection,
    areas: &BTreeSet<Area>,
) -> anyhow::Result<Evidence> {
    let client = connection.client_with_timeout(PATIENCE)?;
    match get(&client, "/version").await {
        Ok(version) => match version.get("gitVersion").and_then(Value::as_str) {
            Some(text) => collector.server_version(text),
            None => collector.gap(Area::Version, "the answer of /version has no gitVersion"),
        },
        // All authenticated users may read the version by default.
        Err(error) if client::is_forbidden(&error) => collector.gap(Area::Version, client::brief(&error)),
        Err(error) => bail!("the API server cannot be reached: {}", client::brief(&error)),
    }
    rights(&client, areas, &mut collector).await;
    for (area, kind) in LISTS.into_iter().filter(|(area, _)| areas.contains(area)) {
        let query = if area == Area::Leases { LEASES } else { "" };
        read(&client, area, kind, query, &mut collector).await;
    }
    for reason in REJECTIONS.into_iter().filter(|_| areas.contains(&Area::Events)) {
        let query = format!("fieldSelector=reason%3D{reason}");
        read(&client, Area::Events, EVENTS, &query, &mut collector).await;
    }
    if areas.contains(&Area::Definition) {
        definition(&client, &mut collector).await;
    }
    config_maps(&client, &mut collector).await;
    let platform = crate::detect::platform(&client).await.ok();
    if areas.contains(&Area::KubeletConfig) && !collector.evidence.gaps.contains_key(&Area::KubeletConfig) {
        configz(&client, &mut collector).await;
    }
    let mut evidence = collector.finish(Some(Timestamp::now()));
    evidence.platform = platform.or(evidence.platform);
    Ok(evidence)
}

/// Reviews our permissions, so that a gap names the missing one.
async fn rights(client: &Client, areas: &BTreeSet<Area>, collector: &mut Collector) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    for (area, verb, group, resource) in RIGHTS.into_iter().filter(|(area, ..)| areas.contains(area)) {
        let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes =
            json!({ "verb": verb, "group": group, "resource": name, "subresource": subresource });
        let review = json!({ "metadata": {}, "spec": { "resourceAttributes": attributes } });
        let Ok(review) = serde_json::from_value(review) else { continue };
        // If the review is forbidden, the list request reports the missing permission.
        let Ok(answer) = reviews.create(&PostParams::default(), &review).await else { continue };
        if answer.status.is_some_and(|status| !status.allowed) {
            collector.gap(area, missing_right(verb, group, resource));
        }
    }
}

/// The reason of a gap.
fn missing_right(verb: &str, group: &str, resource: &str) -> String {
    let group = if group.is_empty() { String::new() } else { format!(" in {group}") };
    format!("not allowed to {verb} {resource}{group}")
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    let text = client::get_text(client, path, pages::MAX_PAGE_BYTES).await?;
    serde_json::from_str(&text).map_err(kube::Error::SerdeError)
}

/// Reads a list in pages; an empty query reads all objects.
async fn read(client: &Client, area: Area, kind: ListKind, query: &str, collector: &mut Collector) {
    let [group, _, name, plural] = kind;
    // Reports are served in two versions and read once.
    if collector.evidence.gaps.contains_key(&area)
        || (name == nrt::KIND && collector.seen.contains(&Area::Reports))
    {
        return;
    }
    let path = DynamicObject::url_path(&ObjectKind::from(kind).resource(), None);
    match pages::each(client, &path, query, |item| collector.object(item)).await {
        Ok(()) => collector.saw_kind(name),
        // A kind that is not served has no objects.
        Err(error) if client::is_not_found(&error) => {}
        Err(error) if group == MACHINE_CONFIG && client::is_forbidden(&error) => {}
        Err(error) if client::is_forbidden(&error) => {
            collector.gap(area, missing_right("list", group, plural));
        }
        Err(error) => collector.gap(area, format!("listing {plural}: {}", client::brief(&error))),
    }
}

async fn definition(client: &Client, collector: &mut Collector) {
    if collector.evidence.gaps.contains_key(&Area::Definition) {
        return;
    }
    let kind = "CustomResourceDefinition";
    match read_one(client, DEFINITION, kind, collector).await {
        Ok(()) => {}
        Err(error) if client::is_not_found(&error) => collector.saw_kind(kind),
        Err(error) => collector.gap(Area::Definition, client::brief(&error)),
    }
}

/// Reads the configurations of schedulers. Without its configuration a scheduler's profile names are unknown.
async fn config_maps(client: &Client, collector: &mut Collector) {
    for (namespace, name) in collector.config_maps() {
        let path =
            format!("/api/v1/namespaces/{}/configmaps/{}", percent_encode(&namespace), percent_encode(&name));
        if let Err(error) = read_one(client, &path, "ConfigMap", collector).await {
            collector.note(format!("ConfigMap {namespace}/{name}: {}", client::brief(&error)));
        }
    }
}

async fn read_one(
    client: &Client,
    path: &str,
    kind: &str,
    collector: &mut Collector,
) -> Result<(), kube::Error> {
    let mut object = get(client, path).await?;
    object["kind"] = kind.into();
    collector.object(object);
    Ok(())
}

/// Asks every kubelet for its configuration, through the API server.
async fn configz(client: &Client, collector: &mut Collector) {
    let ask = |node: String| async move {
        let path = format!("/api/v1/nodes/{}/proxy/configz", percent_encode(&node));
        let answer = client::get_text(client, &path, MAX_CONFIGZ_BYTES).await;
        (node, answer.map_err(|error| (client::is_forbidden(&error), client::brief(&error))))
    };
    let nodes: Vec<String> = collector.evidence.nodes.keys().cloned().collect();
    let answers = futures::stream::iter(nodes).map(ask).buffer_unordered(AT_ONCE);
    for (node, answer) in answers.collect::<Vec<_>>().await {
        match answer {
            Ok(text) => collector.configz(&node, Ok(&text)),
            Err((true, _)) => collector.gap(Area::KubeletConfig, missing_right("get", "", "nodes/proxy")),
            Err((false, reason)) => collector.configz(&node, Err(reason)),
        }
    }
}
