//! A cluster for the operator: its own network, the objects it ships with, a proxy before the API server, and the
//! operator itself as a process with exactly the rights of its account.
//!
//! In: a platform, or a [`Subject`] in a cluster. Out: a [`Rig`] to change things in, and to see what became of them.
//! Never: kubelets; [`super::whole`] has those.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::rbac::Rules;
use deployer::platform::Platform;
use fakes::openshift::{self, Flavour};
use kube::Client;
use kube::api::{Patch, PatchParams};
use objects::Object;
use operator::manifests::{self, Options};
use testkit::account::Account;
use testkit::cluster::install_crds;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::cri::{Image, Images};
use testkit::process_group::{Process, Spec};
use testkit::proxy::Proxy;
use testkit::quiescence::until_quiescent;
use testkit::{env, net, port};
use tokio::time::Instant;

use super::scenario::Scenario;
use super::seen::{Seen, api_of};
use super::within_rights::{PLAYED, note};

/// Where the operator and its operands are.
pub(crate) const NAMESPACE: &str = manifests::NAMESPACE;
/// Far above what anything here takes, for a machine busy with compiling.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The operator's own image.
pub(crate) const IMAGE: &str = "tholepin:test";
/// Who changes things that are not his.
pub(crate) const SOMEBODY: &str = "somebody";

/// The cluster.
pub(crate) struct Rig {
    seen: Seen,
    pub(crate) proxy: Proxy,
    subject: Subject,
    program: PathBuf,
    operator: Option<Process>,
    _manager: Option<Process>,
    health: u16,
    pub(crate) metrics: u16,
    kubeconfig: PathBuf,
    pub(crate) control: ControlPlane,
}

/// The operator in a cluster: who it is there, and what it is told.
pub(crate) struct Subject {
    pub(crate) platform: Platform,
    pub(crate) namespace: &'static str,
    /// Its service account, which is there.
    pub(crate) account: &'static str,
    /// What that account may do.
    pub(crate) rules: Rules,
    /// What it is told each time.
    pub(crate) flags: &'static [&'static str],
}

/// How a cluster is begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) platform: Platform,
    /// Whether the stock controllers run: garbage collection, DaemonSets. Without them objects stay as they are left.
    pub(crate) controllers: bool,
    /// Whether lists come as the beginning of a watch, or page by page as from servers that cannot do that.
    pub(crate) streams: bool,
}

/// Plays `body` in a cluster; afterwards nothing was denied, and what the operator asked for is noted. `name` is for
/// what is printed.
pub(crate) fn play(name: &'static str, setup: Setup, body: impl AsyncFnOnce(&mut Rig) + Send) {
    let scenario = Scenario::begin(&PLAYED);
    let Ok(rig) = env::rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let began = Instant::now();
        let mut rig = Rig::start(&rig, network, program, setup).await;
        println!("{name}: a cluster in {:?}", began.elapsed());
        body(&mut rig).await;
        rig.finish(scenario).await;
        println!("{name}: all in {:?}", began.elapsed());
    })
    .unwrap();
}

/// The program under test.
pub(crate) fn tholepin() -> Option<PathBuf> {
    let program = env::tholepin();
    if program.is_none() {
        eprintln!("SKIPPED: no tholepin binary; cargo xtask test builds it");
        assert!(std::env::var_os(env::REQUIRE).is_none_or(|value| value.is_empty()));
    }
    program
}

/// What nodes run where the operator is a pod: one image with the program under the names of all whose place it takes.
pub(crate) fn images(program: &Path) -> Images {
    let image = Image::program(program)
        .file(program, "/bin/resource-topology-exporter")
        .file(program, "/bin/nfd-topology-updater")
        .file(program, "/bin/kube-scheduler");
    Images::new().with(IMAGE, image).with("pause", Image::pause())
}

/// What a variable of the environment says.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect(variable))
}

