//! Everything at once, on real kubelets: from a DeviceConfig to pods whose devices and CPUs are in one zone, through a
//! new version of the driver, back to nothing. Only the kernel module is not real.
//!
//! `PODS=200 cargo test -p operator --test it -- hardware::whole --nocapture` runs that many aligned pods; 8 are the
//! default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use deployer::platform::Platform;
use fakes::kmm::labels::ModuleName;
use fakes::kmm::{self, Kmm, Plugins, Script};
use hardware::{manifests, rbac};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use node::podresources;
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::cluster::{Cluster, ClusterNode};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use testkit::process_group::{Process, Spec};
use testkit::{env, load, net};
use tokio::time::Instant;

use super::super::rig::{self, IMAGE, PATIENCE, images, number, tholepin, until};
use super::super::scenario::Scenario;
use super::super::seen::Seen;
use super::case::{DEVICE, count, is, is_ready, plain};
use super::history::History;
use super::lab::{configs, install, objects};
use super::within_rights::{PLAYED, note_all};

const SPACE: &str = "hw";
/// Devices in the two zones of each node.
const DEVICES: [[u32; 2]; 4] = [[4, 2], [2, 4], [1, 3], [3, 3]];
/// CPUs of a zone; one of the first is reserved.
const CPUS: u32 = 16;
/// Aligned pods that fit at a time: a zone gives two devices to each.
const ROOM: usize = 9;

#[test]
fn from_a_driver_to_aligned_pods_through_an_upgrade_and_back() {
    let scenario = Scenario::begin(&PLAYED);
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let machines = DEVICES.map(|_| Machine::new().zones(2).cpus_per_zone(CPUS));
        let mut kubelet = KubeletOptions::default();
        kubelet.config.insert("nodeStatusUpdateFrequency".to_owned(), "1s".into());
        let cluster =
            Cluster::builder().kubelet(kubelet).machines(machines).installable(network, images(&program));
        let began = Instant::now();
        let cluster = cluster.start(&rig).await.unwrap();
        println!("hardware: a cluster of {} nodes in {:?}", DEVICES.len(), began.elapsed());
        let whole = Whole::start(&cluster, &program).await;
        whole.installed().await;
        whole.driver().await;
        whole.devices().await;
        whole.pods(number("PODS", 8) as usize).await;
        whole.upgrade().await;
        whole.nothing_left().await;
        let exit = whole.operator.terminate(PATIENCE).await.unwrap();
        assert!(exit.success(), "{exit}: {}", whole.operator.log_tail(20));
        note_all(scenario, cluster.control()).await;
    })
    .unwrap();
}

struct Whole<'c> {
    cluster: &'c Cluster,
    seen: Seen,
    kmm: Kmm,
    operator: Process,
}

impl<'c> Whole<'c> {
    async fn start(cluster: &'c Cluster, program: &Path) -> Self {
        let seen = Seen { admin: cluster.client().await.unwrap(), log: None };
        kmm::install(&seen.admin).await.unwrap();
        kmm::watch_over(&seen.admin).await.unwrap();
        let devices = [DEVICE.to_owned()].into();
        let kmm =
            Kmm::start_with(&seen.admin, Script { plugins: Plugins::Run, devices, ..Script::default() });
        rig::install(&seen.admin, Platform::Kubernetes, true).await;
        install(&seen.admin, Platform::Kubernetes).await;
        let control = cluster.control();
        let account = Account::of(control, manifests::NAMESPACE, manifests::CONTROLLER.name).await.unwrap();
        let rules = rbac::rules(Platform::Kubernetes);
        account.wait_until_allowed(&rules.cluster, &rules.namespaced).await.unwrap();
        let operator = Spec::new("operator-hardware", program)
            .args(["operator", "--controllers=deviceconfig", "-v=4", "--metrics-bind-address=0"])
            .args(["--health-probe-bind-address=0".to_owned()])
            .arg(format!("--kubeconfig={}", account.kubeconfig(None).await.unwrap().display()))
            .arg(format!("--namespace={}", manifests::NAMESPACE));
        let operator = cluster.spawn(operator).unwrap();
        Self { cluster, seen, kmm, operator }
    }

    fn of(&self) -> ModuleName {
        ModuleName::new(SPACE, "acc-module")
    }

    async fn config(&self) -> Value {
        let found = configs(&self.seen.admin, Some(SPACE)).get_opt("acc").await.unwrap();
        found.map(plain).unwrap_or_default()
    }

