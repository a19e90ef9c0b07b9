//! `tholepin extender` beside the stock kube-scheduler, over TLS, on a real kubelet: no pod is lost.

use std::time::Duration;

use clap::Parser as _;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::api::PostParams;
use runtime::client::{self, Connection, HttpEndpoint};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{create, eventually, level, pod, pods, refusal};
use crate::whole_loop::{exporting, phase};

const CONFIG: &str = include_str!("../../../../samples/extender/kube-scheduler-config.yaml");
const RIGHTS: &str = include_str!("../../../../samples/extender/rbac.yaml");

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: scheduler::shell::extender_server::Args,
}

#[test]
fn the_sample_has_the_rights_of_the_extender() {
    let mut rules = None;
    let read = runtime::yaml::dump::read("rbac.yaml", RIGHTS, &mut |part| {
        if let runtime::yaml::dump::Part::Document { value, .. } = part
            && value["kind"] == "ClusterRole"
        {
            rules = Some(value["rules"].clone());
        }
    });
    read.unwrap();
    assert_eq!(rules.unwrap(), serde_json::to_value(scheduler::rbac::extender()).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_scheduler_loses_no_pod_with_it() {
    let Ok(rig) = testkit::env::rig() else { return };
    let (cluster, client, _exporters) = exporting(&rig, 1).await;
    let token = CancellationToken::new();
    let _guard = token.clone().drop_guard();
    let class = json!({ "metadata": { "name": "important" }, "value": 1000 });
    let classes: Api<PriorityClass> = Api::all(client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();

    let port = testkit::port::free().unwrap();
    let kubeconfig = cluster.control().kubeconfig().display().to_string();
    let address = format!("127.0.0.1:{port}");
    // The files of the API server do for it.
    let files = cluster.control().process_group().dir().join("control");
    let (certificate, key) = cluster.control().server_files();
    let [certificate, key, authority] =
        [certificate, key, cluster.control().ca_file()].map(|path| path.display().to_string());
    let [client_certificate, client_key] =
        ["to-kubelets.crt", "to-kubelets.key"].map(|name| files.join(name).display().to_string());
    let flags = ["extender", "--kubeconfig", &kubeconfig, "--http-bind-address", "127.0.0.1:0"];
    let secure = ["--tls-cert-file", &certificate, "--tls-private-key-file", &key];
    let clients = ["--client-ca-file", &authority, "--bind-address", &address];
    let args = Cli::parse_from(flags.into_iter().chain(secure).chain(clients)).args;
    let extender = tokio::spawn(scheduler::shell::extender_server::run(args, level(), token.clone()));
    let mut config: Value = runtime::yaml::read_str("sample", CONFIG, runtime::yaml::Mode::Lenient).unwrap();
    config["clientConnection"] = json!({ "kubeconfig": kubeconfig });
    config["leaderElection"] = json!({ "leaderElect": false });
    config["extenders"][0]["urlPrefix"] = format!("https://{address}").into();
    config["extenders"][0]["enableHTTPS"] = true.into();
    config["extenders"][0]["tlsConfig"] =
        json!({ "caFile": authority, "certFile": client_certificate, "keyFile": client_key });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    let _stock =
        cluster.control().start_scheduler_with(&[format!("--config={}", file.display())]).await.unwrap();

    let stock_pod = |name: &str, cpus| {
        let mut pod = pod(name, cpus);
        pod.spec.as_mut().unwrap().scheduler_name = Some("default-scheduler".to_owned());
        pod
    };
    // Zones have 7 and 8 CPUs. After 2 and 6 of them 7 are left, 5 and 2: a scheduler of totals would place 6 more.
    let runs = async |name: &str| (phase(&client, name).await.as_deref() == Some("Running")).then_some(());
    for (name, cpus) in [("a", 2), ("b", 6)] {
        create(&client, &stock_pod(name, cpus)).await;
        eventually(name, async || runs(name).await).await;
    }
    create(&client, &stock_pod("c", 6)).await;
    let message = eventually("c", async || refusal(&client, "c").await).await;
    let wanted = "1 cannot align container \"main\": cpu: requested 6, most in one zone 5 (zone 0)";
    assert!(message.contains(wanted), "{message}");
    // The pod of 6 CPUs has to go for 8 more.
    let mut important = stock_pod("important", 8);
    important.spec.as_mut().unwrap().priority_class_name = Some("important".to_owned());
    create(&client, &important).await;
    eventually("important", async || runs("important").await).await;
    let is_gone = async || pods(&client).get_opt("b").await.unwrap().is_none().then_some(());
    eventually("the victim", is_gone).await;
    assert_eq!(phase(&client, "a").await.as_deref(), Some("Running"));
    let url = format!("https://{address}");
    assert_eq!(answer(&url, &authority, None).await, "CertificateRequired");
    let known = Some((client_certificate, client_key));
    assert_eq!(answer(&url, &authority, known).await, "404");
    token.cancel();
    extender.await.unwrap().unwrap();
}

/// The answer of the extender to a client with this certificate, or with none, about a path that is not there: words of
/// the error. A server that refuses a certificate closes the connection, and the client may see the end before the
/// reason; then it asks again.
async fn answer(url: &str, authority: &str, certificate: Option<(String, String)>) -> &'static str {
    let (certificate, key) = certificate.unzip();
    let endpoint = HttpEndpoint {
        url: url.to_owned(),
        authority: (None, Some(authority.to_owned())),
        certificate: (None, certificate),
        key: (None, key),
        ..HttpEndpoint::default()
    };
    let client = Connection::for_endpoint(&endpoint, "test").unwrap();
    let client = client.client_with_timeout(Duration::from_secs(5)).unwrap();
    eventually("an answer", async || {
        let error = client::get_text(&client, "/nothing", 100).await.unwrap_err();
        let text = client::brief(&error);
        ["CertificateRequired", "404"].into_iter().find(|word| text.contains(word))
    })
    .await
}
