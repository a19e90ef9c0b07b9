//! Names of rows and of tests (N001 and on, U001 and on, B-01 and on) are those of the list of what the Go operator
//! does, in docs/parity-operator.md.

use std::collections::{BTreeMap, BTreeSet};

use api::numaresources::operator::{PoolCondition, Status};
use api::numaresources::{NumaResourcesOperator, PodsFingerprinting};
use deployer::platform::Platform;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use objects::Object;
use serde_json::{Value, json};

use super::*;
use objects::applier::Planned;
use objects::decision::Decision;
use objects::last_applied::LastApplied;

use crate::cluster_state::{ClusterState, Environment, KubeletSettings, MachineConfigPool, TlsProfile};
use crate::desired::{Controller, Treatment};
use crate::plan::{PlanInputs, plan};
use crate::reconcile::Outcome;
use objects::ObjectKey;

mod args;
mod golden;
mod groups;
mod kubelets;
mod machineconfig;
mod nfd;
mod own_node;
mod rounds;
mod sets;

const PLATFORMS: [Platform; 3] = [Platform::OpenShift, Platform::HyperShift, Platform::Kubernetes];
const NAMESPACE: &str = "numaresources";
const POLICY: &str = "config.node.openshift-kni.io/selinux-policy";

/// A cluster of this kind with the MachineConfigPools `worker` and `infra`, which nothing is wrong with.
fn cluster(platform: Platform) -> ClusterState {
    let image =
        |name: &str| crate::cluster_state::Image { name: name.to_owned(), pull_policy: String::new() };
    let version = if platform == Platform::Kubernetes { "v1.36.3" } else { "4.20.1" };
    let mut cluster = ClusterState::new(Environment {
        platform,
        version: version.parse().ok(),
        namespace: NAMESPACE.to_owned(),
        own: image("example.com/tholepin:1"),
        image: image("example.com/tholepin:1"),
        exporter_image_restricted: true,
        trusted_schedulers: None,
        forward_pool_conditions: false,
        api_server_ports: vec![6443],
        kubelet: None,
        api_server_cidrs: Vec::new(),
        kubelet_root_mount: false,
        only_own_scheduler: false,
    });
    if platform == Platform::OpenShift {
        for name in ["worker", "infra"] {
            cluster.pools.insert(name.to_owned(), pool(name));
        }
    }
    if platform == Platform::Kubernetes {
        for name in ["worker", "infra"] {
            let settings = KubeletSettings { policy: Some("single-numa-node".to_owned()), scope: None };
            let answers = BTreeMap::from([(format!("{name}-0"), Ok(settings))]);
            cluster.kubelets.insert(name.to_owned(), answers);
        }
    }
    if platform.is_openshift() {
        cluster.tls = Some(TlsProfile {
            min_version: "VersionTLS12".to_owned(),
            cipher_suites: "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(),
        });
    }
    cluster
}

/// A MachineConfigPool as OpenShift makes them.
fn pool(name: &str) -> MachineConfigPool {
    let selector = |key: &str, value: &str| LabelSelector {
        match_labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
        ..LabelSelector::default()
    };
    MachineConfigPool {
        labels: BTreeMap::from([(format!("pools.example.com/{name}"), String::new())]),
        machine_config_selector: Some(selector("machineconfiguration.openshift.io/role", name)),
        node_selector: Some(selector(&format!("node-role.kubernetes.io/{name}"), "")),
        ..MachineConfigPool::default()
    }
}

fn condition(kind: &str, status: &str) -> PoolCondition {
    PoolCondition { kind: kind.to_owned(), status: status.to_owned(), ..PoolCondition::default() }
}

/// The NUMAResourcesOperator that counts, with this spec.
fn ask(cluster: &mut ClusterState, spec: &Value) {
    ask_with(cluster, &[], spec);
}

fn ask_with(cluster: &mut ClusterState, annotations: &[(&str, &str)], spec: &Value) {
    let old = cluster.operators.get(OPERATOR);
    let status = old.map(|old| old.status.clone()).unwrap_or_default();
    let generation = old.and_then(|old| old.metadata.generation).unwrap_or(0) + 1;
    let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
    let object = json!({
        "metadata": { "name": OPERATOR, "uid": "u-1", "generation": generation, "annotations": annotations },
        "spec": spec,
    });
    let mut operator: NumaResourcesOperator = serde_json::from_value(object).unwrap();
    operator.status = status;
    cluster.operators.insert(OPERATOR.to_owned(), operator);
}

/// Node groups by their pools' names, all with this configuration.
fn groups(names: &[&str], config: &Value) -> Value {
    let groups: Vec<Value> = names
        .iter()
        .map(|name| {
            json!({
                "poolName": name,
                "config": config,
            })
        })
        .collect();
    json!({ "nodeGroups": groups })
}

/// One group `worker`, with a selector where there has to be one.
fn one_group(config: &Value) -> Value {
    groups(&["worker"], config)
}

