//! A whole cluster with our stack in it, collected and read again: what we ship as processes, in containers.

use std::fs;

use deployer::install::step::Step;
use deployer::install::{Settings, deploy};
use deployer::manifests;
use deployer::options::Options as Choices;
use deployer::part::Component;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::cri::{Image, Images};
use testkit::machine::Machine;
use testkit::{env, net};
use tokio_util::sync::CancellationToken;

use super::*;

const EXPORTERS: &str = manifests::exporter::NAMESPACE;
const SCHEDULERS: &str = manifests::scheduler::NAMESPACE;
/// In no file that is collected.
const SECRET: &str = "aHVudGVyMg";

#[test]
fn a_support_case_is_in_one_folder() {
    let (Ok(rig), Some(program)) = (env::rig(), program()) else { return };
    net::private(async |network| {
        // Under the name that the image has it under.
        let ours = Image::program(program.clone()).file(program.clone(), "/bin/cat");
        let images = Images::new().with("tholepin:test", ours).with("tools", Image::tools());
        let machines = [2, 2].map(|zones| Machine::new().zones(zones).cpus_per_zone(8));
        let cluster =
            Cluster::builder().machines(machines).installable(network, images.with("pause", Image::pause()));
        let cluster = cluster.start(&rig).await.unwrap();
        let client = cluster.client().await.unwrap();
        stack(&client).await;
        let nodes = ["node-0", "node-1"];
        let expected = scheduler(&client, &nodes).await;
        let secret = json!({ "metadata": { "name": "s" }, "stringData": { "password": SECRET } });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        Api::namespaced(client.clone(), EXPORTERS).create(&PostParams::default(), &secret).await.unwrap();
        let kubeconfig = cluster.control().kubeconfig();
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("case");
        collected(&program, kubeconfig, &folder, &nodes, &expected).await;
        read_again(&program, kubeconfig, &folder).await;
        asked(&program, kubeconfig, &nodes).await;
    })
    .unwrap();
}

/// Our stack, as the deployer installs it, with exporters that write down fingerprints.
async fn stack(client: &Client) {
    let mut choices = Choices::default();
    choices.images.tholepin = "tholepin:test".to_owned();
    let parts = manifests::parts(&choices, &Component::ALL).unwrap();
    let settings = Settings {
        wait: true,
        wait_interval: Duration::from_millis(100),
        wait_timeout: PATIENCE,
        ..Settings::default()
    };
    deploy(client, &parts, &settings, &mut |_: &Step<'_>| {}, &CancellationToken::new()).await.unwrap();
    let container = json!({
        "name": manifests::exporter::CONTAINER,
        "env": [{ "name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus" }],
        "volumeMounts": [{ "name": "pfpstatus", "mountPath": "/run/pfpstatus" }],
    });
    let patch = json!({ "spec": { "template": { "spec": {
        "containers": [container], "volumes": [{ "name": "pfpstatus", "emptyDir": {} }],
    } } } });
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), EXPORTERS);
    sets.patch(manifests::exporter::NAME, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    until("exporters are replaced", async || {
        let set = sets.get(manifests::exporter::NAME).await.unwrap();
        let status = set.status.clone().unwrap_or_default();
        status.observed_generation == set.metadata.generation
            && status.updated_number_scheduled == Some(2)
            && status.number_ready == 2
    })
    .await;
}

