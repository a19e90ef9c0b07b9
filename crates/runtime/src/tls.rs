//! HTTPS for the endpoints of a process.
//!
//! In: files of a certificate and a key, a policy, the authorities of clients. Out: the endpoints of `http` over TLS
//! and HTTP/1.1. Never: a key or the contents of a file in a log, or an end of service because a file became invalid.
//!
//! The files are read every few seconds and their contents compared. This notices a replaced file, a directory replaced
//! under a symbolic link (as Kubernetes does with mounted secrets) and a file written in place. Unusable contents, such
//! as a new certificate beside an old key, are logged once and change nothing. New contents apply to new connections.
//!
//! When certificate or key is missing at start, a self-signed certificate for `localhost` and the loopback addresses is
//! served until both files exist. RTE does the same, and a scraper that does not verify works with it.

mod files;
mod policy;
mod requested;

pub use files::Error as FileError;
pub use policy::{Error as PolicyError, Policy};

use crate::http::server::{Limits, run};
use axum::Router;
use files::{Contents, Pair};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use requested::Requested;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::fmt::{Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval between reads of the files. Kubernetes itself takes a minute or two to bring a changed secret to a node.
const EVERY: Duration = Duration::from_secs(5);

/// The settings of a TLS listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// PEM file of the certificate chain. An empty path means a self-signed certificate for good.
    pub certificate: PathBuf,
    /// PEM file of the key.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates. `None`: clients need no certificate.
    pub clients: Option<ClientAuth>,
    /// Versions and cipher suites.
    pub policy: Policy,
}

/// The authorities whose clients are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// All certificates of this PEM file, which must exist at start.
    File(PathBuf),
    /// The system's authorities at start, which Go uses when it is given none.
    System,
    /// Any: clients are asked for a certificate, need none, and each request judges it ([`crate::delegated_auth`]).
    PerRequest,
}

impl Settings {
    /// Settings with this certificate and key, without client certificates, and with the default policy.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), clients: None, policy: Policy::default() }
    }
}

/// The certificate to serve, which follows its files.
pub struct CertWatcher {
    settings: Settings,
    provider: Arc<CryptoProvider>,
    /// The system's authorities, if clients are verified with them.
    system: Option<RootCertStore>,
    pub(crate) config: watch::Sender<Arc<ServerConfig>>,
    /// The digest of the contents last read, and whether they were unusable.
    seen: (u64, bool),
    /// The policy to offer, if it can change.
    policies: Option<watch::Receiver<Policy>>,
    reads: Counter,
    errors: Counter,
    every: Duration,
}

impl CertWatcher {
    /// Reads the files, and logs the parts of the policy without effect. Blocks while it reads.
    ///
    /// # Errors
    /// When a file exists but cannot be used, or the file with the clients' authorities does not exist.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        for note in &settings.policy.notes {
            tracing::warn!("{note}");
        }
        let contents = Contents::read(settings);
        let system = match settings.clients {
            Some(ClientAuth::System) => Some(system_authorities()?),
            Some(ClientAuth::File(_) | ClientAuth::PerRequest) | None => None,
        };
        let provider = Arc::new(settings.policy.provider());
        let authorities = contents.authorities(settings)?.or_else(|| system.clone());
        let (pair, missing) = match contents.pair(settings) {
            Ok(pair) => (pair, false),
            Err(FileError::Missing(_)) if settings.certificate.as_os_str().is_empty() => {
                tracing::info!("no certificate is configured: serving a self-signed one for localhost");
                (self_signed()?, true)
            }
            Err(FileError::Missing(path)) => {
                tracing::warn!(
                    missing = %path.display(),
                    certificate = %settings.certificate.display(),
                    key = %settings.key.display(),
                    "certificate or key is missing: serving a self-signed certificate for localhost until both files exist"
                );
                (self_signed()?, true)
            }
            Err(error) => return Err(error.into()),
        };
        let config = configure(settings, &provider, pair, authorities)?;
        let (reads, errors) = (Counter::default(), Counter::default());
        reads.inc();
        errors.inc_by(missing.into());
        Ok(Self {
            settings: settings.clone(),
            provider,
            system,
            config: watch::Sender::new(Arc::new(config)),
            seen: (contents.digest(), missing),
            policies: None,
            reads,
            errors,
            every: EVERY,
        })
    }

    /// Sets the interval between reads of the files, five seconds by default.
    #[must_use]
    pub fn reload_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Offers the latest of `policies`. A change applies to new connections.
    #[must_use]
    pub fn follow(mut self, policies: watch::Receiver<Policy>) -> Self {
        self.policies = Some(policies);
        self
    }

    /// Number of reads of the files.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Number of reads that found a file missing or unusable.
    pub fn read_errors(&self) -> u64 {
        self.errors.get()
    }

    /// Registers `certwatcher_read_certificate_total` and `certwatcher_read_certificate_errors_total`, as Go
    /// controllers name these counts.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Readings of the certificate, its key and the authorities of clients";
        registry.register("certwatcher_read_certificate", help, self.reads.clone());
        let help = "Readings that found a file missing or unusable, while the contents before stay in use";
        registry.register("certwatcher_read_certificate_errors", help, self.errors.clone());
    }

    /// Reads the files at each interval.
    async fn watch_files(mut self) {
        loop {
            let policy = self.next_policy().await;
            let settings = self.settings.clone();
            // On a thread of its own, as a file system may hang. The call fails only when the process stops.
            let Ok(contents) = tokio::task::spawn_blocking(move || Contents::read(&settings)).await else {
                return;
            };
            if let Some(policy) = policy {
                self.apply_policy(policy, &contents);
            }
            self.reload_if_changed(&contents);
        }
    }

    /// Waits until the next read of the files, or for a new policy, which it returns.
    async fn next_policy(&mut self) -> Option<Policy> {
        let every = tokio::time::sleep(self.every);
        let Some(policies) = &mut self.policies else {
            every.await;
            return None;
        };
        // A policy set before this call counts too.
        let differs = |policy: &Policy| *policy != self.settings.policy;
        tokio::select! {
            Ok(policy) = policies.wait_for(differs) => Some(policy.clone()),
            () = every => None,
        }
    }

    /// Offers another policy, with the current certificate.
    fn apply_policy(&mut self, policy: Policy, contents: &Contents) {
        for note in &policy.notes {
            tracing::warn!("{note}");
        }
        self.provider = Arc::new(policy.provider());
        self.settings.policy = policy;
        if !matches!(contents.pair(&self.settings), Err(FileError::Missing(_))) {
            self.reload(contents);
            return;
        }
        let config = self_signed().map_err(|error| error.to_string()).and_then(|pair| {
            let authorities = contents.authorities(&self.settings).map_err(|error| error.to_string())?;
            let authorities = authorities.or_else(|| self.system.clone());
            configure(&self.settings, &self.provider, pair, authorities).map_err(|error| error.to_string())
        });
        match config {
            Ok(config) => drop(self.config.send_replace(Arc::new(config))),
            Err(error) => {
                tracing::warn!(
                    error,
                    "TLS policy changed but cannot be used; keeping the previous configuration"
                )
            }
        }
    }

    fn reload_if_changed(&mut self, contents: &Contents) {
        self.reads.inc();
        let (before, failed) = self.seen;
        let digest = contents.digest();
        let failed = if digest == before { failed } else { !self.reload(contents) };
        self.seen = (digest, failed);
        self.errors.inc_by(failed.into());
    }

    /// Serves these contents from now on, if they are usable.
    fn reload(&self, contents: &Contents) -> bool {
        let certificate = self.settings.certificate.display();
        let config = contents.pair(&self.settings).and_then(|pair| {
            let authorities = contents.authorities(&self.settings)?.or_else(|| self.system.clone());
            configure(&self.settings, &self.provider, pair, authorities)
        });
        match config {
            Ok(config) => {
                self.config.send_replace(Arc::new(config));
                tracing::info!(%certificate, "serving the certificate that is now in the files");
                true
            }
            Err(error) => {
                tracing::warn!(%certificate, %error, "certificate files changed but cannot be used; keeping the old ones");
                false
            }
        }
    }
}

