//! The page beside a real kubelet: what it hands out is seen at once, with no more rights than are documented.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::crd::NRT_CRD_YAML;
use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{GetParams, PostParams};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Api, Client, Config};
use runtime::client::ClusterArgs;
use runtime::shutdown::Tasks;
use scheduler::cluster_input::ClusterInput;
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::cluster::Cluster;
use testkit::controlplane::ControlPlane;
use testkit::load::guaranteed_pod;
use testkit::machine::Machine;
use tokio_util::sync::CancellationToken;
use view::web::start;

use crate::http::{Events, get};
use crate::webdriver::Browser;
use crate::{fixture, web};

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: exporter::Args,
}

/// The flags that an exporter of the node needs.
fn exporter(cluster: &Cluster) -> exporter::Args {
    let node = &cluster.nodes()[0];
    let path = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    let flags = [
        "exporter".to_owned(),
        format!("--hostname={}", node.name()),
        format!("--podresources-socket=unix://{}", node.podresources_socket().display()),
        path("sysfs", &node.kubelet().machine().sys()),
        path("kubelet-state-dir", node.kubelet().root_dir()),
        path("kubelet-config-file", &node.kubelet().config_file()),
        path("kubeconfig", cluster.control().kubeconfig()),
        "--metrics-port=0".to_owned(),
    ];
    Cli::parse_from(flags).args
}

