//! A reverse proxy in front of the rig's API server with faults on request and a record of the requests.
//!
//! In: a control plane, and faults for the next requests of some kind. Out: a kubeconfig that leads through the
//! proxy, and every request that came. Never: an answer of its own unless a fault says so, nor a change to one
//! that passes.
//!
//! It speaks plain HTTP/1.1 on 127.0.0.1 and has a thread of its own. What the caller sends as its identity is
//! passed on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::body::Bytes;
use kube::config::AuthInfo;
use serde_json::json;
use tokio::sync::{broadcast, watch};

use crate::controlplane::ControlPlane;
use crate::port;
use crate::serving::Serving;

mod handle;

/// The proxy; dropping it ends all connections through it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    kubeconfig: PathBuf,
    upstream: kube::Config,
    shared: Arc<Shared>,
    serving: Option<Serving>,
}

/// What happens to a request instead of passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this status and never gets to the API server.
    Status(u16),
    /// It is answered with status 200 and this JSON, and never gets to the API server: what a real one cannot
    /// be made to say.
    Answer(&'static str),
    /// As with [`Fault::Status`], with status 429 and the header `Retry-After`, in whole seconds.
    TooMany(u32),
    /// It never gets to the API server and is never answered.
    Silence,
    /// It gets to the API server once [`Proxy::heal`] is called, whether the caller still waits for the answer or not.
    Late,
    /// It gets to the API server, but is never answered.
    Mute,
    /// It gets to the API server, but the answer comes only once [`Proxy::heal`] is called.
    LateAnswer,
    /// It gets to the API server, but of the answer's body only this many bytes come; then the connection ends.
    Cut(usize),
    /// It gets to the API server after so many milliseconds.
    Slow(u64),
    /// A watch of which all lines come twice: each event again, after others that are newer.
    Twice,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// When.
    pub at: Instant,
    /// `GET`, `POST`, ...; `WATCH` for a `GET` that asks for a watch.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// `Content-Type`, empty without one.
    pub content_type: String,
    /// `User-Agent`, empty without one.
    pub user_agent: String,
    /// Size of the body in bytes.
    pub body_bytes: usize,
    /// What was done to it, if anything.
    pub fault: Option<Fault>,
}

/// What the connections share with the owner.
#[derive(Debug)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<RequestRecord>>,
    /// Counts the calls of [`Proxy::heal`].
    healed: watch::Sender<u64>,
    /// Ends the running watches: with a last line, or just so.
    watches: broadcast::Sender<Option<Bytes>>,
    /// Pieces of watches that were passed on.
    watch_events: AtomicUsize,
}

/// The next `left` requests like this have the fault, after those that are spared.
#[derive(Debug)]
struct Rule {
    method: String,
    path: String,
    /// As many pass first.
    spared: u32,
    left: u32,
    fault: Fault,
}

