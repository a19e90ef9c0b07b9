//! Kubernetes clients: the only module that builds them.
//!
//! In: a kubeconfig path, or nothing. Out: clients for watches and for short calls; short texts and classes of errors.
//! Never: retries of an answer. kube's own retry may hold one call for minutes, so it is off. The callers (`watch`,
//! `lease`, `events`, a scheduling queue) each know how long waiting is worth it. A read without an answer is sent
//! again (`retry`).

mod answer;
mod exec;
mod flags;
mod kubeconfig;
pub mod pages;
mod retry;

pub use answer::{Answer, Request as RawRequest, ask, post};
pub use exec::{Container, exec};
pub use flags::ClusterArgs;

use axum::http::{HeaderValue, Request, header::USER_AGENT};
use k8s_openapi::ByteString;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

use crate::output::shortened;
use retry::ClosedConnections;

/// The silence after which a watch counts as dead. The API server sends each watcher a bookmark about every minute, so
/// a live watch is never this silent; a half-open connection would stay silent for ever.
const WATCH_SILENCE: Duration = Duration::from_secs(150);

/// Requests of one client that wait to be sent, as many as kube's own buffer holds; further ones wait for a place.
const MAX_WAITING_REQUESTS: usize = 1024;

/// The file of pods with the cluster's authority.
pub const CLUSTER_AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// How to reach the API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Kubeconfig file. `None`: the file in `KUBECONFIG`, else `~/.kube/config`, else the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. `None`: its current context.
    pub context: Option<String>,
    /// The longest time of a request that is no watch. `None`: the caller's.
    pub request_timeout: Option<Duration>,
    /// The `User-Agent` header, by which audit logs and API priority rules tell clients apart.
    pub user_agent: String,
}

/// How to reach a kubelet's own port.
#[derive(Debug, Clone, Default)]
pub struct KubeletEndpoint {
    /// The URL, such as `https://10.0.0.5:10250`.
    pub url: String,
    /// File with the bearer token, read again when it changes.
    pub token: Option<PathBuf>,
    /// The check of the kubelet's certificate.
    pub trust: KubeletTrust,
}

/// The check of a kubelet's certificate. The token goes to any server that passes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeletTrust {
    /// An authority in this PEM file signed it.
    File(PathBuf),
    /// An authority in this PEM text signed it.
    Pem(String),
    /// None, on explicit request: any server at the kubelet's address gets the token.
    Unchecked,
}

impl Default for KubeletTrust {
    /// The cluster's authority, which every pod has.
    fn default() -> Self {
        Self::File(PathBuf::from(CLUSTER_AUTHORITY))
    }
}

/// How to reach an HTTP server that is no API server. Of data and file, data counts; data is base64.
#[derive(Debug, Clone, Default)]
pub struct HttpEndpoint {
    /// The URL, such as `https://10.0.0.5:8443/prefix`.
    pub url: String,
    /// Whether the server's certificate is not verified, on explicit request.
    pub is_unchecked: bool,
    /// The name in the server's certificate; `None`: the host of the URL.
    pub server_name: Option<String>,
    /// Data and file of the authorities; neither: those of the system.
    pub authority: (Option<String>, Option<String>),
    /// Data and file of the client's certificate.
    pub certificate: (Option<String>, Option<String>),
    /// Data and file of the client's key.
    pub key: (Option<String>, Option<String>),
}

/// The configuration of one API server, from which clients are built. Clones of a client share its connections; bulk
/// writes and watches deserve clients of their own.
#[derive(Debug, Clone)]
pub struct Connection {
    config: Config,
    request_timeout: Option<Duration>,
}

