//! The operator as a process, on a real API server: it leads, gets ready, answers, stands by, takes over, and ends in
//! order.

use std::time::Duration;

use api::numaresources::keys;
use fakes::openshift::{Flavour, install};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt as _};
use prometheus_client::encoding::text::encode;
use serde_json::json;
use testkit::controlplane::{ControlPlane, ControlPlaneOptions};
use testkit::env;
use testkit::exposition::assert_known;
use testkit::port;
use testkit::process_group::{Process, Spec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "numaresources";

/// One operator and where it answers.
struct Operator {
    process: Process,
    health: u16,
    metrics: u16,
}

impl Operator {
    fn start(control: &ControlPlane, name: &str, more: &[&str]) -> Option<Self> {
        let Some(program) = env::tholepin() else {
            eprintln!("SKIPPED: no tholepin binary; cargo xtask test builds it");
            assert!(std::env::var_os("TESTKIT_REQUIRE_RIG").is_none_or(|value| value.is_empty()));
            return None;
        };
        let (health, metrics) = (port::free().unwrap(), port::free().unwrap());
        let spec = Spec::new(name, program)
            .args(["numaresources-operator", "--kubeconfig"])
            .arg(control.kubeconfig().display().to_string())
            .arg(format!("--health-probe-bind-address=127.0.0.1:{health}"))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics}"))
            .args(more.iter().copied())
            .env("NAMESPACE", NAMESPACE);
        let process = control.process_group().spawn(spec).unwrap();
        Some(Self { process, health, metrics })
    }

    /// Whether a check passes.
    async fn passes(&self, check: &str) -> bool {
        get(self.health, check).await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    async fn ready(&self) {
        self.process.wait_until("ready", PATIENCE, async || self.passes("/readyz").await).await.unwrap();
    }

    /// Waits until a line of the metrics begins like this.
    async fn shows(&self, line: &str) {
        let shown = async || {
            let text = get(self.metrics, "/metrics").await.unwrap_or_default();
            text.lines().any(|one| one.starts_with(line))
        };
        self.process.wait_until(line, PATIENCE, shown).await.unwrap();
    }

    /// Asks it to end; says whether it did so in order.
    async fn ends_well(&self) -> bool {
        self.process.terminate(PATIENCE).await.unwrap().success()
    }
}

/// An answer over plain HTTP, with its head.
async fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

async fn holder(client: &Client) -> String {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = leases.get_opt(keys::OPERATOR_LEASE).await.unwrap();
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

async fn namespace(client: &Client) {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } })).unwrap();
    namespaces.create(&PostParams::default(), &object).await.unwrap();
}

async fn define(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in [api::crd::operator_crd(), api::crd::scheduler_crd()] {
        let params = PatchParams::apply("test").force();
        definitions.patch(&definition.name_any(), &params, &Patch::Apply(&definition)).await.unwrap();
    }
}

/// Two of them: one leads, the other is ready too and takes over when the first ends.
#[tokio::test]
async fn one_leads_and_the_other_takes_over() {
    let Ok(rig) = env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    namespace(&client).await;
    // B-05: on plain Kubernetes, and before anybody has defined the objects of users.
    let Some(one) = Operator::start(&control, "one", &[]) else { return };
    one.ready().await;
    one.shows(&format!("leader_election_master_status{{name=\"{}\"}} 1", keys::OPERATOR_LEASE)).await;
    let first = holder(&client).await;
    assert!(!first.is_empty() && one.passes("/healthz").await);

    define(&client).await;
    let other = Operator::start(&control, "other", &[]).unwrap();
    other.ready().await;
    assert!(other.passes("/healthz").await, "whoever does not lead is not ill");
    other.shows(&format!("leader_election_master_status{{name=\"{}\"}} 0", keys::OPERATOR_LEASE)).await;
    assert_eq!(holder(&client).await, first);

    assert!(one.ends_well().await, "{}", one.process.log_tail(20));
    other.shows(&format!("leader_election_master_status{{name=\"{}\"}} 1", keys::OPERATOR_LEASE)).await;
    assert_ne!(holder(&client).await, first);
    assert!(other.ends_well().await, "{}", other.process.log_tail(20));
    assert_eq!(holder(&client).await, "", "the lease is given up");
}