impl Proxy {
    /// Starts a proxy; its kubeconfig is written into `dir` and leads the control plane's administrator through it.
    ///
    /// # Errors
    /// When no port is free or the kubeconfig cannot be written.
    pub async fn start(control: &ControlPlane, dir: &Path) -> anyhow::Result<Self> {
        let mut upstream = control.config().await?;
        upstream.auth_info = AuthInfo::default();
        upstream.default_retry = false;
        upstream.read_timeout = None;
        upstream.write_timeout = None;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()?));
        let kubeconfig = dir.join("kubeconfig-proxy");
        write_kubeconfig(&kubeconfig, address, control.admin_token())?;
        let shared = Arc::new(Shared {
            rules: Mutex::default(),
            seen: Mutex::default(),
            healed: watch::Sender::new(0),
            watches: broadcast::Sender::new(16),
            watch_events: AtomicUsize::new(0),
        });
        let mut proxy = Self { address, kubeconfig, upstream, shared, serving: None };
        proxy.listen()?;
        Ok(proxy)
    }

    /// A kubeconfig of a user who may do everything, through the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The next `times` requests with this method (`WATCH` for watches, `WRITE` for what changes objects that
    /// last, `""` for any) whose path and query contain `path` have this fault. Of several rules the oldest
    /// that is not used up counts.
    pub fn fail(&self, method: &str, path: &str, times: u32, fault: Fault) {
        self.fail_after(0, method, path, times, fault);
    }

    /// As [`Proxy::fail`], but `spared` such requests pass before.
    pub fn fail_after(&self, spared: u32, method: &str, path: &str, times: u32, fault: Fault) {
        lock(&self.shared.rules).push(Rule {
            method: method.to_owned(),
            path: path.to_owned(),
            spared,
            left: times,
            fault,
        });
    }

    /// A kubeconfig with this bearer token, through the proxy; it is a file beside [`Proxy::kubeconfig`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn kubeconfig_with_token(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        let path = self.kubeconfig.with_file_name(format!("kubeconfig-proxy-{name}"));
        write_kubeconfig(&path, self.address, token)?;
        Ok(path)
    }

    /// Forgets all faults and lets through what was [late](Fault::Late).
    pub fn heal(&self) {
        lock(&self.shared.rules).clear();
        self.shared.healed.send_modify(|times| *times += 1);
    }

    /// Ends every running watch in the middle of the connection.
    pub fn drop_watches(&self) {
        // Without a watch there is no receiver.
        let _ = self.shared.watches.send(None);
    }

    /// Ends every running watch as the API server does when it no longer knows where the watch was: an event
    /// with status 410, then an orderly end.
    pub fn expire_watches(&self) {
        let line = json!({ "type": "ERROR", "object": handle::status(410, None) });
        let _ = self.shared.watches.send(Some(format!("{line}\n").into()));
    }

    /// How many chunks of events have passed, through all watches together.
    #[must_use]
    pub fn watch_events(&self) -> usize {
        self.shared.watch_events.load(Ordering::Relaxed)
    }

    /// Refuses connections from here on and ends those there are.
    pub fn down(&mut self) {
        self.serving = None;
    }

    /// Takes connections again.
    ///
    /// # Errors
    /// When another process took the port.
    pub fn up(&mut self) -> anyhow::Result<()> {
        if self.serving.is_none() { self.listen() } else { Ok(()) }
    }

    /// Every request so far, in the order in which they came.
    #[must_use]
    pub fn seen(&self) -> Vec<RequestRecord> {
        lock(&self.shared.seen).clone()
    }

    /// How many requests had a fault so far.
    #[must_use]
    pub fn struck(&self) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| seen.fault.is_some()).count()
    }

    /// How many requests with this method (as in [`Proxy::fail`]) whose path contains `path` have come.
    #[must_use]
    pub fn count(&self, method: &str, path: &str) -> usize {
        lock(&self.shared.seen).iter().filter(|seen| seen.is(method, path)).count()
    }

    /// Waits until at least `wanted` such requests have come.
    ///
    /// # Errors
    /// When `within` has passed without.
    pub async fn wait_for(
        &self,
        method: &str,
        path: &str,
        wanted: usize,
        within: Duration,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.count(method, path) < wanted {
            if began.elapsed() > within {
                let came = self.count(method, path);
                anyhow::bail!("{came} of {wanted} requests {method} {path} came within {within:?}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        let listener =
            TcpListener::bind(self.address).with_context(|| format!("listening on {}", self.address))?;
        listener.set_nonblocking(true)?;
        let (upstream, shared) = (self.upstream.clone(), Arc::clone(&self.shared));
        self.serving = Some(Serving::start("proxy", move || handle::serve(listener, upstream, shared))?);
        Ok(())
    }
}

impl RequestRecord {
    fn is(&self, method: &str, path: &str) -> bool {
        let is_method = match method {
            "" => true,
            "WRITE" => self.is_write(),
            method => self.method == method,
        };
        is_method && self.path.contains(path)
    }

    /// Whether it changes objects that last: neither events nor leases nor questions that are asked by `POST`.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let path = self.path.split_once('?').map_or(self.path.as_str(), |(path, _)| path);
        let passing = ["/events", "/leases", "reviews", "/token"];
        matches!(self.method.as_str(), "POST" | "PUT" | "PATCH" | "DELETE")
            && !passing.iter().any(|part| path.contains(part))
    }
}

impl Shared {
    /// Notes the request and says what is to become of it.
    fn take(&self, mut seen: RequestRecord) -> Option<Fault> {
        let mut rules = lock(&self.rules);
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && seen.is(&rule.method, &rule.path));
        seen.fault = rule.and_then(|rule| match rule.spared {
            0 => {
                rule.left -= 1;
                Some(rule.fault)
            }
            _ => {
                rule.spared -= 1;
                None
            }
        });
        let fault = seen.fault;
        lock(&self.seen).push(seen);
        fault
    }
}

fn write_kubeconfig(path: &Path, address: SocketAddr, token: &str) -> anyhow::Result<()> {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "clusters": [{ "name": "proxy", "cluster": { "server": format!("http://{address}") } }],
        "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
        "users": [{ "name": "proxy", "user": { "token": token } }],
    });
    std::fs::write(path, format!("{text:#}\n")).with_context(|| format!("writing {}", path.display()))
}

/// A panic elsewhere must not make the proxy fail in ways that no test asked for.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
