//! Health, metrics and log level over HTTP.
//!
//! In: named checks, a metrics registry, the log handle; further routes of the process. Out: a server that stops with
//! the process. Never: state of its own, or a check that blocks.
//!
//! `/healthz`, `/livez` and `/readyz` respond as Kubernetes' own components do: `ok`, or status 500 with one line for
//! each check. `?verbose` always shows the lines, and `?exclude=name` leaves a check out. Failures show their reason,
//! which is never a secret here. `/metrics/slis` has their results as metrics. `/metrics` is OpenMetrics or
//! Prometheus' plain text, as the scraper accepts. `GET /log-level` shows the level and `PUT` changes it, from this
//! machine only (a port-forward counts).
//!
//! The module `tls` serves the same over HTTPS. [`serve_health`] serves the probes alone, on a port of their own, so
//! that the readers of metrics cannot keep the kubelet's probes out.

mod exposition;
pub(crate) mod server;
mod slis;
mod stream;

use crate::log;
use crate::shutdown::Tasks;
pub use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use exposition::Format;
use prometheus_client::registry::Registry;
pub use server::Limits;
use slis::Slis;
use std::convert::Infallible;
use std::fmt::{Debug, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
pub use stream::stream;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Time for requests under way once the process shuts down.
const DRAIN: Duration = Duration::from_secs(2);

/// The probe that a check belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`: whether the process works. For people and old manifests.
    Health,
    /// `/livez`: whether the process needs no restart.
    Live,
    /// `/readyz`: whether the process can take work.
    Ready,
}

impl Probe {
    fn name(self) -> &'static str {
        match self {
            Self::Health => "healthz",
            Self::Live => "livez",
            Self::Ready => "readyz",
        }
    }
}

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The endpoints of a process: probes, metrics, log level.
#[derive(Default)]
pub struct Endpoints {
    checks: Vec<(Probe, String, Check)>,
    registry: Registry,
    slis: Slis,
    log: Option<log::Handle>,
}

impl Endpoints {
    /// Endpoints with these metrics, and without checks besides the `ping` of every probe.
    pub fn new(registry: Registry) -> Self {
        Self { registry, ..Self::default() }
    }

    /// Adds `/log-level`, which reads and changes the level of the running process.
    #[must_use]
    pub fn log_level(mut self, handle: log::Handle) -> Self {
        self.log = Some(handle);
        self
    }

    /// Adds a check. Every request calls it, so it must return at once.
    #[must_use]
    pub fn check(
        mut self,
        probe: Probe,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push((probe, name.to_owned(), Box::new(check)));
        self
    }

    /// The routes, for [`serve`] or to merge with more.
    pub fn router(self) -> Router {
        self.routers().all
    }

    /// All routes, and those of the probes alone.
    pub fn routers(self) -> Routers {
        let endpoints = Arc::new(self);
        let probes = Self::probes();
        let all = probes
            .clone()
            .route("/metrics", get(metrics))
            .route("/metrics/slis", get(slis))
            .route("/log-level", get(show_level).put(change_level))
            .layer(DefaultBodyLimit::max(4096));
        Routers { all: all.with_state(Arc::clone(&endpoints)), probes: probes.with_state(endpoints) }
    }

    fn probes() -> Router<Arc<Self>> {
        let health = |probe| {
            move |State(endpoints): State<Arc<Self>>, RawQuery(query): RawQuery| async move {
                let query = query.unwrap_or_default();
                let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
                endpoints.probe(probe, &pairs)
            }
        };
        Router::new()
            .route("/healthz", get(health(Probe::Health)))
            .route("/livez", get(health(Probe::Live)))
            .route("/readyz", get(health(Probe::Ready)))
    }

