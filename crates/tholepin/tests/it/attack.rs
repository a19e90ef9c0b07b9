//! Hostile clients of the ports for health and metrics. The scheduler places pods meanwhile.
//!
//! `ATTACK_SECONDS=60` makes it as long as a real one; `-- --nocapture` shows the figures.
//! `ATTACK_PROGRAM=/path/to/tholepin` attacks the program that is shipped, which also has a limit of memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fakes::kmm;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Config};
use testkit::attack::Attack;
use testkit::cluster::{Cluster, install_crds};
use testkit::env::rig;
use testkit::load::guaranteed_pod;
use testkit::machine::Machine;
use testkit::port;
use testkit::process_group::{Process, ProcessGroup, Spec};

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The kubelet's timeout of our liveness probes.
const PROBE: Duration = Duration::from_secs(5);
/// Failures in a row for which the kubelet restarts a container (`failureThreshold`, if a probe states none). The
/// servers end a handshake or a header after 5 s, also that of a probe which a busy machine keeps waiting.
const FAILURES: usize = 3;
/// The slowest answer of a port that is not attacked.
const UNTOUCHED: Duration = Duration::from_secs(2);
/// Pods that fill the node: two in each zone.
const WAVE: usize = 4;

/// Seconds of a real attack (`ATTACK_SECONDS`), which has the machine for itself. Only then times are limited.
fn seconds() -> Option<u64> {
    std::env::var("ATTACK_SECONDS").ok()?.parse().ok()
}

/// The longest wait for anything where other tests run at the same time: no measure, but an end.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most memory that an attack may cost, in KiB.
const GROWTH_KIB: u64 = 16 << 10;
/// The most memory of a shipped program under attack, in KiB. Those of the tests are larger before it begins.
const SHIPPED_KIB: u64 = 40 << 10;
/// The variable with the path of the shipped program.
const SHIPPED: &str = "ATTACK_PROGRAM";

/// What is attacked: the port of metrics of a program.
struct Target<'a> {
    scheme: &'a str,
    port: u16,
    health: u16,
}

impl<'a> Target<'a> {
    fn new(scheme: &'a str) -> Self {
        let [port, health] = [(); 2].map(|()| port::free().unwrap());
        Self { scheme, port, health }
    }
}

const PROBES: [&str; 2] = ["/livez", "/readyz"];

