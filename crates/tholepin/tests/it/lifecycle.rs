//! Other ways in and out of a cluster: nfd-topology-updater, rendered objects, components one by one, and the page.
//!
//! They share one cluster, and after each of them it has to be as it was.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Discovery, Scope, verbs};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::env::{Program, rig};
use testkit::machine::Machine;
use testkit::net;
use testkit::quiescence::until_quiescent;

use super::readme::{NFD_IMAGE, as_kind_does, images};
use super::{Installed, run_async, web};

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(90);
/// Arguments of `deploy` in the peer's own tests.
const FLAGS: &str =
    "--updater-pfp-enable=true --updater-verbose=5 --sched-ctrlplane-affinity=false --sched-verbose=5";

/// The program and the cluster it works on.
struct Deployer {
    installed: Installed,
    kubeconfig: String,
    client: Client,
}

#[test]
fn each_way_in_and_out_leaves_the_cluster_as_it_was() {
    let Ok(rig) = rig() else { return };
    let scheduler = rig.binaries.path(Program::Scheduler).to_owned();
    net::private(async |network| {
        let machines = [2, 4].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        let images = images(Path::new(env!("CARGO_BIN_EXE_tholepin")), &scheduler);
        let cluster = Cluster::builder().machines(machines).installable(network, images);
        let cluster = cluster.start(&rig).await.unwrap();
        let client = cluster.client().await.unwrap();
        as_kind_does(&client).await;
        let deployer = Deployer {
            installed: Installed::under("deployer"),
            kubeconfig: cluster.control().kubeconfig().display().to_string(),
            client,
        };
        let before = settled(&deployer.client).await;
        for way in 0..4 {
            let began = Instant::now();
            match way {
                0 => nfd(&deployer).await,
                1 => created(&deployer).await,
                2 => one_by_one(&deployer).await,
                _ => web::installed(cluster.control(), &deployer.client).await,
            }
            // Controllers take pods and revisions away when they get to it.
            let left =
                async || names(&deployer.client).await.difference(&before).cloned().collect::<Vec<String>>();
            until(async || left().await, |left| left.is_empty()).await;
            assert_eq!(before.difference(&names(&deployer.client).await).next(), None);
            println!("way {way}: {:?}", began.elapsed());
        }
    })
    .unwrap();
}

/// All of it, with nfd-topology-updater.
async fn nfd(deployer: &Deployer) {
    deployer.run(&format!("deploy --updater-type=NFD {FLAGS} --wait")).await;
    reported(&deployer.client, true).await;
    deployer.run("remove --updater-type=NFD --wait").await;
}

/// All of it as `kubectl create -f` makes it from what was rendered.
async fn created(deployer: &Deployer) {
    let text = deployer.run("-P kubernetes:v1.27 --updater-pfp-enable=false render").await;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for document in &documents {
        create(&deployer.client, document).await;
    }
    reported(&deployer.client, false).await;
    let client = &deployer.client;
    let unready = async || {
        let sets = Api::<DaemonSet>::namespaced(client.clone(), "tas-topology-updater");
        let sets = sets.list(&ListParams::default()).await.unwrap().items.into_iter().map(|set| {
            let status = set.status.clone().unwrap_or_default();
            (set.name_any(), status.number_ready, 2)
        });
        let all = Api::<Deployment>::namespaced(client.clone(), "tas-scheduler");
        let all = all.list(&ListParams::default()).await.unwrap().items.into_iter().map(|deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            (deployment.name_any(), status.available_replicas.unwrap_or_default(), 1)
        });
        sets.chain(all).collect::<Vec<_>>()
    };
    until(unready, |all| all.len() == 3 && all.iter().all(|(_, is, wanted)| is == wanted)).await;
    deployer.run("remove --wait").await;
}

