//! A node for a test, and exporters on it that are started as the peers are.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use exporter::compat::{Environment, Peer, Start};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, GetParams, ListParams};
use testkit::cluster::ClusterNode;
use testkit::device_plugin::{DevicePlugin, Options, device};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use tokio::sync::{Mutex, MutexGuard};

use super::*;

/// The node whose kubelet has a memory manager. The others have none, as in the peers' suites: with it also Guaranteed
/// pods with a part of a CPU hold something.
pub(super) const WITH_MEMORY: usize = 2;
/// The resources that are not held, on every node.
pub(super) const IDLE: &str = "0 7/7/8 | 1 8/8/8";
/// The resource of the peers' sample plugin.
pub(super) const DEVICE: &str = "example.com/deviceA";
/// More looks than one event causes: with a timer of a tenth of a second some of them are the timer's.
const LOOKS: u64 = 8;

/// Goes with the last test that has it.
static SHARED: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
/// Who has which node.
static NODES: [Mutex<()>; WITH_MEMORY + 1] = [const { Mutex::const_new(()) }; WITH_MEMORY + 1];

/// A node that belongs to one test for as long as it runs.
pub(super) struct Seat {
    _alone: MutexGuard<'static, ()>,
    cluster: Arc<Cluster>,
    pub(super) client: Client,
    number: usize,
}

impl Seat {
    pub(super) async fn take(number: usize) -> Option<Self> {
        let alone = NODES[number].lock().await;
        let mut shared = SHARED.lock().await;
        let cluster = match shared.upgrade() {
            Some(cluster) => cluster,
            None => {
                let node = |builder: Builder, number| {
                    let machine = Machine::new().zones(2).cpus_per_zone(8);
                    let static_memory = number == WITH_MEMORY;
                    builder.node(machine, KubeletOptions { static_memory, ..KubeletOptions::default() })
                };
                Arc::new(cluster(|builder| (0..NODES.len()).fold(builder, node)).await?)
            }
        };
        *shared = Arc::downgrade(&cluster);
        drop(shared);
        let client = cluster.client().await.unwrap();
        let mut all = states(&client);
        tokio::spawn(async move { while all.recv().await.is_some() {} });
        let seat = Self { _alone: alone, cluster, client, number };
        seat.clear().await;
        Some(seat)
    }

    /// Takes away what the test before has left.
    async fn clear(&self) {
        let here = ListParams::default().fields(&format!("spec.nodeName={}", self.node().name()));
        let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete_collection(&force, &here).await.unwrap();
        let nrts = raw(&self.client);
        nrts.delete_collection(
            &DeleteParams::default(),
            &ListParams::default().fields(&format!("metadata.name={}", self.node().name())),
        )
        .await
        .unwrap();
    }

    pub(super) fn node(&self) -> &ClusterNode {
        &self.cluster.nodes()[self.number]
    }

    /// A pod's name that no other test has.
    pub(super) fn name(&self, pod: &str) -> String {
        format!("{pod}-{}", self.number)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) async fn object(&self) -> Option<NodeResourceTopology> {
        raw(&self.client).get_opt(self.node().name()).await.unwrap().map(valid)
    }

    /// The object, once it shows this.
    pub(super) async fn shows(&self, resource: &str, wanted: &str) -> NodeResourceTopology {
        node_shows(&self.client, self.node().name(), resource, wanted).await
    }

