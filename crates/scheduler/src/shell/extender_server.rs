//! `tholepin extender`: another scheduler asks, and the zones of nodes answer.
//!
//! In: calls of kube-scheduler's extender protocol, an API server's objects. Out: nodes whose zones fit, their scores,
//! victims that free zones, bindings. Never: a binding to a node whose zones do not fit at that moment, or two at once
//! to one node: its kubelet has to see pods in the order of the ledger.
//!
//! Source: `k8s.io/kube-scheduler/extender/v1` 1.36. Fields of questions are found whatever their case. The permissions
//! that this takes are in [`crate::rbac::extender`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use kube::Client;
use prometheus_client::registry::Registry;
use runtime::client::{Connection, Options};
use runtime::http::{Endpoints, Limits, Probe};
use runtime::shutdown::Tasks;
use runtime::{log, process_metrics, tls};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::observer::{Observer, WatchedKinds};
use super::outbox::binding;
use super::{GRACE, WRITE_TIMEOUT};
use crate::core::Event;
use crate::extender::MetaVictims;
use crate::pod::PodView;

mod args;
mod request;
#[cfg(test)]
mod tests;

pub use args::Args;
use request::{candidates, field, nodes, pod};

/// The greatest size of a request: whole nodes of a large cluster.
const MAX_BODY: usize = 64 << 20;
/// The highest score of an extender (`MaxExtenderPriority`).
const MAX_SCORE: i64 = 10;
/// kube-scheduler keeps connections for 90 s, and binds each pod with a call of its own.
const LIMITS: Limits = Limits {
    connections: 128,
    header: Duration::from_secs(100),
    lifetime: Duration::from_secs(600),
    ..Limits::DEFAULT
};

/// What handlers share.
#[derive(Clone)]
struct Server {
    observer: Observer,
    client: Client,
    stopped: CancellationToken,
    /// One for each node to which pods are being bound.
    locks: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

/// Runs the extender until `token` is cancelled. `level` lets the log level be changed over HTTP.
///
/// # Errors
/// When flags or the configuration are invalid, the API server cannot be reached as configured, or a task fails.
pub async fn run(args: Args, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    let settings = args.settings()?;
    let secure = args.tls()?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting extender");
    let user_agent = format!("tholepin-extender/{}", env!("CARGO_PKG_VERSION"));
    let options = Options { kubeconfig: args.kubeconfig.clone(), user_agent, ..Options::default() };
    let connection = Connection::open(&options).await?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process_metrics::ProcessCollector));
    let mut tasks = Tasks::new(token.clone());
    // Nothing is decided here: the other scheduler does.
    let observer =
        Observer::of_cluster(settings, WatchedKinds::Zones, &connection, (&mut tasks, &mut registry))?;
    let gates = observer.clone();
    let endpoints =
        Endpoints::new(registry).log_level(level).check(Probe::Ready, "informer-sync", move || gates.check());
    let listener = runtime::http::bind(args.http_bind_address).await?;
    tasks.spawn_draining("http", runtime::http::serve(listener, endpoints.router(), token.clone()));
    let server = Server {
        observer,
        client: connection.client_with_timeout(WRITE_TIMEOUT)?,
        stopped: token.clone(),
        locks: Arc::default(),
    };
    let listener = runtime::http::bind(args.bind_address).await?;
    let router = router(server);
    match secure {
        None => {
            let server = runtime::http::serve_within(LIMITS, listener, router, token.clone());
            tasks.spawn_draining("extender", server);
        }
        Some(settings) => {
            let watcher = tls::CertWatcher::new(&settings)?;
            let server = tls::serve_within(LIMITS, listener, router, token.clone(), watcher);
            tasks.spawn_draining("extender", server);
        }
    }
    tasks.run(GRACE).await?;
    Ok::<_, anyhow::Error>(())
}

fn router(server: Server) -> Router {
    Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/preempt", post(preempt))
        .route("/bind", post(bind))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(server)
}