impl Connection {
    /// Reads the configuration, without a request to the server.
    ///
    /// # Errors
    /// When there is no configuration, or it is not usable.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        // Explicit, because rustls panics on first use when several providers are compiled in and none is
        // chosen. Losing the race to another caller of this function is fine: it chose the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = configure(options).await?;
        if !options.user_agent.is_empty() {
            let value = HeaderValue::from_str(&options.user_agent)
                .map_err(|_| Error::UserAgent(options.user_agent.clone()))?;
            config.headers.push((USER_AGENT, value));
        }
        config.default_retry = false;
        config.reset_reader_on_write = true;
        Ok(Self { config, request_timeout: options.request_timeout })
    }

    /// The configuration of the service account of this process's pod; `None` outside a pod, as client-go's
    /// `InClusterConfig` has it.
    ///
    /// # Errors
    /// When the name of the user agent is malformed.
    pub fn in_cluster(user_agent: &str) -> Result<Option<Self>, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = match Config::incluster() {
            Ok(config) => config,
            Err(error) => {
                if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
                    tracing::warn!(reason = chain(&error), "the pod's service account cannot be used");
                }
                return Ok(None);
            }
        };
        Self::named(config, user_agent).map(Some)
    }

    /// The configuration for a kubelet's own port, which takes the same requests and tokens as an API server.
    ///
    /// # Errors
    /// When the URL is malformed, or the authority's file cannot be read.
    pub fn for_kubelet(kubelet: &KubeletEndpoint, user_agent: &str) -> Result<Self, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let uri = kubelet.url.parse().map_err(|error| Error::Url(kubelet.url.clone(), chain(&error)))?;
        let mut config = Config::new(uri);
        config.auth_info.token_file = kubelet.token.as_ref().map(|path| path.display().to_string());
        match &kubelet.trust {
            KubeletTrust::Unchecked => config.accept_invalid_certs = true,
            KubeletTrust::Pem(pem) => {
                config.root_cert = Some(authorities(pem.as_bytes(), Path::new("text"))?)
            }
            KubeletTrust::File(path) => config.root_cert = Some(authorities_of(path)?),
        }
        Self::named(config, user_agent)
    }

    /// The configuration for an HTTP server that takes JSON.
    ///
    /// # Errors
    /// When the URL is malformed, or an authority cannot be read.
    pub fn for_endpoint(endpoint: &HttpEndpoint, user_agent: &str) -> Result<Self, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let uri = endpoint.url.parse().map_err(|error| Error::Url(endpoint.url.clone(), chain(&error)))?;
        let mut config = Config::new(uri);
        config.accept_invalid_certs = endpoint.is_unchecked;
        config.tls_server_name.clone_from(&endpoint.server_name);
        config.root_cert = match &endpoint.authority {
            (Some(data), _) => {
                let path = Path::new("caData");
                let unreadable = |reason| Error::Authority { path: path.to_owned(), reason };
                let pem = serde_json::from_value::<ByteString>(data.clone().into());
                let pem = pem.map_err(|error| unreadable(chain(&error)))?;
                Some(authorities(&pem.0, path)?)
            }
            (None, Some(file)) => Some(authorities_of(Path::new(file))?),
            (None, None) => None,
        };
        let (certificate, key) = (endpoint.certificate.clone(), endpoint.key.clone());
        let auth = &mut config.auth_info;
        (auth.client_certificate_data, auth.client_certificate) = certificate;
        (auth.client_key_data, auth.client_key) = (key.0.map(Into::into), key.1);
        Self::named(config, user_agent)
    }

    /// A configuration without limits of its own, whose requests name this program.
    fn named(mut config: Config, user_agent: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(user_agent).map_err(|_| Error::UserAgent(user_agent.to_owned()))?;
        config.headers.push((USER_AGENT, value));
        config.default_retry = false;
        Ok(Self { config, request_timeout: None })
    }

    /// A client for watches and other reads: a response may take long, but 150 s of silence end it.
    ///
    /// # Errors
    /// When the credentials or certificates of the configuration are not usable.
    pub fn watch_client(&self) -> Result<Client, Error> {
        self.client(WATCH_SILENCE)
    }

    /// A client for calls that must not hang (bind, lease, publish): a call fails when connecting, sending or receiving
    /// takes longer than `timeout`, or than the options' own limit.
    ///
    /// # Errors
    /// When the credentials or certificates of the configuration are not usable.
    pub fn client_with_timeout(&self, timeout: Duration) -> Result<Client, Error> {
        self.client(self.request_timeout.unwrap_or(timeout))
    }

    /// The namespace of the kubeconfig's context, or of the pod of this process.
    pub fn default_namespace(&self) -> &str {
        &self.config.default_namespace
    }

    fn client(&self, silence: Duration) -> Result<Client, Error> {
        let builder = ClientBuilder::try_from(self.with_read_timeout(silence));
        let builder = builder.map_err(|error| Error::Unusable(brief(&error)))?;
        // A request that may be sent again needs a service that can be cloned.
        let builder = builder.with_layer(&BufferLayer::new(MAX_WAITING_REQUESTS));
        Ok(builder.with_layer(&RetryLayer::new(ClosedConnections::default())).build())
    }

    fn with_read_timeout(&self, silence: Duration) -> Config {
        let mut config = self.config.clone();
        // Even without verification kube reads the system's authorities, and fails in an image that has none.
        let unchecked = config.accept_invalid_certs || config.cluster_url.scheme_str() == Some("http");
        if unchecked && config.root_cert.is_none() {
            config.root_cert = Some(Vec::new());
        }
        let at_most = |limit: Option<Duration>| Some(limit.unwrap_or(silence).min(silence));
        config.connect_timeout = at_most(config.connect_timeout);
        config.write_timeout = at_most(config.write_timeout);
        config.read_timeout = Some(silence);
        config
    }
}

