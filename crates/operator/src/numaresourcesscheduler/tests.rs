use std::collections::BTreeMap;

use api::goduration::GoDuration;
use api::numaresources::scheduler::{
    CacheResyncDebug, CacheResyncDetection, ResourceSpecParams, ScoringStrategy, ScoringStrategyType, Spec,
};
use api::numaresources::{LogLevel, Switch};
use api::schedulerconfig::SchedulerConfig;
use deployer::platform::Platform;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use super::*;
use crate::cluster_state::{Environment, Image, Node, TlsProfile, Trust};
use crate::desired::{DesiredObject, Treatment};
use objects::ObservedObjects;

mod config;
mod desired;
mod state;

const OWN: &str = "registry.example/tholepin:1";
const NAMESPACE: &str = "numaresources";

fn digest(digit: char) -> String {
    format!("registry.example/scheduler@sha256:{}", String::from(digit).repeat(64))
}

/// OpenShift 4.18 with three nodes for the control plane, and a NUMAResourcesScheduler with a trusted image.
fn cluster() -> ClusterState {
    let own = Image { name: OWN.to_owned(), pull_policy: "Always".to_owned() };
    let trusted = digest('a').split_once('@').map(|(_, digest)| digest.to_owned());
    let mut cluster = ClusterState::new(Environment {
        platform: Platform::OpenShift,
        version: Some("4.18.3".parse().unwrap()),
        namespace: NAMESPACE.to_owned(),
        image: own.clone(),
        own,
        exporter_image_restricted: true,
        trusted_schedulers: Some(Trust {
            digests: trusted.into_iter().collect(),
            images: [OWN.to_owned()].into(),
        }),
        forward_pool_conditions: false,
        api_server_ports: vec![6443, 443],
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    });
    cluster.nodes = control_planes(3);
    let mut scheduler = NumaResourcesScheduler::default();
    scheduler.metadata.name = Some(keys::SCHEDULER.to_owned());
    scheduler.metadata.uid = Some("1-2-3".to_owned());
    scheduler.metadata.generation = Some(4);
    scheduler.spec.image_spec = digest('a');
    cluster.schedulers.insert(keys::SCHEDULER.to_owned(), scheduler);
    cluster
}

fn control_planes(count: usize) -> BTreeMap<String, Node> {
    let label = || [("node-role.kubernetes.io/control-plane".into(), "".into())].into();
    (0..count).map(|at| (format!("node-{at}"), Node { labels: label(), ..Node::default() })).collect()
}

/// [`world`] with this asked for.
fn asking(change: impl FnOnce(&mut Spec)) -> ClusterState {
    let mut cluster = cluster();
    change(&mut the_one(&mut cluster).spec);
    cluster
}

fn the_one(cluster: &mut ClusterState) -> &mut NumaResourcesScheduler {
    cluster.schedulers.get_mut(keys::SCHEDULER).unwrap()
}

fn wanted(cluster: &ClusterState) -> Vec<DesiredObject> {
    match desired(cluster) {
        Desired::Objects(wanted) => wanted,
        other => panic!("{other:?}, since {:?}", Setup::of(cluster, &cluster.schedulers[keys::SCHEDULER])),
    }
}

fn body(cluster: &ClusterState, kind: &str, name: &str) -> Value {
    let wanted = wanted(cluster);
    let found = wanted.iter().find(|one| one.object.kind().kind == kind && one.object.name() == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}")).object.body().clone()
}

fn deployment(cluster: &ClusterState) -> Value {
    body(cluster, "Deployment", "secondary-scheduler")
}

fn container(cluster: &ClusterState) -> Value {
    deployment(cluster)["spec"]["template"]["spec"]["containers"][0].clone()
}

fn text(cluster: &ClusterState) -> String {
    body(cluster, "ConfigMap", "topo-aware-scheduler-config")["data"]["config.yaml"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn now() -> jiff::Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

/// The status of the one that counts, after nothing went wrong.
fn status_of(cluster: &ClusterState) -> Status {
    let (name, found) = status(cluster, &Outcome::default(), now()).remove(0);
    assert_eq!(name, keys::SCHEDULER);
    found
}

/// Conditions that hold, as `type/reason`, and what they say.
fn holding(status: &Status) -> Vec<(String, String)> {
    let holds = status.conditions.iter().filter(|condition| condition.status == "True");
    holds.map(|one| (format!("{}/{}", one.type_, one.reason), one.message.clone())).collect()
}

fn condition<'a>(status: &'a Status, name: &str) -> &'a Condition {
    status.conditions.iter().find(|condition| condition.type_ == name).unwrap()
}

/// What the API server shows of the Deployment once these are running.
fn running(cluster: &mut ClusterState, replicas: i64, updated: i64, available: i64) {
    let mut live = deployment(cluster);
    live["metadata"]["generation"] = json!(7);
    let serves = if available * 4 >= replicas * 3 { "True" } else { "False" };
    live["status"] = json!({
        "observedGeneration": 7, "replicas": replicas.max(updated), "updatedReplicas": updated, "availableReplicas": available,
        "conditions": [{ "type": "Available", "status": serves }],
    });
    insert(cluster, live);
}

fn insert(cluster: &mut ClusterState, live: Value) {
    cluster.observed.insert(ObjectKey::of::<Deployment>(Some(NAMESPACE), "secondary-scheduler"), live);
}
