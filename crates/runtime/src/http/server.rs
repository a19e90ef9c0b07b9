//! Connections of a server, bounded in number, size and time.
//!
//! In: a listener, routes, the TLS configuration if there is one. Out: answers. Never: a client that keeps others out,
//! however many connections it opens, and however slowly or silently it talks.
//!
//! A connection beyond the limit closes an older one of the address that has the most, so that a flood closes its own
//! connections, and a probe from another address is answered.

use super::DRAIN;
use crate::delegated_auth::PeerCertificates;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections, those in a TLS handshake included. Each takes some 60 kB at most.
    pub connections: usize,
    /// The time for a TLS handshake.
    pub handshake: Duration,
    /// The time in which a client sends the next request's header: silent and idle clients are disconnected.
    pub header: Duration,
    /// The time after which a connection takes no further request. One under way has two seconds more: it bounds slow
    /// readers and slow bodies.
    pub lifetime: Duration,
    /// The size of a request's header.
    pub header_bytes: usize,
}

impl Limits {
    /// Those of endpoints for probes and scrapers.
    pub const DEFAULT: Self = Self {
        connections: 64,
        handshake: Duration::from_secs(5),
        header: Duration::from_secs(5),
        lifetime: Duration::from_secs(60),
        header_bytes: 16 << 10,
    };
}

/// The TLS configuration of new connections; `None`: plain text.
pub(crate) type Tls = Option<watch::Receiver<Arc<ServerConfig>>>;

/// Serves until `token` is cancelled, then gives requests under way [`DRAIN`].
pub(crate) async fn run(
    mut listener: TcpListener,
    router: Router,
    token: CancellationToken,
    tls: Tls,
    limits: Limits,
) {
    let mut open = Connections::default();
    loop {
        tokio::select! {
            () = token.cancelled() => break,
            () = open.ended() => {}
            // The trait's method waits out errors such as too many open files.
            (stream, peer) = Listener::accept(&mut listener) => {
                if open.by_age.len() >= limits.connections {
                    open.close_one();
                }
                let tls = tls.as_ref().map(|config| TlsAcceptor::from(config.borrow().clone()));
                let client = Client { peer, limits, router: router.clone(), token: token.clone() };
                open.add(peer.ip(), client.serve(stream, tls));
            }
        }
    }
    drop(listener);
    let drained = async {
        while !open.by_age.is_empty() {
            open.ended().await;
        }
    };
    // Dropping the rest ends it.
    let _ = timeout(DRAIN, drained).await;
}

/// The open connections.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// Oldest first.
    by_age: Vec<(IpAddr, AbortHandle)>,
}

impl Connections {
    fn add(&mut self, peer: IpAddr, connection: impl Future<Output = ()> + Send + 'static) {
        let handle = self.tasks.spawn(connection);
        self.by_age.push((peer, handle));
    }

    /// Returns when a connection has ended; never while none is open.
    async fn ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => return std::future::pending().await,
        };
        self.by_age.retain(|(_, handle)| handle.id() != id);
    }

    /// Closes the oldest connection of the address that has the most.
    fn close_one(&mut self) {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for (peer, _) in &self.by_age {
            *counts.entry(*peer).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let oldest = self.by_age.iter().position(|(peer, _)| counts.get(peer).copied() == most);
        if let Some(oldest) = oldest {
            let (peer, handle) = self.by_age.remove(oldest);
            tracing::debug!(%peer, "too many connections; closing the oldest of this client");
            handle.abort();
        }
    }
}

/// One client.
struct Client {
    peer: SocketAddr,
    limits: Limits,
    router: Router,
    token: CancellationToken,
}

impl Client {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let peer = self.peer;
        let Some(tls) = tls else { return self.answer(stream, PeerCertificates::default()).await };
        match timeout(self.limits.handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let shown = PeerCertificates(shown.iter().map(|one| one.clone().into_owned()).collect());
                self.answer(stream, shown).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "tls handshake failed"),
            Err(_) => tracing::debug!(%peer, "tls handshake took too long"),
        }
    }

    /// Answers requests until the client goes, is too slow, its time is over, or the server stops.
    async fn answer(&self, stream: impl AsyncRead + AsyncWrite + Unpin, certificates: PeerCertificates) {
        let router =
            self.router.clone().layer(Extension(ConnectInfo(self.peer))).layer(Extension(certificates));
        let service = TowerToHyperService::new(router.into_service::<Incoming>());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header)
            .max_buf_size(self.limits.header_bytes)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let peer = self.peer;
        let is_over = timeout(self.limits.lifetime, self.token.cancelled());
        let result = tokio::select! {
            result = connection.as_mut() => Ok(result),
            _ = is_over => {
                connection.as_mut().graceful_shutdown();
                timeout(DRAIN, connection).await
            }
        };
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%peer, %error, "a connection failed"),
            Err(_) => tracing::debug!(%peer, "closed a connection amid a request after its longest time"),
        }
    }
}

#[cfg(test)]
mod tests;
