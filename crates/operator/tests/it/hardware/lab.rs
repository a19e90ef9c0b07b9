//! A cluster for the controller of DeviceConfigs: KMM's definitions and rules, what it is shipped with, and the operator as a process with
//! exactly the rights of its account, behind a proxy. One for all scenarios, which come one after the other.
//!
//! In: what is to be played. Out: a [`Lab`] to play it in. Never: kubelets, controllers of Kubernetes.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use operator::deviceconfig::{manifests, rbac};
use testkit::account::Account;
use testkit::audit::Request;
use testkit::controlplane::ControlPlane;
use testkit::nest::{Process, Spec};
use testkit::net::Network;
use testkit::proxy::Proxy;
use testkit::{env, kmm, port};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::super::rig::{PATIENCE, control, tholepin};
use super::within_rights::Scenario;
use deployer::platform::Platform;

/// The cluster that scenarios share; gone after one that failed.
static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

/// The cluster, and the threads that work in its network.
struct Shared {
    // First, so that what it holds ends while its runtime still runs.
    lab: Lab,
    runtime: Runtime,
    network: Network,
}

/// The cluster.
pub(crate) struct Lab {
    pub(crate) admin: Client,
    pub(crate) proxy: Proxy,
    operator: Option<Process>,
    program: PathBuf,
    kubeconfig: PathBuf,
    log: Option<PathBuf>,
    health: u16,
    metrics: u16,
    pub(crate) control: ControlPlane,
}

/// Plays `body` in the shared cluster, with the operator running; afterwards what the operator asked for is noted.
pub(crate) fn play(name: &'static str, body: impl AsyncFnOnce(&mut Lab) + Send) {
    let scenario = Scenario::begin();
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    let mut slot = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let began = std::time::Instant::now();
    let mut shared = slot.take().unwrap_or_else(|| Shared::start(&rig, program));
    let Shared { lab, runtime, network } = &mut shared;
    let ready = began.elapsed();
    network
        .namespaces()
        .run(|| {
            runtime.block_on(async {
                body(lab).await;
                scenario.note(lab);
            });
        })
        .unwrap();
    println!("{name}: {:?}, after {ready:?} for the cluster", began.elapsed() - ready);
    // Whoever fails does not get here, and the next one has a new cluster.
    *slot = Some(shared);
}

/// Ends the shared cluster's operator, and the cluster; says what was asked there.
pub(crate) fn over() -> Vec<Request> {
    let mut slot = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut shared) = slot.take() else { return Vec::new() };
    let Shared { lab, runtime, network } = &mut shared;
    let inside = || {
        runtime.block_on(async {
            lab.stop().await;
            let audit = lab.control.audit().unwrap();
            let (mut requests, mut same) = (Vec::new(), 0);
            while same < 5 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let now = audit.requests().unwrap();
                same = if now.len() == requests.len() { same + 1 } else { 0 };
                requests = now;
            }
            requests
        })
    };
    network.namespaces().run(inside).unwrap()
}

impl Shared {
    fn start(rig: &env::Rig, program: PathBuf) -> Self {
        let network = Network::new().unwrap();
        let inside = || {
            // Its threads are where this one is.
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let lab = runtime.block_on(Lab::start(rig, &network, program));
            (lab, runtime)
        };
        let (lab, runtime) = network.namespaces().run(inside).unwrap();
        Self { lab, runtime, network }
    }
}

/// Makes a cluster one for DeviceConfigs: the objects that the operator is shipped with for them, in their order, but for its
/// Deployment.
pub(crate) async fn install(client: &Client) {
    let definition = serde_json::to_string(&api::crd::device_config_crd()).unwrap();
    testkit::cluster::install_crds(client, &definition).await.unwrap();
    for object in manifests::objects(&manifests::options())
        .unwrap()
        .iter()
        .filter(|object| object.sort().kind != "Deployment")
    {
        let api = super::super::seen::api_of(client, object.sort(), object.namespace());
        let params = kube::api::PatchParams::apply("installer");
        let done = api.patch(object.name(), &params, &kube::api::Patch::Apply(object.body())).await;
        done.unwrap_or_else(|error| panic!("{} {}: {error}", object.sort().kind, object.name()));
    }
}

