//! A real server with real clients, while its files change.

use crate::{soon, until};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use runtime::http::{Endpoints, bind};
use runtime::tls::{CertWatcher, ClientAuth, Policy, Settings, serve};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

const EVERY: Duration = Duration::from_millis(20);

/// A certificate and its key, PEM.
struct Pair {
    certificate: String,
    key: String,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self) -> Pair {
        let mut params =
            CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned).to_vec()).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        Pair { certificate: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

impl Pair {
    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }

    fn write(&self, folder: &Path) {
        std::fs::write(folder.join("tls.crt"), &self.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), &self.key).unwrap();
    }
}

/// Takes whatever certificate the server shows, for a look at it.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client and its settings.
#[derive(Default)]
struct Client<'a> {
    /// The authority that must have signed the server's certificate; any if absent.
    trust: Option<CertificateDer<'static>>,
    identity: Option<&'a Pair>,
    versions: Option<&'static SupportedProtocolVersion>,
}

/// A response, as the client saw it.
#[derive(Debug)]
struct Answer {
    certificate: CertificateDer<'static>,
    suite: &'static str,
    protocol: String,
    status: u16,
    body: String,
}

impl Client<'_> {
    fn trusting(certificate: &str) -> Self {
        let trust = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        Self { trust: Some(trust), ..Self::default() }
    }

    fn config(&self) -> ClientConfig {
        let provider = Arc::new(default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match &self.trust {
            None => Arc::new(Anything),
            Some(certificate) => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate.clone()).unwrap();
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .build()
                    .unwrap()
            }
        };
        let versions = self.versions.map_or(vec![&TLS13, &TLS12], |version| vec![version]);
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions).unwrap();
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![pair.der()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    /// One request on a connection of its own.
    async fn ask(&self, address: SocketAddr, request: &str) -> std::io::Result<Answer> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(self.config())).connect(name, stream).await?;
        let head = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let session = stream.get_ref().1;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Ok(Answer {
            certificate: session.peer_certificates().unwrap()[0].clone().into_owned(),
            suite: session.negotiated_cipher_suite().unwrap().suite().as_str().unwrap(),
            protocol: String::from_utf8(session.alpn_protocol().unwrap_or_default().to_vec()).unwrap(),
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            body: body.to_owned(),
        })
    }

    async fn is_served(&self, address: SocketAddr) -> bool {
        self.ask(address, "GET /healthz").await.is_ok_and(|answer| answer.status == 200)
    }
}

struct Running {
    address: SocketAddr,
    _stop: DropGuard,
    token: CancellationToken,
    task: JoinHandle<Result<(), std::convert::Infallible>>,
}

impl Running {
    async fn start(settings: &Settings) -> Self {
        Self::of(CertWatcher::new(settings).unwrap().reload_every(EVERY)).await
    }

    async fn of(server: CertWatcher) -> Self {
        let mut registry = Default::default();
        server.register(&mut registry);
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = CancellationToken::new();
        let task = tokio::spawn(serve(listener, Endpoints::new(registry).router(), token.clone(), server));
        Self { address, _stop: token.clone().drop_guard(), token, task }
    }

    async fn certificate(&self) -> CertificateDer<'static> {
        soon("an answer", Client::default().ask(self.address, "GET /healthz")).await.unwrap().certificate
    }

    async fn until_served(&self, pair: &Pair) {
        until("the new certificate", async || (self.certificate().await == pair.der()).then_some(())).await;
    }

    /// A counter of `/metrics`.
    async fn count(&self, name: &str) -> u64 {
        let body = Client::default().ask(self.address, "GET /metrics").await.unwrap().body;
        let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {body}")).parse().unwrap()
    }

    /// Waits until the files were read and refused once more.
    async fn until_refused(&self) {
        let name = "certwatcher_read_certificate_errors_total";
        let before = self.count(name).await;
        until("a reading that fails", async || (self.count(name).await > before).then_some(())).await;
    }
}

fn settings(folder: &Path) -> Settings {
    Settings::new(folder.join("tls.crt"), folder.join("tls.key"))
}