    /// Creates a pod on the node with a container for each list of requests; `limited`: they are limits too.
    pub(super) async fn create(&self, pod: &str, limited: bool, containers: &[&[(&str, &str)]]) {
        let mut pod = load::guaranteed_pod(&self.name(pod), "nobody", []);
        let spec = pod.spec.as_mut().unwrap();
        spec.node_name = Some(self.node().name().to_owned());
        let first = spec.containers[0].clone();
        let container = |(number, wants): (usize, &&[(&str, &str)])| {
            let mut container = Container { name: format!("c{number}"), ..first.clone() };
            let amounts = wants.iter().map(|(name, n)| ((*name).to_owned(), Quantity((*n).to_owned())));
            let amounts: BTreeMap<_, _> = amounts.collect();
            let devices = amounts.iter().filter(|(name, _)| name.contains('/'));
            let devices = devices.map(|(name, n)| (name.clone(), n.clone())).collect();
            let resources = container.resources.get_or_insert_default();
            resources.limits = Some(if limited { amounts.clone() } else { devices });
            resources.requests = Some(amounts);
            container
        };
        spec.containers = containers.iter().enumerate().map(container).collect();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    /// Creates a Guaranteed pod with this much CPU.
    pub(super) async fn guaranteed(&self, pod: &str, cpu: &str) {
        self.create(pod, true, &[&[("cpu", cpu), ("memory", "64Mi")]]).await;
    }

    pub(super) async fn runs(&self, pod: &str) {
        runs(&self.client, &self.name(pod)).await;
    }

    pub(super) async fn delete(&self, pod: &str) {
        let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete(&self.name(pod), &force).await.unwrap();
    }

    /// The peers' sample plugin: one healthy device close to zone 0.
    pub(super) async fn sample_plugin(&self) -> DevicePlugin {
        let kubelet = self.node().kubelet();
        let plugin = DevicePlugin::start(kubelet, DEVICE, [device("Dev-1", &[0])], Options::default());
        let plugin = plugin.unwrap();
        plugin.registered(1).await.unwrap();
        plugin
    }

    /// An exporter as RTE's manifests start it, looking ten times a second, with its metrics.
    pub(super) async fn rte(&self, further: &[&str]) -> Running {
        let port = testkit::port::free().unwrap();
        let ip =
            further.iter().rev().find_map(|flag| flag.strip_prefix("--metrics-ip=")).unwrap_or("127.0.0.1");
        let secure = further.contains(&"--metrics-mode=httptls");
        let common = ["--sleep-interval=100ms", "-v=1", "--pods-fingerprint=true", "--podreadiness=false"];
        let metrics = [
            "--metrics-mode=http".to_owned(),
            format!("--metrics-ip={ip}"),
            format!("--metrics-port={port}"),
        ];
        let arguments = common.iter().map(|flag| (*flag).to_owned()).chain(metrics).chain([
            format!("--sysfs={}", self.node().kubelet().machine().sys().display()),
            format!("--kubelet-config-file={}", self.node().kubelet().config_file().display()),
        ]);
        let arguments = arguments.chain(further.iter().map(|flag| (*flag).to_owned())).collect();
        // Who serves on all addresses serves on the host's too.
        let host = if ip == "0.0.0.0" { "127.0.0.1" } else { ip };
        let scheme = if secure { "https" } else { "http" };
        self.start(Peer::Rte, arguments, self.env(), &format!("{scheme}://{host}:{port}")).await
    }

    /// An exporter as numaresources-operator starts its operand on OpenShift with default settings, in a container with
    /// this root; of the arguments only paths differ, and the port.
    pub(super) async fn operand(&self, root: &Path) -> Running {
        let kubelet = self.node().kubelet();
        let sockets = kubelet.podresources_socket();
        std::os::unix::fs::symlink(sockets.parent().unwrap(), root.join("host-podresources")).unwrap();
        let port = testkit::port::free().unwrap();
        let root = root.display();
        let arguments = [
            "--sleep-interval=10s".to_owned(),
            format!("--sysfs={}", kubelet.machine().sys().display()),
            format!("--podresources-socket=unix://{root}/host-podresources/kubelet.sock"),
            "-v=2".to_owned(),
            "--pods-fingerprint".to_owned(),
            "--metrics-mode=httptls".to_owned(),
            "--metrics-tls-min-version=VersionTLS12".to_owned(),
            "--metrics-tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
                .to_owned(),
            "--refresh-node-resources".to_owned(),
            format!("--notify-file={root}/run/rte/notify"),
            "--pods-fingerprint-method=with-exclusive-resources".to_owned(),
            "--add-nrt-owner=false".to_owned(),
            format!("--metrics-certs-dir={root}/etc/secrets/rte"),
            format!("--metrics-port={port}"),
        ];
        let mut env = Environment { root: root.to_string().into(), ..self.env() };
        env.variables.extend([
            ("REFERENCE_CONTAINER_NAME".to_owned(), "shared-pool-container".to_owned()),
            ("METRICS_PORT".to_owned(), "2112".to_owned()),
        ]);
        self.start(Peer::Rte, arguments.into(), env, &format!("https://127.0.0.1:{port}")).await
    }

    /// An exporter as NFD's manifests start it, but for the place of sysfs, which is fixed in its images.
    pub(super) async fn nfd(&self, further: &[&str]) -> Running {
        let port = testkit::port::free().unwrap();
        let config = format!("--kubelet-config-uri=file://{}", self.node().kubelet().config_file().display());
        let arguments =
            ["--pods-fingerprint=true".to_owned(), "-v=1".to_owned(), config, format!("-port={port}")];
        let arguments = arguments.into_iter().chain(further.iter().map(|flag| (*flag).to_owned())).collect();
        self.start(Peer::Nfd, arguments, self.env(), &format!("http://127.0.0.1:{port}")).await
    }

    /// The environment of a container on the node.
    fn env(&self) -> Environment {
        let (node, us) = (self.node().name(), self.name("us"));
        let variables = [
            ("NODE_NAME", node),
            ("KUBERNETES_NAMESPACE", "default"),
            ("REFERENCE_NAMESPACE", "default"),
            ("REFERENCE_POD_NAME", us.as_str()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Environment { variables, ..Environment::real() }
    }

    async fn start(&self, peer: Peer, mut arguments: Vec<String>, env: Environment, url: &str) -> Running {
        if !arguments.iter().any(|argument| argument.starts_with("--podresources-socket=")) {
            let socket = self.node().podresources_socket();
            arguments.push(format!("--podresources-socket=unix://{}", socket.display()));
        }
        arguments.push(format!("--kubeconfig={}", self.cluster.control().kubeconfig().display()));
        let mut plan = match peer.start(peer.program(), arguments, &env) {
            Start::Run(plan) => Ok(*plan),
            Start::End(ending) => Err(ending),
        }
        .unwrap();
        if peer == Peer::Nfd {
            plan.settings.sources.sysfs = self.node().kubelet().machine().sys();
        }
        let exporter = Exporter::with(plan.settings);
        let mut config = kube::Config::new(url.parse().unwrap());
        config.accept_invalid_certs = true;
        let running = Running { exporter, metrics: Client::try_from(config).unwrap() };
        until("metrics", async || running.scrape().await.ok()).await;
        running
    }
}

/// An exporter and what it tells about itself.
pub(super) struct Running {
    exporter: Exporter,
    metrics: Client,
}

impl Running {
    /// `/metrics`.
    pub(super) async fn scrape(&self) -> Result<String, kube::Error> {
        let request = kube::core::Request::new("").get("metrics", &GetParams::default()).unwrap();
        self.metrics.request_text(request).await
    }

    /// Waits until it has looked often enough to have seen what is there now, and that it stays.
    pub(super) async fn looks_again(&self) {
        self.looks(self.looked().await + LOOKS).await;
    }

    /// Waits for the look of this number since its start.
    pub(super) async fn looks(&self, wanted: u64) {
        until("looks", async || (self.looked().await >= wanted).then_some(())).await;
    }

    /// How often it has looked.
    pub(super) async fn looked(&self) -> u64 {
        let text = self.scrape().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("tholepin_exporter_scan_seconds_count "));
        line.unwrap().parse().unwrap()
    }

    pub(super) async fn stop(self) {
        self.exporter.stop().await;
    }
}
