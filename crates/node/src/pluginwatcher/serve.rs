//! Serving a registration on a socket of its own, round after round.
//!
//! In: a seat, what the plugin says of itself. Out: the socket is there and answered, and is made again when it vanishes or the
//! kubelet refused: making it anew is how a plugin asks again. Never: the plugin's own service.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::{Info, Registrar, Seat, Status};
use crate::socket::{Error, Own};
use crate::watch::{Names, Target, Watcher, changed};

/// Between looks at the socket without an event.
const RECHECK: Duration = Duration::from_secs(10);
/// Between tries after the kubelet refused.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the registration in the kubelet's folder until the future is dropped, which takes the socket away and so tells the
/// kubelet that the plugin is gone. Must be called inside a tokio runtime.
///
/// # Errors
/// When the socket cannot be made, the folder being absent included.
pub async fn run(seat: &Seat, info: Info, status: watch::Sender<Status>) -> Result<Infallible, Error> {
    let names = Names::Is(seat.socket.clone());
    let mut watcher = Watcher::new(vec![Target { dir: seat.folder.clone(), names, tag: () }]).ok();
    loop {
        let (listener, own) = Own::bind(&seat.path())?;
        status.send_replace(Status::Unseen);
        let service = Registrar::new(info.clone(), status.clone()).server();
        let server =
            Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
        let mut said = status.subscribe();
        let refused = async {
            // The sender lives in the service, so waiting cannot fail.
            let _ = said.wait_for(|status| matches!(status, Status::Refused(_))).await;
            tokio::time::sleep(RETRY).await;
        };
        let gone = async {
            while own.is_there() {
                changed(&mut watcher, RECHECK).await;
            }
        };
        tokio::select! {
            // Ends by itself only when the listener breaks; the next round makes another.
            _ = server => tokio::time::sleep(RETRY).await,
            () = refused => {}
            () = gone => {}
        }
    }
}
