//! A guard that asks an API server of these tests.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::body::to_bytes;
use axum::routing::{get, post};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::http;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn client(&self, name: &str, group: &str) -> PeerCertificates {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap();
        PeerCertificates(Arc::new([signed.der().clone()]))
    }
}

/// An API server: jane may get /metrics, and no user anything else. It counts its reviews.
struct Server {
    url: String,
    client: Client,
    reviews: Arc<AtomicUsize>,
    _end: tokio_util::sync::DropGuard,
}

impl Server {
    async fn start(published: Value) -> Self {
        let reviews = Arc::new(AtomicUsize::new(0));
        let (of_tokens, of_access) = (Arc::clone(&reviews), Arc::clone(&reviews));
        let token = async move |Json(review): Json<Value>| {
            of_tokens.fetch_add(1, Ordering::Relaxed);
            let status = match review["spec"]["token"].as_str().unwrap() {
                "jane" => json!({ "authenticated": true, "user": { "username": "jane", "groups": ["g"] } }),
                "nobody" => json!({ "authenticated": false }),
                _ => json!({ "authenticated": false, "error": "no such token" }),
            };
            answer(&review, &status)
        };
        let access = async move |Json(review): Json<Value>| {
            of_access.fetch_add(1, Ordering::Relaxed);
            let (spec, asked) = (&review["spec"], json!({ "path": "/metrics", "verb": "get" }));
            let allowed = spec["user"] == "jane" && spec["nonResourceAttributes"] == asked;
            answer(&review, &json!({ "allowed": allowed, "reason": if allowed { "" } else { "not <you>" } }))
        };
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" }, "data": published });
        let router = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(token))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access))
            .route(
                "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
                get(|| async { Json(map) }),
            );
        let listener = http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let token = CancellationToken::new();
        tokio::spawn(http::serve(listener, router, token.clone()));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        Self { url, client, reviews, _end: token.drop_guard() }
    }

    fn settings(&self) -> Settings {
        Settings {
            authentication: Some(self.client.clone()),
            authorization: Some(self.client.clone()),
            always_allow_paths: vec!["/healthz".to_owned()],
            ..Settings::default()
        }
    }
}