/// A scheduler as the operator names it, which does not count the pods that the exporters count. Says what they sign.
async fn scheduler(client: &Client, nodes: &[&str]) -> String {
    let reports: Api<api::nrt::NodeResourceTopology> = Api::all(client.clone());
    let mut expected = String::new();
    until("a signed report", async || {
        let report = reports.get_opt(nodes[0]).await.unwrap();
        let attributes = report.map(|report| report.attributes).unwrap_or_default();
        let signed = attributes.into_iter().find(|attribute| attribute.name == "nodeTopologyPodsFingerprint");
        expected = signed.map(|attribute| attribute.value).unwrap_or_default();
        !expected.is_empty()
    })
    .await;
    let record = json!([{
        "fingerprintExpected": expected, "fingerprintComputed": "pfp0v001ffffffffffffffff",
        "pods": [{ "Namespace": "nowhere", "Name": "ghost" }], "nodeName": nodes[0],
        "recordTime": "2025-01-01T00:00:00Z",
    }]);
    let script = format!(
        "echo '{record}' > /run/pfpstatus/{}; echo hello from the scheduler; while sleep 1; do :; done",
        nodes[0]
    );
    let pod = json!({
        "metadata": { "name": "secondary-scheduler-0", "labels": { "app": "secondary-scheduler" } },
        "spec": {
            "containers": [{
                "name": "secondary-scheduler", "image": "tools", "command": ["/bin/sh", "-c", script],
                "env": [{ "name": "PFP_STATUS_DUMP", "value": "/run/pfpstatus" }, { "name": "DB_PASSWORD", "value": SECRET }],
                "volumeMounts": [{ "name": "pfpstatus", "mountPath": "/run/pfpstatus" }],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
                    "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
                },
                "resources": { "requests": { "cpu": "10m" } },
            }],
            "securityContext": { "fsGroup": 1000 },
            "terminationGracePeriodSeconds": 1,
            "volumes": [{ "name": "pfpstatus", "emptyDir": {} }],
        },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), SCHEDULERS);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    until("the scheduler runs", async || {
        let pod = pods.get("secondary-scheduler-0").await.unwrap();
        let status = pod.status.unwrap_or_default();
        status.container_statuses.iter().flatten().any(|status| status.ready)
    })
    .await;
    let lease = json!({
        "metadata": { "name": "numa-scheduler-leader" },
        "spec": { "holderIdentity": format!("{}_6ba7b810", pod.name_any()) },
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    Api::namespaced(client.clone(), SCHEDULERS).create(&PostParams::default(), &lease).await.unwrap();
    let listed = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items.len(), 2, "ours and this one");
    expected
}

/// Collects until the exporters' records are in it too, which are written in their own time.
async fn collected(program: &Path, kubeconfig: &Path, folder: &Path, nodes: &[&str], expected: &str) {
    let case = folder.to_str().unwrap();
    let records = folder.join(format!("namespaces/{EXPORTERS}/pfpstatus/resource-topology-exporters"));
    until("everything is collected", async || {
        let _ = fs::remove_dir_all(folder);
        let (code, stdout, stderr) = run(program, kubeconfig, &["must-gather", "--dest-dir", case]).await;
        assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
        nodes.iter().all(|node| records.join(node).exists())
    })
    .await;
    let (code, _, stderr) = run(program, kubeconfig, &["must-gather", "--dest-dir", case]).await;
    assert!(code == 1 && stderr.contains("is not empty"), "{stderr}");
    let read =
        |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(read("version").starts_with("numaresources-operator/must-gather\n"));
    for node in nodes {
        assert!(read(&format!("cluster-scoped-resources/core/nodes/{node}.yaml")).contains("kind: Node"));
        let report = read(&format!(
            "cluster-scoped-resources/topology.node.k8s.io/noderesourcetopologies/{node}.yaml"
        ));
        assert!(report.contains("nodeTopologyPodsFingerprint"), "{report}");
        assert!(read(&format!("configz/{node}.json")).contains("topologyManagerPolicy"));
    }
    let definition = "cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/noderesourcetopologies.topology.node.k8s.io.yaml";
    assert!(read(definition).contains("CustomResourceDefinition"));
    assert!(read(&format!("namespaces/{EXPORTERS}/apps/daemonsets.yaml")).contains("kind: DaemonSetList"));
    assert!(
        read(&format!("namespaces/{SCHEDULERS}/coordination.k8s.io/leases.yaml"))
            .contains("numa-scheduler-leader")
    );
    assert!(
        read("leases.yaml").contains("numa-scheduler-leader")
            && !read("leases.yaml").contains("kube-node-lease")
    );
    let scheduler = format!("namespaces/{SCHEDULERS}/pods/secondary-scheduler-0/secondary-scheduler");
    assert!(
        read(&format!("{scheduler}/secondary-scheduler/logs/current.log"))
            .contains("hello from the scheduler")
    );
    let of = |end: &str| found(folder, end);
    assert_eq!(of("exporter/exporter/logs/current.log"), 2);
    assert_eq!(of("scheduler/scheduler/logs/current.log"), 1);
    assert_eq!((of("exporter/metrics-2112.prom"), of(".prom")), (2, 3));
    for file in ["validate.txt", "validate.json", "events.yaml", "other-pods.yaml", "gather.log"] {
        assert!(!read(file).is_empty(), "{file}");
    }
    let checked = read("pfpsyncchk.txt");
    let block =
        format!("Expected PFP: {expected}\nComputed PFP: pfp0v001ffffffffffffffff\nFound on RTE: true\n");
    assert!(
        checked.contains(&block) && checked.contains("Pods found on scheduler only:\n - nowhere/ghost\n"),
        "{checked}"
    );
    assert_eq!(secrets(folder), [""; 0]);
}