    fn probe(&self, probe: Probe, query: &[(String, String)]) -> (StatusCode, String) {
        let asked =
            |key: &str, value: &str| query.iter().any(|(k, v)| k == key && (value.is_empty() || v == value));
        let mut lines = String::new();
        let mut passed = true;
        let ping: Check = Box::new(|| Ok(()));
        let own =
            self.checks.iter().filter(|(of, ..)| *of == probe).map(|(_, name, check)| (name.as_str(), check));
        for (name, check) in std::iter::once(("ping", &ping)).chain(own) {
            if asked("exclude", name) {
                continue;
            }
            let result = check();
            self.slis.observe(name, probe.name(), result.is_ok());
            let line = match result {
                Ok(()) => format!("[+]{name} ok"),
                Err(reason) => {
                    passed = false;
                    format!("[-]{name} failed: {reason}")
                }
            };
            lines += &line;
            lines.push('\n');
        }
        let name = probe.name();
        match passed {
            true if asked("verbose", "") => (StatusCode::OK, format!("{lines}{name} check passed\n")),
            true => (StatusCode::OK, "ok".to_owned()),
            false => (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{name} check failed\n")),
        }
    }
}

/// The routes of [`Endpoints`].
#[derive(Debug)]
pub struct Routers {
    /// All of them.
    pub all: Router,
    /// `/healthz`, `/livez` and `/readyz`.
    pub probes: Router,
}

impl Debug for Endpoints {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.checks.iter().map(|(probe, name, _)| (probe, name)).collect();
        formatter.debug_struct("Endpoints").field("checks", &names).finish_non_exhaustive()
    }
}

async fn metrics(State(endpoints): State<Arc<Endpoints>>, headers: HeaderMap) -> Response {
    exposition(&endpoints.registry, &headers)
}

async fn slis(State(endpoints): State<Arc<Endpoints>>, headers: HeaderMap) -> Response {
    exposition(endpoints.slis.registry(), &headers)
}

fn exposition(registry: &Registry, headers: &HeaderMap) -> Response {
    let format = Format::accepted(headers);
    match format.text(registry) {
        Ok(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {error}\n")).into_response(),
    }
}

async fn show_level(State(endpoints): State<Arc<Endpoints>>) -> Result<String, StatusCode> {
    let handle = endpoints.log.as_ref().ok_or(StatusCode::NOT_FOUND)?;
    Ok(handle.current() + "\n")
}

async fn change_level(
    State(endpoints): State<Arc<Endpoints>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    text: String,
) -> (StatusCode, String) {
    let Some(handle) = &endpoints.log else { return (StatusCode::NOT_FOUND, String::new()) };
    // There is no authentication here, and trace logging costs enough to be a weapon.
    if !peer.ip().to_canonical().is_loopback() {
        return (StatusCode::FORBIDDEN, "the log level can be changed from this machine only\n".to_owned());
    }
    match handle.set(&text) {
        Ok(()) => {
            tracing::info!(level = text.trim(), "log level changed");
            (StatusCode::OK, handle.current() + "\n")
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
    }
}

/// A route with a JSON document that does not change.
pub fn document(path: &str, document: &serde_json::Value) -> Router {
    let body = document.to_string();
    Router::new().route(path, get(async move || ([(CONTENT_TYPE, "application/json")], body)))
}

/// An address to listen on; `None`: none. Behind this name clap takes the type for what [`address`] returns, and not
/// for a flag that may be left out.
pub type Listen = Option<SocketAddr>;

/// Reads an address to listen on, in the form of Go programs. `:8080` means all addresses, of both families where the
/// machine has IPv6. `127.0.0.1:8080` and `[::1]:8080` mean one address. `0` and the empty text mean `None`: no
/// listener.
///
/// # Errors
/// For any other text, host names included.
pub fn address(text: &str) -> Result<Listen, AddressError> {
    let malformed = || AddressError(text.to_owned());
    match text.strip_prefix(':') {
        _ if matches!(text, "" | "0") => Ok(None),
        Some(port) => {
            let port = port.parse().map_err(|_| malformed())?;
            let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
            let any = if has_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            Ok(Some(SocketAddr::new(any, port)))
        }
        None => text.parse().map(Some).map_err(|_| malformed()),
    }
}

/// Checks that two listeners of a process, named by the flags that set them, do not want the same port.
///
/// # Errors
/// When both cannot be bound; the text names both flags.
pub fn distinct(
    (flag, address): (&str, Option<SocketAddr>),
    (other_flag, other): (&str, Option<SocketAddr>),
) -> Result<(), String> {
    let (Some(address), Some(other)) = (address, other) else { return Ok(()) };
    let overlap = address.ip() == other.ip() || address.ip().is_unspecified() || other.ip().is_unspecified();
    if address.port() == 0 || address.port() != other.port() || !overlap {
        return Ok(());
    }
    Err(format!("{flag} {address} and {other_flag} {other} want the same port; give one of them another"))
}

/// A text that is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address to listen on; want :PORT, ADDRESS:PORT, or 0 for none")]
pub struct AddressError(String);

/// Binds a listener. A process does so before anything else starts, so that a port in use is an error at start.
///
/// # Errors
/// When the address cannot be bound; the error names it.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|cause| Error { address, cause })
}

/// Serves until `token` is cancelled, then gives requests under way two seconds. Number, size and time of connections
/// are bounded, so that no client keeps others out.
///
/// # Errors
/// Never; the result is that of a task.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    token: CancellationToken,
) -> Result<(), Infallible> {
    serve_within(Limits::DEFAULT, listener, router, token).await
}

