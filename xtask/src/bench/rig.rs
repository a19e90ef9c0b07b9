//! A cluster with our exporter on every node and, if wanted, our scheduler: what benchmarks run on.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::wait::await_condition;
use serde_json::{Map, json};
use testkit::cluster::{Cluster, ClusterNode};
use testkit::controlplane::ControlPlaneOptions;
use testkit::device_plugin::{DevicePlugin, Options, device};
use testkit::env::{self, Rig};
use testkit::kubelet::KubeletOptions;
use testkit::load::DEVICE;
use testkit::machine::Machine;
use testkit::process_group::{Process, Spec};
use topology::policy::{CpuOption, Policy, Scope};

use super::figures::Figures;
use crate::cargo::{self, CLIENT, DIST};

/// The scheduler name of our pods.
pub(crate) const TOPO_AWARE: &str = "topo-aware-scheduler";
/// The scheduler name of kube-scheduler's pods.
pub(crate) const STOCK: &str = "default-scheduler";
/// Huge pages of 2 MiB in each zone of mixed nodes.
const HUGE_PAGES: u64 = 64;
/// Devices in each zone of mixed nodes.
pub(super) const DEVICES: u32 = 4;
/// How long an exporter may take to its first report, or a scheduler to be ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Shape of the machines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) zones: u32,
    pub(crate) cpus_per_zone: u32,
    /// Cores of two threads that are handed out as a whole, huge pages, and devices.
    pub(crate) mixed: bool,
    /// The policy of the kubelets; without one single-numa-node, of mixed ones restricted and best-effort by turns.
    pub(crate) policy: Option<Policy>,
    /// The scope of the kubelets.
    pub(crate) scope: Scope,
}

/// The program that reports nodes.
#[derive(Clone, Debug)]
pub(crate) enum ExporterProgram {
    /// Ours, which reacts to the kubelet.
    Tholepin,
    /// resource-topology-exporter, which looks once in an interval.
    Rte { program: PathBuf, interval: Duration },
    /// nfd-topology-updater, which looks once in an interval, and never when the kubelet's state changes.
    Nfd { program: PathBuf, interval: Duration },
}

/// A running cluster and our processes in it. Everything ends when it is dropped.
pub(crate) struct TestBed {
    pub(crate) exporters: Vec<Process>,
    pub(crate) scheduler: Option<Process>,
    _plugins: Vec<DevicePlugin>,
    pub(crate) cluster: Cluster,
    binary: PathBuf,
    port: u16,
}

impl Shape {
    /// No node at all: a control plane for nodes that a benchmark makes itself.
    pub(crate) const NONE: Self =
        Self { nodes: 0, zones: 1, cpus_per_zone: 1, mixed: false, policy: None, scope: Scope::Container };

    /// CPUs pods can have, together: one of each node is reserved, or a core.
    pub(crate) fn allocatable_cpus(self) -> u32 {
        let nodes = u32::try_from(self.nodes).unwrap_or(u32::MAX);
        nodes * (self.zones * self.cpus_per_zone - if self.mixed { 2 } else { 1 })
    }

    fn machine(self) -> Machine {
        let machine = Machine::new().zones(self.zones).cpus_per_zone(self.cpus_per_zone);
        if self.mixed { machine.smt(true).hugepages_per_zone(2048, HUGE_PAGES) } else { machine }
    }

    fn kubelet(self, node: usize) -> KubeletOptions {
        let options = KubeletOptions { scope: self.scope, ..KubeletOptions::default() };
        if !self.mixed {
            return KubeletOptions { policy: self.policy.unwrap_or(options.policy), ..options };
        }
        let by_turns = if node.is_multiple_of(2) { Policy::Restricted } else { Policy::BestEffort };
        let whole_cores = json!({ CpuOption::FullPcpusOnly.as_str(): "true" });
        let config = Map::from_iter([("cpuManagerPolicyOptions".to_owned(), whole_cores)]);
        KubeletOptions { policy: self.policy.unwrap_or(by_turns), config, ..options }
    }
}

