//! Authentication and authorization of a server's requests, delegated to the API server.
//!
//! In: client certificates, bearer tokens, the headers of a front proxy; what the API server says about them. Out: a
//! user who may make the request, or status 401 or 403 in Kubernetes' words. Never: a request let through because a
//! question could not be asked.
//!
//! The rules are those of Kubernetes' own components (`k8s.io/apiserver` 1.36, delegating options), in this order: a
//! front proxy with a certificate of its authority names the user in headers; a client certificate's common name is the
//! user, its organizations are the groups; a bearer token goes into a TokenReview. A wrong credential is status 401, no
//! credential is `system:anonymous`. Then `system:masters` may do everything, everybody may read some paths, and a
//! SubjectAccessReview decides about the rest. Answers are remembered for seconds.

mod authentication;
mod authorization;
mod cache;
mod subject;
mod trust;

pub use authentication::User;
pub use trust::{Headers, Lookup, RequestHeader};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use authentication::Authentication;
use authorization::{Authorization, Verdict};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use trust::Trust;

use crate::backoff::Backoff;
use crate::client::{brief, is_retryable};

/// How long a question to the API server may take in all.
const ANSWER: Duration = Duration::from_secs(10);
/// Most attempts to ask it.
const ATTEMPTS: u32 = 5;

/// The certificates that the client of a connection showed, its own first. Only that it has the key is checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerCertificates(pub(crate) Arc<[CertificateDer<'static>]>);

/// Whom to ask, and whom to believe without asking.
#[derive(Clone, Default)]
pub struct Settings {
    /// The API server that reviews tokens and has the authorities; `None`: tokens are ignored, nothing is looked up.
    pub authentication: Option<Client>,
    /// The API server that reviews access; `None`: no user may do what is not always allowed.
    pub authorization: Option<Client>,
    /// File with the authorities of client certificates; `None`: as in the cluster's ConfigMap.
    pub client_ca: Option<PathBuf>,
    /// The front proxy; `None`: as in the cluster's ConfigMap.
    pub request_header: Option<RequestHeader>,
    /// What becomes of authorities that are not given here.
    pub lookup: Lookup,
    /// How long answers are remembered.
    pub remember: Remember,
    /// Paths that everybody may read, perhaps with a `*` at their end.
    pub always_allow_paths: Vec<String>,
}

/// How long answers are remembered; zero: not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remember {
    /// The user of a token, or that it has none.
    pub tokens: Duration,
    /// That a user may.
    pub allowed: Duration,
    /// That a user may not.
    pub denied: Duration,
}

impl Default for Remember {
    /// Ten seconds each, as in Kubernetes' components.
    fn default() -> Self {
        let ten = Duration::from_secs(10);
        Self { tokens: ten, allowed: ten, denied: ten }
    }
}

/// Lets requests through to a server, or not.
pub struct Guard {
    authentication: Authentication,
    authorization: Authorization,
    trust: Trust,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of authorities cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The cluster's authorities cannot be looked up, and must be.
    #[error("ConfigMap kube-system/extension-apiserver-authentication: {0}")]
    Lookup(String),
    /// A path that is always allowed is malformed.
    #[error("only trailing * allowed in {0:?}")]
    Path(String),
}

impl Guard {
    /// Reads the authorities, from files and the cluster.
    ///
    /// # Errors
    /// When a file cannot be used, a path is malformed, or a required lookup fails.
    pub async fn new(settings: Settings) -> Result<Arc<Self>, Error> {
        let authorization = Authorization::new(&settings)?;
        let trust = Trust::new(&settings).await?;
        let authentication = Authentication::new(settings.authentication, settings.remember.tokens);
        Ok(Arc::new(Self { authentication, authorization, trust }))
    }

    /// Guards all routes.
    pub fn protect(self: &Arc<Self>, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::clone(self), check))
    }

    /// Keeps the authorities up to date; never returns.
    pub async fn follow(&self) {
        self.trust.follow().await;
    }

    /// The answer to a request that may not be made.
    async fn refusal(
        &self,
        (verb, path): (&str, &str),
        headers: &HeaderMap,
        certificates: &PeerCertificates,
    ) -> Option<Response> {
        let trusted = self.trust.current();
        let user = match self.authentication.user(headers, &certificates.0, &trusted).await {
            Ok(user) => user,
            Err(reason) => {
                tracing::debug!(path, reason, "unable to authenticate a request");
                return Some(unauthorized());
            }
        };
        match self.authorization.verdict(&user, verb, path).await {
            Verdict::Allowed => None,
            Verdict::Denied(reason) => {
                tracing::debug!(user = user.name, verb, path, reason, "forbidden");
                Some(forbidden(&user, (verb, path), &reason))
            }
            Verdict::Unknown(reason) => Some(unknown(path, &reason)),
        }
    }
}

async fn check(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let verb = request.method().as_str().to_ascii_lowercase();
    let path = request.uri().path().to_owned();
    let certificates = request.extensions().get::<PeerCertificates>().cloned().unwrap_or_default();
    if let Some(refusal) = guard.refusal((&verb, &path), request.headers(), &certificates).await {
        return refusal;
    }
    // Nothing behind this needs it.
    request.headers_mut().remove(AUTHORIZATION);
    next.run(request).await
}

/// Asks the API server, again while it is busy.
async fn ask<K>(client: &Client, question: &K) -> Result<K, String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let api = Api::<K>::all(client.clone());
    let asked = async {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(3));
        let mut attempt = 1;
        loop {
            match api.create(&PostParams::default(), question).await {
                Err(error) if attempt < ATTEMPTS && is_retryable(&error) => {
                    attempt += 1;
                    sleep(backoff.next_delay()).await;
                }
                other => return other.map_err(|error| brief(&error)),
            }
        }
    };
    timeout(ANSWER, asked).await.unwrap_or_else(|_| Err(format!("no answer within {ANSWER:?}")))
}

fn unauthorized() -> Response {
    status(
        StatusCode::UNAUTHORIZED,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
        }),
    )
}

fn forbidden(user: &User, (verb, path): (&str, &str), reason: &str) -> Response {
    let message = sanitized(&format!("User {:?} cannot {verb} path {path:?}", user.name));
    let message = match reason {
        "" => format!("forbidden: {message}"),
        reason => format!("forbidden: {message}: {reason}"),
    };
    status(
        StatusCode::FORBIDDEN,
        &json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Forbidden", "details": {}, "code": 403,
        }),
    )
}

fn unknown(path: &str, reason: &str) -> Response {
    let text = sanitized(&format!("Internal Server Error: {path:?}: {reason}"));
    let headers = [(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
    (StatusCode::INTERNAL_SERVER_ERROR, headers, text + "\n").into_response()
}

fn status(code: StatusCode, body: &Value) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (code, headers, format!("{body}\n")).into_response()
}

/// Text that no browser takes for HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
