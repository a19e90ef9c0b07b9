//! Clients against servers that misbehave.

use crate::{connect, soon};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use runtime::client::{brief, is_retryable};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A kubeconfig for a server at `address` that needs no credentials.
fn kubeconfig(address: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "clusters": [{ "name": "x", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "x", "user": {} }],
    });
    std::fs::write(file.path(), text.to_string()).unwrap();
    file
}

#[tokio::test]
async fn a_strict_client_gives_up_on_a_silent_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = kubeconfig(&listener.local_addr().unwrap().to_string());
    // Accepts connections and never responds.
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.extend(listener.accept().await);
        }
    });
    let client = connect(file.path()).await.client_with_timeout(Duration::from_millis(100)).unwrap();
    let error = soon("timeout", Api::<Pod>::default_namespaced(client).get("x")).await.unwrap_err();
    assert!(is_retryable(&error), "{}", brief(&error));
    silent.abort();
}

#[tokio::test]
async fn no_client_asks_again_after_an_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = kubeconfig(&listener.local_addr().unwrap().to_string());
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let router = axum::Router::new().fallback(move || {
        asked.send(()).unwrap();
        async { (axum::http::StatusCode::SERVICE_UNAVAILABLE, "busy") }
    });
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let connection = connect(file.path()).await;
    for client in
        [connection.watch_client().unwrap(), connection.client_with_timeout(Duration::from_secs(5)).unwrap()]
    {
        let error = soon("an answer", Api::<Pod>::default_namespaced(client).get("x")).await.unwrap_err();
        assert!(is_retryable(&error), "{}", brief(&error));
        assert_eq!(requests.recv().await, Some(()));
        assert!(requests.is_empty(), "more than one request");
    }
    server.abort();
}

/// A server that reads `closed` requests and closes their connections, then answers the others; the number of all.
async fn closing(listener: TcpListener, closed: usize, requests: Arc<AtomicUsize>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        if stream.read(&mut request).await.unwrap() == 0 {
            continue;
        }
        if requests.fetch_add(1, Ordering::SeqCst) < closed {
            continue;
        }
        let body = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}"#;
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).await.unwrap();
    }
}

/// client-go sends a GET again whose connection ended without an answer. A write may have been carried out.
#[tokio::test]
async fn a_read_without_an_answer_is_sent_again() {
    // whether it is a read, requests that are closed -> whether it succeeds, requests in all
    for (is_read, closed, wanted) in [
        (true, 0, (true, 1)),
        (true, 1, (true, 2)),
        (true, 3, (true, 4)),
        (true, 9, (false, 4)),
        (false, 1, (false, 1)),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let file = kubeconfig(&listener.local_addr().unwrap().to_string());
        let requests = Arc::new(AtomicUsize::new(0));
        let server = tokio::spawn(closing(listener, closed, requests.clone()));
        let client = connect(file.path()).await.client_with_timeout(Duration::from_secs(5)).unwrap();
        let pods = Api::<Pod>::default_namespaced(client);
        let pod = if is_read {
            soon("a read", pods.get("x")).await
        } else {
            soon("a write", pods.create(&PostParams::default(), &Pod::default())).await
        };
        let error = pod.as_ref().err().map(brief);
        assert_eq!((pod.is_ok(), requests.load(Ordering::SeqCst)), wanted, "{is_read} {closed} {error:?}");
        assert!(pod.is_ok() || is_retryable(&pod.unwrap_err()));
        server.abort();
    }
}

#[tokio::test]
async fn a_refused_connection_is_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let file = kubeconfig(&listener.local_addr().unwrap().to_string());
    drop(listener);
    let client = connect(file.path()).await.watch_client().unwrap();
    let error = soon("refusal", Api::<Pod>::default_namespaced(client).get("x")).await.unwrap_err();
    let text = brief(&error);
    assert_eq!(text.matches("Connection refused").count(), 1, "{text}");
}