/// Status of a probe on a connection of its own, without a check of the certificate, as the kubelet's.
async fn probe(base: &str, path: &str) -> Result<String, String> {
    let mut config = Config::new(base.parse().unwrap());
    config.accept_invalid_certs = true;
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    let request = axum::http::Request::get(path).body(Vec::new()).unwrap();
    let limit = if seconds().is_some() { PROBE } else { PATIENCE };
    match tokio::time::timeout(limit, client.request_text(request)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

/// Passes all probes once: the time of one on average. Each may fail as often as the kubelet allows where other tests
/// run at the same time.
async fn passes(base: &str) -> Duration {
    let began = Instant::now();
    for path in PROBES {
        let mut failures = Vec::new();
        while let Err(error) = probe(base, path).await {
            println!("attack: {base}{path} after {:?}: {error}", began.elapsed());
            failures.push(error);
            let most = if seconds().is_some() { 1 } else { FAILURES };
            assert!(failures.len() < most, "{base}{path} after {:?}: {failures:?}", began.elapsed());
        }
    }
    began.elapsed() / PROBES.len() as u32
}

async fn ready(base: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = probe(base, PROBES[1]).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Attacks the port of metrics until enough connections were opened. All probes pass, there and on the port of health.
async fn withstands(program: &Process, target: &Target<'_>) {
    let base = format!("{}://127.0.0.1:{}", target.scheme, target.port);
    let health = format!("http://127.0.0.1:{}", target.health);
    ready(&health).await;
    let before = program.memory().unwrap();
    let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), target.port);
    let slow = Attack::slow_headers(ATTACKER, server, 600);
    let silent = Attack::silent(ATTACKER, server, 50);
    let ends = Instant::now() + Duration::from_secs(seconds().unwrap_or(0));
    let (mut probes, mut slowest, mut untouched) = (0, Duration::ZERO, Duration::ZERO);
    while slow.opened() < 3_000 || silent.opened() < 50 || probes < 4 || Instant::now() < ends {
        slowest = slowest.max(passes(&base).await);
        untouched = untouched.max(passes(&health).await);
        probes += 1;
    }
    let after = program.memory().unwrap();
    println!(
        "attack: {} {base}: {} slow and {} silent connections, {probes} times two probes passed, the slowest in {slowest:?}, \
         on the port of health in {untouched:?}; \
         {} KiB before, {} KiB at the peak",
        program.name(),
        slow.opened(),
        silent.opened(),
        before.rss_kib,
        after.peak_kib
    );
    assert!(after.peak_kib < before.peak_kib + GROWTH_KIB, "{before:?} {after:?}");
    if std::env::var_os(SHIPPED).is_some() {
        assert!(after.peak_kib <= SHIPPED_KIB, "{after:?}");
    }
    assert!(seconds().is_none() || untouched < UNTOUCHED, "{untouched:?}");
    let metrics = probe(&health, "/metrics").await;
    assert!(!metrics.is_ok_and(|text| text.contains("# TYPE")), "no metrics are served there");
}

fn program(group: &ProcessGroup, name: &str, args: &[String]) -> Process {
    let path = std::env::var(SHIPPED).unwrap_or_else(|_| env!("CARGO_BIN_EXE_tholepin").to_owned());
    group.spawn(Spec::new(name, path).arg(name).args(args.to_vec())).unwrap()
}

/// Places waves of pods, at least one, until it is over: how many. The kubelet rejects none.
async fn place_pods(client: Client, over: Arc<AtomicBool>) -> usize {
    let api: Api<Pod> = Api::default_namespaced(client);
    let mut placed = 0;
    while placed == 0 || !over.load(Ordering::Relaxed) {
        let names: Vec<String> = (placed..placed + WAVE).map(|at| format!("pod-{at}")).collect();
        for name in &names {
            let pod = guaranteed_pod(name, "topo-aware-scheduler", [("cpu", "3"), ("memory", "64Mi")]);
            api.create(&PostParams::default(), &pod).await.unwrap();
        }
        for name in &names {
            runs(&api, name).await;
        }
        for name in &names {
            let _ = api.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
        }
        placed += WAVE;
    }
    placed
}

async fn runs(api: &Api<Pod>, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = api.get(name).await.unwrap().status.unwrap_or_default();
        let phase = status.phase.as_deref();
        if phase == Some("Running") {
            return;
        }
        assert_ne!(phase, Some("Failed"), "{name}: {:?} {:?}", status.reason, status.message);
        assert!(Instant::now() < deadline, "{name} waits: {:?}", status.conditions);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_answer_probes_under_attack() {
    let Ok(rig) = rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let cluster =
        Cluster::builder().machines([machine]).crds(api::crd::NRT_CRD_YAML).start(&rig).await.unwrap();
    let node = &cluster.nodes()[0];
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let kubeconfig = flag("kubeconfig", cluster.control().kubeconfig());
    let group = ProcessGroup::new().unwrap();
    let certificates = tempfile::tempdir().unwrap();
    let exporter = |target: &Target<'_>| {
        let mut args = vec![
            kubeconfig.clone(),
            format!("--health-probe-bind-address=127.0.0.1:{}", target.health),
            format!("--metrics-port={}", target.port),
            format!("--hostname={}", node.name()),
            format!("--podresources-socket=unix://{}", node.podresources_socket().display()),
            flag("sysfs", &node.kubelet().machine().sys()),
            flag("kubelet-state-dir", node.kubelet().root_dir()),
            flag("kubelet-config-file", &node.kubelet().config_file()),
        ];
        if target.scheme == "https" {
            // Without the files a self-signed certificate is served.
            args.push(flag("metrics-tls-cert", &certificates.path().join("tls.crt")));
            args.push(flag("metrics-tls-key", &certificates.path().join("tls.key")));
        }
        program(&group, "exporter", &args)
    };
    let target = Target::new("https");
    let attacked = exporter(&target);
    withstands(&attacked, &target).await;
    attacked.kill();
    let target = Target::new("http");
    let attacked = exporter(&target);
    withstands(&attacked, &target).await;

    // That exporter goes on, because the scheduler needs its reports.
    let target = Target::new("http");
    let args = [
        kubeconfig.clone(),
        "--leader-elect=false".to_owned(),
        format!("--http-bind-address=127.0.0.1:{}", target.port),
        format!("--health-probe-bind-address=127.0.0.1:{}", target.health),
    ];
    let scheduler = program(&group, "scheduler", &args);
    let over = Arc::new(AtomicBool::new(false));
    let placing = tokio::spawn(place_pods(cluster.client().await.unwrap(), Arc::clone(&over)));
    withstands(&scheduler, &target).await;
    over.store(true, Ordering::Relaxed);
    println!("attack: {} pods placed meanwhile, none rejected", placing.await.unwrap());
    scheduler.kill();
    attacked.kill();
    operators(&cluster, &group).await;
}

/// Both controllers in one process, on a cluster that has all their kinds.
async fn operators(cluster: &Cluster, group: &ProcessGroup) {
    let client = cluster.client().await.unwrap();
    kmm::install(&client).await.unwrap();
    for definition in [api::crd::operator_crd(), api::crd::scheduler_crd(), api::crd::device_config_crd()] {
        install_crds(&client, &serde_json::to_string(&definition).unwrap()).await.unwrap();
    }
    let target = Target::new("http");
    let args = [
        format!("--kubeconfig={}", cluster.control().kubeconfig().display()),
        "--controllers=numaresources,deviceconfig".to_owned(),
        "--platform=kubernetes".to_owned(),
        "--namespace=default".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--metrics-bind-address=127.0.0.1:{}", target.port),
        format!("--health-probe-bind-address=127.0.0.1:{}", target.health),
    ];
    let operator = program(group, "operator", &args);
    withstands(&operator, &target).await;
    operator.kill();
}
