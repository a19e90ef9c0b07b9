//! A cluster with our whole stack, as the operator installs it.
//!
//! In: a platform. Out: a cluster in which `tholepin e2e` runs as a process of an administrator. Never: a part of the
//! stack that is not a pod.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use deployer::platform::Platform;
use e2e::placement::state_of;
use fakes::openshift::mco::Mco;
use fakes::openshift::{self, Flavour};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use objects::Object;
use operator::manifests;
use serde_json::{Value, json};
use testkit::cluster::{Cluster, install_crds};
use testkit::controlplane::ControlPlaneOptions;
use testkit::cri::{Image, Images};
use testkit::kubelet::KubeletOptions;
use testkit::machine::Machine;
use testkit::{env, net};
use tokio::time::Instant;
use topology::policy::{Policy, Scope};

const IMAGE: &str = "tholepin:test";
const PAUSE: &str = "pause";
/// An image with the same programs, which the operator takes for another stack's: its exporter brings a shell.
pub(crate) const OTHER_IMAGE: &str = "tholepin:other";
/// The images that nodes have.
pub(crate) const IMAGES: [&str; 4] = ["--image", IMAGE, "--pause-image", PAUSE];
/// The variable that puts network policies in force; not by default, since a start may then take a minute.
const POLICIES: &str = "E2E_NETWORK_POLICIES";
/// The variable that lets exporters hear of no file events, with the period of their timer.
pub(crate) const LAG: &str = "E2E_LAG";
/// The longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(90);
/// The platform's version.
const VERSION: &str = "4.99.3";
/// The pool of the workers, where there is no MachineConfigPool.
const POOL: &str = "workers";
/// The label of the workers' MachineConfigPool.
const WORKERS: &str = "pools.operator.machineconfiguration.openshift.io/worker";

/// A cluster with the stack.
pub(crate) struct Rig {
    // First: it works on the machines.
    _mco: Option<Mco>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) admin: Client,
    platform: Platform,
    program: PathBuf,
}