/// Follows until `node-0` is as wanted.
async fn node(events: &mut Events, wanted: impl Fn(&Value) -> bool) {
    let is_it = |(name, data): &(String, Value)| {
        let nodes = data.as_array().filter(|_| name == "nodes");
        nodes.is_some_and(|nodes| nodes.iter().any(|node| node["name"] == "node-0" && wanted(node)))
    };
    let found = async { while !is_it(&events.next().await) {} };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("the node in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_kubelet_hands_out_is_on_the_page_at_once() {
    let Ok(rig) = testkit::env::rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let cluster = Cluster::builder().crds(NRT_CRD_YAML).machines([machine]).start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let token = CancellationToken::new();
    let exporter = tokio::spawn(exporter::run(exporter(&cluster).settings().unwrap(), token.clone()));

    let account = Account::create(cluster.control(), "view", "web").await.unwrap();
    account.allow(view::rbac::server(), Vec::new()).await.unwrap();
    let kubeconfig = Some(account.kubeconfig(None).await.unwrap());
    let connection = ClusterArgs { kubeconfig, ..ClusterArgs::default() };
    let input = ClusterInput { connection, ..fixture::input(Vec::new()) };
    let mut tasks = Tasks::new(token.clone());
    let started = start(&web::args(input, "127.0.0.1:0"), None, &mut tasks).await.unwrap();
    let server = tokio::spawn(tasks.run(Duration::from_secs(5)));
    let session: Arc<str> = started.session.unwrap();

    let mut events = Events::follow(started.address, &session).await;
    node(&mut events, |node| node["state"] == "confirmed").await;
    let mut pod = guaranteed_pod("a", "nobody", [("cpu", "3"), ("memory", "64Mi")]);
    pod.spec.get_or_insert_default().node_name = Some("node-0".to_owned());
    Api::<Pod>::default_namespaced(client.clone()).create(&PostParams::default(), &pod).await.unwrap();
    let holds = |node: &Value| {
        let free = |zone: usize| node["zones"][zone]["free"][0].as_i64().unwrap_or_default();
        node["state"] == "confirmed" && node["onTheirWay"].is_null() && free(0) + free(1) == 12_000
    };
    node(&mut events, holds).await;
    let written =
        std::fs::metadata(cluster.nodes()[0].kubelet().root_dir().join("cpu_manager_state")).unwrap();
    let since = SystemTime::now().duration_since(written.modified().unwrap()).unwrap();
    println!("view: on the page {} ms after the kubelet's CPU manager wrote", since.as_millis());

    let bearer = format!("Bearer {session}");
    let page = get(started.address, "/view/v1/nodes/node-0", &[("Authorization", &bearer)]).await.json();
    let pod = &page["pods"][0];
    assert_eq!(pod["name"], "a", "{page}");
    assert_eq!(pod["isAsPredicted"], true, "{pod}");
    assert_eq!(pod["predicted"][0]["cpus"], pod["observed"][0]["cpus"]);
    assert_eq!(page["row"], Value::Null, "one object, flat");
    token.cancel();
    server.await.unwrap().unwrap();
    exporter.await.unwrap().unwrap();
}

/// Status and body of an answer to the identity of a kubeconfig, at the page's server.
async fn read(port: u16, control: &ControlPlane, kubeconfig: Option<&Path>, path: &str) -> (u16, String) {
    let url = format!("https://127.0.0.1:{port}").parse().unwrap();
    let trusted = Kubeconfig::read_from(control.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(trusted, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info = AuthInfo::default();
    if let Some(file) = kubeconfig {
        let own = Kubeconfig::read_from(file).unwrap();
        config.auth_info =
            Config::from_custom_kubeconfig(own, &KubeConfigOptions::default()).await.unwrap().auth_info;
    }
    config.cluster_url = url;
    let client = Client::try_from(config).unwrap();
    let mut request = Request::new("").get("path", &GetParams::default()).unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let answer = client.send(request.map(Body::from)).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The page asks for a token until it has that of a reader.
async fn sign_in(port: u16, [stranger, reader]: [String; 2]) {
    let Some(browser) = Browser::open(900, 700).await else { return };
    browser.load(&format!("https://127.0.0.1:{port}/#/node/none")).await;
    // Neither what the page shows nor another address takes the form away.
    browser.until("connection.textContent === 'not signed in'").await;
    browser.run("location.hash = '#/pod/ns/none'").await;
    browser.run("location.hash = '#/'").await;
    for (problem, token) in [
        ("A token is needed.", "wrong"),
        ("The server does not know this token.", &stranger),
        ("The user of this token may not read the cluster.", &reader),
    ] {
        let told = format!("document.querySelector('main [role=alert]')?.textContent === {}", json!(problem));
        browser.until(&told).await;
        let submit = "document.querySelector('main form').requestSubmit()";
        browser.run(&format!("document.getElementById('token').value = {}; {submit}", json!(token))).await;
    }
    browser.until("document.querySelector('h1')?.textContent === 'Cluster'").await;
}

/// On an address that others reach: by TLS alone, and by what the API server says of each reader.
#[tokio::test(flavor = "multi_thread")]
async fn readers_elsewhere_are_those_whom_the_api_server_lets() {
    let Ok(rig) = testkit::env::rig() else { return };
    let cluster = Cluster::builder().crds(NRT_CRD_YAML).machines([]).start(&rig).await.unwrap();
    let control = cluster.control();
    let server = Account::create(control, "view", "web").await.unwrap();
    server.allow([view::rbac::server(), view::rbac::reviews()].concat(), Vec::new()).await.unwrap();
    let reader = Account::create(control, "view", "reader").await.unwrap();
    reader.allow(view::rbac::reader(), Vec::new()).await.unwrap();
    let stranger = Account::create(control, "view", "stranger").await.unwrap();
    let tokens = [stranger.token(None).await.unwrap(), reader.token(None).await.unwrap()];
    let reader = reader.kubeconfig(None).await.unwrap();
    let stranger = stranger.kubeconfig(None).await.unwrap();
    let wrong = control.kubeconfig_with_token("wrong", "wrong").unwrap();

    let kubeconfig = Some(server.kubeconfig(None).await.unwrap());
    let connection = ClusterArgs { kubeconfig, ..ClusterArgs::default() };
    let input = ClusterInput { connection, ..fixture::input(Vec::new()) };
    let (certificate, key) = control.server_files();
    let args = view::web::Args {
        tls_cert_file: Some(certificate),
        tls_private_key_file: Some(key),
        ..web::args(input, "0.0.0.0:0")
    };
    let token = CancellationToken::new();
    let mut tasks = Tasks::new(token.clone());
    let started = start(&args, None, &mut tasks).await.unwrap();
    assert!(started.session.is_none(), "no token of its own is of use there");
    let running = tokio::spawn(tasks.run(Duration::from_secs(5)));
    let port = started.address.port();
    for (who, kubeconfig, path, status) in [
        ("nobody", None, "/", 200),
        ("nobody", None, "/view/v1/cluster", 403),
        ("a wrong token", Some(&*wrong), "/view/v1/cluster", 401),
        ("a stranger", Some(&*stranger), "/view/v1/cluster", 403),
        ("a reader", Some(&*reader), "/view/v1/cluster", 200),
        ("a reader", Some(&*reader), "/metrics", 403),
        ("an administrator", Some(control.kubeconfig()), "/view/v1/cluster", 200),
    ] {
        let (is, body) = read(port, control, kubeconfig, path).await;
        assert_eq!(is, status, "{who} {path}: {body}");
        assert_eq!(body.contains("\"nodes\""), path != "/" && status == 200, "{who} {path}: {body}");
    }
    sign_in(port, tokens).await;
    token.cancel();
    running.await.unwrap().unwrap();
}
