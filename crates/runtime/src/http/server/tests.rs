//! Clients that do not behave.

use super::*;
use crate::http::{Endpoints, bind};
use crate::tls::{CertWatcher, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(600);
/// Limits that never apply.
const PATIENT: Limits =
    Limits { connections: 4, handshake: LONG, header: LONG, lifetime: LONG, header_bytes: 16 << 10 };

struct Server {
    address: SocketAddr,
    _stop: tokio_util::sync::DropGuard,
}

async fn start(limits: Limits, tls: Tls) -> Server {
    let listener = bind("0.0.0.0:0".parse().unwrap()).await.unwrap();
    let address = SocketAddr::new([127, 0, 0, 1].into(), listener.local_addr().unwrap().port());
    let token = CancellationToken::new();
    tokio::spawn(run(listener, Endpoints::default().router(), token.clone(), tls, limits));
    Server { address, _stop: token.drop_guard() }
}

impl Server {
    /// A connection from an address of this machine.
    async fn connect(&self, from: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from.into(), 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }
}

/// The status of the next answer; `None` if the connection ends without one.
async fn status(client: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 12];
    let read = client.read_exact(&mut head).await.ok()?;
    std::str::from_utf8(&head[..read]).ok()?.rsplit(' ').next()?.parse().ok()
}

async fn ask(client: &mut TcpStream) -> Option<u16> {
    client.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.ok()?;
    status(client).await
}

const HERE: [u8; 4] = [127, 0, 0, 1];
const FLOOD: [u8; 4] = [127, 0, 0, 2];

#[tokio::test]
async fn a_client_without_a_complete_header_is_disconnected() {
    let server = start(Limits { header: SHORT, ..PATIENT }, None).await;
    for sent in ["", "GET /livez HTTP/1.1\r\nHost: x\r\nX-More: "] {
        let mut client = server.connect(HERE).await;
        client.write_all(sent.as_bytes()).await.unwrap();
        assert_eq!(client.read(&mut [0; 512]).await.unwrap_or(0), 0, "{sent:?}");
    }
}

#[tokio::test]
async fn an_idle_client_is_disconnected() {
    let server = start(Limits { header: SHORT, ..PATIENT }, None).await;
    let mut client = server.connect(HERE).await;
    assert_eq!(ask(&mut client).await, Some(200));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"ok"));
}

#[tokio::test]
async fn a_body_that_never_comes_ends_with_the_connection() {
    let server = start(Limits { lifetime: SHORT, ..PATIENT }, None).await;
    let mut client = server.connect(HERE).await;
    client.write_all(b"PUT /log-level HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1").await.unwrap();
    assert_eq!(status(&mut client).await, None);
}

#[tokio::test]
async fn a_header_is_bounded() {
    let server = start(PATIENT, None).await;
    let mut client = server.connect(HERE).await;
    let header = format!("GET /livez HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(20 << 10));
    // The server may close before everything is written.
    let _ = client.write_all(header.as_bytes()).await;
    assert!(matches!(status(&mut client).await, Some(431) | None));
}

/// A flood of one address closes its own connections, whatever it does with them.
#[tokio::test]
async fn a_flood_displaces_itself() {
    for tls in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::new(folder.path().join("crt"), folder.path().join("key"));
        let config = CertWatcher::new(&settings).unwrap().config.subscribe();
        let server = start(PATIENT, tls.then_some(config)).await;
        let mut probe = server.connect(HERE).await;
        let mut flood = Vec::new();
        for _ in 0..20 {
            flood.push(server.connect(FLOOD).await);
        }
        for client in &mut flood[..17] {
            assert_eq!(client.read(&mut [0; 8]).await.unwrap_or(0), 0, "the oldest go");
        }
        if !tls {
            assert_eq!(ask(&mut probe).await, Some(200), "a quiet neighbour stays");
            for client in &mut flood[17..] {
                assert_eq!(ask(client).await, Some(200), "the newest stay");
            }
        }
    }
}

#[tokio::test]
async fn a_silent_handshake_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(folder.path().join("crt"), folder.path().join("key"));
    let config = CertWatcher::new(&settings).unwrap().config.subscribe();
    let server = start(Limits { handshake: SHORT, ..PATIENT }, Some(config)).await;
    let mut client = server.connect(HERE).await;
    assert_eq!(client.read(&mut [0; 8]).await.unwrap_or(0), 0);
}