#[tokio::test]
async fn a_client_that_verifies_is_served_http_1_1() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("one");
    let pair = authority.sign();
    pair.write(folder.path());
    let running = Running::start(&settings(folder.path())).await;
    let client = Client::trusting(&authority.pem);
    let answer = soon("an answer", client.ask(running.address, "GET /healthz")).await.unwrap();
    assert_eq!((answer.status, answer.body.as_str(), answer.protocol.as_str()), (200, "ok", "http/1.1"));
    // Without the peer's address this would be a 500.
    let answer = soon("an answer", client.ask(running.address, "PUT /log-level")).await.unwrap();
    assert_eq!(answer.status, 404);
    assert!(!Client::trusting(&Authority::new("two").pem).is_served(running.address).await);
    let reads = running.count("certwatcher_read_certificate_total").await;
    until("more readings", async || {
        (running.count("certwatcher_read_certificate_total").await > reads).then_some(())
    })
    .await;
    assert_eq!(running.count("certwatcher_read_certificate_errors_total").await, 0);
    running.token.cancel();
    soon("the end", running.task).await.unwrap().unwrap();
}

/// With a self-signed certificate and with one from files, and before the files are read again.
#[tokio::test]
async fn a_policy_that_changes_is_followed() {
    for from_files in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        if from_files {
            Authority::new("one").sign().write(folder.path());
        }
        let (sender, policies) = tokio::sync::watch::channel(Policy::default());
        let server =
            CertWatcher::new(&settings(folder.path())).unwrap().reload_every(Duration::from_secs(3600));
        let running = Running::of(server.follow(policies)).await;
        let old = Client { versions: Some(&TLS12), ..Client::default() };
        assert!(old.is_served(running.address).await);
        sender.send_replace(Policy::parse("VersionTLS13", "").unwrap());
        until("an end of 1.2", async || (!old.is_served(running.address).await).then_some(())).await;
        let new = Client { versions: Some(&TLS13), ..Client::default() };
        assert!(new.is_served(running.address).await);
        sender.send_replace(Policy::default());
        until("1.2 again", async || old.is_served(running.address).await.then_some(())).await;
    }
}

#[tokio::test]
async fn changed_files_are_served_and_a_mismatch_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, path) = (Authority::new("one"), folder.path());
    let (old, new) = (authority.sign(), authority.sign());
    old.write(path);
    let running = Running::start(&settings(path)).await;
    assert_eq!(running.certificate().await, old.der());
    // One file after the other, with half a key in between.
    std::fs::write(path.join("tls.crt"), &new.certificate).unwrap();
    running.until_refused().await;
    std::fs::write(path.join("tls.key"), &new.key[..new.key.len() / 2]).unwrap();
    running.until_refused().await;
    assert_eq!(running.certificate().await, old.der());
    std::fs::write(path.join("tls.key"), &new.key).unwrap();
    running.until_served(&new).await;
    std::fs::remove_file(path.join("tls.key")).unwrap();
    running.until_refused().await;
    assert_eq!(running.certificate().await, new.der());
}

#[tokio::test]
async fn a_directory_swapped_like_a_secret_volume_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, path) = (Authority::new("one"), folder.path());
    let (old, new) = (authority.sign(), authority.sign());
    for (name, pair) in [("..1", &old), ("..2", &new)] {
        std::fs::create_dir(path.join(name)).unwrap();
        pair.write(&path.join(name));
    }
    symlink("..1", path.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), path.join(name)).unwrap();
    }
    let running = Running::start(&settings(path)).await;
    assert_eq!(running.certificate().await, old.der());
    symlink("..2", path.join("..data_tmp")).unwrap();
    std::fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
    running.until_served(&new).await;
}

#[tokio::test]
async fn without_files_a_self_signed_certificate_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later");
    let running = Running::start(&settings(&path)).await;
    let own = running.certificate().await;
    let verifying = Client { trust: Some(own.clone()), ..Client::default() };
    assert!(verifying.is_served(running.address).await, "it is for localhost");
    running.until_refused().await;
    assert_eq!(running.certificate().await, own);
    let pair = Authority::new("one").sign();
    std::fs::create_dir(&path).unwrap();
    pair.write(&path);
    running.until_served(&pair).await;
}

