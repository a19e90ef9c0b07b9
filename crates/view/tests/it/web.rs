//! The page's server: data, changes, and who gets them.

use std::net::SocketAddr;
use std::sync::Arc;

use runtime::shutdown::Tasks;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::{CancellationToken, DropGuard};
use view::web::{Args, start};

use crate::fixture;
use crate::http::{Events, Response, get, request};

/// A server of the dump on this machine.
struct Page {
    address: SocketAddr,
    token: Arc<str>,
    _folder: TempDir,
    _stop: DropGuard,
}

impl Page {
    async fn open() -> Self {
        let (folder, input) = fixture::dump();
        let token = CancellationToken::new();
        let mut tasks = Tasks::new(token.clone());
        let started = start(&args(input, "127.0.0.1:0"), None, &mut tasks).await.unwrap();
        tokio::spawn(tasks.run(std::time::Duration::from_secs(1)));
        let session = started.session.unwrap();
        Self { address: started.address, token: session, _folder: folder, _stop: token.drop_guard() }
    }

    async fn get(&self, path: &str) -> Response {
        get(self.address, path, &[("Authorization", &format!("Bearer {}", self.token))]).await
    }
}

pub(crate) fn args(input: scheduler::cluster_input::ClusterInput, address: &str) -> Args {
    let bind_address = address.parse().unwrap();
    Args {
        input,
        bind_address,
        health_probe_bind_address: None,
        tls_cert_file: None,
        tls_private_key_file: None,
        verbosity: 1,
    }
}

#[tokio::test]
async fn the_cluster_is_nodes_zones_and_what_waits() {
    let answer = Page::open().await.get("/view/v1/cluster").await.json();
    let by_ids = json!({"name": "by-ids", "policy": "single-numa-node", "scope": "container", "state": "confirmed",
        "pods": 1, "resources": ["cpu", "memory"], "zones": [
            {"id": 0, "free": [1_000, 6_912_u64 << 20], "allocatable": [3_000, 7_936_u64 << 20]},
            {"id": 1, "free": [4_000, 7_936_u64 << 20], "allocatable": [4_000, 7_936_u64 << 20]}]});
    assert_eq!(answer["nodes"][0], by_ids);
    assert_eq!(answer["nodes"][1]["rejected"], 1);
    let silent = json!({"name": "silent", "state": "unreported", "pods": 0, "resources": [], "zones": []});
    assert_eq!(answer["nodes"][2], silent);
    assert_eq!(answer["waiting"]["number"], 1);
    assert_eq!(answer["waiting"]["pods"][0]["message"], "0/3 nodes are available");
}

#[tokio::test]
async fn pods_are_where_they_are_or_say_why_not() {
    let page = Page::open().await;
    let runs = page.get("/view/v1/pods/ns/runs").await.json();
    assert_eq!((&runs["node"], &runs["pod"]["zones"]), (&json!("by-ids"), &json!([0])));
    let waits = page.get("/view/v1/pods/ns/waits").await.json();
    let nodes = waits["explanation"]["nodes"].as_array().unwrap();
    assert_eq!(
        nodes[0]["reasons"][0],
        "cannot align container \"main\": cpu: requested 5, most in one zone 4 (zone 1)"
    );
    assert!(nodes[0]["changes"][0]["text"].is_string(), "{nodes:?}");
    // Asking changes nothing: the next one is told the same.
    assert_eq!(page.get("/view/v1/pods/ns/waits").await.json(), waits);
    assert_eq!(page.get("/view/v1/pods/ns/nobody").await.status, 404);
}

#[tokio::test]
async fn capacity_counts_and_names_what_is_wrong() {
    let page = Page::open().await;
    let found = page.get("/view/v1/capacity?shape=cpu%3D2%2Cmemory%3D1Gi").await.json();
    let left = json!({"cpu": "1", "memory": "12Gi"});
    assert_eq!(found["nodes"][0], json!({"node": "by-ids", "fits": 2, "left": left}));
    let wrong = page.get("/view/v1/capacity?shape=cpu%3Dx").await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.json()["error"].as_str().unwrap().contains("allowed is NAME=AMOUNT"), "{wrong:?}");
    assert_eq!(page.get("/view/v1/capacity").await.status, 400);
}

#[tokio::test]
async fn pages_that_follow_get_all_nodes_first() {
    let page = Page::open().await;
    let mut events = Events::follow(page.address, &page.token).await;
    assert_eq!(events.next().await, ("restart".to_owned(), json!({"nodes": 3, "isDump": true})));
    let (name, nodes) = events.next().await;
    assert_eq!((name.as_str(), nodes.as_array().unwrap().len()), ("nodes", 3));
    assert_eq!(events.next().await.0, "waiting");
    assert_eq!(events.next().await.0, "version");
}

#[tokio::test]
async fn data_takes_a_token_and_pages_of_others_get_none() {
    let page = Page::open().await;
    let data = [
        "/view/v1/cluster",
        "/view/v1/changes",
        "/view/v1/nodes/by-ids",
        "/view/v1/pods/ns/runs",
        "/view/v1/capacity",
    ];
    for path in data {
        let wrong = format!("Bearer {}x", page.token);
        for headers in
            [vec![], vec![("Authorization", wrong.as_str())], vec![("Origin", "http://elsewhere.example")]]
        {
            let answer = get(page.address, path, &headers).await;
            assert_eq!(answer.status, 401, "{path} {headers:?}");
            assert!(!answer.body.contains("by-ids"), "{answer:?}");
        }
    }
    // No header lets another origin read what its own page asked for.
    let authorization = format!("Bearer {}", page.token);
    let headers = [("Authorization", authorization.as_str()), ("Origin", "http://elsewhere.example")];
    let answer = get(page.address, "/view/v1/cluster", &headers).await;
    assert!(!answer.head.to_lowercase().contains("access-control-allow"), "{answer:?}");
}

#[tokio::test]
async fn the_page_itself_says_nothing_and_loads_nothing_from_elsewhere() {
    let page = Page::open().await;
    for (path, content_type) in
        [("/", "text/html"), ("/style.css", "text/css"), ("/app.js", "text/javascript")]
    {
        let answer = get(page.address, path, &[]).await;
        let head = answer.head.to_lowercase();
        assert_eq!(answer.status, 200, "{path}");
        assert!(head.contains(&format!("content-type: {content_type}")), "{head}");
        assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert!(!answer.body.contains("by-ids"));
    }
}

/// Readers that never read on neither stop others nor make anything grow: the oldest are cut off.
#[tokio::test]
async fn slow_clients_keep_nobody_out() {
    let page = Page::open().await;
    let authorization = format!("Bearer {}", page.token);
    let mut slow = Vec::new();
    for _ in 0..600 {
        slow.push(request(page.address, "/view/v1/changes", &[("Authorization", &authorization)]).await);
    }
    assert_eq!(page.get("/view/v1/cluster").await.status, 200);
    let mut ended = 0;
    for client in &mut slow[..500] {
        ended += u32::from(client.read_to_end(&mut Vec::new()).await.is_ok());
    }
    assert!(ended >= 500, "{ended}");
}

#[tokio::test]
async fn beyond_this_machine_tls_is_needed() {
    let (_folder, input) = fixture::dump();
    let mut tasks = Tasks::new(CancellationToken::new());
    let error = start(&args(input, "0.0.0.0:0"), None, &mut tasks).await.unwrap_err();
    assert!(error.to_string().contains("--tls-cert-file"), "{error}");
}
