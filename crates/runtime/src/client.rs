//! Kubernetes clients: the only place that builds them.
//!
//! In: a kubeconfig path, or nothing. Out: clients of two temperaments, and errors made short and sortable.
//! Never: retries. kube's own retry may hold one call for minutes, so it is off in both; the callers
//! (`watch`, `lease`, `events`, a scheduling queue) each know how long waiting is worth it.

mod answer;
mod exec;

pub use answer::{Answer, Request as RawRequest, ask};
pub use exec::{Container, exec};

use axum::http::{HeaderValue, Request, header::USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::PathBuf;
use std::time::Duration;

/// A watch that hears nothing for this long is taken for dead. The API server sends each watcher a bookmark
/// about every minute, so a live watch is never this silent; a half-open connection would stay so for ever.
const WATCH_SILENCE: Duration = Duration::from_secs(150);

/// How to reach the API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// This file and no other; without it `KUBECONFIG`, then `~/.kube/config`, then the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; its current one when not given.
    pub context: Option<String>,
    /// Sent as `User-Agent`, so that audit logs and API priority rules can name us.
    pub user_agent: String,
}

/// How to reach a kubelet's own port.
#[derive(Debug, Clone, Default)]
pub struct KubeletEndpoint {
    /// Its address, such as `https://10.0.0.5:10250`.
    pub url: String,
    /// A file with the token to show, read again as it changes.
    pub token: Option<PathBuf>,
    /// PEM file of the authority its certificate is checked with; `None`: not checked. Most kubelets sign their own.
    pub authority: Option<PathBuf>,
}

/// A known API server, from which clients are made. Clones of one client share its connections; bulk writes
/// and watches deserve clients of their own.
#[derive(Debug, Clone)]
pub struct Connection {
    config: Config,
}

impl Connection {
    /// Reads the configuration; does not talk to the server yet.
    ///
    /// # Errors
    /// When no configuration is found or the one found is not usable.
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
        Ok(Self { config })
    }

    /// For a kubelet, which is no API server but takes the same requests and tokens.
    ///
    /// # Errors
    /// When the address is none, or the authority's file cannot be read.
    pub fn for_kubelet(kubelet: &KubeletEndpoint, user_agent: &str) -> Result<Self, Error> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let uri = kubelet.url.parse().map_err(|error| Error::Url(kubelet.url.clone(), chain(&error)))?;
        let mut config = Config::new(uri);
        config.auth_info.token_file = kubelet.token.as_ref().map(|path| path.display().to_string());
        match &kubelet.authority {
            None => config.accept_invalid_certs = true,
            Some(path) => {
                let unreadable = |reason| Error::Authority { path: path.clone(), reason };
                let pem = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
                let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
                let certificates = certificates.map_err(|error| unreadable(chain(&error)))?;
                config.root_cert = Some(certificates.iter().map(|der| der.to_vec()).collect());
            }
        }
        let value = HeaderValue::from_str(user_agent).map_err(|_| Error::UserAgent(user_agent.to_owned()))?;
        config.headers.push((USER_AGENT, value));
        config.default_retry = false;
        Ok(Self { config })
    }

    /// For watches and other reads: an answer may take long, but silence ends it.
    ///
    /// # Errors
    /// When the credentials or certificates of the configuration are not usable.
    pub fn watch_client(&self) -> Result<Client, Error> {
        self.client(WATCH_SILENCE)
    }

    /// For writes that must not hang (bind, lease, publishing): fails when connecting, sending or the answer
    /// takes longer than `timeout`.
    ///
    /// # Errors
    /// When the credentials or certificates of the configuration are not usable.
    pub fn client_with_timeout(&self, timeout: Duration) -> Result<Client, Error> {
        self.client(timeout)
    }

    /// The namespace of the kubeconfig's context, or of the pod we run in.
    pub fn default_namespace(&self) -> &str {
        &self.config.default_namespace
    }

    fn client(&self, silence: Duration) -> Result<Client, Error> {
        Client::try_from(self.with_read_timeout(silence)).map_err(|error| Error::Unusable(brief(&error)))
    }

    fn with_read_timeout(&self, silence: Duration) -> Config {
        let mut config = self.config.clone();
        // Where no certificate is checked kube still reads the system's authorities, and fails in an image that has none.
        let unchecked = config.accept_invalid_certs || config.cluster_url.scheme_str() == Some("http");
        if unchecked && config.root_cert.is_none() {
            config.root_cert = Some(Vec::new());
        }
        let sooner = |limit: Option<Duration>| Some(limit.unwrap_or(silence).min(silence));
        config.connect_timeout = sooner(config.connect_timeout);
        config.write_timeout = sooner(config.write_timeout);
        config.read_timeout = Some(silence);
        config
    }
}