impl TestBed {
    /// Starts control plane and kubelets; with `stock`, kube-scheduler too.
    pub(crate) async fn start(shape: Shape, stock: bool, binary: PathBuf) -> anyhow::Result<Self> {
        let rig = rig()?;
        let builder = Cluster::builder().crds(api::crd::NRT_CRD_YAML).scheduler(stock);
        let nodes = 0..shape.nodes;
        let builder = nodes.fold(builder, |builder, node| builder.node(shape.machine(), shape.kubelet(node)));
        let cluster = builder.start(&rig).await?;
        let plugins = if shape.mixed { plugins(&cluster, shape.zones).await? } else { Vec::new() };
        Ok(Self { exporters: Vec::new(), scheduler: None, _plugins: plugins, cluster, binary, port: 0 })
    }

    /// Starts a control plane alone, without the kind of reports: no exporter is waited for.
    pub(crate) async fn without_nodes(control: ControlPlaneOptions, binary: PathBuf) -> anyhow::Result<Self> {
        let cluster = Cluster::builder().control(control).start(&rig()?).await?;
        Ok(Self { exporters: Vec::new(), scheduler: None, _plugins: Vec::new(), cluster, binary, port: 0 })
    }

    /// Starts an exporter on each node and waits for their reports.
    pub(crate) async fn start_exporters(&mut self, exporter: &ExporterProgram) -> anyhow::Result<()> {
        for node in self.cluster.nodes() {
            let process = self.cluster.spawn(self.exporter(node, exporter)?)?;
            self.exporters.push(process);
        }
        let within = match exporter {
            ExporterProgram::Tholepin => READY_WITHIN,
            ExporterProgram::Rte { interval, .. } | ExporterProgram::Nfd { interval, .. } => {
                READY_WITHIN + *interval
            }
        };
        let reports: Api<NodeResourceTopology> = Api::all(self.cluster.client().await?);
        for (node, exporter) in self.cluster.nodes().iter().zip(&self.exporters) {
            let (reports, name) = (reports.clone(), node.name().to_owned());
            exporter
                .wait_until("publishing", within, async || {
                    reports.get_opt(&name).await.ok().flatten().is_some()
                })
                .await?;
        }
        Ok(())
    }

    /// Starts our scheduler without a configuration file and waits until it is ready.
    pub(crate) async fn start_scheduler(&mut self) -> anyhow::Result<()> {
        let kubeconfig = self.cluster.control().kubeconfig().display().to_string();
        self.start_scheduler_with(&["--leader-elect=false", "--kubeconfig", kubeconfig.as_str()]).await
    }

    /// Starts our scheduler with the configuration file of the stock one and waits until it is ready.
    pub(crate) async fn start_scheduler_as_stock(&mut self) -> anyhow::Result<()> {
        let config = self.cluster.control().scheduler_config()?.display().to_string();
        self.start_scheduler_with(&["--config", config.as_str()]).await
    }

    async fn start_scheduler_with(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        self.port = testkit::port::free()?;
        let spec = Spec::new("tholepin-scheduler", &self.binary)
            .args(["scheduler", "-v4"])
            .args(flags.iter().copied())
            .args(["--http-bind-address".to_owned(), format!("127.0.0.1:{}", self.port)]);
        let process = self.cluster.spawn(spec)?;
        self.scheduler = Some(process);
        self.scheduler_ready().await
    }

    /// Waits until our scheduler has received all objects.
    pub(crate) async fn scheduler_ready(&self) -> anyhow::Result<()> {
        let process = self.scheduler.as_ref().context("no scheduler was started")?;
        process.wait_until("ready", READY_WITHIN, async || is_ready(self.port).await).await
    }

    /// The value of a metric of our scheduler that has no labels.
    pub(crate) async fn scheduler_metric(&self, name: &str) -> Option<f64> {
        self.scheduler.as_ref()?;
        let answer = get(self.port, "/metrics").await.ok()?;
        Figures::parse(&answer).value(name)
    }