    async fn change(&self, spec: &Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        configs(&self.seen.admin, Some(SPACE)).patch("acc", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the DeviceConfig is like this.
    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let now = self.config().await;
            if holds(&now) {
                return now;
            }
            if began.elapsed() > PATIENCE {
                let (pods, log) = (self.told().await, self.operator.log_tail(20));
                panic!("{what}: {:#}\n{pods:#?}\n{log}", now["status"]);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The pods and their events, for debugging.
    async fn told(&self) -> Vec<String> {
        let pods: Api<Pod> = Api::namespaced(self.seen.admin.clone(), SPACE);
        let pods = pods.list(&ListParams::default()).await.unwrap();
        let mut told: Vec<String> =
            pods.into_iter().map(|pod| format!("{:?} {:?}", pod.metadata.name, pod.status)).collect();
        let events =
            objects(&self.seen.admin, "v1", "Event", Some(SPACE)).list(&ListParams::default()).await.unwrap();
        told.extend(
            events.into_iter().map(|event| format!("{} {}", event.data["reason"], event.data["message"])),
        );
        told.extend(self.kmm.writes().into_iter().rev().take(5));
        told
    }

    /// What the operator's other half runs: exporters and a scheduler.
    async fn installed(&self) {
        let began = Instant::now();
        let group = json!({ "poolName": "workers", "nodeSelector": {} });
        self.seen.ask_for_exporters(&json!({ "nodeGroups": [group] })).await;
        self.seen.ask_for_scheduler(&json!({ "replicas": 1 })).await;
        for kind in ["operator", "scheduler"] {
            self.seen.until_true(kind, "Available", "", "").await;
        }
        until("reports", async || self.seen.list("NodeResourceTopology").await.len() == DEVICES.len()).await;
        println!("hardware: operator, exporters and scheduler run after {:?}", began.elapsed());
    }

    /// From the DeviceConfig to a loaded driver with a device plugin.
    async fn driver(&self) {
        let space: Namespace = serde_json::from_value(json!({ "metadata": { "name": SPACE } })).unwrap();
        Api::all(self.seen.admin.clone()).create(&PostParams::default(), &space).await.unwrap();
        let lists: serde_json::Map<String, Value> = DEVICES.iter().enumerate().map(list).collect();
        let body = json!({
            "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig",
            "metadata": { "name": "acc", "namespace": SPACE },
            "spec": {
                "driverImage": "registry.example/drivers/acc",
                "driverVersion": "1.0",
                "allNodes": true,
                "devicePlugin": { "image": IMAGE, "config": {
                    "version": "v1alpha1",
                    "resources": [{ "name": DEVICE, "discovery": { "list": { "devices": lists } } }],
                } },
            },
        });
        let began = Instant::now();
        let all = configs(&self.seen.admin, Some(SPACE));
        all.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
        let modules = kmm::api(&self.seen.admin, "Module", Some(SPACE));
        until("a Module", async || modules.get_opt("acc-module").await.unwrap().is_some()).await;
        println!("hardware: a Module after {:?}", began.elapsed());
        until("loaded", async || self.nodes_with(&self.of().ready()).await == DEVICES.len()).await;
        println!("hardware: loaded everywhere after {:?}", began.elapsed());
        self.until("ready", is_ready).await;
        assert_eq!(self.nodes_with(&self.of().plugin_ready()).await, DEVICES.len());
        println!("hardware: device plugins run, and Ready, after {:?}", began.elapsed());
    }

    /// How many nodes have a label.
    async fn nodes_with(&self, label: &str) -> usize {
        let nodes: Api<Node> = Api::all(self.seen.admin.clone());
        nodes.list(&ListParams::default().labels(label)).await.unwrap().items.len()
    }

    /// From the kubelets to the zones.
    async fn devices(&self) {
        let began = Instant::now();
        until("allocatable", async || self.allocatable().await == DEVICES.map(|[a, b]| a + b)).await;
        println!("hardware: allocatable of nodes after {:?}", began.elapsed());
        for (node, [first, second]) in self.cluster.nodes().iter().zip(DEVICES) {
            let allocatable = kubelet(node).allocatable().await.unwrap();
            let mut zones: BTreeMap<u32, u32> = BTreeMap::new();
            for devices in allocatable.devices.iter().filter(|devices| devices.resource.to_string() == DEVICE)
            {
                for zone in &devices.zones {
                    *zones.entry(zone.0).or_default() += devices.ids.len() as u32;
                }
            }
            assert_eq!(zones, BTreeMap::from([(0, first), (1, second)]), "{}", node.name());
        }
        until("zones", async || self.zones().await == DEVICES).await;
        println!("hardware: zones of nodes after {:?}", began.elapsed());
    }

    async fn allocatable(&self) -> [u32; 4] {
        let mut all = [0; 4];
        let nodes: Api<Node> = Api::all(self.seen.admin.clone());
        for (number, count) in all.iter_mut().enumerate() {
            let node = nodes.get(&format!("node-{number}")).await.unwrap();
            let allocatable = node.status.and_then(|status| status.allocatable).unwrap_or_default();
            *count = allocatable.get(DEVICE).map_or(0, |quantity| quantity.0.parse().unwrap());
        }
        all
    }

    /// What the exporters say is there.
    async fn zones(&self) -> [[u32; 2]; 4] {
        let mut all = [[0; 2]; 4];
        for report in self.seen.list("NodeResourceTopology").await {
            let node: usize =
                report["metadata"]["name"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
            for zone in report["zones"].as_array().unwrap() {
                let number: usize =
                    zone["name"].as_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
                let mut resources = zone["resources"].as_array().into_iter().flatten();
                let found = resources.find(|resource| resource["name"] == DEVICE);
                let count = found.and_then(|found| found["available"].as_str()).unwrap_or("0");
                all[node][number] = count.parse().unwrap();
            }
        }
        all
    }

    /// Aligned pods come as fast as there is room, and go when they have run.
    async fn pods(&self, count: usize) {
        let began = Instant::now();
        let (mut made, mut waiting, mut lost) = (0, BTreeSet::new(), Vec::new());
        let pods: Api<Pod> = Api::default_namespaced(self.seen.admin.clone());
        while made < count || !waiting.is_empty() {
            while made < count && waiting.len() < ROOM {
                let name = format!("aligned-{made}");
                self.pod(&name).await;
                waiting.insert(name);
                made += 1;
            }
            for pod in pods.list(&ListParams::default()).await.unwrap() {
                let name = pod.metadata.name.clone().unwrap();
                let status = pod.status.clone().unwrap_or_default();
                match status.phase.as_deref() {
                    Some("Running") if waiting.contains(&name) => self.is_in_one_zone(&pod).await,
                    Some("Failed") => lost.push(format!("{name}: {:?} {:?}", status.reason, status.message)),
                    _ => continue,
                }
                waiting.remove(&name);
                let _ = pods.delete(&name, &DeleteParams::default()).await;
            }
            assert!(
                began.elapsed() < PATIENCE * (1 + count as u32 / 20),
                "{} of {count} pods wait: {waiting:?}",
                waiting.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("aligned: {count} pods in {:?}, {} lost", began.elapsed(), lost.len());
        assert_eq!(lost, [""; 0]);
        until("they are gone", async || pods.list(&ListParams::default()).await.unwrap().items.is_empty())
            .await;
        until("zones", async || self.zones().await == DEVICES).await;
    }

    async fn pod(&self, name: &str) {
        let pods: Api<Pod> = Api::default_namespaced(self.seen.admin.clone());
        let asks = [("cpu", "4"), ("memory", "64Mi"), (DEVICE, "2")];
        let pod = load::guaranteed_pod(name, "topo-aware-scheduler", asks);
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    /// The kubelet says where its CPUs and devices are.
    async fn is_in_one_zone(&self, pod: &Pod) {
        let name = pod.metadata.name.as_deref().unwrap();
        let on = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
        let node = self.cluster.nodes().iter().find(|node| node.name() == on).unwrap();
        let all = kubelet(node).list().await.unwrap();
        let held = all.iter().find(|held| held.name == name).unwrap();
        let container = &held.containers[0];
        let mut zones: BTreeSet<u32> = container.cpus.iter().map(|cpu| cpu / CPUS).collect();
        let devices: Vec<_> =
            container.devices.iter().filter(|devices| devices.resource.to_string() == DEVICE).collect();
        zones.extend(devices.iter().flat_map(|devices| &devices.zones).map(|zone| zone.0));
        let count: usize = devices.iter().map(|devices| devices.ids.len()).sum();
        assert_eq!((container.cpus.len(), count, zones.len()), (4, 2, 1), "{name} on {on}: {held:?}");
    }

    /// A new version, while a pod uses devices of one node.
    async fn upgrade(&self) {
        let pods: Api<Pod> = Api::default_namespaced(self.seen.admin.clone());
        self.pod("user").await;
        let phase = async || pods.get("user").await.unwrap().status.and_then(|status| status.phase);
        until("it runs", async || phase().await.as_deref() == Some("Running")).await;
        let user = pods.get("user").await.unwrap();
        let on = user.spec.as_ref().unwrap().node_name.clone().unwrap();
        let history = History::begin(&self.seen.admin).await;
        let began = Instant::now();
        self.change(&json!({ "driverVersion": "2.0" })).await;
        let all_but_one = i64::try_from(DEVICES.len()).unwrap() - 1;
        let now = self
            .until("all but one", |now| count(now, "ready") == all_but_one && count(now, "waiting") == 1)
            .await;
        println!(
            "hardware: all nodes but that of a user of devices have the new version after {:?}",
            began.elapsed()
        );
        assert!(is(&now, "Ready", "False", ""), "{now:#}");
        assert_eq!(now["status"]["problems"][0]["node"], json!(on), "{now:#}");
        assert_eq!(phase().await.as_deref(), Some("Running"));
        self.is_in_one_zone(&user).await;
        let _ = pods.delete("user", &DeleteParams::default()).await.unwrap();
        let began = Instant::now();
        let now = self.until("ready", |now| is_ready(now) && now["status"]["driverVersion"] == "2.0").await;
        println!("hardware: and the last {:?} after it has gone", began.elapsed());
        assert_eq!(count(&now, "ready"), all_but_one + 1);
        let most = history.end().await.most_without(&self.of().ready(), super::case::CLAIM);
        assert_eq!(most, 1, "nodes without their driver at a time");
        assert_eq!(self.kmm.unloaded_in_use(), [""; 0]);
        until("allocatable", async || self.allocatable().await == DEVICES.map(|[a, b]| a + b)).await;
        until("zones", async || self.zones().await == DEVICES).await;
        self.pods(2).await;
    }

    /// It is asked for no longer.
    async fn nothing_left(&self) {
        let began = Instant::now();
        let all = configs(&self.seen.admin, Some(SPACE));
        let _ = all.delete("acc", &DeleteParams::background()).await.unwrap();
        until("it is gone", async || self.config().await.is_null()).await;
        println!("hardware: gone after {:?}", began.elapsed());
        until("pods are gone", async || {
            let pods: Api<Pod> = Api::namespaced(self.seen.admin.clone(), SPACE);
            pods.list(&ListParams::default()).await.unwrap().items.is_empty()
        })
        .await;
        let mut left = Vec::new();
        for (version, kind) in [("v1", "ServiceAccount"), ("v1", "ConfigMap"), ("apps/v1", "DaemonSet")] {
            for object in objects(&self.seen.admin, version, kind, Some(SPACE))
                .list(&ListParams::default())
                .await
                .unwrap()
            {
                let name = object.metadata.name.unwrap();
                // Every namespace has these.
                if !["default", "kube-root-ca.crt"].contains(&name.as_str()) {
                    left.push(format!("{kind} {name}"));
                }
            }
        }
        for kind in ["Module", "ModuleImagesConfig"] {
            let there = kmm::api(&self.seen.admin, kind, None).list(&ListParams::default()).await.unwrap();
            left.extend(
                there.items.into_iter().map(|object| format!("{kind} {}", object.metadata.name.unwrap())),
            );
        }
        let nodes: Api<Node> = Api::all(self.seen.admin.clone());
        let labels = async || {
            let nodes = nodes.list(&ListParams::default()).await.unwrap().items.into_iter();
            let all = nodes.flat_map(|node| node.metadata.labels.unwrap_or_default().into_keys());
            all.filter(|key| key.contains("tholepin") || key.contains("kmm.")).collect::<Vec<_>>()
        };
        // KMM's own labels follow ours.
        left.extend(labels().await.into_iter().filter(|key| !key.starts_with("beta.kmm.")));
        assert_eq!(left, [""; 0]);
        until("KMM's labels are gone", async || labels().await.is_empty()).await;
        until("no devices are offered", async || self.allocatable().await == [0; 4]).await;
        println!("hardware: nothing is left, and no devices are offered, after {:?}", began.elapsed());
    }
}

/// What a kubelet says it has handed out.
fn kubelet(node: &ClusterNode) -> podresources::Client {
    podresources::Client::new(&node.podresources_socket(), PATIENCE).unwrap()
}

/// The devices of a node, as our device plugin's configuration lists them.
fn list((node, zones): (usize, &[u32; 2])) -> (String, Value) {
    let of_zone = |(zone, count): (usize, &u32)| {
        let devices = (0..*count)
            .map(move |at| json!({ "id": format!("acc-{zone}-{at}"), "healthy": true, "numanode": zone }));
        devices.collect::<Vec<_>>()
    };
    (format!("node-{node}"), zones.iter().enumerate().flat_map(of_zone).collect())
}
