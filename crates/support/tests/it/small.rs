//! Tools that need no more than an API server.

use std::process::Stdio;

use api::nrt::NodeResourceTopology;
use fakes::openshift::{Flavour, install};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use testkit::cluster::Cluster;
use testkit::env::rig;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::*;

/// An API server that knows the stack's kinds.
async fn cluster() -> Option<(Cluster, PathBuf)> {
    let (Ok(rig), Some(program)) = (rig(), program()) else { return None };
    let kinds = [api::crd::nrt_crd(), api::crd::operator_crd()];
    let builder = kinds
        .iter()
        .fold(Cluster::builder(), |builder, kind| builder.crds(serde_json::to_string(kind).unwrap()));
    Some((builder.start(&rig).await.unwrap(), program))
}

async fn make<K>(client: &Client, namespace: &str, object: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).unwrap();
    Api::<K>::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn small_tools_answer() {
    let Some((cluster, program)) = cluster().await else { return };
    let client = cluster.client().await.unwrap();
    let kubeconfig = cluster.control().kubeconfig();
    kubelet_configurations(&client, &program, kubeconfig).await;
    attributes(&client, &program, kubeconfig).await;
    jobs(&client, &program, kubeconfig).await;
    platforms(&client, &program, kubeconfig).await;
}

async fn kubelet_configurations(client: &Client, program: &Path, kubeconfig: &Path) {
    let words = ["catkubeletconfmap", "-namespace", "default", "-name=pool", "-prefix", "E2E_"];
    let (code, stdout, stderr) = run(program, kubeconfig, &words).await;
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("error: ConfigMap default/pool: 404 "), "{stderr}");
    let waiting = [&words[..], &["-wait=60s"]].concat();
    let mut waiting =
        command(program, kubeconfig, &waiting).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.ends_with("trying again"), "{line}");
    let config = "kubelet:\n  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n";
    let map = json!({ "metadata": { "name": "pool" }, "data": { "config.yaml": config } });
    make::<ConfigMap>(client, "default", map).await;
    let output = waiting.wait_with_output().await.unwrap();
    let wanted = "E2E_TOPOLOGY_MANAGER_POLICY=restricted\nE2E_TOPOLOGY_MANAGER_SCOPE=pod\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    assert!(output.status.success());
    // Once is enough when it is there.
    assert_eq!(run(program, kubeconfig, &words).await.1, wanted);
}

async fn attributes(client: &Client, program: &Path, kubeconfig: &Path) {
    let reports: Api<NodeResourceTopology> = Api::all(client.clone());
    let report = json!({ "metadata": { "name": "node" }, "zones": [], "topologyPolicies": [] });
    let report: NodeResourceTopology = serde_json::from_value(report).unwrap();
    reports.create(&PostParams::default(), &report).await.unwrap();
    let mut watching =
        command(program, kubeconfig, &["watchnrtattr"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stderr.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().ends_with("start watching NRT objects"));
    // The watch may begin only after the first of these.
    let mut told = None;
    for number in 0..1000 {
        let patch = json!({ "attributes": [{ "name": "number", "value": number.to_string() }] });
        reports.patch("node", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let line = tokio::time::timeout(Duration::from_millis(200), lines.next_line()).await;
        if let Ok(line) = line {
            told = line.unwrap();
            break;
        }
    }
    let told = told.unwrap();
    assert!(told.contains(r#"NRT "node" attrs=[{Name:number Value:"#), "{told}");
    watching.kill().await.unwrap();
}

async fn jobs(client: &Client, program: &Path, kubeconfig: &Path) {
    let container = json!({ "name": "resource-topology-exporter", "image": "exporter:1" });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "exporters", "namespace": "default" },
        "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": {
            "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [container], "nodeSelector": { "pool": "numa" } },
        } },
    });
    let set: DynamicObject = serde_json::from_value(set).unwrap();
    let kind = kube::core::ApiResource::erase::<k8s_openapi::api::apps::v1::DaemonSet>(&());
    let sets: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    sets.create(&PostParams::default(), &set).await.unwrap();
    let status = json!({ "status": {
        "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
    } });
    sets.patch_status("exporters", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nrestorecon -R /var/lib/kubelet # \"all\": of it\n").unwrap();
    let words =
        ["make-job-foreach-ds", "-name=fix", "-serviceaccount=default", "-script", script.to_str().unwrap()];
    let (code, stdout, stderr) = run(program, kubeconfig, &words).await;
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    assert!(stderr.starts_with("error: NUMAResourcesOperator numaresourcesoperator: 404 "), "{stderr}");
    let named = [&words[..], &["-daemonset=default/exporters"]].concat();
    let (code, stdout, stderr) = run(program, kubeconfig, &named).await;
    assert_eq!(code, 0, "{stderr}");
    // The API server takes it, without a word about fields that it does not know.
    let job: Job =
        runtime::yaml::read_str("job", stdout.strip_prefix("---\n").unwrap(), runtime::yaml::Mode::Strict)
            .unwrap();
    assert_eq!(job.spec.as_ref().unwrap().completions, Some(2));
    let made =
        Api::<Job>::namespaced(client.clone(), "default").create(&PostParams::default(), &job).await.unwrap();
    assert!(made.name_any().starts_with("fix-"));
    // The DaemonSets are those listed by the operator's object.
    let operator = json!({
        "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator",
        "metadata": { "name": "numaresourcesoperator" }, "spec": { "nodeGroups": [{ "poolName": "numa" }] },
    });
    let operators: Api<api::numaresources::NumaResourcesOperator> = Api::all(client.clone());
    operators
        .patch("numaresourcesoperator", &PatchParams::apply("test"), &Patch::Apply(&operator))
        .await
        .unwrap();
    let (_, _, stderr) = run(program, kubeconfig, &words).await;
    assert!(stderr.contains("no DaemonSet is ready"), "{stderr}");
    let status = json!({ "status": { "daemonsets": [{ "namespace": "default", "name": "exporters" }] } });
    operators
        .patch_status("numaresourcesoperator", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    assert_eq!(run(program, kubeconfig, &words).await.1, stdout);
}

async fn platforms(client: &Client, program: &Path, kubeconfig: &Path) {
    let check = async |words: &[&str], code: i32, text: &str| {
        let (got, stdout, stderr) = run(program, kubeconfig, &[&["lsplatform"], words].concat()).await;
        assert_eq!((got, stdout.as_str()), (code, text), "{words:?}: {stderr}");
    };
    check(&[], 0, "Kubernetes\n").await;
    check(&["-is-platform", "kubernetes"], 0, "").await;
    check(&["--is-platform=OpenShift"], 1, "").await;
    check(&["-is-platform=Other"], 2, "").await;
    check(&["-what"], 2, "").await;
    check(&["-kubeconfig=/missing"], 2, "").await;
    install(client, Flavour::OpenShift, "4.20.1").await.unwrap();
    check(&["-is-platform=OpenShift"], 0, "").await;
    check(&[], 0, "OpenShift\n").await;
}
