//! For tests: an API server that gives scripted answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codegen::{Service, http};

/// An answer: a status and a body.
pub(crate) type Answer = (u16, Value);

/// Gives the answers in order, and reports each request as (`METHOD path`, body); an apply as `APPLY`.
#[derive(Clone)]
struct Server {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    requests: UnboundedSender<(String, Value)>,
}

/// The received requests.
pub(crate) struct Requests(UnboundedReceiver<(String, Value)>);

/// A client of a server that gives these answers.
pub(crate) fn server(answers: impl IntoIterator<Item = Answer>) -> (kube::Client, Requests) {
    let (requests, receiver) = unbounded_channel();
    let server = Server { answers: Arc::new(Mutex::new(answers.into_iter().collect())), requests };
    (kube::Client::new(server, "default"), Requests(receiver))
}

/// A refusal of the API server.
pub(crate) fn refusal(code: u16, reason: &str) -> Answer {
    (code, json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" }))
}

impl Requests {
    /// Checks the next request's method and path, and returns its body.
    pub(crate) async fn expect(&mut self, line: &str) -> Value {
        let request = tokio::time::timeout(Duration::from_secs(10), self.0.recv()).await;
        let (got, body) = request.expect("a request within 10 s").unwrap();
        assert_eq!(got, line, "{body}");
        body
    }

    /// Whether no further request has come.
    pub(crate) fn are_none(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

impl Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let kind = parts.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
            let apply = kind.is_some_and(|kind| kind.starts_with("application/apply-patch"));
            let method = if apply { "APPLY" } else { parts.method.as_str() };
            let path = parts.uri.path().rsplit('/').take(2).collect::<Vec<_>>();
            let line = format!("{method} {}/{}", path[1], path[0]);
            let _ = server.requests.send((line, serde_json::from_slice(&body).unwrap_or_default()));
            let (status, body) = server.answers.lock().unwrap().pop_front().expect("no more requests");
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok(http::Response::builder().status(status).body(body).unwrap())
        }
        .boxed()
    }
}
