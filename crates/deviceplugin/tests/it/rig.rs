//! One node with a real kubelet, our device plugin on it, our exporter beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use api::nrt::{NodeResourceTopology, attribute};
use clap::Parser as _;
use deviceplugin::config::Config;
use deviceplugin::discovery::Environment;
use deviceplugin::settings::{ConfigSource, Settings};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use node::deviceplugin::RegistrationMode;
use node::deviceplugin::wire::device_plugin_client::DevicePluginClient;
use node::podresources::wire;
use node::podresources::wire::pod_resources_lister_client::PodResourcesListerClient;
use runtime::log;
use testkit::cluster::{Builder, Cluster};
use testkit::cri::ContainerView;
use testkit::load;
use testkit::machine::Machine;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

/// A time limit far above what any step takes, for a machine busy with compiling.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The resource of most tests.
pub(crate) const NIC: &str = "example.com/nic";

/// A cluster of one node with two zones of 8 CPUs.
pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    pub(crate) files: tempfile::TempDir,
}

/// Records the states of the node's object.
pub(crate) struct Reports {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Vec<NodeResourceTopology>>,
}

impl Reports {
    /// Ends the record and returns it.
    pub(crate) async fn stop(self) -> Vec<NodeResourceTopology> {
        self.stop.send(()).unwrap();
        let seen = self.task.await.unwrap();
        assert!(!seen.is_empty());
        seen
    }
}

/// A device plugin or exporter running in this process; dropping it ends it.
pub(crate) struct Running {
    token: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Ends it in order and checks that it did not fail.
    pub(crate) async fn stop(mut self) {
        self.token.cancel();
        (&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.token.cancel();
        self.task.abort();
    }
}

#[derive(clap::Parser)]
struct SchedulerCli {
    #[command(flatten)]
    args: scheduler::args::Args,
}

/// The log of this process.
fn log() -> log::Handle {
    static LOG: OnceLock<log::Handle> = OnceLock::new();
    LOG.get_or_init(|| log::init(log::Format::Text, 2).unwrap()).clone()
}

#[derive(clap::Parser)]
struct ExporterCli {
    #[command(flatten)]
    args: exporter::Args,
}

impl Rig {
    /// Starts the rig; none, with a warning, where it cannot run.
    pub(crate) async fn start() -> Option<Self> {
        Self::with(|builder| builder).await
    }