/// Nodes and objects are observed as they come, and unreadable ones are reported and stop nothing.
#[tokio::test]
async fn changes_are_observed() {
    let Ok(rig) = env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    namespace(&client).await;
    let Some(operator) = Operator::start(&control, "operator", &["--leader-elect=false"]) else { return };
    operator.ready().await;
    operator.shows("tholepin_operator_nodes 0").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    operator.shows("tholepin_operator_nodes 1").await;
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    operator.shows("tholepin_operator_nodes 0").await;
    let specimens = [operator::reconcile::metrics::specimen().unwrap(), hardware::metrics::specimen()];
    let mut known = String::new();
    for registry in &specimens {
        encode(&mut known, registry).unwrap();
    }
    assert_known(&get(operator.metrics, "/metrics").await.unwrap(), &known);

    // The Go operator's schema took any text for a period.
    let mut loose = serde_json::to_value(api::crd::scheduler_crd()).unwrap();
    for version in loose["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = loose["metadata"]["name"].as_str().unwrap().to_owned();
    let params = PatchParams::apply("test").force();
    definitions.patch(&name, &params, &Patch::Apply(&loose)).await.unwrap();
    let kind = kube::core::GroupVersionKind::gvk("nodetopology.openshift.io", "v1", "NUMAResourcesScheduler");
    let kind = ApiResource::from_gvk_with_plural(&kind, "numaresourcesschedulers");
    let schedulers: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let odd = json!({
        "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesScheduler",
        "metadata": { "name": keys::SCHEDULER }, "spec": { "cacheResyncPeriod": "soon" },
    });
    let made = async || {
        let params = PatchParams::apply("test").force();
        schedulers.patch(keys::SCHEDULER, &params, &Patch::Apply(&odd)).await.is_ok()
    };
    operator.process.wait_until("the kind is served", PATIENCE, made).await.unwrap();
    let unreadable = "tholepin_operator_unreadable_objects{kind=\"NUMAResourcesScheduler\"}";
    operator.shows(&format!("{unreadable} 1")).await;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(client.clone());
    let told = async || {
        let all = events.list(&Default::default()).await.unwrap();
        all.items.iter().any(|event| event.reason.as_deref() == Some("Unreadable"))
    };
    operator.process.wait_until("an event", PATIENCE, told).await.unwrap();
    schedulers.delete(keys::SCHEDULER, &DeleteParams::default()).await.unwrap();
    operator.shows(&format!("{unreadable} 0")).await;
    assert!(operator.ends_well().await, "{}", operator.process.log_tail(20));
}

/// On OpenShift metrics have TLS, and follow the cluster's profile without a restart.
#[tokio::test]
async fn tls_follows_the_cluster() {
    let Ok(rig) = env::rig() else { return };
    let control = ControlPlane::start(&rig.binaries, &ControlPlaneOptions::default()).await.unwrap();
    let client = control.client().await.unwrap();
    namespace(&client).await;
    install(&client, Flavour::OpenShift, "4.20.1").await.unwrap();
    let Some(operator) = Operator::start(&control, "operator", &[]) else { return };
    operator.ready().await;
    let log = || std::fs::read_to_string(operator.process.log()).unwrap_or_default();
    let kind = kube::core::GroupVersionKind::gvk("config.openshift.io", "v1", "APIServer");
    let servers: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "apiservers"));
    for (profile, version) in [("Modern", "VersionTLS13"), ("Old", "VersionTLS10")] {
        let wish = json!({
            "apiVersion": "config.openshift.io/v1", "kind": "APIServer", "metadata": { "name": "cluster" },
            "spec": { "tlsSecurityProfile": { "type": profile } },
        });
        let params = PatchParams::apply("test").force();
        servers.patch("cluster", &params, &Patch::Apply(&wish)).await.unwrap();
        let heard = async || log().contains(version);
        operator.process.wait_until(profile, PATIENCE, heard).await.unwrap();
    }
    assert!(operator.ends_well().await, "{}", operator.process.log_tail(20));
}