/// The certificates of a PEM file, at least one.
fn authorities_of(path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let pem = std::fs::read(path);
    let pem = pem.map_err(|error| Error::Authority { path: path.to_owned(), reason: error.to_string() })?;
    authorities(&pem, path)
}

/// The certificates of a PEM text, at least one.
fn authorities(pem: &[u8], path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let unreadable = |reason| Error::Authority { path: path.to_owned(), reason };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| unreadable(chain(&error)))?;
    if certificates.is_empty() {
        return Err(unreadable("there is no certificate in it".to_owned()));
    }
    Ok(certificates.iter().map(|der| der.to_vec()).collect())
}

async fn configure(options: &Options) -> Result<Config, Error> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let named = |path: &Path, reason| Error::Kubeconfig { path: path.to_owned(), reason };
    let Some(path) = &options.kubeconfig else {
        let usual = kubeconfig::usual(std::env::var_os("KUBECONFIG").as_deref());
        for path in usual.iter().filter(|path| path.exists()) {
            kubeconfig::check(path).map_err(|reason| named(path, reason))?;
        }
        if let Some(reason) = kubeconfig::absent(&usual) {
            return Err(Error::NotFound(reason));
        }
        let there = usual.iter().find(|path| path.exists());
        let from_file = async || match (Config::from_kubeconfig(&choice).await, there) {
            (Ok(config), _) => Ok(config),
            (Err(error), Some(path)) => Err(named(path, chain(&error))),
            (Err(error), None) => Err(Error::NotFound(chain(&error))),
        };
        return match options.context {
            Some(_) => from_file().await,
            // A pod's own account counts where no file can be used. Of two errors that of the file is told.
            None => match Config::infer().await {
                Ok(config) => Ok(config),
                Err(_) => from_file().await,
            },
        };
    };
    kubeconfig::check(path).map_err(|reason| named(path, reason))?;
    let file = Kubeconfig::read_from(path).map_err(|error| named(path, chain(&error)))?;
    Config::from_custom_kubeconfig(file, &choice).await.map_err(|error| named(path, chain(&error)))
}

/// The body of `GET path` as text, at most `limit` bytes long.
///
/// # Errors
/// When there is no response, its status is not a success, or the body is longer or not UTF-8.
pub async fn get_text(client: &Client, path: &str, limit: usize) -> Result<String, kube::Error> {
    let request = Request::get(path).body(kube::client::Body::empty()).map_err(kube::Error::HttpError)?;
    text(client, request, limit).await
}

async fn text(
    client: &Client,
    request: Request<kube::client::Body>,
    limit: usize,
) -> Result<String, kube::Error> {
    let service = |error: &dyn std::error::Error| kube::Error::Service(chain(error).into());
    let answer = client.send(request).await?;
    let status = answer.status();
    let body = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), limit);
    let body = body.await.map_err(|error| service(&error))?;
    if !status.is_success() {
        let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
        return Err(kube::Error::Api(Status::failure(&text, "").with_code(status.as_u16()).boxed()));
    }
    String::from_utf8(body.into()).map_err(|error| service(&error))
}

/// `text` percent-encoded, for one segment of a path or one value of a query.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let byte = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(byte).collect()
}