    /// Starts the rig with a changed cluster.
    pub(crate) async fn with(change: impl FnOnce(Builder) -> Builder) -> Option<Self> {
        log();
        let rig = testkit::env::rig().ok()?;
        let machine = Machine::new().zones(2).cpus_per_zone(8);
        let builder = Cluster::builder().machines([machine]).crds(api::crd::NRT_CRD_YAML);
        let cluster = change(builder).start(&rig).await.unwrap();
        let client = cluster.client().await.unwrap();
        Some(Self { cluster, client, files: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.cluster.nodes()[0].kubelet().root_dir().join("device-plugins")
    }

    /// The folder of the kubelet's plugin watcher.
    pub(crate) fn registry(&self) -> PathBuf {
        self.cluster.nodes()[0].kubelet().root_dir().join("plugins_registry")
    }

    pub(crate) fn cdi_dir(&self) -> PathBuf {
        self.files.path().join("cdi")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Settings with this configuration.
    pub(crate) fn settings(&self, source: ConfigSource) -> Settings {
        let sysfs = self.cluster.nodes()[0].kubelet().machine().sys();
        Settings {
            source,
            environment: Environment { node: "node-0".to_owned(), sysfs, allow_host_paths: false },
            registration: RegistrationMode::Register,
            socket_dir: self.folder(),
            cdi_dir: self.cdi_dir(),
            http: None,
            health: None,
            dra: None,
        }
    }

    /// Starts a plugin with this configuration.
    pub(crate) fn plugin(&self, text: &str) -> Running {
        run(self.settings(ConfigSource::Flags(Config::parse("test", text).unwrap())))
    }

    /// Starts a plugin whose configuration is a file that may change: write it with [`replace`].
    pub(crate) fn plugin_of(&self, path: &Path) -> Running {
        run(self.settings(ConfigSource::File(path.to_owned())))
    }

    /// Starts the exporter of the node.
    pub(crate) fn exporter(&self, more: &[&str]) -> Running {
        let kubelet = self.cluster.nodes()[0].kubelet();
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        let mut words = vec![
            "exporter".to_owned(),
            "--hostname=node-0".to_owned(),
            format!("--podresources-socket=unix://{}", kubelet.podresources_socket().display()),
            flag("sysfs", &kubelet.machine().sys()),
            flag("kubelet-state-dir", kubelet.root_dir()),
            flag("kubelet-config-file", &kubelet.config_file()),
            flag("kubeconfig", self.cluster.control().kubeconfig()),
            "--metrics-port=0".to_owned(),
        ];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let args = ExporterCli::parse_from(words).args;
        let token = CancellationToken::new();
        let ends = token.clone();
        Running { token, task: tokio::spawn(async move { exporter::run(args.settings()?, ends).await }) }
    }

    /// Starts our scheduler.
    pub(crate) fn scheduler(&self) -> Running {
        let kubeconfig = self.cluster.control().kubeconfig().display().to_string();
        let words = ["scheduler", "--kubeconfig", &kubeconfig, "--http-bind-address=127.0.0.1:0", "--seed=1"];
        let args = SchedulerCli::parse_from(words).args;
        let token = CancellationToken::new();
        Running { task: tokio::spawn(scheduler::shell::run(args, log(), token.clone())), token }
    }

    /// Capacity and allocatable of a resource on the node.
    pub(crate) async fn node(&self, resource: &str) -> (String, String) {
        let node = Api::<Node>::all(self.client.clone()).get("node-0").await.unwrap();
        let status = node.status.unwrap_or_default();
        let of = |list: Option<BTreeMap<String, Quantity>>| {
            list.and_then(|list| list.get(resource).cloned()).map_or("-".to_owned(), |amount| amount.0)
        };
        (of(status.capacity), of(status.allocatable))
    }

    /// Waits until the node has this capacity and allocatable of a resource.
    pub(crate) async fn node_has(&self, resource: &str, capacity: &str, allocatable: &str) {
        self.node_has_within(PATIENCE, resource, capacity, allocatable).await;
    }

    /// Like `node_has`, with a time limit.
    pub(crate) async fn node_has_within(
        &self,
        patience: Duration,
        resource: &str,
        capacity: &str,
        allocatable: &str,
    ) {
        let mut last = Default::default();
        let wanted = (capacity.to_owned(), allocatable.to_owned());
        let began = Instant::now();
        loop {
            let now = self.node(resource).await;
            if now == wanted {
                return;
            }
            assert!(began.elapsed() < patience, "{resource}: {wanted:?} wanted, still {last:?}");
            last = now;
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the zones show `0 available/allocatable/capacity | 1 ..` of a resource.
    pub(crate) async fn zones(&self, resource: &str, wanted: &str) -> NodeResourceTopology {
        let api = Api::<NodeResourceTopology>::all(self.client.clone());
        let mut last = String::new();
        let began = Instant::now();
        loop {
            if let Some(nrt) = api.get_opt("node-0").await.unwrap() {
                last = show(&nrt, resource);
                if last == wanted {
                    return nrt;
                }
            }
            assert!(began.elapsed() < PATIENCE, "{resource}: {wanted:?} wanted, still {last:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Records all states of the node's object from now on.
    pub(crate) async fn reports(&self) -> Reports {
        let api = Api::<NodeResourceTopology>::all(self.client.clone());
        let params = WatchParams::default().fields("metadata.name=node-0");
        let mut events = api.watch(&params, "0").await.unwrap().boxed();
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                tokio::select! {
                    event = events.next() => match event.expect("the watch outlasts the test").unwrap() {
                        WatchEvent::Added(nrt) | WatchEvent::Modified(nrt) => seen.push(nrt),
                        other => assert!(matches!(other, WatchEvent::Bookmark(_)), "{other:?}"),
                    },
                    _ = &mut stopped => return seen,
                }
            }
        });
        Reports { stop, task }
    }

    /// Creates a Guaranteed pod of one CPU and these devices, bound to the node.
    pub(crate) async fn pod(&self, name: &str, devices: &[(&str, u32)]) {
        let mut pod = load::guaranteed_pod(name, "no-scheduler", [("cpu", "1"), ("memory", "64Mi")]);
        pod.spec.as_mut().unwrap().node_name = Some("node-0".to_owned());
        self.create(pod, devices).await;
    }

    /// Creates such a pod for our scheduler to place.
    pub(crate) async fn unplaced_pod(&self, name: &str, devices: &[(&str, u32)]) {
        let amounts = [("cpu", "1"), ("memory", "64Mi")];
        self.create(load::guaranteed_pod(name, "topo-aware-scheduler", amounts), devices).await;
    }

    async fn create(&self, mut pod: Pod, devices: &[(&str, u32)]) {
        let spec = pod.spec.as_mut().unwrap();
        let resources = spec.containers[0].resources.as_mut().unwrap();
        for list in [&mut resources.requests, &mut resources.limits] {
            let amounts =
                devices.iter().map(|(name, count)| ((*name).to_owned(), Quantity(count.to_string())));
            list.get_or_insert_default().extend(amounts);
        }
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Waits until the scheduler reports that it has no node for the pod; returns its message.
    pub(crate) async fn unschedulable(&self, name: &str) -> String {
        until(&format!("a verdict on {name}"), async || {
            let conditions = self.pods().get(name).await.ok()?.status?.conditions?;
            conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?.message
        })
        .await
    }

    /// Phase, reason and message of a pod.
    pub(crate) async fn state(&self, name: &str) -> (String, String, String) {
        let status = self.pods().get(name).await.unwrap().status.unwrap_or_default();
        let [phase, reason, message] =
            [status.phase, status.reason, status.message].map(Option::unwrap_or_default);
        (phase, reason, message)
    }

    /// Waits until the pod runs.
    pub(crate) async fn runs(&self, name: &str) {
        until(&format!("{name} running"), async || {
            let (phase, reason, message) = self.state(name).await;
            assert_ne!(phase, "Failed", "{name}: {reason}: {message}");
            (phase == "Running").then_some(())
        })
        .await;
    }

    /// Waits until the kubelet has rejected the pod; returns reason and message.
    pub(crate) async fn refused(&self, name: &str) -> (String, String) {
        until(&format!("{name} refused"), async || {
            let (phase, reason, message) = self.state(name).await;
            (phase == "Failed").then_some((reason, message))
        })
        .await
    }

    /// Deletes a pod and waits until it is gone.
    pub(crate) async fn let_go(&self, name: &str) {
        let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete(name, &force).await.unwrap();
        until("gone", async || self.pods().get_opt(name).await.unwrap().is_none().then_some(())).await;
    }

    /// The ids of a resource that each pod holds, as the kubelet reports.
    pub(crate) async fn held(&self, resource: &str) -> BTreeMap<String, Vec<String>> {
        // A kubelet that has just started may close its first connections.
        let list = until("podresources", async || {
            let channel = dial(&self.cluster.nodes()[0].podresources_socket()).await?;
            let mut lister = PodResourcesListerClient::new(channel).max_decoding_message_size(16 << 20);
            Some(lister.list(wire::ListPodResourcesRequest {}).await.ok()?.into_inner())
        })
        .await;
        let of = |pod: wire::PodResources| {
            let devices = pod.containers.iter().flat_map(|container| &container.devices);
            let mut ids: Vec<String> = devices
                .filter(|device| device.resource_name == resource)
                .flat_map(|device| device.device_ids.clone())
                .collect();
            ids.sort_unstable();
            ids.dedup();
            (pod.name, ids)
        };
        list.pod_resources.into_iter().map(of).filter(|(_, ids)| !ids.is_empty()).collect()
    }

    /// Waits until the kubelet itself has this many healthy devices. The node's object may still be that of an earlier
    /// kubelet.
    pub(crate) async fn offers(&self, resource: &str, count: usize) {
        until(&format!("{count} of {resource}"), async || {
            let channel = dial(&self.cluster.nodes()[0].podresources_socket()).await?;
            let mut lister = PodResourcesListerClient::new(channel).max_decoding_message_size(16 << 20);
            let answer = lister.get_allocatable_resources(wire::AllocatableResourcesRequest {}).await.ok()?;
            let devices = answer.into_inner().devices.into_iter();
            let ids: BTreeSet<String> = devices
                .filter(|found| found.resource_name == resource)
                .flat_map(|found| found.device_ids)
                .collect();
            (ids.len() == count).then_some(())
        })
        .await;
    }

    /// Waits until a restarted kubelet knows again which pod holds which devices. Before, it may know fewer, never
    /// others.
    pub(crate) async fn holds(&self, resource: &str, wanted: &BTreeMap<String, Vec<String>>) {
        until("who holds what", async || {
            let held = self.held(resource).await;
            assert!(held.iter().all(|(pod, ids)| wanted.get(pod) == Some(ids)), "{held:?} {wanted:?}");
            (held == *wanted).then_some(())
        })
        .await;
    }

    /// A pod's container as the container runtime got it.
    pub(crate) fn container(&self, pod: &str) -> ContainerView {
        let snapshot = self.cluster.nodes()[0].cri().snapshot();
        snapshot.pod("default", pod).unwrap().container("main").unwrap().clone()
    }

    /// The variables of a container as runtimes set them: those of the kubelet, overridden by those of the devices'
    /// files in order.
    pub(crate) fn variables(&self, container: &ContainerView) -> BTreeMap<String, String> {
        let text = |value: &Vec<u8>| String::from_utf8(value.clone()).unwrap();
        let mut all: BTreeMap<_, _> =
            container.env.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        let annotated =
            container.annotations.iter().filter(|(key, _)| key.starts_with(cdi::annotation::PREFIX));
        let annotated = annotated.flat_map(|(_, value)| value.split(','));
        let registry = cdi::Registry::read(&[self.cdi_dir()]);
        let mut files = BTreeSet::new();
        for name in container.cdi_devices.iter().map(String::as_str).chain(annotated) {
            let (device, file) = registry.device(&name.parse().unwrap()).expect("a device in a file");
            let once = files.insert(&file.path).then_some(&file.spec.container_edits);
            for edit in once.into_iter().chain([&device.container_edits]).flat_map(|edits| &edits.env) {
                let (name, value) = edit.split_once('=').unwrap();
                all.insert(name.to_owned(), value.to_owned());
            }
        }
        all
    }

    /// A client that calls a plugin as a kubelet does.
    pub(crate) async fn client_of(&self, socket: &Path) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(channel(socket).await).max_encoding_message_size(usize::MAX)
    }
}

/// Connects to a socket.
pub(crate) async fn channel(socket: &Path) -> Channel {
    dial(socket).await.unwrap()
}

async fn dial(socket: &Path) -> Option<Channel> {
    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await.ok()
}

/// Starts a plugin.
pub(crate) fn run(settings: Settings) -> Running {
    let token = CancellationToken::new();
    Running { task: tokio::spawn(deviceplugin::run(settings, token.clone())), token }
}

/// Replaces a file as a whole.
pub(crate) fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Waits until `ask` has an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: still not after {PATIENCE:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Formats available, allocatable and capacity of one resource in every zone: `0 1/2/2 | 1 ..`.
pub(crate) fn show(nrt: &NodeResourceTopology, resource: &str) -> String {
    let zone = |zone: &api::nrt::Zone| {
        let amounts = zone.resources.iter().find(|r| r.name == resource);
        let amounts = amounts
            .map_or("-".to_owned(), |r| format!("{}/{}/{}", r.available.0, r.allocatable.0, r.capacity.0));
        format!("{} {amounts}", zone.name.trim_start_matches("node-"))
    };
    nrt.zones.iter().map(zone).collect::<Vec<_>>().join(" | ")
}

/// The fingerprint of the pods that a report covers.
pub(crate) fn fingerprint(nrt: &NodeResourceTopology) -> String {
    attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_FINGERPRINT).unwrap_or_default().to_owned()
}

/// A configuration of one resource with these devices: `id zone`, with `!` before the id of an unhealthy one and `-`
/// for no zone; `more` has further fields.
pub(crate) fn listed(resource: &str, devices: &[&str], more: &str) -> String {
    format!("version: v1alpha1\nresources:\n{}", entry(resource, devices, more))
}

/// One resource of a configuration.
pub(crate) fn entry(resource: &str, devices: &[&str], more: &str) -> String {
    let device = |device: &&str| {
        let (id, zones) = device.split_once(' ').unwrap();
        let zones = if zones == "-" { "" } else { zones };
        let (healthy, id) = id.strip_prefix('!').map_or((true, id), |id| (false, id));
        format!("{{id: {id}, healthy: {healthy}, numanodes: [{zones}]}}")
    };
    let devices: Vec<String> = devices.iter().map(device).collect();
    let devices = devices.join(", ");
    format!("- name: {resource}\n  discovery: {{list: {{devices: {{\"*\": [{devices}]}}}}}}\n{more}")
}