/// As on Kubernetes, where groups say which nodes.
fn with_node_selectors(mut spec: Value) -> Value {
    for group in spec["nodeGroups"].as_array_mut().unwrap() {
        let name = group["poolName"].as_str().unwrap().to_owned();
        group["nodeSelector"] = json!({ "matchLabels": { "example.com/pool": name } });
    }
    spec
}

fn at(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(second).unwrap()
}

/// The status of the one that counts after one round in which everything was done and all pods run.
fn round(cluster: &mut ClusterState) -> Status {
    carry_out(cluster, true);
    told(cluster, &Outcome::default())
}

/// The status of the one that counts, which the next round finds.
fn told(cluster: &mut ClusterState, done: &Outcome) -> Status {
    let (_, status) = status(cluster, done, at(1)).into_iter().find(|(name, _)| name == OPERATOR).unwrap();
    cluster.operators.get_mut(OPERATOR).unwrap().status = status.clone();
    status
}

/// Does what is wanted.
fn carry_out(cluster: &mut ClusterState, ready: bool) {
    let Desired::Objects(wanted) = desired(cluster) else { return };
    let keys: Vec<ObjectKey> = wanted.iter().map(crate::desired::DesiredObject::key).collect();
    let ours: Vec<ObjectKey> = cluster.observed.iter().map(|(key, _)| key.clone()).collect();
    for key in
        ours.into_iter().filter(|key| !keys.contains(key) && key.kind.kind != "CustomResourceDefinition")
    {
        cluster.observed.remove(&key);
    }
    for one in wanted.iter().filter(|one| one.treatment != Treatment::Hold) {
        cluster.observed.insert(one.key(), served(&one.object, ready));
    }
}

/// As the API server and the controllers make of it.
fn served(object: &Object, ready: bool) -> Value {
    let mut body = object.body().clone();
    body["metadata"]["uid"] = json!("u-2");
    body["metadata"]["generation"] = json!(1);
    if object.kind().kind == "DaemonSet" {
        let pods = if ready { 2 } else { 1 };
        body["status"] = json!({
            "observedGeneration": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": pods,
            "numberReady": pods, "numberAvailable": pods,
        });
    }
    body
}

/// What is to be done, as `verb kind name`; what is made is left out.
fn changes(cluster: &ClusterState) -> Vec<String> {
    let owners = BTreeSet::from(["u-1".to_owned()]);
    let last = LastApplied::default();
    let inputs =
        PlanInputs { observed: &cluster.observed, owners: &owners, others_desire: &|_| false, last: &last };
    let name = |planned: &Planned| {
        let verb = match planned.decision {
            Decision::Create | Decision::Leave | Decision::Adopt => return None,
            Decision::Change { .. } => "apply",
            Decision::Recreate { .. } => "recreate",
            Decision::Remove { .. } => "delete",
            Decision::Refuse { .. } => "refuse",
            Decision::Await => "await",
        };
        Some(format!("{verb} {} {}", planned.key.kind.kind, planned.key.name))
    };
    plan(Controller::NumaResourcesOperator, &desired(cluster), inputs).iter().filter_map(name).collect()
}

/// What is wanted, with how it is treated.
fn wanted(cluster: &ClusterState) -> Vec<crate::desired::DesiredObject> {
    match desired(cluster) {
        Desired::Objects(wanted) => wanted,
        other => panic!("{other:?}"),
    }
}

/// `kind name` of what is wanted, `(held)` if nothing is to be done to it.
fn names(cluster: &ClusterState) -> Vec<String> {
    let name = |one: &crate::desired::DesiredObject| {
        let held = if one.treatment == Treatment::Hold { " (held)" } else { "" };
        format!("{} {}{held}", one.object.kind().kind, one.object.name())
    };
    wanted(cluster).iter().map(name).collect()
}

/// The DaemonSet of a pool, as it is wanted.
fn set(cluster: &ClusterState, pool: &str) -> DaemonSet {
    let name = set_name(pool);
    let found = wanted(cluster)
        .into_iter()
        .find(|one| one.object.kind().kind == "DaemonSet" && one.object.name() == name);
    serde_json::from_value(found.unwrap().object.body().clone()).unwrap()
}

/// The pod of a DaemonSet.
fn pod(set: &DaemonSet) -> k8s_openapi::api::core::v1::PodSpec {
    set.spec.clone().unwrap().template.spec.unwrap()
}

/// The arguments of a pool's exporters.
fn arguments(cluster: &ClusterState, pool: &str) -> Vec<String> {
    self::pod(&set(cluster, pool)).containers[0].args.clone().unwrap()
}

/// The true conditions but those of kubelets and nodes, as `type reason message`. A reason that repeats the type is
/// left out.
fn holding(status: &Status) -> Vec<String> {
    let holds = status.conditions.iter().filter(|condition| condition.status == "True").filter(|condition| {
        ![KUBELETS_CONFIGURED, PASSED_OVER, POOL_EMPTY].contains(&condition.type_.as_str())
    });
    holds
        .map(|condition| {
            let reason = if condition.reason == condition.type_ { "" } else { &condition.reason };
            let words = [condition.type_.as_str(), reason, &condition.message];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// What is true of one where all is well.
const WELL: [&str; 2] = ["Available", "Upgradeable"];