/// An error on one line: code, reason and message of the API server's status, or the failure of the call.
///
/// kube's own text repeats each cause and prints the whole status twice.
pub fn brief(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => format!("{} {}: {}", status.code, status.reason, status.message),
        kube::Error::Service(cause) => chain(cause.as_ref()),
        kube::Error::HyperError(cause) => chain(cause),
        other => chain(other),
    };
    // An answer that is no status comes whole, however long it is.
    if text.len() <= BRIEF_BYTES {
        text
    } else {
        shortened(&text.replace('\n', " "), BRIEF_BYTES).into_owned()
    }
}

/// The longest text of an API server in an error, in bytes.
const BRIEF_BYTES: usize = 4096;

/// An error and its causes on one line, each of them once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// The HTTP status code of the API server's response, if there was one.
pub fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// kube's own `Status::is_*` look at the reason alone, and a plain `404 page not found` has none.
fn answered(error: &kube::Error, code: u16, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code || status.reason == reason)
}

/// Whether the object changed since it was read, so that it has to be read again. (`AlreadyExists`, also a 409, is no
/// conflict.)
pub fn is_conflict(error: &kube::Error) -> bool {
    answered(error, 409, "Conflict") && !is_already_exists(error)
}

/// Whether the object to create already exists.
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether the object, its namespace or its kind does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    answered(error, 404, "NotFound")
}

/// Whether RBAC or an admission rule denies the call.
pub fn is_forbidden(error: &kube::Error) -> bool {
    answered(error, 403, "Forbidden")
}

