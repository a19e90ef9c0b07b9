//! What is wrong with real kubelets and objects on a real API server is found, and nothing where all is well.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use deployer::validate::check::all;
use deployer::validate::evidence::{Area, Evidence};
use deployer::validate::{Severity, Validation, examine, source};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use runtime::client::{Connection, Options};
use serde_json::{Value, json};
use testkit::cluster::{Builder, Cluster};
use tokio_util::sync::CancellationToken;

#[path = "validate/healthy.rs"]
mod healthy;
#[path = "validate/kubelets.rs"]
mod kubelets;
#[path = "validate/objects.rs"]
mod objects;
#[path = "validate/rights.rs"]
mod rights;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(90);
/// Looking as from later, so that what happened just now does not count as recent.
const LATER: SignedDuration = SignedDuration::from_secs(300);

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: exporter::Args,
}

/// Exporters running in this process; dropping it ends them.
struct Exporters {
    token: CancellationToken,
}

impl Drop for Exporters {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// A cluster with an exporter's and a scheduler's objects, as after an installation. The exporters are in this process.
struct Installed {
    cluster: Cluster,
    client: Client,
    exporters: Option<Exporters>,
}

impl Installed {
    /// Starts it, or `None` where the rig cannot run.
    async fn start(describe: impl FnOnce(Builder) -> Builder) -> Option<Self> {
        let rig = testkit::env::rig().ok()?;
        let cluster = describe(Cluster::builder().crds(api::crd::NRT_CRD_YAML)).start(&rig).await.unwrap();
        let client = cluster.client().await.unwrap();
        let mut installed = Self { cluster, client, exporters: None };
        installed.export();
        installed.install().await;
        Some(installed)
    }

    /// Starts an exporter for each node.
    fn export(&mut self) {
        let token = CancellationToken::new();
        for node in self.cluster.nodes() {
            let root = node.kubelet().root_dir();
            let flags = [
                "exporter".to_owned(),
                format!("--hostname={}", node.name()),
                format!("--podresources-socket=unix://{}", node.podresources_socket().display()),
                format!("--sysfs={}", node.kubelet().machine().sys().display()),
                format!("--kubelet-state-dir={}", root.display()),
                format!("--kubelet-config-file={}", node.kubelet().config_file().display()),
                format!("--kubeconfig={}", self.cluster.control().kubeconfig().display()),
                "--metrics-port=0".to_owned(),
            ];
            let settings = <Cli as clap::Parser>::parse_from(flags).args.settings().unwrap();
            tokio::spawn(exporter::run(settings, token.clone()));
        }
        self.exporters = Some(Exporters { token });
    }

    fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        api(&self.client, kind, namespace)
    }