impl Server {
    /// The lock of a node. Cost: a look at all locks that are in use.
    fn lock(&self, node: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(node.to_owned()).or_default())
    }

    /// Binds a pod, and tells whether it is bound. A client that goes before its turn is not bound for; from then on
    /// only the end of the binding tells whether the pod is on the node, so it goes on without the client.
    async fn bind(self, uid: String, node: Arc<str>) -> Result<(), String> {
        let guard = self.lock(&node).lock_owned().await;
        let bound = tokio::spawn(async move {
            let _guard = guard;
            self.bind_in_turn(uid, node).await
        });
        bound.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn bind_in_turn(&self, uid: String, node: Arc<str>) -> Result<(), String> {
        let binding = self.observer.ask(move |core, now_ms| core.assume(&uid, &node, now_ms)).await??;
        let id = binding.id;
        let bound = binding::post_until_certain(&self.client, &binding, &self.stopped, 0).await;
        let event = if bound.is_ok() { Event::Bound(id) } else { Event::BindFailed(id) };
        // At the end of the process the core is gone, and the object tells.
        let _ = self.observer.ask(move |core, now_ms| core.handle(event, now_ms)).await;
        bound.map_err(|failure| failure.to_string())
    }
}

/// An answer with an error, as the protocol has it.
fn refused(reason: &str) -> Value {
    tracing::warn!(reason, "a question cannot be answered");
    json!({ "Error": reason })
}

async fn filter(State(server): State<Server>, Json(request): Json<Value>) -> Json<Value> {
    let answer = async {
        let (pod, asked) = (pod(&request)?, nodes(&request)?);
        let names = asked.names.clone();
        let verdicts =
            server.observer.ask(move |core, now_ms| core.filter_zones(&pod, &names, now_ms)).await?;
        let (mut fits, mut failed, mut unresolvable) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (name, verdict) in verdicts {
            match verdict {
                Ok(()) => fits.push(name),
                Err(refusal) if refusal.is_curable => drop(failed.insert(name, refusal.reason)),
                Err(refusal) => drop(unresolvable.insert(name, refusal.reason)),
            }
        }
        let whole = asked.whole(&fits);
        let names = whole.is_none().then_some(fits);
        Ok::<_, String>(json!({
            "Nodes": whole, "NodeNames": names, "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable, "Error": "",
        }))
    };
    Json(answer.await.unwrap_or_else(|reason| refused(&reason)))
}

async fn prioritize(State(server): State<Server>, Json(request): Json<Value>) -> Response {
    let answer = async {
        let (pod, names) = (pod(&request)?, nodes(&request)?.names);
        let scores = server.observer.ask(move |core, _| core.score_zones(&pod, &names)).await?;
        let item = |(host, score): (Arc<str>, i64)| json!({ "Host": host, "Score": extender_score(score) });
        Ok::<_, String>(Value::Array(scores.into_iter().map(item).collect()))
    };
    // The answer has no place for an error; kube-scheduler counts none as no scores.
    match answer.await {
        Ok(scores) => Json(scores).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, Json(refused(&reason))).into_response(),
    }
}

/// A plugin's score in an extender's unit, rounded.
fn extender_score(score: i64) -> i64 {
    const UNIT: i64 = topology::score::MAX_SCORE / MAX_SCORE;
    (score + UNIT / 2) / UNIT
}

async fn preempt(State(server): State<Server>, Json(request): Json<Value>) -> Response {
    let answer = async {
        let (pod, candidates) = (pod(&request)?, candidates(&request));
        let kept =
            server.observer.ask(move |core, now_ms| core.victims_by_zones(&pod, candidates, now_ms)).await?;
        let victims = |MetaVictims { pods, violations }: MetaVictims| {
            let pods: Vec<Value> = pods.into_iter().map(|uid| json!({ "UID": uid })).collect();
            json!({ "Pods": pods, "NumPDBViolations": violations })
        };
        let kept: BTreeMap<_, _> = kept.into_iter().map(|(node, it)| (node, victims(it))).collect();
        Ok::<_, String>(json!({ "NodeNameToMetaVictims": kept }))
    };
    match answer.await {
        Ok(kept) => Json(kept).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, Json(refused(&reason))).into_response(),
    }
}

async fn bind(State(server): State<Server>, Json(request): Json<Value>) -> Json<Value> {
    let text = |name: &str| field(&request, name).as_str().unwrap_or_default().to_owned();
    let (uid, node, name) = (text("PodUID"), text("Node"), text("PodName"));
    let bound = match uid.is_empty() || node.is_empty() {
        true => Err("PodUID or Node is missing".to_owned()),
        false => server.bind(uid, node.as_str().into()).await,
    };
    Json(match bound {
        Ok(()) => json!({ "Error": "" }),
        Err(reason) => refused(&format!("pod {name} is not bound to node {node}: {reason}")),
    })
}