async fn configure(options: &Options) -> Result<Config, Error> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let Some(path) = &options.kubeconfig else {
        let found = match &options.context {
            Some(_) => Config::from_kubeconfig(&choice).await.map_err(|error| chain(&error)),
            None => Config::infer().await.map_err(|error| chain(&error)),
        };
        return found.map_err(Error::NotFound);
    };
    let named = |reason| Error::Kubeconfig { path: path.clone(), reason };
    let file = Kubeconfig::read_from(path).map_err(|error| named(chain(&error)))?;
    Config::from_custom_kubeconfig(file, &choice).await.map_err(|error| named(chain(&error)))
}

/// The text a server answers on `path`, up to `limit` bytes.
///
/// # Errors
/// When there is no answer, it is not a success, or it is longer.
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

/// A text as part of a path or query.
#[must_use]
pub fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let byte = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(byte).collect()
}

/// One line for people: status code, reason and message of the API server's answer, or what broke the call.
///
/// kube's own text repeats each cause and prints the whole status twice.
pub fn brief(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}: {}", status.code, status.reason, status.message),
        kube::Error::Service(cause) => chain(cause.as_ref()),
        kube::Error::HyperError(cause) => chain(cause),
        other => chain(other),
    }
}

/// An error and its causes on one line, each said once.
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

/// The HTTP status of the API server's answer, if there was one.
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

/// Somebody wrote the object since we read it: read again. (`AlreadyExists` is also a 409, and not this.)
pub fn is_conflict(error: &kube::Error) -> bool {
    answered(error, 409, "Conflict") && !is_already_exists(error)
}

/// The object to create is there already.
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// The object, its namespace or its whole kind does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    answered(error, 404, "NotFound")
}

/// We may not do this: RBAC, or an admission rule.
pub fn is_forbidden(error: &kube::Error) -> bool {
    answered(error, 403, "Forbidden")
}

/// The same call may work later: the server was not reached, was busy, or failed on its side.
pub fn is_retryable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 408 | 429 | 500 | 502 | 503 | 504),
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file that was asked for cannot be used.
    #[error("kubeconfig {}: {reason}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No file was asked for, and neither a kubeconfig nor a pod's service account was found.
    #[error("no kubernetes configuration: {0}")]
    NotFound(String),
    /// The configuration was read, but its certificates or credentials cannot be used.
    #[error("kubernetes configuration is not usable: {0}")]
    Unusable(String),
    /// Not an address.
    #[error("{0:?} is not an address: {1}")]
    Url(String, String),
    /// The authority's file cannot be used.
    #[error("authority {path}: {reason}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The user agent cannot be an HTTP header.
    #[error("user agent {0:?} is not a valid header value")]
    UserAgent(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn answers_of_the_server_are_told_briefly() {
        let error = api(409, "Conflict", "the object has been modified");
        assert_eq!(brief(&error), "409 Conflict: the object has been modified");
    }

    #[test]
    fn causes_are_said_once() {
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

    #[tokio::test]
    async fn without_checks_no_authorities_are_needed() {
        fn check(url: &str, accept: bool, wanted: Option<Vec<Vec<u8>>>) {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = accept;
            let connection = Connection { config };
            assert_eq!(connection.with_read_timeout(WATCH_SILENCE).root_cert, wanted, "{url} {accept}");
            // The system's may be missing where tests run.
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
}