    async fn create(&self, object: &Value) -> DynamicObject {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let api = self.api(text("/kind").unwrap(), text("/metadata/namespace"));
        let mut typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        typed.types = None;
        let made = api.create(&PostParams::default(), &typed).await.unwrap();
        if let Some(status) = object.get("status") {
            let name = made.metadata.name.clone().unwrap();
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        made
    }

    async fn install(&self) {
        self.create(&json!({ "kind": "Namespace", "metadata": { "name": "tholepin" } })).await;
        let nodes = self.cluster.nodes().len();
        let labels = json!({ "app": "x" });
        let container =
            |command: Value| json!({ "name": "main", "image": "example.com/tholepin:1", "command": command });
        let set = self
            .create(&json!({ "kind": "DaemonSet", "metadata": { "namespace": "tholepin", "name": "exporter" },
                "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels },
                    "spec": { "containers": [container(json!(["tholepin", "exporter"]))] } } },
                "status": { "desiredNumberScheduled": nodes, "numberReady": nodes,
                    "currentNumberScheduled": nodes, "numberMisscheduled": 0 } }))
            .await;
        for node in self.cluster.nodes() {
            let owner = json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "controller": true,
                "uid": set.metadata.uid }]);
            let mut pod = pod(
                "tholepin",
                &format!("exporter-{}", node.name()),
                Some(node.name()),
                "default-scheduler",
                "",
            );
            pod["metadata"]["ownerReferences"] = owner;
            pod["spec"]["containers"][0]["image"] = "example.com/tholepin:1".into();
            // What the runtime double is told to do stands in the command; the exporter is known by its first words.
            pod["spec"]["containers"][0]["args"] = json!(["exporter"]);
            self.create(&pod).await;
        }
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection:\n  \
            leaderElect: true\n  resourceNamespace: tholepin\n  resourceName: numa\nprofiles:\n- schedulerName: numa\n";
        self.create(
            &json!({ "kind": "ConfigMap", "metadata": { "namespace": "tholepin", "name": "scheduler" },
            "data": { "config.yaml": text } }),
        )
        .await;
        self.create(&scheduler("scheduler")).await;
        let renewed = (Timestamp::now() + LATER * 4).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
        self.create(&json!({ "kind": "Lease", "metadata": { "namespace": "tholepin", "name": "numa" },
            "spec": { "holderIdentity": "scheduler-x_1", "leaseDurationSeconds": 15, "renewTime": renewed } }))
        .await;
    }

    async fn evidence(&self) -> Evidence {
        evidence(self.cluster.control().kubeconfig()).await
    }

    async fn report(&self) -> Validation {
        examine(&self.evidence().await, &all())
    }

    /// Waits until a finding is there. Says what there was instead.
    async fn finds(&self, id: &str, object: &str, what: &str) -> Validation {
        let about = format!("{id} {object}: {what:?}");
        let found = |report: &Validation| {
            report.findings.iter().any(|f| f.id == id && f.object == object && f.what.contains(what))
        };
        self.until(&about, found).await
    }

    /// Waits until nothing is wrong.
    async fn is_fine(&self) {
        let about = "nothing wrong";
        self.until(about, |report| {
            report.not_checked.is_empty() && !report.findings.iter().any(|f| f.severity != Severity::Info)
        })
        .await;
    }

    async fn until(&self, about: &str, is_so: impl Fn(&Validation) -> bool) -> Validation {
        let began = Instant::now();
        loop {
            let report = self.report().await;
            if is_so(&report) {
                return report;
            }
            let lines = lines(&report);
            assert!(
                began.elapsed() < PATIENCE,
                "{about}: not after {PATIENCE:?}, but {lines:#?} {:?}",
                report.not_checked
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What was found, a line each.
fn lines(report: &Validation) -> Vec<String> {
    report.findings.iter().map(|f| format!("{} {}: {}", f.id, f.object, f.what)).collect()
}

/// All there is to see for who has this kubeconfig.
async fn evidence(kubeconfig: &std::path::Path) -> Evidence {
    let options = Options { kubeconfig: Some(kubeconfig.to_owned()), ..Options::default() };
    let connection = Connection::open(&options).await.unwrap();
    let areas: BTreeSet<Area> = all().iter().flat_map(|check| check.needs.iter().copied()).collect();
    let mut evidence = source::gather(&connection, &areas).await.unwrap();
    evidence.now = evidence.now.map(|now| now + LATER);
    evidence
}

fn api(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version, plural) = match kind {
        "Namespace" => ("", "v1", "namespaces"),
        "Node" => ("", "v1", "nodes"),
        "Pod" => ("", "v1", "pods"),
        "ConfigMap" => ("", "v1", "configmaps"),
        "DaemonSet" => ("apps", "v1", "daemonsets"),
        "Deployment" => ("apps", "v1", "deployments"),
        "Lease" => ("coordination.k8s.io", "v1", "leases"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        _ => (api::nrt::GROUP, api::nrt::VERSION, api::nrt::PLURAL),
    };
    let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn scheduler(name: &str) -> Value {
    json!({ "kind": "Deployment", "metadata": { "namespace": "tholepin", "name": name },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": name } }, "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": "example.com/tholepin:1",
                    "command": ["tholepin", "scheduler", "--config=/etc/config.yaml"] }],
                "volumes": [{ "name": "config", "configMap": { "name": "scheduler" } }] } } },
        "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 } })
}

/// A pod of one container; with cpus it is Guaranteed.
fn pod(namespace: &str, name: &str, node: Option<&str>, scheduler: &str, cpus: &str) -> Value {
    let amounts = json!({ "cpu": cpus, "memory": "64Mi" });
    let resources =
        if cpus.is_empty() { json!({}) } else { json!({ "requests": amounts, "limits": amounts }) };
    let mut pod = json!({ "kind": "Pod", "metadata": { "namespace": namespace, "name": name },
        "spec": { "schedulerName": scheduler, "dnsPolicy": "Default", "automountServiceAccountToken": false,
            "enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": "pause", "imagePullPolicy": "IfNotPresent", "resources": resources }] } });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}