/// Like [`serve`], with other limits.
///
/// # Errors
/// Never; the result is that of a task.
pub async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    router: Router,
    token: CancellationToken,
) -> Result<(), Infallible> {
    server::run(listener, router, token, None, limits).await;
    Ok(())
}

/// Serves the probes alone on a port of their own, until the tasks end; `None`: nowhere.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve_health(
    tasks: &mut Tasks,
    address: Option<SocketAddr>,
    probes: Router,
) -> Result<(), Error> {
    if let Some(address) = address {
        let listener = bind(address).await?;
        tasks.spawn_draining("health", serve(listener, probes, tasks.token().clone()));
    }
    Ok(())
}

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct Error {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    #[source]
    pub cause: std::io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::Readiness;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn start(endpoints: Endpoints) -> (SocketAddr, CancellationToken) {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = CancellationToken::new();
        tokio::spawn(serve(listener, endpoints.router(), token.clone()));
        (address, token)
    }

    /// Status and body of one request on a connection of its own.
    async fn ask(address: SocketAddr, request: &str, body: &str) -> (u16, String) {
        self::request(address, request, "", body).await
    }

    async fn request(address: SocketAddr, request: &str, accept: &str, body: &str) -> (u16, String) {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let length = body.len();
        let fields = format!("Host: x\r\nAccept: {accept}\r\nConnection: close\r\nContent-Length: {length}");
        let text = format!("{request} HTTP/1.1\r\n{fields}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    #[tokio::test]
    async fn probes_answer_as_kubernetes_components_do() {
        let readiness = Readiness::default();
        let gate = readiness.gate("pods");
        let endpoints = Endpoints::default().check(Probe::Ready, "sync", move || readiness.check()).check(
            Probe::Health,
            "leaderElection",
            || Ok(()),
        );
        let (address, _token) = start(endpoints).await;
        let failed = "[+]ping ok\n[-]sync failed: waiting for pods\nreadyz check failed\n";
        assert_eq!(ask(address, "GET /readyz", "").await, (500, failed.to_owned()));
        assert_eq!(ask(address, "GET /readyz?exclude=sync", "").await, (200, "ok".to_owned()));
        gate.open();
        let passed = "[+]ping ok\n[+]sync ok\nreadyz check passed\n";
        assert_eq!(ask(address, "GET /readyz?verbose", "").await, (200, passed.to_owned()));
        let passed = "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n";
        assert_eq!(ask(address, "GET /healthz?verbose", "").await, (200, passed.to_owned()));
        assert_eq!(ask(address, "GET /livez", "").await, (200, "ok".to_owned()));
        let (_, results) = ask(address, "GET /metrics/slis", "").await;
        for line in [
            "kubernetes_healthcheck{name=\"sync\",type=\"readyz\"} 1",
            "kubernetes_healthchecks_total{name=\"sync\",type=\"readyz\",status=\"error\"} 1",
            "kubernetes_healthchecks_total{name=\"sync\",type=\"readyz\",status=\"success\"} 1",
            "kubernetes_healthchecks_total{name=\"ping\",type=\"readyz\",status=\"success\"} 3",
            "kubernetes_healthchecks_total{name=\"ping\",type=\"livez\",status=\"success\"} 1",
        ] {
            assert!(results.lines().any(|found| found == line), "{line}: {results}");
        }
        assert_eq!(ask(address, "GET /log-level", "").await.0, 404);
    }

    #[tokio::test]
    async fn the_port_of_the_probes_has_nothing_else() {
        let routers = Endpoints::default().check(Probe::Ready, "sync", || Err("no".to_owned())).routers();
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut tasks = Tasks::new(CancellationToken::new());
        serve_health(&mut tasks, None, routers.probes.clone()).await.unwrap();
        serve_health(&mut tasks, Some(address), routers.probes).await.unwrap();
        for (path, wanted) in
            [("/livez", 200), ("/healthz", 200), ("/readyz", 500), ("/metrics", 404), ("/log-level", 404)]
        {
            assert_eq!(ask(address, &format!("GET {path}"), "").await.0, wanted, "{path}");
        }
        let taken = serve_health(&mut tasks, Some(address), Router::new()).await.unwrap_err();
        assert_eq!(taken.to_string(), format!("cannot listen on {address}"));
    }

    #[tokio::test]
    async fn metrics_have_the_accepted_format() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(crate::process_metrics::ProcessCollector));
        let (address, _token) = start(Endpoints::new(registry)).await;
        for (accept, end) in [("", false), ("application/openmetrics-text", true)] {
            let (status, body) = request(address, "GET /metrics", accept, "").await;
            assert_eq!(status, 200);
            assert!(body.contains("\nprocess_cpu_seconds_total "), "{body}");
            assert_eq!(body.ends_with("# EOF\n"), end, "{body}");
        }
    }

    #[tokio::test]
    async fn the_log_level_can_be_changed() {
        let handle = log::init(log::Format::Text, 2).unwrap();
        let (address, _token) = start(Endpoints::default().log_level(handle)).await;
        assert!(ask(address, "GET /log-level", "").await.1.contains("info"));
        assert_eq!(ask(address, "PUT /log-level", "4").await.0, 200);
        assert!(ask(address, "GET /log-level", "").await.1.contains("debug"));
        let (status, body) = ask(address, "PUT /log-level", "loud").await;
        assert_eq!(status, 400);
        assert!(body.contains("log level \"loud\""), "{body}");
        assert_eq!(ask(address, "PUT /log-level", &"x".repeat(5000)).await.0, 413);
        assert_eq!(ask(address, "PUT /log-level", "off").await.0, 200);
    }

    #[test]
    fn addresses_are_read_as_go_programs_do() {
        let some = |text: &str| address(text).unwrap().unwrap();
        assert!(some(":8080").ip().is_unspecified() && some(":8080").port() == 8080);
        assert_eq!(some("127.0.0.1:1"), "127.0.0.1:1".parse().unwrap());
        assert_eq!(some("[::1]:1"), "[::1]:1".parse().unwrap());
        assert_eq!((address("0"), address("")), (Ok(None), Ok(None)));
        for text in ["8080", ":", ":x", ":65536", "host:1", "1.2.3.4"] {
            let error = address(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is no address")), "{error}");
        }
    }

    #[test]
    fn two_listeners_need_two_ports() {
        for (one, other, fine) in [
            (":8081", ":8081", false),
            ("0.0.0.0:8081", ":8081", false),
            ("127.0.0.1:8081", ":8081", false),
            ("127.0.0.1:8081", "127.0.0.2:8081", true),
            (":8080", ":8081", true),
            ("0", ":8081", true),
            (":0", ":0", true),
        ] {
            let result = distinct(("--a", address(one).unwrap()), ("--b", address(other).unwrap()));
            assert_eq!(result.is_ok(), fine, "{one} {other}");
            let names_both = |text: String| text.contains("--a ") && text.contains("--b ");
            assert!(result.is_ok() || result.is_err_and(names_both), "{one} {other}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_and_shutdown_frees_it() {
        let (address, token) = start(Endpoints::default()).await;
        let error = bind(address).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {address}"));
        token.cancel();
        while bind(address).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