/// Waits until it holds.
#[track_caller]
pub(crate) fn until<'a>(
    what: &'a str,
    mut holds: impl AsyncFnMut() -> bool + 'a,
) -> impl Future<Output = Duration> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let began = Instant::now();
        while !holds().await {
            assert!(began.elapsed() < PATIENCE, "{caller}: {what}: still not after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        began.elapsed()
    }
}

/// Control plane options of all clusters here.
pub(crate) fn control(network: &net::Network, streams: bool) -> ControlPlaneOptions {
    // As on OpenShift: setting an owner needs a right to it.
    let mut flags = vec!["--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned()];
    if !streams {
        flags.push("--feature-gates=WatchList=false".to_owned());
    }
    ControlPlaneOptions { api_server_flags: flags, network: Some(network.clone()) }
}

impl Setup {
    /// Without controllers, so that objects stay as they are left.
    pub(crate) fn on(platform: Platform) -> Self {
        Self { platform, controllers: false, streams: true }
    }
}

/// Makes a cluster one of this platform, and installs what the operator is shipped with, in its order.
pub(crate) async fn install(client: &Client, platform: Platform, with_deployment: bool) {
    let flavour = match platform {
        Platform::Kubernetes => None,
        Platform::OpenShift => Some(Flavour::OpenShift),
        Platform::HyperShift => Some(Flavour::HyperShift),
    };
    if let Some(flavour) = flavour {
        openshift::install(client, flavour, "4.99.3").await.unwrap();
    }
    for definition in [api::crd::operator_crd(), api::crd::scheduler_crd()] {
        install_crds(client, &serde_json::to_string(&definition).unwrap()).await.unwrap();
    }
    apply(client, &manifests::objects(&options(platform)), with_deployment).await;
}

/// Installs these, in their order.
pub(crate) async fn apply(client: &Client, objects: &[Object], with_deployment: bool) {
    for object in objects.iter().filter(|object| with_deployment || object.kind().kind != "Deployment") {
        let api = api_of(client, object.kind(), object.namespace());
        let params = PatchParams::apply("installer");
        let done = api.patch(object.name(), &params, &Patch::Apply(object.body())).await;
        done.unwrap_or_else(|error| panic!("{} {}: {error}", object.kind().kind, object.name()));
    }
}

/// How the operator is installed.
pub(crate) fn options(platform: Platform) -> Options {
    let mut options = manifests::options();
    options.common.platform = platform;
    options.common.images.tholepin = IMAGE.to_owned();
    options
}

impl Deref for Rig {
    type Target = Seen;

    fn deref(&self) -> &Seen {
        &self.seen
    }
}

impl Rig {
    async fn start(rig: &env::Rig, network: net::Network, program: PathBuf, setup: Setup) -> Self {
        let control = ControlPlane::start(&rig.binaries, &control(&network, setup.streams)).await.unwrap();
        let admin = control.client().await.unwrap();
        install(&admin, setup.platform, false).await;
        let manager = match setup.controllers {
            true => Some(control.start_controller_manager().await.unwrap()),
            false => None,
        };
        let subject = Subject {
            platform: setup.platform,
            namespace: NAMESPACE,
            account: manifests::NAME,
            rules: operator::rbac::rules(setup.platform),
            flags: &[],
        };
        Self { _manager: manager, ..Self::of(control, subject, program).await }
    }

    /// A cluster that has everything but the operator itself, which does not run yet.
    pub(crate) async fn of(control: ControlPlane, subject: Subject, program: PathBuf) -> Self {
        let seen = Seen { admin: control.client().await.unwrap(), log: None };
        let proxy = Proxy::start(&control, control.process_group().dir()).await.unwrap();
        let account = Account::of(&control, subject.namespace, subject.account).await.unwrap();
        account.wait_until_allowed(&subject.rules.cluster, &subject.rules.namespaced).await.unwrap();
        let token = account.token(None).await.unwrap();
        let kubeconfig = proxy.kubeconfig_with_token("operator", &token).unwrap();
        let [health, metrics] = [port::free().unwrap(), port::free().unwrap()];
        let (operator, _manager) = (None, None);
        Self { seen, proxy, subject, program, operator, _manager, health, metrics, kubeconfig, control }
    }

    /// Starts the operator and waits until it is ready.
    pub(crate) async fn operate(&mut self) {
        self.operate_with(&[], &[]).await;
    }

    /// The same, with these variables in its environment and these flags.
    pub(crate) async fn operate_with(&mut self, env: &[(&str, &str)], flags: &[&str]) {
        self.begin(env, flags);
        self.ready().await;
    }

    /// Starts the operator.
    pub(crate) fn begin(&mut self, env: &[(&str, &str)], flags: &[&str]) {
        let mut spec = Spec::new("operator", &self.program)
            .arg("operator")
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--metrics-bind-address=127.0.0.1:{}", self.metrics))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{}", self.health))
            .args([format!("--namespace={}", self.subject.namespace), "-v=4".to_owned()])
            .args(self.subject.flags.iter().chain(flags).copied());
        for (name, value) in env {
            spec = spec.env(*name, *value);
        }
        let operator = self.control.process_group().spawn(spec).unwrap();
        self.seen.log = Some(operator.log().to_owned());
        self.operator = Some(operator);
    }

    /// Waits until the operator says that it is ready.
    pub(crate) async fn ready(&self) {
        let ready = async || self.text(self.health, "readyz").await.is_some();
        self.operator().wait_until("ready", PATIENCE, ready).await.unwrap();
    }

    pub(crate) fn operator(&self) -> &Process {
        self.operator.as_ref().unwrap()
    }

    /// Ends the operator in order.
    pub(crate) async fn stop(&mut self) {
        if let Some(operator) = self.operator.take() {
            let exit = operator.terminate(PATIENCE).await.unwrap();
            assert!(exit.success(), "{exit}: {}", operator.log_tail(20));
        }
    }

    /// The sum of a metric's values.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let all = self.metrics(name).await;
        let lines = all.iter().filter(|line| line[name.len()..].starts_with([' ', '{']));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Lines of the metrics that begin so.
    pub(crate) async fn metrics(&self, start: &str) -> Vec<String> {
        let text = self.text(self.metrics, "metrics").await.expect("metrics");
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }

    /// Whether the operator says that it is well.
    pub(crate) async fn is_healthy(&self) -> bool {
        self.text(self.health, "healthz").await.is_some()
    }

    /// The body of a good answer. Without a certificate of the cluster, metrics on OpenShift have a self-signed one.
    async fn text(&self, port: u16, path: &str) -> Option<String> {
        let scheme =
            if port == self.metrics && self.subject.platform.is_openshift() { "https" } else { "http" };
        let mut config = kube::Config::new(format!("{scheme}://127.0.0.1:{port}").parse().ok()?);
        config.accept_invalid_certs = true;
        let request = kube::core::Request::new("").get(path, &Default::default()).ok()?;
        Client::try_from(config).ok()?.request_text(request).await.ok()
    }

    /// How many writes the operator asked for so far that change objects that last.
    pub(crate) fn writes(&self) -> usize {
        self.proxy.count("WRITE", "")
    }

    /// Waits until the operator has been at rest for a moment; says how many writes it has asked for up to then.
    pub(crate) async fn quiet(&self) -> usize {
        let quiet = until_quiescent(5, Duration::from_millis(100), async || Ok(self.writes()));
        let rested = tokio::time::timeout(PATIENCE, quiet).await;
        rested.unwrap_or_else(|_| panic!("it never rests: {:?}", self.last_writes())).unwrap()
    }

    /// The last writes, for debugging.
    pub(crate) fn last_writes(&self) -> Vec<String> {
        let seen = self.proxy.seen();
        let writes = seen.iter().rev().filter(|seen| seen.is_write()).take(10);
        writes.map(|seen| format!("{} {}", seen.method, seen.path)).collect()
    }

    /// Ends the operator; says what it asked for, and that nothing was denied.
    async fn finish(mut self, scenario: Scenario) {
        self.stop().await;
        let granted = self.granted().await;
        note(scenario, &self.control, granted).await;
    }
}