/// The API, then the scheduler; first the scheduler goes.
async fn one_by_one(deployer: &Deployer) {
    let client = &deployer.client;
    deployer.run("deploy api --wait").await;
    let definition = "CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io".to_owned();
    assert!(names(client).await.contains(&definition));
    assert_eq!(Api::<Namespace>::all(client.clone()).get_opt("tas-scheduler").await.unwrap(), None);
    deployer.run("--sched-verbose=9 deploy scheduler-plugin --sched-ctrlplane-affinity=false --wait").await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "tas-scheduler");
    let data = maps.get("scheduler-config").await.unwrap().data.unwrap();
    let config: Value = serde_saphyr::from_str(&data["scheduler-config.yaml"]).unwrap();
    let profiles = config["profiles"].as_array().unwrap();
    let arguments = &profiles[0]["pluginConfig"][0]["args"];
    assert_eq!(
        (profiles.len(), &arguments["cacheResyncPeriodSeconds"], arguments["cache"].is_object()),
        (1, &json!(5), true),
        "{config}"
    );
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "tas-scheduler");
    for name in ["topology-aware-scheduler", "topology-aware-controller"] {
        let status = deployments.get(name).await.unwrap().status.unwrap();
        let complete = [status.updated_replicas, status.ready_replicas, status.available_replicas];
        assert_eq!(complete, [Some(1); 3], "{name}");
    }
    deployer.run("remove scheduler-plugin --wait").await;
    assert_eq!(Api::<Namespace>::all(client.clone()).get_opt("tas-scheduler").await.unwrap(), None);
    assert!(names(client).await.contains(&definition));
    deployer.run("remove api --wait").await;
    assert!(!names(client).await.contains(&definition));
}

impl Deployer {
    /// The output of a command, which must succeed without warnings.
    async fn run(&self, words: &str) -> String {
        let environment =
            [("KUBECONFIG", self.kubeconfig.as_str()), ("TAS_NODE_FEATURE_DISCOVERY_IMAGE", NFD_IMAGE)];
        let (code, stdout, stderr) = run_async(&self.installed.program, words, &environment).await;
        assert_eq!(code, 0, "{words}: {stderr}");
        assert!(!stderr.contains("error") && !stderr.contains("kept"), "{words}: {stderr}");
        stdout
    }
}

/// Waits until each node has an object with its zones' CPUs, with or without a fingerprint of its pods.
async fn reported(client: &Client, fingerprint: bool) {
    let kind = GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology");
    let (resource, _) = discovery::pinned_kind(client, &kind).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let told = async || {
        let objects = api.list(&ListParams::default()).await.unwrap().items;
        objects.iter().map(|object| (object.name_any(), summary(&object.data))).collect::<Vec<_>>()
    };
    let wanted = [("node-0", 2), ("node-1", 4)].map(|(node, zones)| (node.to_owned(), (zones, fingerprint)));
    until(told, |told| told == wanted.as_slice()).await;
}

/// How many zones have CPUs, and whether there is a fingerprint.
fn summary(object: &Value) -> (usize, bool) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let has_cpus = |zone: &Value| list(&zone["resources"]).iter().any(|resource| resource["name"] == "cpu");
    let zones = list(&object["zones"]).iter().filter(|zone| has_cpus(zone)).count();
    let is_fingerprint = |attribute: &Value| attribute["name"] == "nodeTopologyPodsFingerprint";
    (zones, list(&object["attributes"]).iter().any(is_fingerprint))
}

/// Creates an object that must not be there yet.
pub(super) async fn create(client: &Client, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let made = api_of(client, &object).await.create(&PostParams::default(), &object).await;
    assert!(made.is_ok(), "{}: {made:?}", object.name_any());
}

/// The objects of this one's kind and namespace.
pub(super) async fn api_of(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.unwrap();
    match (&capabilities.scope, object.namespace()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    }
}

/// The names of all objects there are, but those that come and go by themselves.
async fn names(client: &Client) -> BTreeSet<String> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await.unwrap();
    let mut names = BTreeSet::new();
    for (kind, can) in discovery.groups().flat_map(|group| group.resources_by_stability()) {
        if !can.supports_operation(verbs::LIST) || matches!(kind.kind.as_str(), "Event" | "Lease") {
            continue;
        }
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        // A kind may go between the two questions.
        for object in all.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let place = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            names.insert(format!("{} {place}{}", kind.kind, object.name_any()));
        }
    }
    names
}

/// The same once the cluster has made what it makes in its first moments.
async fn settled(client: &Client) -> BTreeSet<String> {
    until_quiescent(3, Duration::from_millis(300), async || Ok(names(client).await)).await.unwrap()
}

/// Waits until what is there is as wanted.
pub(super) async fn until<T: std::fmt::Debug>(what: impl AsyncFn() -> T, is_so: impl Fn(&T) -> bool) {
    let began = Instant::now();
    loop {
        let there = what().await;
        if is_so(&there) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "after {PATIENCE:?} still {there:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