/// How many files end like this.
fn found(folder: &Path, end: &str) -> usize {
    files(folder).iter().filter(|file| file.to_str().unwrap().ends_with(end)).count()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files
}

/// Files in which something secret stands.
fn secrets(folder: &Path) -> Vec<String> {
    let of = |file: &PathBuf| {
        let text = String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
        [SECRET, "kind: Secret\n", "kind: SecretList"].iter().any(|word| text.contains(word))
    };
    files(folder).iter().filter(|file| of(file)).map(|file| file.display().to_string()).collect()
}

/// Other tools read the folder.
async fn read_again(program: &Path, kubeconfig: &Path, folder: &Path) {
    let case = folder.to_str().unwrap();
    let (code, stdout, stderr) = run(program, kubeconfig, &["pfpsyncchk", "-must-gather", case]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(fs::read_to_string(folder.join("pfpsyncchk.txt")).unwrap().ends_with(&stdout));
    let (_, online, _) = run(program, kubeconfig, &["validate", "-o", "json"]).await;
    let (_, offline, stderr) = run(program, kubeconfig, &["validate", "--offline", case, "-o", "json"]).await;
    let ids = |text: &str| -> Vec<String> {
        let report: Value = serde_json::from_str(text).unwrap();
        let undone = report["notChecked"].as_array().or(report["not_checked"].as_array()).cloned();
        assert_eq!(undone.unwrap_or_default(), Vec::<Value>::new(), "{text}");
        let findings = report["findings"].as_array().unwrap();
        findings.iter().map(|finding| format!("{} {}", finding["id"], finding["object"])).collect()
    };
    assert_eq!(ids(&offline), ids(&online), "{stderr}");
}

/// Tools that ask pods.
async fn asked(program: &Path, kubeconfig: &Path, nodes: &[&str]) {
    let (code, stdout, stderr) = run(program, kubeconfig, &["schedlogs", "-namespace", SCHEDULERS]).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout, "-------8<-------\nhello from the scheduler\n-------8<-------\n");
    assert!(stderr.contains(&format!("leader pod: {SCHEDULERS}/secondary-scheduler-0")), "{stderr}");
    let (code, _, stderr) = run(program, kubeconfig, &["schedlogs"]).await;
    assert!(code == 1 && stderr.contains("namespace numaresources: no lease"), "{stderr}");
    // By its status file, the scheduler is out of sync about the first node.
    let (code, stdout, stderr) =
        run(program, kubeconfig, &["nrovalidate", "-json", "-what=schedcache"]).await;
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let detected: Vec<_> =
        answer["errors"].as_array().unwrap().iter().map(|item| (&item["node"], &item["detected"])).collect();
    assert_eq!((code, detected), (0, vec![(&json!(nodes[0]), &json!("unsync"))]), "{stderr}");
}
