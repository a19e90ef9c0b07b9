//! Serving a registration at a socket of its own.
//!
//! In: the path of the socket, the description of the plugin. Out: a served socket, which is made again when it
//! vanishes, and after a refusal, as the kubelet then tries again. Never: the service of the plugin itself, or a socket
//! taken from a process that serves it.

use std::convert::Infallible;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::{Info, Registrar, SocketPaths, Status};
use crate::pause::Pause;
use crate::socket::{Error, Own};
use crate::watch::{Hub, Names, Target};

/// Keeps the registration in the kubelet's folder until the future is dropped. That removes the socket, so that the
/// kubelet drops the plugin. While another process serves the socket, this one waits. `hub` has the file events.
/// Must be called inside a tokio runtime.
///
/// # Errors
/// The socket cannot be made, for example because the folder is absent.
pub async fn run(
    paths: &SocketPaths,
    info: Info,
    status: watch::Sender<Status>,
    hub: &Hub,
) -> Result<Infallible, Error> {
    let (path, names) = (paths.path(), Names::Is(paths.socket.clone()));
    let mut events = hub.subscribe(vec![Target { dir: paths.folder.clone(), names, tag: () }]);
    let mut pause = Pause::new(&info.name);
    loop {
        let clash = || Status::clash(&status, &path);
        let (listener, own) = Own::alone(&path, &mut events, &mut pause, clash).await?;
        status.send_replace(Status::Unseen);
        let (began, rest) = (Instant::now(), pause.next());
        let service = Registrar::new(info.clone(), status.clone()).server();
        let server =
            Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
        let mut updates = status.subscribe();
        let over = async {
            tokio::select! {
                // The sender lives in the service, so waiting cannot fail.
                _ = updates.wait_for(|status| matches!(status, Status::Refused(_))) => {}
                () = own.gone(&mut events) => {}
            }
            sleep(rest).await;
        };
        tokio::select! {
            // The server ends only when the listener breaks; the next round makes another one.
            _ = server => sleep(rest).await,
            () = over => {}
        }
        pause.over(began);
    }
}