fn answer(review: &Value, status: &Value) -> Json<Value> {
    let mut review = review.clone();
    review["status"] = status.clone();
    Json(review)
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// Status and message of an answer; 200 without one.
async fn told(
    guard: &Guard,
    lines: &[(&'static str, &str)],
    certificates: &PeerCertificates,
    path: &str,
) -> (u16, String) {
    let Some(refusal) = guard.refusal(("get", path), &headers(lines), certificates).await else {
        return (200, String::new());
    };
    let code = refusal.status().as_u16();
    let body = to_bytes(refusal.into_body(), 4096).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["code"], &body["kind"]), (&json!(code), &json!("Status")));
    (code, body["message"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn credentials_are_judged_as_kubernetes_components_do() {
    let (clients, proxies) = (Authority::new(), Authority::new());
    let server = Server::start(json!({
        "client-ca-file": clients.pem,
        "requestheader-client-ca-file": proxies.pem,
        "requestheader-allowed-names": "[\"proxy\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    }))
    .await;
    let guard = Guard::new(server.settings()).await.unwrap();
    let none = PeerCertificates::default();
    let jane = clients.client("jane", "g");
    let (master, stranger) = (clients.client("root", "system:masters"), Authority::new().client("jane", "g"));
    let (proxy, impostor) = (proxies.client("proxy", ""), proxies.client("impostor", ""));
    let cannot =
        |user: &str, path: &str| format!("forbidden: User \"{user}\" cannot get path \"{path}\": not <you>");
    let anonymous = cannot("system:anonymous", "/metrics");
    let wrong = || "Unauthorized".to_owned();
    let with = |token: &'static str| ("authorization", token);
    let user = |name: &'static str| ("x-remote-user", name);
    for (lines, certificates, path, code, message) in [
        (vec![], &none, "/metrics", 403, anonymous.clone()),
        (vec![], &none, "/healthz", 200, String::new()),
        (vec![with("Bearer jane")], &none, "/metrics", 200, String::new()),
        (vec![with("bearer  jane")], &none, "/metrics", 403, anonymous.clone()),
        (vec![with("Basic jane")], &none, "/metrics", 403, anonymous.clone()),
        (vec![with("Bearer jane")], &none, "/configz", 403, cannot("jane", "/configz")),
        (vec![with("Bearer jane")], &none, "/<x>", 403, cannot("jane", "/&lt;x&gt;")),
        (vec![with("Bearer other")], &none, "/metrics", 401, wrong()),
        (vec![with("Bearer nobody")], &none, "/healthz", 401, wrong()),
        (vec![], &jane, "/metrics", 200, String::new()),
        (vec![], &jane, "/configz", 403, cannot("jane", "/configz")),
        (vec![], &master, "/configz", 200, String::new()),
        (vec![], &stranger, "/healthz", 401, wrong()),
        (vec![with("Bearer jane")], &stranger, "/metrics", 200, String::new()),
        (vec![user("jane")], &proxy, "/metrics", 200, String::new()),
        (vec![user("joe")], &proxy, "/metrics", 403, cannot("joe", "/metrics")),
        (vec![user("jane"), ("x-remote-group", "system:masters")], &proxy, "/configz", 200, String::new()),
        (vec![user("jane")], &impostor, "/metrics", 401, wrong()),
        (vec![user("jane")], &none, "/metrics", 403, anonymous.clone()),
        (vec![user("joe")], &jane, "/metrics", 200, String::new()),
    ] {
        let found = told(&guard, &lines, certificates, path).await;
        assert_eq!(found, (code, message), "{lines:?} {path}");
    }
}

#[tokio::test]
async fn users_have_all_that_their_credential_says() {
    let proxies = Authority::new();
    let server = Server::start(json!({})).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), &proxies.pem).unwrap();
    let names = trust::Headers { uid: vec!["X-Remote-Uid".to_owned()], ..trust::Headers::default() };
    let request_header = Some(RequestHeader { ca: ca.path().to_owned(), headers: names });
    let settings = Settings { request_header, client_ca: Some(ca.path().to_owned()), ..server.settings() };
    let guard = Guard::new(settings).await.unwrap();
    let trusted = guard.trust.current();
    let certificates = proxies.client("name", "group");
    let user = async |lines: &[(&'static str, &str)]| {
        guard.authentication.user(&headers(lines), &certificates.0, &trusted).await.unwrap()
    };
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let own = user(&[]).await;
    assert_eq!((own.name.as_str(), own.groups), ("name", texts(&["group", "system:authenticated"])));
    let credential = &own.extra["authentication.kubernetes.io/credential-id"][0];
    assert!(credential.starts_with("X509SHA256=") && credential.len() == 11 + 64, "{credential}");
    let named = user(&[
        ("x-remote-user", "jane"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-acme.com%2Fteam", "one"),
        ("x-remote-extra-half%2", "two"),
    ])
    .await;
    let extra =
        [("acme.com/team", "one"), ("half%2", "two")].map(|(key, text)| (key.to_owned(), texts(&[text])));
    let groups = texts(&["a", "b", "system:authenticated"]);
    assert_eq!(named, User { name: "jane".to_owned(), uid: "7".to_owned(), groups, extra: extra.into() });
}

#[tokio::test]
async fn answers_are_remembered_and_errors_are_not() {
    let server = Server::start(json!({})).await;
    let guard = Guard::new(server.settings()).await.unwrap();
    let none = PeerCertificates::default();
    for (token, path, twice, reviews) in [
        ("Bearer jane", "/metrics", 200, 2),
        ("Bearer jane", "/other", 403, 1),
        ("Bearer nobody", "/metrics", 401, 1),
        ("Bearer other", "/metrics", 401, 2),
    ] {
        let before = server.reviews.load(Ordering::Relaxed);
        for _ in 0..2 {
            assert_eq!(
                told(&guard, &[("authorization", token)], &none, path).await.0,
                twice,
                "{token} {path}"
            );
        }
        assert_eq!(server.reviews.load(Ordering::Relaxed) - before, reviews, "{token} {path}");
    }
}

#[tokio::test]
async fn nobody_to_ask_means_no() {
    let guard = Guard::new(Settings::default()).await.unwrap();
    let none = PeerCertificates::default();
    let told = told(&guard, &[("authorization", "Bearer jane")], &none, "/metrics").await;
    assert_eq!(told, (403, "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"".to_owned()));
}

#[tokio::test]
async fn a_question_that_fails_means_no() {
    let server = Server::start(json!({})).await;
    let gone =
        Client::try_from(kube::Config::new(format!("{}/nowhere", server.url).parse().unwrap())).unwrap();
    let settings = Settings { authorization: Some(gone), ..server.settings() };
    let guard = Guard::new(settings).await.unwrap();
    let refusal =
        guard.refusal(("get", "/metrics"), &headers(&[]), &PeerCertificates::default()).await.unwrap();
    assert_eq!(refusal.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = to_bytes(refusal.into_body(), 4096).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.starts_with("Internal Server Error: \"/metrics\": "), "{text}");
}

#[tokio::test]
async fn authorities_that_are_not_found_are_tolerated_or_not() {
    let whole = Authority::new().pem;
    let server = Server::start(json!({ "client-ca-file": whole })).await;
    let missing =
        "ConfigMap kube-system/extension-apiserver-authentication: requestheader-client-ca-file is missing";
    for (lookup, wanted) in
        [(Lookup::Tolerant, Ok(true)), (Lookup::Required, Err(missing)), (Lookup::Skipped, Ok(false))]
    {
        let guard = Guard::new(Settings { lookup, ..server.settings() }).await;
        let found =
            guard.map(|guard| guard.trust.current().clients.is_some()).map_err(|error| error.to_string());
        assert_eq!(found, wanted.map_err(str::to_owned), "{lookup:?}");
    }
    let settings = Settings { client_ca: Some("/no/such".into()), ..server.settings() };
    assert!(Guard::new(settings).await.unwrap_err().to_string().starts_with("/no/such: "));
}