/// What a variable of the rig says.
pub(crate) fn told(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with these arguments and this kubeconfig.
pub(crate) fn command(program: &Path, kubeconfig: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(words).arg("--kubeconfig").arg(kubeconfig);
    command
}

/// Runs a command to its end.
pub(crate) async fn run(mut command: Command) -> Ended {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Whether a condition comes to hold in time.
pub(crate) async fn until(holds: impl AsyncFn() -> bool) -> bool {
    let began = Instant::now();
    while !holds().await {
        if began.elapsed() >= PATIENCE {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    true
}

/// The rig's programs, and the program under test.
pub(crate) fn programs() -> Option<Programs> {
    let rig = env::rig().ok()?;
    let program = env::tholepin();
    if program.is_none() {
        println!("SKIPPED: no tholepin binary; cargo xtask test builds it");
        assert!(std::env::var_os(env::REQUIRE).is_none_or(|value| value.is_empty()));
    }
    Some((rig, program?))
}

/// The rig's programs, and the program that runs the suite.
type Programs = (testkit::env::Rig, PathBuf);

/// Plays `body` in a cluster with the stack; see [`play_operator`].
pub(crate) fn play(platform: Platform, body: impl AsyncFnOnce(Rig) + Send) {
    let Some(programs) = programs() else { return };
    let image = image(&programs.1);
    play_image(programs, platform, image, body);
}

/// The same with a stack of this image, which the suite of the program tests.
pub(crate) fn play_image(
    programs: Programs,
    platform: Platform,
    image: Image,
    body: impl AsyncFnOnce(Rig) + Send,
) {
    start(programs, platform, kubelets(platform), image, with_stack(body));
}

/// The same on plain Kubernetes, with a node for each of these kubelets.
pub(crate) fn play_kubelets(kubelets: Vec<KubeletOptions>, body: impl AsyncFnOnce(Rig) + Send) {
    let Some(programs) = programs() else { return };
    let image = image(&programs.1);
    start(programs, Platform::Kubernetes, kubelets, image, with_stack(body));
}

/// The body that installs the stack first.
fn with_stack(body: impl AsyncFnOnce(Rig) + Send) -> impl AsyncFnOnce(Rig) + Send {
    async move |rig: Rig| {
        let began = Instant::now();
        rig.install_stack().await;
        println!("rig: with the stack after {:?} more", began.elapsed());
        body(rig).await;
    }
}

/// Plays `body` in a cluster with the operator and none of its objects: on Kubernetes with two nodes of each scope; on
/// OpenShift with a tainted master and two workers, whose kubelets a fake of the Machine Config Operator changes; on
/// HyperShift with two workers of a NodePool.
pub(crate) fn play_operator(platform: Platform, body: impl AsyncFnOnce(Rig) + Send) {
    let Some(programs) = programs() else { return };
    let image = image(&programs.1);
    start(programs, platform, kubelets(platform), image, body);
}

fn start(
    (rig, program): Programs,
    platform: Platform,
    kubelets: Vec<KubeletOptions>,
    image: Image,
    body: impl AsyncFnOnce(Rig) + Send,
) {
    net::private(async |network| {
        let began = Instant::now();
        let mut control =
            ControlPlaneOptions { network: Some(network.clone()), ..ControlPlaneOptions::default() };
        if platform.is_openshift() {
            let plugins = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
            control.api_server_flags = vec![plugins.to_owned()];
        }
        let nodes = kubelets.into_iter().map(|kubelet| (machine(), kubelet));
        let builder = nodes.fold(Cluster::builder().control(control), |builder, (machine, kubelet)| {
            builder.node(machine, kubelet)
        });
        let builder = builder.network_policies(told(POLICIES).is_some());
        let builder = builder.installable(network, images(image, platform));
        let cluster = Arc::new(builder.start(&rig).await.unwrap());
        let admin = cluster.client().await.unwrap();
        let _mco = match platform {
            Platform::Kubernetes => None,
            Platform::OpenShift => Some(openshift(&admin, &cluster).await),
            Platform::HyperShift => {
                hypershift(&admin).await;
                None
            }
        };
        let rig = Rig { _mco, cluster, admin, platform, program };
        rig.install_operator().await;
        println!("rig: a cluster in {:?}", began.elapsed());
        body(rig).await;
    })
    .unwrap();
}

/// The image with a program as everything that the stack has.
pub(crate) fn image(program: &Path) -> Image {
    Image::program(program)
        .file(program, "/bin/resource-topology-exporter")
        .file(program, "/bin/kube-scheduler")
        .file(program, "/bin/numaresources-operator")
        .file(program, "/bin/lsplatform")
}

/// One image for everything, and one that waits.
fn images(image: Image, platform: Platform) -> Images {
    // Security context constraints would choose a user of the namespace.
    let image = if platform.is_openshift() { image.user(1000, 1000) } else { image };
    let other = image.clone().file("/bin/sh", "/bin/sh").file("/bin/sleep", "/bin/sleep");
    Images::new().with(OTHER_IMAGE, other).with(IMAGE, image).with(PAUSE, Image::pause())
}

/// The nodes' kubelets.
fn kubelets(platform: Platform) -> Vec<KubeletOptions> {
    let worker = |options: &KubeletOptions| {
        let labels = [("node-role.kubernetes.io/worker", ""), (openshift::NODE_POOL, POOL)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        KubeletOptions { labels: labels.into(), ..options.clone() }
    };
    match platform {
        Platform::Kubernetes => [Scope::Container, Scope::Container, Scope::Pod, Scope::Pod]
            .map(|scope| KubeletOptions { scope, ..KubeletOptions::default() })
            .to_vec(),
        Platform::OpenShift => {
            // All that is aligned is so by a KubeletConfig.
            let base = KubeletOptions { policy: Policy::None, ..KubeletOptions::default() };
            vec![base.clone().master(), worker(&base), worker(&base)]
        }
        Platform::HyperShift => vec![worker(&KubeletOptions::default()); 2],
    }
}

/// Makes the cluster one of OpenShift, and its workers aligned. Nothing runs yet that a reboot would end.
async fn openshift(admin: &Client, cluster: &Arc<Cluster>) -> Mco {
    openshift::install(admin, Flavour::OpenShift, VERSION).await.unwrap();
    openshift::make(admin, &openshift::kubelet_config("numa", WORKERS, &aligned())).await.unwrap();
    let mco = Mco::start_with(admin, cluster.clone());
    mco.settled(PATIENCE).await.unwrap();
    mco
}

/// Makes the cluster one of HyperShift, which says of its kubelets what they are.
async fn hypershift(admin: &Client) {
    openshift::install(admin, Flavour::HyperShift, VERSION).await.unwrap();
    openshift::make(admin, &openshift::node_pool_config(POOL, &aligned())).await.unwrap();
}

/// The kubelets' settings.
fn aligned() -> Value {
    json!({ "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "container" })
}

/// Zones in which every vector has room.
fn machine() -> Machine {
    Machine::new()
        .zones(2)
        .cpus_per_zone(24)
        .memory_mib_per_zone(48 << 10)
        .hugepages_per_zone(2048, 512)
        .hugepages_per_zone(1 << 20, 4)
}

impl Rig {
    /// A command with these arguments, as an administrator: exit code and both outputs.
    pub(crate) async fn run(&self, words: &[&str]) -> Ended {
        run(self.command(words)).await
    }

    /// The program with these arguments, as an administrator of the cluster.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = command(&self.program, self.cluster.control().kubeconfig(), words);
        command.args(IMAGES);
        command
    }

    async fn install_operator(&self) {
        for definition in [api::crd::operator_crd(), api::crd::scheduler_crd()] {
            install_crds(&self.admin, &serde_json::to_string(&definition).unwrap()).await.unwrap();
        }
        let mut options = manifests::options();
        options.common.platform = self.platform;
        options.common.images.tholepin = IMAGE.to_owned();
        for object in manifests::objects(&options) {
            self.apply(&object).await;
        }
    }

    /// Lets the operator, once it starts anew, run other schedulers than its own: they need more rights.
    pub(crate) async fn allow_other_schedulers(&self) {
        let mut options = manifests::options();
        options.common.platform = self.platform;
        let account = manifests::account(&options);
        self.apply(&Object::new(&account.with_cluster_role(manifests::access::OTHER_SCHEDULERS))).await;
    }

    /// Waits until the operator's pod is ready.
    pub(crate) async fn operator_is_ready(&self) {
        let deployments = Api::<Deployment>::all(self.admin.clone());
        let is_ready = |one: &Deployment| {
            one.status.as_ref().is_some_and(|status| status.ready_replicas.is_some_and(|ready| ready > 0))
        };
        let listed = async || deployments.list(&Default::default()).await.unwrap();
        self.until("the operator is ready", async || listed().await.iter().any(is_ready)).await;
    }

    async fn install_stack(&self) {
        let mut group = match self.platform {
            Platform::Kubernetes => json!({ "poolName": POOL, "nodeSelector": {} }),
            Platform::OpenShift => json!({ "poolName": "worker" }),
            Platform::HyperShift => json!({ "poolName": POOL }),
        };
        if let Some(period) = told(LAG) {
            group["config"] = json!({ "infoRefreshMode": "Periodic", "infoRefreshPeriod": period });
        }
        self.ask("NUMAResourcesOperator", json!({ "nodeGroups": [group] })).await;
        self.ask("NUMAResourcesScheduler", json!({ "replicas": 1 })).await;
        self.until("there are reports and a scheduler", async || !self.is_missing().await).await;
    }

    /// Waits until a condition of the stack holds.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        assert!(until(holds).await, "not so after {PATIENCE:?}: {what}: {:#?}", self.pods().await);
    }

    async fn apply(&self, object: &Object) {
        let resource = object.kind().resource();
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        };
        let params = PatchParams::apply("installer");
        api.patch(object.name(), &params, &Patch::Apply(object.body())).await.unwrap();
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("nodetopology.openshift.io", "v1", kind);
        let plural = format!("{}s", kind.to_lowercase());
        Api::all_with(self.admin.clone(), &ApiResource::from_gvk_with_plural(&gvk, &plural))
    }

    async fn ask(&self, kind: &str, spec: Value) {
        let name = kind.to_lowercase();
        let version = "nodetopology.openshift.io/v1";
        let object =
            json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(kind).create(&Default::default(), &object).await.unwrap();
    }

    /// The pods and how far they are, for debugging.
    pub(crate) async fn pods(&self) -> Vec<String> {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::all(self.admin.clone());
        let pods = pods.list(&Default::default()).await.unwrap();
        let line =
            |pod: k8s_openapi::api::core::v1::Pod| format!("{:?} {}", pod.metadata.name, state_of(&pod));
        let mut lines: Vec<String> = pods.into_iter().map(line).collect();
        for kind in ["NUMAResourcesOperator", "NUMAResourcesScheduler"] {
            for object in self.api(kind).list(&Default::default()).await.unwrap() {
                lines.push(object.data["status"]["conditions"].to_string());
            }
        }
        lines
    }

    async fn is_missing(&self) -> bool {
        let reports: Api<NodeResourceTopology> = Api::all(self.admin.clone());
        let Ok(reports) = reports.list(&Default::default()).await else { return true };
        let scheduler = self.api("NUMAResourcesScheduler").get("numaresourcesscheduler").await.unwrap();
        let conditions = scheduler.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_available = conditions
            .iter()
            .any(|condition| condition["type"] == "Available" && condition["status"] == "True");
        let masters = if self.platform == Platform::OpenShift { 1 } else { 0 };
        !is_available || reports.items.len() + masters < self.cluster.nodes().len()
    }
}