/// Objects of a kind that is not among the types.
pub(crate) fn objects(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let plural = format!("{}s", kind.to_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// DeviceConfigs.
pub(crate) fn configs(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    objects(client, "hardware.tholepin.dev/v1alpha1", "DeviceConfig", namespace)
}

impl Lab {
    async fn start(rig: &env::Rig, network: &Network, program: PathBuf) -> Self {
        let control = ControlPlane::start(&rig.binaries, &control(network, true)).await.unwrap();
        let admin = control.client().await.unwrap();
        kmm::install(&admin).await.unwrap();
        kmm::watch_over(&admin).await.unwrap();
        install(&admin).await;
        let proxy = Proxy::start(&control, control.nest().dir()).await.unwrap();
        let account = Account::of(&control, manifests::NAMESPACE, manifests::CONTROLLER.name).await.unwrap();
        let rules = rbac::rules(Platform::Kubernetes);
        account.wait_until_allowed(&rules.cluster, &rules.namespaced).await.unwrap();
        let token = account.token(None).await.unwrap();
        let kubeconfig = proxy.kubeconfig_with_token("operator", &token).unwrap();
        let [health, metrics] = [port::free().unwrap(), port::free().unwrap()];
        let mut lab =
            Self { admin, proxy, operator: None, program, kubeconfig, log: None, health, metrics, control };
        lab.operate().await;
        lab
    }

    /// Starts the operator and waits until it is ready.
    pub(crate) async fn operate(&mut self) {
        let spec = Spec::new("operator", &self.program)
            .args(["operator", "--controllers=deviceconfig", "-v=4", "--driver-patience=2s"])
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", self.metrics))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{}", self.health))
            .arg(format!("--namespace={}", manifests::NAMESPACE));
        let operator = self.control.nest().spawn(spec).unwrap();
        self.log = Some(operator.log().to_owned());
        let ready = async || self.text(self.health, "readyz").await.is_some();
        operator.wait_until("ready", PATIENCE, ready).await.unwrap();
        self.operator = Some(operator);
    }

    /// Ends the operator in order.
    pub(crate) async fn stop(&mut self) {
        if let Some(operator) = self.operator.take() {
            let exit = operator.terminate(PATIENCE).await.unwrap();
            assert!(exit.success(), "{exit}: {}", operator.log_tail(20));
        }
    }

    /// Whether the operator is still there.
    pub(crate) async fn is_healthy(&self) -> bool {
        self.text(self.health, "healthz").await.is_some()
    }

    /// Lines of the metrics that begin so.
    pub(crate) async fn metrics(&self, start: &str) -> Vec<String> {
        let text = self.text(self.metrics, "metrics").await.expect("metrics");
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }

    /// The body of a good answer.
    async fn text(&self, port: u16, path: &str) -> Option<String> {
        let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().ok()?);
        let request = kube::core::Request::new("").get(path, &Default::default()).ok()?;
        Client::try_from(config).ok()?.request_text(request).await.ok()
    }

    /// How many writes the operator asked for so far that change objects that last.
    pub(crate) fn writes(&self) -> usize {
        self.proxy.count("WRITE", "")
    }

    /// Waits until the operator has been at rest for a moment; says how many writes it has asked for up to then.
    pub(crate) async fn quiet(&self) -> usize {
        let (mut before, mut same) = (self.writes(), 0);
        let began = Instant::now();
        while same < 5 {
            assert!(began.elapsed() < PATIENCE, "it never rests: {:?}", self.last_writes());
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.writes();
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        before
    }

    /// The last writes, for whoever looks for a mistake.
    pub(crate) fn last_writes(&self) -> Vec<String> {
        let seen = self.proxy.seen();
        let writes = seen.iter().rev().filter(|seen| seen.is_write()).take(10);
        writes.map(|seen| format!("{} {}", seen.method, seen.path)).collect()
    }

    /// The last lines the operator has said.
    pub(crate) fn log_tail(&self) -> String {
        let text = self.log.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}
