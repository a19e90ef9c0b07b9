//! The server beside an API server that hangs.

use std::sync::atomic::{AtomicBool, Ordering};

use runtime::client::HttpEndpoint;
use tokio::sync::Notify;

use super::*;
use crate::config;
use crate::shell::snapshot::Snapshot;

/// An API server that has a first call until it is told to answer. It knows no pod.
#[derive(Clone, Default)]
struct HangingApiServer {
    was_asked: Arc<AtomicBool>,
    asked: Arc<Notify>,
    answers: Arc<Notify>,
}

impl HangingApiServer {
    async fn serve(&self) -> Client {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let endpoint = HttpEndpoint { url, ..HttpEndpoint::default() };
        let connection = Connection::for_endpoint(&endpoint, "test").unwrap();
        connection.client_with_timeout(Duration::from_secs(60)).unwrap()
    }
}

async fn answer(State(server): State<HangingApiServer>) -> (StatusCode, Json<Value>) {
    if !server.was_asked.swap(true, Ordering::SeqCst) {
        server.asked.notify_one();
        server.answers.notified().await;
    }
    let status = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 });
    (StatusCode::NOT_FOUND, Json(status))
}

/// The other scheduler waits five seconds for an answer, a binding may take longer. What becomes of it is noted all the
/// same: a pod that was not bound can be bound elsewhere.
#[tokio::test]
async fn a_client_that_goes_leaves_no_pod_on_a_node() {
    let api_server = HangingApiServer::default();
    let mut snapshot = Snapshot::default();
    for name in ["n", "m"] {
        let amounts = json!({ "cpu": "8", "memory": "8Gi", "pods": "20" });
        let metadata = json!({ "name": name, "uid": name });
        let status = json!({ "allocatable": amounts });
        snapshot.take(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status }));
    }
    let metadata = json!({ "namespace": "ns", "name": "a", "uid": "uid-a" });
    let spec = json!({ "schedulerName": "default-scheduler", "containers": [{ "name": "c" }] });
    snapshot.take(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }));
    let server = Server {
        observer: Observer::of_snapshot(config::default_settings(0), snapshot, 1_000_000).unwrap(),
        client: api_server.serve().await,
        stopped: CancellationToken::new(),
        locks: Arc::default(),
    };
    let question = |node: &str| {
        let question = json!({ "PodName": "a", "PodNamespace": "ns", "PodUID": "uid-a", "Node": node });
        bind(State(server.clone()), Json(question))
    };
    tokio::select! {
        answer = question("n") => panic!("{answer:?}"),
        () = api_server.asked.notified() => {}
    }
    let error = |answer: Json<Value>| answer["Error"].as_str().unwrap_or_default().to_owned();
    let told = error(question("m").await);
    assert!(told.contains("the pod is on node n already"), "{told}");
    api_server.answers.notify_one();
    let is_free = async {
        loop {
            let told = error(question("m").await);
            if !told.contains("already") {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(30), is_free).await.unwrap();
    assert!(told.contains("NotFound") || told.contains("not found"), "{told}");
}

#[test]
fn scores_are_rounded_to_the_unit_of_extenders() {
    let scores = [0, 4, 5, 73, 88, 97, 100].map(extender_score);
    assert_eq!(scores, [0, 0, 1, 7, 9, 10, 10]);
}