impl Debug for CertWatcher {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CertWatcher").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Like [`crate::http::serve`], over TLS, with the certificate that is in the files.
///
/// # Errors
/// Never; the result is that of a task.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    token: CancellationToken,
    server: CertWatcher,
) -> Result<(), Infallible> {
    serve_within(Limits::DEFAULT, listener, router, token, server).await
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
    server: CertWatcher,
) -> Result<(), Infallible> {
    let config = server.config.subscribe();
    let watch_files = async {
        server.watch_files().await;
        std::future::pending().await
    };
    tokio::select! {
        () = run(listener, router, token, Some(config), limits) => {}
        () = watch_files => {}
    }
    Ok(())
}

/// The configuration of the TLS library.
fn configure(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
    pair: Pair,
    authorities: Option<RootCertStore>,
) -> Result<ServerConfig, FileError> {
    let wrong = |reason: rustls::Error| FileError::Pair {
        certificate: settings.certificate.clone(),
        key: settings.key.clone(),
        reason: match reason {
            rustls::Error::InconsistentKeys(_) => "the key is not the certificate's".to_owned(),
            other => other.to_string(),
        },
    };
    let verifier = match authorities {
        None if settings.clients == Some(ClientAuth::PerRequest) => Requested::verifier(provider),
        None => WebPkiClientVerifier::no_client_auth(),
        Some(authorities) => {
            WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone())
                .build()
                .map_err(|error| wrong(rustls::Error::General(error.to_string())))?
        }
    };
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&settings.policy.versions())
        .map_err(wrong)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(pair.chain, pair.key)
        .map_err(wrong)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Scrapers keep their connections, so stored sessions would only hold memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn self_signed() -> Result<Pair, Error> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made =
        rcgen::generate_simple_self_signed(names).map_err(|error| Error::SelfSigned(error.to_string()))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|reason| Error::SelfSigned(reason.to_owned()))?;
    Ok(Pair { chain: vec![made.cert.der().clone()], key })
}

fn system_authorities() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let reason = found.errors.first().map_or_else(|| "none is installed".to_owned(), ToString::to_string);
        return Err(Error::System(reason));
    }
    Ok(store)
}

/// A TLS listener cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A required or existing file cannot be used.
    #[error("tls: {0}")]
    File(#[from] FileError),
    /// ClientAuth are held to the system's authorities, and there are none.
    #[error(
        "tls: clients must show a certificate, but the system has no authorities ({0}); name a file with them"
    )]
    System(String),
    /// The self-signed certificate could not be made.
    #[error("tls: cannot make a certificate: {0}")]
    SelfSigned(String),
}
