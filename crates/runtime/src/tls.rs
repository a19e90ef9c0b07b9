//! TLS for what a process serves.
//!
//! In: files of a certificate and a key, a policy, the authorities of clients. Out: the same surface as `http`, over TLS and
//! HTTP/1.1. Never: logs a key or what is in a file; stops serving because a file went bad.
//!
//! The files are read every few seconds, and their contents compared: that sees a file replaced, a folder replaced under a
//! symbolic link (as Kubernetes does with mounted secrets) and a file written in place. Contents that cannot be used, such
//! as a new certificate beside an old key, are told once and change nothing. New contents hold for new connections.
//!
//! When certificate or key is not there at the start, a certificate that signs itself is served, for `localhost` and the
//! loopback addresses, until both files have come: that is what RTE does, and a scraper that does not verify works with it.

mod files;
mod listener;
mod policy;

pub use files::Error as FileError;
pub use policy::{Error as PolicyError, Policy};

use crate::http;
use axum::Router;
use files::{Contents, Pair};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::fmt::{Debug, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the files are read. Kubernetes itself takes a minute or two to bring a changed secret to a node.
const EVERY: Duration = Duration::from_secs(5);

/// What a TLS listener needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The certificate chain, PEM. With an empty path, one that signs itself is served for good.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Who signs the certificates that clients must show; without it nobody is asked for one.
    pub clients: Option<ClientAuth>,
    /// Versions and cipher suites.
    pub policy: Policy,
}

/// The authorities whose clients are let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// All certificates of this file, PEM. It must be there from the start.
    File(PathBuf),
    /// Those the system trusts, as they are at the start: where Go looks when it is given none.
    System,
}

impl Settings {
    /// For this certificate and key, without clients' certificates and with the default policy.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), clients: None, policy: Policy::default() }
    }
}

/// A certificate that is ready to be served and keeps up with its files.
pub struct CertWatcher {
    settings: Settings,
    provider: Arc<CryptoProvider>,
    /// The system's authorities, when clients are held to them.
    system: Option<RootCertStore>,
    config: watch::Sender<Arc<ServerConfig>>,
    /// The contents last looked at, and whether they could not be used.
    seen: (u64, bool),
    /// What is to be offered, if that can change.
    policies: Option<watch::Receiver<Policy>>,
    reads: Counter,
    errors: Counter,
    every: Duration,
}

