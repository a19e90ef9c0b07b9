//! Serving a registration on a socket of its own, round after round.
//!
//! In: the path of the socket, what the plugin says of itself. Out: the socket is there and answered, and is made again when it vanishes or the
//! kubelet refused: making it anew is how a plugin asks again. Never: the plugin's own service, or a socket taken from who serves it.

use std::convert::Infallible;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::{Info, Registrar, SocketPaths, Status};
use crate::pause::Pause;
use crate::socket::{Error, Own};
use crate::watch::{Names, Target, Watcher};

/// Keeps the registration in the kubelet's folder until the future is dropped, which takes the socket away and so tells the
/// kubelet that the plugin is gone. While another process serves the socket it is left to that. Must be called inside a tokio runtime.
///
/// # Errors
/// When the socket cannot be made, the folder being absent included.
pub async fn run(
    paths: &SocketPaths,
    info: Info,
    status: watch::Sender<Status>,
) -> Result<Infallible, Error> {
    let (path, names) = (paths.path(), Names::Is(paths.socket.clone()));
    let mut watcher = Watcher::new(vec![Target { dir: paths.folder.clone(), names, tag: () }]).ok();
    let mut pause = Pause::new(&info.name);
    loop {
        let clash = || Status::clash(&status, &path);
        let (listener, own) = Own::alone(&path, &mut watcher, &mut pause, clash).await?;
        status.send_replace(Status::Unseen);
        let (began, rest) = (Instant::now(), pause.next());
        let service = Registrar::new(info.clone(), status.clone()).server();
        let server =
            Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
        let mut said = status.subscribe();
        let over = async {
            tokio::select! {
                // The sender lives in the service, so waiting cannot fail.
                _ = said.wait_for(|status| matches!(status, Status::Refused(_))) => {}
                () = own.gone(&mut watcher) => {}
            }
            sleep(rest).await;
        };
        tokio::select! {
            // Ends by itself only when the listener breaks; the next round makes another.
            _ = server => sleep(rest).await,
            () = over => {}
        }
        pause.over(began);
    }
}
