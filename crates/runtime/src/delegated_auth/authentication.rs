//! Who a request comes from.
//!
//! In: its headers, the certificates of its connection, whom to trust. Out: a user. Never: a token kept in memory, or a
//! name from a header that no trusted proxy has set.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::Client;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::ask;
use super::cache::Cache;
use super::subject::Subject;
use super::trust::{Authorities, Headers, Trusted};

/// Most tokens whose answers are remembered.
const TOKENS: usize = 1_024;

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";

/// A user as Kubernetes knows one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// The name.
    pub name: String,
    /// The UID, if there is one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Anything else.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn anonymous() -> Self {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        Self { name: ANONYMOUS.to_owned(), groups, ..Self::default() }
    }

    /// The user as a member of all authenticated ones.
    fn authenticated(mut self) -> Self {
        let is_member = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(is_member) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

impl From<UserInfo> for User {
    fn from(info: UserInfo) -> Self {
        Self {
            name: info.username.unwrap_or_default(),
            uid: info.uid.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        }
    }
}

/// What one credential says: a user, or nothing because there is none of its kind.
type Answer = Result<Option<User>, String>;

/// Digests of tokens, with their users.
type Tokens = Cache<[u8; SHA256_OUTPUT_LEN], Option<User>>;

/// Tells users.
pub(super) struct Authentication {
    client: Option<Client>,
    holds: Duration,
    tokens: Mutex<Tokens>,
}

impl Authentication {
    pub(super) fn new(client: Option<Client>, holds: Duration) -> Self {
        Self { client, holds, tokens: Mutex::new(Cache::new(TOKENS)) }
    }

    /// The user of a request; an error if it has credentials and none is right.
    pub(super) async fn user(
        &self,
        headers: &HeaderMap,
        certificates: &[CertificateDer<'static>],
        trusted: &Trusted,
    ) -> Result<User, String> {
        let mut wrong = Vec::new();
        let proxied = trusted
            .proxy
            .as_ref()
            .map(|(authorities, names)| proxied(headers, certificates, authorities, names));
        let certified = trusted.clients.as_ref().map(|authorities| certified(certificates, authorities));
        for answer in [proxied, certified].into_iter().flatten() {
            match answer {
                Ok(Some(user)) => return Ok(user.authenticated()),
                Ok(None) => {}
                Err(reason) => wrong.push(reason),
            }
        }
        match self.bearer(headers).await {
            Ok(Some(user)) => return Ok(user.authenticated()),
            Ok(None) => {}
            Err(reason) => wrong.push(reason),
        }
        if wrong.is_empty() { Ok(User::anonymous()) } else { Err(wrong.join("; ")) }
    }

    /// The user of the bearer token, if there is one and a server to ask.
    async fn bearer(&self, headers: &HeaderMap) -> Answer {
        let (Some(client), Some(token)) = (&self.client, token(headers)) else { return Ok(None) };
        let mut key = [0; SHA256_OUTPUT_LEN];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let tokens = || self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tokens().get(&key, Instant::now());
        let user = match known {
            Some(user) => user,
            None => {
                let user = review(client, token).await?;
                tokens().insert(key, user.clone(), self.holds, Instant::now());
                user
            }
        };
        user.map(Some).ok_or_else(|| "invalid bearer token".to_owned())
    }
}

/// Asks whose token this is.
async fn review(client: &Client, token: &str) -> Answer {
    let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
    let status = match ask(client, &TokenReview { spec, ..TokenReview::default() }).await {
        Ok(review) => review.status.unwrap_or_default(),
        Err(reason) => {
            tracing::warn!(reason, "token not reviewed");
            return Err(reason);
        }
    };
    match (status.authenticated, status.error.filter(|error| !error.is_empty())) {
        (Some(true), _) => Ok(Some(status.user.unwrap_or_default().into())),
        (_, Some(error)) => Err(error),
        (_, None) => Ok(None),
    }
}

/// The bearer token of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    words.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// The user of a client certificate.
fn certified(certificates: &[CertificateDer<'static>], authorities: &Authorities) -> Answer {
    let Some(first) = certificates.first() else { return Ok(None) };
    authorities.verify(certificates)?;
    let subject = Subject::of(first).ok_or("malformed certificate")?;
    if subject.common_name.is_empty() {
        return Ok(None);
    }
    let uid = match subject.uids.as_slice() {
        [] => String::new(),
        [uid] if !uid.is_empty() => uid.clone(),
        _ => return Err("the certificate must have one UID that is not empty, or none".to_owned()),
    };
    let fingerprint = digest(&SHA256, first);
    let fingerprint: String = fingerprint.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let credential = ("authentication.kubernetes.io/credential-id", format!("X509SHA256={fingerprint}"));
    let extra = BTreeMap::from([(credential.0.to_owned(), vec![credential.1])]);
    Ok(Some(User { name: subject.common_name, uid, groups: subject.organizations, extra }))
}

/// The user that a front proxy names.
fn proxied(
    headers: &HeaderMap,
    certificates: &[CertificateDer<'static>],
    authorities: &Authorities,
    names: &Headers,
) -> Answer {
    let Some(first) = certificates.first() else { return Ok(None) };
    authorities.verify(certificates)?;
    let subject = Subject::of(first).ok_or("malformed certificate")?;
    if !names.allowed_names.is_empty() && !names.allowed_names.contains(&subject.common_name) {
        return Err(format!("x509: subject with cn={} is not in the allowed list", subject.common_name));
    }
    let all = |named: &[String]| -> Vec<String> {
        let values = named.iter().flat_map(|name| headers.get_all(name.as_str()));
        values
            .filter_map(|value| value.to_str().ok())
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let first_of = |named: &[String]| all(named).into_iter().next().unwrap_or_default();
    let name = first_of(&names.username);
    if name.is_empty() {
        return Ok(None);
    }
    let mut extra = BTreeMap::<String, Vec<String>>::new();
    for prefix in &names.extra_prefix {
        let prefix = prefix.to_ascii_lowercase();
        for (header, value) in headers {
            let key = HeaderName::as_str(header).strip_prefix(&prefix).map(decoded);
            if let (Some(key), Ok(value)) = (key, value.to_str()) {
                extra.entry(key).or_default().push(value.to_owned());
            }
        }
    }
    Ok(Some(User { name, uid: first_of(&names.uid), groups: all(&names.group), extra }))
}

/// A key without its percent-encoding; as it is if that is malformed.
fn decoded(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let Some((digits, after)) = rest.split_at_checked(2) else { return key.to_owned() };
        let digits =
            std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return key.to_owned();
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}