impl CertWatcher {
    /// Reads the files, and logs what of the policy has no effect. Blocks for as long as reading takes.
    ///
    /// # Errors
    /// Names the file that is there but cannot be used, or the one with the clients' authorities that is not there.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        for note in &settings.policy.notes {
            tracing::warn!("{note}");
        }
        let contents = Contents::read(settings);
        let system = match settings.clients {
            Some(ClientAuth::System) => Some(system_authorities()?),
            Some(ClientAuth::File(_)) | None => None,
        };
        let provider = Arc::new(settings.policy.provider());
        let authorities = contents.authorities(settings)?.or_else(|| system.clone());
        let (pair, missing) = match contents.pair(settings) {
            Ok(pair) => (pair, false),
            Err(FileError::Missing(_)) if settings.certificate.as_os_str().is_empty() => {
                tracing::info!(
                    "no certificate is asked for: serving one for localhost that nobody can verify"
                );
                (self_signed()?, true)
            }
            Err(FileError::Missing(path)) => {
                tracing::warn!(
                    missing = %path.display(),
                    certificate = %settings.certificate.display(),
                    key = %settings.key.display(),
                    "no certificate yet: serving one for localhost that nobody can verify, until both files are there"
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

    /// Reads the files this often instead of every five seconds.
    #[must_use]
    pub fn reload_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Offers what `policies` says, now and whenever that changes; connections that are there already stay as they are.
    #[must_use]
    pub fn follow(mut self, policies: watch::Receiver<Policy>) -> Self {
        self.policies = Some(policies);
        self
    }

    /// How often the files were read.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// How often what was read could not be used, or was not there.
    pub fn read_errors(&self) -> u64 {
        self.errors.get()
    }

    /// Adds `certwatcher_read_certificate_total` and `certwatcher_read_certificate_errors_total`, the names Go controllers
    /// count the same under.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Readings of the certificate, its key and the authorities of clients";
        registry.register("certwatcher_read_certificate", help, self.reads.clone());
        let help = "Readings that found a file missing or unusable, while the contents before stay in use";
        registry.register("certwatcher_read_certificate_errors", help, self.errors.clone());
    }

    /// Reads the files again and again.
    async fn keep_up(mut self) {
        loop {
            let policy = self.next_policy().await;
            let settings = self.settings.clone();
            // On a thread of its own: a file system that hangs must not hang the rest. It only fails when we stop.
            let Ok(contents) = tokio::task::spawn_blocking(move || Contents::read(&settings)).await else {
                return;
            };
            if let Some(policy) = policy {
                self.offer(policy, &contents);
            }
            self.look(&contents);
        }
    }

    /// Waits until it is time to read the files; a policy, if there is a new one.
    async fn next_policy(&mut self) -> Option<Policy> {
        let every = tokio::time::sleep(self.every);
        let Some(policies) = &mut self.policies else {
            every.await;
            return None;
        };
        // What was there before anybody listened counts too.
        let differs = |policy: &Policy| *policy != self.settings.policy;
        tokio::select! {
            Ok(policy) = policies.wait_for(differs) => Some(policy.clone()),
            () = every => None,
        }
    }

    /// Offers something else, with the certificate there is.
    fn offer(&mut self, policy: Policy, contents: &Contents) {
        for note in &policy.notes {
            tracing::warn!("{note}");
        }
        self.provider = Arc::new(policy.provider());
        self.settings.policy = policy;
        if !matches!(contents.pair(&self.settings), Err(FileError::Missing(_))) {
            self.take(contents);
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
                tracing::warn!(error, "TLS policy changed but cannot be used; keeping what was served")
            }
        }
    }

    fn look(&mut self, contents: &Contents) {
        self.reads.inc();
        let (before, failed) = self.seen;
        let digest = contents.digest();
        let failed = if digest == before { failed } else { !self.take(contents) };
        self.seen = (digest, failed);
        self.errors.inc_by(failed.into());
    }

    /// Serves these contents from now on, if they can be.
    fn take(&self, contents: &Contents) -> bool {
        let certificate = self.settings.certificate.display();
        let config = contents.pair(&self.settings).and_then(|pair| {
            let authorities = contents.authorities(&self.settings)?.or_else(|| self.system.clone());
            configure(&self.settings, &self.provider, pair, authorities)
        });
        match config {
            Ok(config) => {
                self.config.send_replace(Arc::new(config));
                tracing::info!(%certificate, "serving the certificate as it is in the files now");
                true
            }
            Err(error) => {
                tracing::warn!(%certificate, %error, "certificate files changed but cannot be used; keeping what was served");
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

/// Serves as [`http::serve`] does, over TLS, and keeps up with the files meanwhile.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    token: CancellationToken,
    server: CertWatcher,
) -> std::io::Result<()> {
    let listener = listener::Listener::new(listener, server.config.subscribe());
    let keep_up = async {
        server.keep_up().await;
        std::future::pending().await
    };
    tokio::select! {
        result = http::run(listener, router, token) => result,
        result = keep_up => result,
    }
}

/// What the library needs to answer a client.
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
    // Scrapers keep their connections; remembering sessions would only hold memory.
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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that is needed, or that is there, cannot be used.
    #[error("tls: {0}")]
    File(#[from] FileError),
    /// ClientAuth are held to the system's authorities, and there are none.
    #[error(
        "tls: clients must show a certificate, but the system has no authorities ({0}); name a file with them"
    )]
    System(String),
    /// No certificate could be made to start with.
    #[error("tls: cannot make a certificate: {0}")]
    SelfSigned(String),
}