    /// The program that is measured.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    fn exporter(&self, node: &ClusterNode, exporter: &ExporterProgram) -> anyhow::Result<Spec> {
        let name = format!("exporter-{}", node.name());
        Ok(match exporter {
            ExporterProgram::Tholepin => Spec::new(name, &self.binary)
                .args(["exporter", "-v4", "--metrics-port=0"])
                .arg(format!("--kubelet-state-dir={}", node.kubelet().root_dir().display()))
                .args(places(&self.cluster, node)),
            ExporterProgram::Rte { program, interval } => Spec::new(name, program)
                .args(["--podreadiness=false", "--metrics-mode=disabled"])
                .arg(format!("--sleep-interval={}ms", interval.as_millis()))
                .args(places(&self.cluster, node)),
            // It takes no other place for `/sys`.
            ExporterProgram::Nfd { program, interval } => Spec::new(name, program)
                .within(node.kubelet().host().namespaces())
                .env("NODE_NAME", node.name())
                .env("KUBERNETES_NAMESPACE", "default")
                .args(["-kubelet-state-dir=".to_owned(), format!("-port={}", testkit::port::free()?)])
                .arg(format!("-sleep-interval={}ms", interval.as_millis()))
                .arg(format!("-podresources-socket={}", node.podresources_socket().display()))
                .arg(format!("-kubelet-config-uri=file://{}", node.kubelet().config_file().display()))
                .arg(format!("-kubeconfig={}", self.cluster.control().kubeconfig().display())),
        })
    }
}

fn rig() -> anyhow::Result<Rig> {
    match env::check() {
        Ok(rig) => Ok(rig),
        Err(reason) => bail!("the benchmark needs the rig: {reason}"),
    }
}

/// A device plugin on each node, with devices in each zone. Returns when every node object lists them.
async fn plugins(cluster: &Cluster, zones: u32) -> anyhow::Result<Vec<DevicePlugin>> {
    let mut plugins = Vec::new();
    for node in cluster.nodes() {
        let of_zone = |zone| (0..DEVICES).map(move |at| device(&format!("z{zone}-{at}"), &[zone]));
        let devices = (0..zones).flat_map(of_zone);
        plugins.push(DevicePlugin::start(node.kubelet(), DEVICE, devices, Options::default())?);
    }
    for plugin in &plugins {
        plugin.registered(1).await?;
    }
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    for node in cluster.nodes() {
        let lists_devices = |node: Option<&Node>| {
            let status = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
            status.and_then(|amounts| amounts.get(DEVICE)).is_some_and(|amount| amount.0 != "0")
        };
        let listed = await_condition(nodes.clone(), node.name(), lists_devices);
        let listed = tokio::time::timeout(READY_WITHIN, listed).await;
        listed.with_context(|| format!("node {} does not list {DEVICE}", node.name()))??;
    }
    Ok(plugins)
}

/// Where an exporter of a node finds everything, in flags that our exporter and resource-topology-exporter share.
pub(crate) fn places(cluster: &Cluster, node: &ClusterNode) -> [String; 5] {
    let kubelet = node.kubelet();
    let config = kubelet.config_file();
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    [
        format!("--hostname={}", node.name()),
        format!("--podresources-socket=unix://{}", node.podresources_socket().display()),
        flag("sysfs", &kubelet.machine().sys()),
        flag("kubelet-config-file", &config),
        flag("kubeconfig", cluster.control().kubeconfig()),
    ]
}

/// Whether `/readyz` on a local port says ok.
async fn is_ready(port: u16) -> bool {
    get(port, "/readyz").await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// What a server on a local port answers, head and body.
pub(crate) async fn get(port: u16, path: &str) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Builds the program as it is shipped, but not statically; its path.
pub(crate) fn build_dist() -> anyhow::Result<PathBuf> {
    build("tholepin", DIST)
}

/// Goes on as an optimised build of this process, unless it is one: clients of a benchmark share the machine with what
/// they measure.
pub(crate) fn optimise() -> anyhow::Result<()> {
    if cfg!(not(debug_assertions)) {
        return Ok(());
    }
    let optimised = build("xtask", CLIENT)?;
    let error = Command::new(&optimised).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("cannot run {}", optimised.display()))
}

/// Builds the binary of a package with a profile; its path.
fn build(package: &str, profile: &str) -> anyhow::Result<PathBuf> {
    eprintln!("building {package} (profile {profile})");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut build = cargo::command("build");
    build.current_dir(root).args(["--profile", profile, "--quiet", "--package", package]);
    let status = build.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo build --profile {profile} --package {package} failed");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let binary = target.join(profile).join(package);
    binary.canonicalize().with_context(|| format!("{}", binary.display()))
}
