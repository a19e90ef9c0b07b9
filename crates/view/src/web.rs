//! `tholepin web`: the cluster as a page in a browser, up to date as it changes.
//!
//! In: a cluster or a dump, flags. Out: the page, and its data to readers whose right is known. Never: a write to the
//! cluster, data without a token, a file from another server.
//!
//! The page itself says nothing of the cluster, and everybody may load it. Its data takes a token in a header, so that
//! no other origin's page can ask for it with what a browser sends by itself. On this machine the token is made at the
//! start and is in the address that is told; beyond it the API server reviews tokens and whether their users may `get`
//! the path (`/view/v1/*`, a rule with `nonResourceURLs`), and TLS is needed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use runtime::client::Connection;
use runtime::delegated_auth::{self, Guard};
use runtime::http::{Endpoints, Probe};
use runtime::shutdown::Tasks;
use runtime::{http, log, process_metrics, stderr, tls};
use scheduler::cluster_input::ClusterInput;
use scheduler::shell::observer::Observer;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::ClusterView;
use crate::node::NodeDetail;
use crate::page;

mod changes;

use changes::RowStore;

/// How long everything may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// The time limit for reviews of tokens.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// The random part of a session's token, in bytes.
const TOKEN_BYTES: usize = 16;

/// Show the cluster in a browser: nodes and zones, what is free, where more pods of a shape fit, why a pod waits.
/// Nothing is changed. Pages follow the cluster; with --cluster they show a dump.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin web\n  \
    tholepin web --cluster must-gather/\n  \
    tholepin web --bind-address 0.0.0.0:8443 --tls-cert-file tls.crt --tls-private-key-file tls.key\n\n\
    Beyond this machine readers need a token whose user may get /view/v1/* (nonResourceURLs).")]
pub struct Args {
    /// The cluster.
    #[command(flatten)]
    pub input: ClusterInput,
    /// Address of the page, :PORT or ADDRESS:PORT; beyond this machine with TLS alone
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8700", value_parser = page_address)]
    pub bind_address: SocketAddr,
    /// Address of health checks alone, always in plain HTTP: :PORT, ADDRESS:PORT, or 0 for none
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = http::address)]
    pub health_probe_bind_address: http::Listen,
    /// Certificate of the server (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Verbosity as in klog: 2 is info, 4 is debug, 6 is trace
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 1)]
    pub verbosity: u8,
}

impl Args {
    /// TLS of the server; `None`: plain HTTP on this machine.
    fn tls(&self) -> anyhow::Result<Option<tls::Settings>> {
        match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => Ok(Some(tls::Settings::new(certificate, key))),
            _ if self.bind_address.ip().is_loopback() => Ok(None),
            _ => bail!(
                "--bind-address {}: beyond this machine, --tls-cert-file and --tls-private-key-file are needed",
                self.bind_address
            ),
        }
    }
}

/// The address of the page, which has to have one.
fn page_address(text: &str) -> Result<SocketAddr, String> {
    let address = http::address(text).map_err(|error| error.to_string())?;
    address.ok_or_else(|| "the page needs an address: :PORT or ADDRESS:PORT".to_owned())
}

/// Who may read the data.
enum ReaderAuth {
    /// Readers with this token.
    Session(Arc<str>),
    /// Users whom the API server knows and lets read the paths.
    Reviewed(Arc<Guard>),
}

impl ReaderAuth {
    async fn of(args: &Args) -> anyhow::Result<Self> {
        if args.bind_address.ip().is_loopback() {
            return Ok(Self::Session(session_token()?.into()));
        }
        let connection = Connection::open(&args.input.connection.options("web")).await?;
        let client = connection.client_with_timeout(REVIEW_TIMEOUT)?;
        let settings = delegated_auth::Settings {
            authentication: Some(client.clone()),
            authorization: Some(client),
            // The authorities of client certificates: the listener asks for none.
            lookup: delegated_auth::Lookup::Skipped,
            ..delegated_auth::Settings::default()
        };
        Ok(Self::Reviewed(Guard::new(settings).await?))
    }

    fn protect(&self, router: Router) -> Router {
        match self {
            Self::Reviewed(guard) => guard.protect(router),
            Self::Session(token) => {
                let wanted = digest(&format!("Bearer {token}"));
                router.layer(middleware::from_fn(move |request: Request, next: Next| {
                    let wanted = wanted.clone();
                    async move {
                        let shown = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
                        // Digests take as long to compare whatever was guessed right.
                        let is_known = shown.is_some_and(|shown| digest_of(shown) == wanted);
                        if is_known { next.run(request).await } else { no_token() }
                    }
                }))
            }
        }
    }
}

fn session_token() -> anyhow::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn digest(text: &str) -> Vec<u8> {
    digest_of(text.as_bytes())
}

fn digest_of(bytes: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec()
}

fn no_token() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, problem("a token is needed")).into_response()
}

fn problem(message: &str) -> Json<Value> {
    Json(json!({ "error": message }))
}

/// A server that runs.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it speaks TLS.
    pub is_secure: bool,
    /// The token of its readers; `None`: the API server knows them.
    pub session: Option<Arc<str>>,
}

/// Serves the page until `token` is cancelled. `level` lets the log level be changed over HTTP.
///
/// # Errors
/// When flags are invalid, a dump cannot be read, the cluster cannot be followed, or a task fails.
pub async fn run(args: Args, level: log::Handle, token: CancellationToken) -> anyhow::Result<()> {
    let mut tasks = Tasks::new(token);
    let started = start(&args, Some(level), &mut tasks).await?;
    let scheme = if started.is_secure { "https" } else { "http" };
    let address = started.address;
    match started.session {
        Some(session) => stderr::line(format_args!("{scheme}://{address}/#token={session}")),
        None => stderr::line(format_args!("{scheme}://{address}/, with a token of the cluster")),
    }
    tasks.run(GRACE).await?;
    Ok(())
}

/// Starts the server; it runs as long as the tasks do.
///
/// # Errors
/// When flags are invalid, a dump cannot be read, the cluster cannot be followed, or the address cannot be had.
pub async fn start(args: &Args, level: Option<log::Handle>, tasks: &mut Tasks) -> anyhow::Result<Started> {
    let secure = args.tls()?;
    let (page, health) = (Some(args.bind_address), args.health_probe_bind_address);
    http::distinct(("--bind-address", page), ("--health-probe-bind-address", health))
        .map_err(anyhow::Error::msg)?;
    let access = ReaderAuth::of(args).await?;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process_metrics::ProcessCollector));
    let token = tasks.token().clone();
    let observer = args.input.observe("web", (tasks, &mut registry)).await?;
    let store = Arc::new(RowStore::new(!args.input.dumps.is_empty()));
    let gates = observer.clone();
    let endpoints = Endpoints::new(registry).check(Probe::Ready, "watches", move || gates.check());
    let endpoints = match level {
        Some(level) => endpoints.log_level(level),
        None => endpoints,
    };
    let endpoints = endpoints.routers();
    http::serve_health(tasks, health, endpoints.probes.clone()).await?;
    let data = data(Server { observer: observer.clone(), store: Arc::clone(&store) });
    let router = match &access {
        ReaderAuth::Session(_) => access.protect(data).merge(endpoints.probes),
        // Probes and metrics are read with a token, as the data is.
        ReaderAuth::Reviewed(_) => access.protect(data.merge(endpoints.all)),
    };
    let router = router.merge(static_files()).layer(middleware::map_response(with_security_headers));
    let listener = http::bind(args.bind_address).await?;
    let address = listener.local_addr()?;
    tasks.spawn_draining("ping", Arc::clone(&store).ping(observer.clone(), token.clone()));
    tasks.spawn_draining("changes", store.keep(observer, token.clone()));
    let is_secure = secure.is_some();
    match secure {
        None => tasks.spawn_draining("web", http::serve(listener, router, token)),
        Some(settings) => {
            let watcher = tls::CertWatcher::new(&settings)?;
            tasks.spawn_draining("web", tls::serve(listener, router, token, watcher));
        }
    }
    let session = match access {
        ReaderAuth::Session(session) => Some(session),
        ReaderAuth::Reviewed(guard) => {
            tasks.spawn("client authorities", async move {
                guard.follow().await;
                Ok::<_, std::convert::Infallible>(())
            });
            None
        }
    };
    Ok(Started { address, is_secure, session })
}

/// What handlers share.
#[derive(Clone)]
struct Server {
    observer: Observer,
    store: Arc<RowStore>,
}

/// The routes that say something of the cluster.
fn data(server: Server) -> Router {
    Router::new()
        .route("/view/v1/cluster", get(cluster))
        .route("/view/v1/changes", get(follow))
        .route("/view/v1/nodes/{name}", get(node))
        .route("/view/v1/pods/{namespace}/{name}", get(pod))
        .route("/view/v1/capacity", get(capacity))
        .with_state(server)
}

/// The page.
fn static_files() -> Router {
    let file = |content_type: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, content_type)], text) })
    };
    Router::new()
        .route("/", file("text/html; charset=utf-8", page::DOCUMENT))
        .route("/style.css", file("text/css; charset=utf-8", page::STYLE))
        .route("/app.js", file("text/javascript; charset=utf-8", page::SCRIPT))
}

async fn with_security_headers(mut response: Response) -> Response {
    const HEADERS: [(header::HeaderName, &str); 5] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An answer of the core as JSON, or why there is none.
fn answer<T: Serialize>(answer: Result<Option<T>, (StatusCode, String)>) -> Response {
    match answer {
        Ok(Some(value)) => Json(value).into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, problem("there is none")).into_response(),
        Err((status, message)) => (status, problem(&message)).into_response(),
    }
}

fn unavailable(message: String) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, message)
}

async fn cluster(State(server): State<Server>) -> Response {
    let view = server.observer.ask(|core, now_ms| ClusterView::of(core, now_ms)).await;
    answer(view.map(Some).map_err(unavailable))
}

async fn follow(State(server): State<Server>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream")];
    (headers, axum::body::Body::from_stream(server.store.follow())).into_response()
}

async fn node(State(server): State<Server>, Path(name): Path<String>) -> Response {
    let page = server.observer.ask(move |core, _| NodeDetail::of(core, &name)).await;
    answer(page.map_err(unavailable))
}

/// A pod: where it is, or why it waits.
async fn pod(State(server): State<Server>, Path((namespace, name)): Path<(String, String)>) -> Response {
    let (wanted_namespace, wanted) = (namespace.clone(), name.clone());
    let place = move |core: &mut scheduler::core::Core, _| {
        let is_it = |pod: &&crate::node::PodRow| *pod.namespace == wanted_namespace && *pod.name == wanted;
        let node = core.node_of_pod(&wanted_namespace, &wanted)?;
        let page = NodeDetail::of(core, &node)?;
        let pod = page.pods.iter().find(is_it).cloned();
        Some(json!({ "node": node, "pod": pod }))
    };
    match server.observer.ask(place).await {
        Ok(Some(place)) => Json(place).into_response(),
        Ok(None) => match server.observer.explain(&namespace, &name).await {
            Ok(explanation) => Json(json!({ "explanation": explanation })).into_response(),
            Err(error) => answer::<Value>(Err((StatusCode::NOT_FOUND, format!("{error:#}")))),
        },
        Err(message) => answer::<Value>(Err(unavailable(message))),
    }
}

/// How many more pods of the query's `shape` fit.
async fn capacity(State(server): State<Server>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let shape = pairs.find(|(name, _)| name == "shape").map(|(_, shape)| shape.into_owned());
    let capacity = server.observer.capacity(shape.unwrap_or_default()).await;
    answer(capacity.map(Some).map_err(|error| (StatusCode::BAD_REQUEST, format!("{error:#}"))))
}