/// Whether the object cannot be created because its namespace is being deleted.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether the same call may succeed later: the server was not reached, was busy, or failed on its side.
pub fn is_retryable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500 | 502 | 503 | 504),
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// A client cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The given kubeconfig cannot be used.
    #[error("kubeconfig {}: {reason}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// No file was given, and there is neither a kubeconfig nor a pod's service account.
    #[error("no cluster: {0}")]
    NotFound(String),
    /// The configuration was read, but its certificates or credentials cannot be used.
    #[error("kubernetes configuration is not usable: {0}")]
    Unusable(String),
    /// The URL is malformed.
    #[error("{0:?} is not an address: {1}")]
    Url(String, String),
    /// The authority's file cannot be read.
    #[error("authority {path}: {reason}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The user agent cannot be an HTTP header.
    #[error("user agent {0:?} is not a valid header value")]
    UserAgent(String),
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn api_errors_are_brief() {
        let error = api(409, "Conflict", "the object has been modified");
        assert_eq!(brief(&error), "409 Conflict: the object has been modified");
    }

    #[test]
    fn each_cause_appears_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Layer {
            text: &'static str,
            #[source]
            cause: Option<Box<Layer>>,
        }
        let layer = |text, cause: Option<Layer>| Layer { text, cause: cause.map(Box::new) };
        let error = layer("call: refused", Some(layer("refused", Some(layer("os error 111", None)))));
        assert_eq!(chain(&error), "call: refused: os error 111");
    }

    #[test]
    fn errors_are_classified() {
        // code, reason -> conflict, already exists, not found, forbidden, retryable
        let table = [
            (409, "Conflict", [true, false, false, false, false]),
            (409, "AlreadyExists", [false, true, false, false, false]),
            (404, "NotFound", [false, false, true, false, false]),
            (404, "Failed to parse error data", [false, false, true, false, false]),
            (403, "Forbidden", [false, false, false, true, false]),
            (422, "Invalid", [false, false, false, false, false]),
            (429, "TooManyRequests", [false, false, false, false, true]),
            (500, "InternalError", [false, false, false, false, true]),
            (503, "ServiceUnavailable", [false, false, false, false, true]),
        ];
        for (code, reason, want) in table {
            let error = api(code, reason, "");
            let got = [
                is_conflict(&error),
                is_already_exists(&error),
                is_not_found(&error),
                is_forbidden(&error),
                is_retryable(&error),
            ];
            assert_eq!(got, want, "{code} {reason}");
        }
        assert!(is_retryable(&kube::Error::Service("connection refused".into())));
        assert!(!is_retryable(&kube::Error::TlsRequired));
    }

    /// The answer of an API server 1.36.
    #[test]
    fn a_terminating_namespace_is_told_from_missing_rights() {
        let answer = |details: serde_json::Value| {
            let status = serde_json::json!({
                "status": "Failure", "reason": "Forbidden", "code": 403, "details": details,
                "message": "pods \"p\" is forbidden: unable to create new content in namespace ns because it is being terminated",
            });
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let cause = serde_json::json!({
            "reason": "NamespaceTerminating", "message": "namespace ns is being terminated", "field": "metadata.namespace",
        });
        let named = |causes: Vec<serde_json::Value>| serde_json::json!({ "name": "p", "kind": "pods", "causes": causes });
        for (details, expected) in
            [(named(vec![cause]), true), (named(vec![]), false), (serde_json::Value::Null, false)]
        {
            let error = answer(details);
            assert_eq!((is_forbidden(&error), is_namespace_terminating(&error)), (true, expected));
        }
    }

    #[tokio::test]
    async fn without_checks_no_authorities_are_needed() {
        fn check(url: &str, accept: bool, wanted: Option<Vec<Vec<u8>>>) {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = accept;
            let connection = Connection { config, request_timeout: None };
            assert_eq!(connection.with_read_timeout(WATCH_SILENCE).root_cert, wanted, "{url} {accept}");
            // The machine of the test may have no authorities.
            assert!(wanted.is_none() || connection.watch_client().is_ok(), "{url} {accept}");
        }
        check("https://10.0.0.5:10250", true, Some(Vec::new()));
        check("http://127.0.0.1:8001", false, Some(Vec::new()));
        check("https://10.0.0.5:6443", false, None);
    }

    #[tokio::test]
    async fn a_bad_kubeconfig_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for content in [None, Some("clusters: ["), Some("{}")] {
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            let options = Options { kubeconfig: Some(path.clone()), ..Options::default() };
            let error = Connection::open(&options).await.unwrap_err().to_string();
            assert!(error.starts_with(&format!("kubeconfig {}: ", path.display())), "{error}");
        }
    }

    /// A kubelet of these files, and how often it was sent a token.
    async fn kubelet(files: &crate::tls::Settings) -> (String, std::sync::Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let tokens = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&tokens);
        let configz = axum::routing::get(async move |headers: axum::http::HeaderMap| {
            count.fetch_add(usize::from(headers.contains_key("authorization")), Ordering::SeqCst);
            "{}"
        });
        let router = axum::Router::new().route("/configz", configz);
        let server = crate::tls::CertWatcher::new(files).unwrap();
        tokio::spawn(crate::tls::serve(listener, router, Default::default(), server));
        (url, tokens)
    }

    /// A token reaches servers whose certificate was checked, and others only on explicit request.
    #[tokio::test]
    async fn a_token_reaches_no_unchecked_server() {
        let dir = tempfile::tempdir().unwrap();
        let made = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (own, other) = (made(), made());
        let [certificate, key, token] = ["crt", "key", "token"].map(|name| dir.path().join(name));
        std::fs::write(&certificate, own.cert.pem()).unwrap();
        std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
        std::fs::write(&token, "secret").unwrap();
        let (url, tokens) = kubelet(&crate::tls::Settings::new(certificate.clone(), key)).await;
        for (trust, wanted) in [
            (KubeletTrust::default(), Err("ca.crt: No such file")),
            (KubeletTrust::Pem(String::new()), Err("there is no certificate in it")),
            (KubeletTrust::Pem(other.cert.pem()), Err("certificate")),
            (KubeletTrust::File(certificate), Ok(1)),
            (KubeletTrust::Pem(own.cert.pem()), Ok(1)),
            (KubeletTrust::Unchecked, Ok(1)),
        ] {
            let endpoint = KubeletEndpoint { url: url.clone(), token: Some(token.clone()), trust };
            let connection = Connection::for_kubelet(&endpoint, "test");
            let client = connection.and_then(|one| one.client_with_timeout(Duration::from_secs(5)));
            let answer = match client {
                Ok(client) => get_text(&client, "/configz", 100).await.map_err(|error| brief(&error)),
                Err(error) => Err(error.to_string()),
            };
            let sent = tokens.swap(0, Ordering::SeqCst);
            match wanted {
                Ok(wanted) => assert_eq!((answer, sent), (Ok("{}".to_owned()), wanted), "{endpoint:?}"),
                Err(words) => {
                    let error = answer.unwrap_err();
                    assert!(error.contains(words) && sent == 0, "{sent} {endpoint:?}: {error}");
                }
            }
        }
    }
}