#[tokio::test]
async fn clients_need_a_certificate_of_the_current_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Authority::new("one"), Authority::new("two"));
    one.sign().write(folder.path());
    let authorities = folder.path().join("ca.crt");
    std::fs::write(&authorities, &one.pem).unwrap();
    let clients = Some(ClientAuth::File(authorities.clone()));
    let running = Running::start(&Settings { clients, ..settings(folder.path()) }).await;
    let (of_one, of_two) = (one.sign(), two.sign());
    let let_in = async |identity| {
        soon("an answer", Client { identity, ..Client::default() }.is_served(running.address)).await
    };
    assert!(!let_in(None).await && !let_in(Some(&of_two)).await && let_in(Some(&of_one)).await);
    std::fs::write(&authorities, &two.pem).unwrap();
    until("the other authority", async || let_in(Some(&of_two)).await.then_some(())).await;
    assert!(!let_in(None).await && !let_in(Some(&of_one)).await);
}

#[tokio::test]
async fn the_systems_authorities_refuse_self_made_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("one");
    authority.sign().write(folder.path());
    let settings = Settings { clients: Some(ClientAuth::System), ..settings(folder.path()) };
    if let Err(error) = CertWatcher::new(&settings) {
        assert!(error.to_string().contains("the system has no authorities"), "{error}");
        return;
    }
    let running = Running::start(&settings).await;
    let own = authority.sign();
    for identity in [None, Some(&own)] {
        assert!(!Client { identity, ..Client::default() }.is_served(running.address).await);
    }
}

#[tokio::test]
async fn policies_hold() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new("one").sign().write(folder.path());
    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    let any12 = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let any13 = "TLS13_AES_256_GCM_SHA384";
    // minimum version, suites: what a client of 1.2 gets, and one of 1.3
    let table = [
        ("", "", Some(any12), any13),
        ("VersionTLS10", "", Some(any12), any13),
        ("VersionTLS12", suite, Some(suite), any13),
        ("VersionTLS12", "TLS_AES_128_GCM_SHA256", None, any13),
        ("VersionTLS13", suite, None, any13),
    ];
    for (version, suites, want12, want13) in table {
        let policy = Policy::parse(version, suites).unwrap();
        let running = Running::start(&Settings { policy, ..settings(folder.path()) }).await;
        let suite = async |version| {
            let client = Client { versions: Some(version), ..Client::default() };
            soon("an answer", client.ask(running.address, "GET /healthz"))
                .await
                .ok()
                .map(|answer| answer.suite)
        };
        assert_eq!(
            (suite(&TLS12).await, suite(&TLS13).await),
            (want12, Some(want13)),
            "{version:?} {suites:?}"
        );
    }
}

#[test]
fn unusable_files_are_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let authority = Authority::new("one");
    let (one, two) = (authority.sign(), authority.sign());
    let refused = |clients: Option<ClientAuth>| {
        let error =
            CertWatcher::new(&Settings { clients, ..settings(folder.path()) }).unwrap_err().to_string();
        assert!(!error.contains("PRIVATE") && !error.contains(two.key.lines().nth(1).unwrap()), "{error}");
        error
    };
    Pair { certificate: one.certificate.clone(), key: two.key.clone() }.write(folder.path());
    let want = format!(
        "tls: certificate {} and key {}: the key is not the certificate's",
        at("tls.crt"),
        at("tls.key")
    );
    assert_eq!(refused(None), want);
    Pair { certificate: "x".to_owned(), key: two.key.clone() }.write(folder.path());
    assert_eq!(refused(None), format!("tls: {}: no certificate in PEM form", at("tls.crt")));
    one.write(folder.path());
    let clients = ClientAuth::File(folder.path().join("ca.crt"));
    assert_eq!(refused(Some(clients)), format!("tls: {}: no such file", at("ca.crt")));
}
