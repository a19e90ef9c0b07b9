//! The authorities of client certificates, and the headers in which a front proxy names users.
//!
//! In: files, and the ConfigMap `kube-system/extension-apiserver-authentication`, in which the API server publishes its
//! own. Out: what counts now. Never: a change to something unusable, or an end of trust because a read failed.
//!
//! Both are read again each minute, as Kubernetes' components do with files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::{Error, Settings};
use crate::client::{brief, chain};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Time between two reads.
const EVERY: Duration = Duration::from_secs(60);
/// The longest file of authorities.
const LARGEST: u64 = 2 << 20;

/// What becomes of authorities that are not given as files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookup {
    /// They are looked up in the cluster; a failure is logged, and looked up again later.
    #[default]
    Tolerant,
    /// They are looked up in the cluster, and have to be found at start.
    Required,
    /// There are none.
    Skipped,
}

/// A front proxy given by files and names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// File with the authorities of its certificate.
    pub ca: PathBuf,
    /// The headers.
    pub headers: Headers,
}

/// The headers of a front proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Common names that its certificate may have; none: any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name; the first that is there counts.
    pub username: Vec<String>,
    /// Headers with the user's UID.
    pub uid: Vec<String>,
    /// Headers with the user's groups.
    pub group: Vec<String>,
    /// Prefixes of headers with anything else about the user.
    pub extra_prefix: Vec<String>,
}

impl Default for Headers {
    /// Those of Kubernetes' components.
    fn default() -> Self {
        let one = |text: &str| vec![text.to_owned()];
        Self {
            allowed_names: Vec::new(),
            username: one("x-remote-user"),
            uid: Vec::new(),
            group: one("x-remote-group"),
            extra_prefix: one("x-remote-extra-"),
        }
    }
}

/// Authorities of certificates.
#[derive(Clone)]
pub(super) struct Authorities(Arc<dyn ClientCertVerifier>);

impl Authorities {
    /// Reads certificates in PEM, at least one.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let mut store = RootCertStore::empty();
        for certificate in found.map_err(|error| chain(&error))? {
            store.add(certificate).map_err(|error| error.to_string())?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::new(default_provider()));
        verifier.build().map(Self).map_err(|error| error.to_string())
    }

    fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::File { path: path.to_owned(), reason };
        let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if size > LARGEST {
            return Err(wrong(format!("larger than {LARGEST} bytes")));
        }
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&pem).map_err(wrong)
    }

    /// Whether one of them signed the first certificate, perhaps through the others, for a client, and it is valid now.
    pub(super) fn verify(&self, certificates: &[CertificateDer<'static>]) -> Result<(), String> {
        let Some((first, others)) = certificates.split_first() else {
            return Err("no certificate".to_owned());
        };
        let verified = self.0.verify_client_cert(first, others, UnixTime::now());
        verified.map(drop).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authorities").finish_non_exhaustive()
    }
}

/// What counts now.
#[derive(Clone, Debug, Default)]
pub(super) struct Trusted {
    /// The authorities of clients.
    pub(super) clients: Option<Authorities>,
    /// The front proxy.
    pub(super) proxy: Option<(Authorities, Headers)>,
}

/// What counts, and where it comes from.
pub(super) struct Trust {
    client: Option<Client>,
    client_ca: Option<PathBuf>,
    request_header: Option<RequestHeader>,
    lookup: Lookup,
    current: Mutex<Arc<Trusted>>,
}

impl Trust {
    pub(super) async fn new(settings: &Settings) -> Result<Self, Error> {
        let trust = Self {
            client: settings.authentication.clone(),
            client_ca: settings.client_ca.clone(),
            request_header: settings.request_header.clone(),
            lookup: settings.lookup,
            current: Mutex::default(),
        };
        let (trusted, missing) = trust.read().await?;
        if let Some(reason) = missing {
            if trust.lookup == Lookup::Required {
                return Err(Error::Lookup(reason));
            }
            tracing::warn!(reason, "the cluster's authorities of clients are not known, or not all of them");
        }
        trust.set(trusted);
        Ok(trust)
    }

    pub(super) fn current(&self) -> Arc<Trusted> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, trusted: Trusted) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(trusted);
    }

    /// Reads everything again, each minute.
    pub(super) async fn follow(&self) {
        let mut logged = String::new();
        loop {
            tokio::time::sleep(EVERY).await;
            let failure = match self.read().await {
                Ok((read, None)) => {
                    self.set(read);
                    String::new()
                }
                // The rest stays as it was.
                Ok((read, Some(reason))) => {
                    let before = self.current();
                    let clients = read.clients.or_else(|| before.clients.clone());
                    let proxy = read.proxy.or_else(|| before.proxy.clone());
                    self.set(Trusted { clients, proxy });
                    reason
                }
                Err(error) => error.to_string(),
            };
            if failure != logged && !failure.is_empty() {
                tracing::debug!(reason = failure, "authorities of clients not read again");
            }
            logged = failure;
        }
    }

    /// What the files and the cluster say, and what is missing of the latter.
    async fn read(&self) -> Result<(Trusted, Option<String>), Error> {
        let clients = self.client_ca.as_deref().map(Authorities::read).transpose()?;
        let proxy = self.request_header.as_ref().map(|given| {
            Authorities::read(&given.ca).map(|authorities| (authorities, given.headers.clone()))
        });
        let mut trusted = Trusted { clients, proxy: proxy.transpose()? };
        let whole = trusted.clients.is_some() && trusted.proxy.is_some();
        let missing = match &self.client {
            Some(client) if self.lookup != Lookup::Skipped && !whole => {
                match Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE).get(NAME).await {
                    Ok(published) => trusted.complete(&published).err(),
                    Err(error) => Some(brief(&error)),
                }
            }
            _ => None,
        };
        Ok((trusted, missing))
    }
}

impl Trusted {
    /// Adds what the API server has published, as far as it is usable.
    fn complete(&mut self, published: &ConfigMap) -> Result<(), String> {
        let text = |key: &str| published.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let authorities = |key: &str| {
            let pem = text(key).filter(|text| !text.is_empty()).ok_or_else(|| format!("{key} is missing"))?;
            Authorities::parse(pem.as_bytes()).map_err(|reason| format!("{key}: {reason}"))
        };
        let list = |key: &str| {
            let text = text(key).unwrap_or_default();
            if text.is_empty() {
                return Ok(Vec::new());
            }
            serde_json::from_str::<Vec<String>>(text).map_err(|error| format!("{key}: {error}"))
        };
        let mut failures = Vec::new();
        if self.clients.is_none() {
            match authorities("client-ca-file") {
                Ok(clients) => self.clients = Some(clients),
                Err(reason) => failures.push(reason),
            }
        }
        if self.proxy.is_none() {
            let proxy = || {
                let headers = Headers {
                    allowed_names: list("requestheader-allowed-names")?,
                    username: list("requestheader-username-headers")?,
                    uid: list("requestheader-uid-headers")?,
                    group: list("requestheader-group-headers")?,
                    extra_prefix: list("requestheader-extra-headers-prefix")?,
                };
                Ok((authorities("requestheader-client-ca-file")?, headers))
            };
            match proxy() {
                Ok(proxy) => self.proxy = Some(proxy),
                Err(reason) => failures.push(reason),
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }
}
