//! TLS handshakes.
//!
//! In: a TCP listener and the current configuration. Out: encrypted streams, with the address of the peer. Never: a
//! slow or silent client that delays others, up to 32 of them; or a log line above debug about data of strangers.

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Timeout of a handshake.
const DEADLINE: Duration = Duration::from_secs(5);
/// Concurrent handshakes; further clients wait in the kernel's queue. One handshake takes some 40 kB.
const MAX_HANDSHAKES: usize = 32;

type Connection = (TlsStream<TcpStream>, SocketAddr);

/// A listener for `axum::serve`.
pub(super) struct Listener {
    tcp: TcpListener,
    config: watch::Receiver<Arc<ServerConfig>>,
    handshakes: FuturesUnordered<BoxFuture<'static, Option<Connection>>>,
    deadline: Duration,
    max_handshakes: usize,
}

impl Listener {
    pub(super) fn new(tcp: TcpListener, config: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self {
            tcp,
            config,
            handshakes: FuturesUnordered::new(),
            deadline: DEADLINE,
            max_handshakes: MAX_HANDSHAKES,
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Connection {
        loop {
            let has_room = self.handshakes.len() < self.max_handshakes;
            tokio::select! {
                Some(done) = self.handshakes.next(), if !self.handshakes.is_empty() => {
                    if let Some(connection) = done {
                        return connection;
                    }
                }
                // The trait's own method waits out errors such as too many open files.
                (stream, peer) = axum::serve::Listener::accept(&mut self.tcp), if has_room => {
                    let acceptor = TlsAcceptor::from(self.config.borrow().clone());
                    self.handshakes.push(Box::pin(handshake(acceptor, stream, peer, self.deadline)));
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Duration,
) -> Option<Connection> {
    match tokio::time::timeout(deadline, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some((stream, peer)),
        Ok(Err(error)) => tracing::debug!(%peer, %error, "tls handshake failed"),
        Err(_) => tracing::debug!(%peer, ?deadline, "tls handshake took too long"),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{CertWatcher, Settings};
    use super::*;
    use tokio::io::AsyncReadExt;

    /// More silent clients than there is room for: all are disconnected in turn.
    #[tokio::test]
    async fn silent_clients_are_disconnected_and_make_room() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let server =
            CertWatcher::new(&Settings::new(folder.path().join("crt"), folder.path().join("key"))).unwrap();
        let mut listener = Listener::new(tcp, server.config.subscribe());
        (listener.deadline, listener.max_handshakes) = (Duration::from_millis(50), 2);
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let gone = async {
            for client in &mut clients {
                assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
            }
        };
        tokio::select! {
            gone = tokio::time::timeout(Duration::from_secs(60), gone) => gone.unwrap(),
            _ = axum::serve::Listener::accept(&mut listener) => panic!("no client completed a handshake"),
        }
    }
}
