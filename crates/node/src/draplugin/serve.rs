//! Serving a driver at its socket, with a registration beside it.
//!
//! In: the paths of the sockets, a driver. Out: both sockets are served, and made again when they vanish. Never: a
//! claim left out of an answer, or a socket taken from a process that serves it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response};

use super::wire::dra_plugin_server::{DraPlugin, DraPluginServer};
use super::{Driver, SERVICE, SOCKET, SocketPaths, wire};
use crate::pause::Pause;
use crate::pluginwatcher::{self, Info, Kind, Status};
use crate::socket::{Error, Own};
use crate::watch::{Hub, Names, Target};

/// The largest message; a pod has few claims.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Serves a driver until the future is dropped. That removes the sockets, so that the kubelet drops the driver.
/// `status` gets the state of the registration. While another process serves the driver, this one waits. Must be called
/// inside a tokio runtime.
///
/// # Errors
/// A socket cannot be made, for example because the folder of the registration is absent.
pub async fn run(
    paths: &SocketPaths,
    driver: Arc<impl Driver>,
    status: watch::Sender<Status>,
) -> Result<Infallible, Error> {
    let served = watch::Sender::new(false);
    let serving = served.subscribe();
    let hub = Hub::default();
    tokio::select! {
        end = serve(paths, driver, (&status, &served), &hub) => end,
        end = register(paths, &status, serving, &hub) => end,
    }
}

/// Keeps the driver registered while this process serves it, so that the kubelet reaches the service.
async fn register(
    paths: &SocketPaths,
    status: &watch::Sender<Status>,
    mut serving: watch::Receiver<bool>,
    hub: &Hub,
) -> Result<Infallible, Error> {
    let info = Info {
        kind: Kind::DraPlugin,
        name: paths.driver.clone(),
        endpoint: Some(paths.socket()),
        versions: vec![SERVICE.to_owned()],
    };
    let registration = paths.registration();
    loop {
        // The sender lives longer than this future, so waiting cannot fail.
        let _ = serving.wait_for(|serving| *serving).await;
        tokio::select! {
            end = pluginwatcher::run(&registration, info.clone(), status.clone(), hub) => return end,
            _ = serving.wait_for(|serving| !serving) => {}
        }
    }
}

async fn serve(
    paths: &SocketPaths,
    driver: Arc<impl Driver>,
    (status, served): (&watch::Sender<Status>, &watch::Sender<bool>),
    hub: &Hub,
) -> Result<Infallible, Error> {
    let path = paths.socket();
    let folder = path.parent().unwrap_or(&path);
    let failed = |source| Error::Make { path: path.clone(), source };
    let names = Names::Is(SOCKET.to_owned());
    let mut events = hub.subscribe(vec![Target { dir: folder.to_owned(), names, tag: () }]);
    let mut pause = Pause::new(&paths.driver);
    loop {
        std::fs::create_dir_all(folder).map_err(failed)?;
        let clash = || {
            served.send_replace(false);
            Status::clash(status, &path);
        };
        let (listener, own) = Own::alone(&path, &mut events, &mut pause, clash).await?;
        served.send_replace(true);
        let (began, rest) = (Instant::now(), pause.next());
        let service =
            DraPluginServer::new(Service(driver.clone())).max_decoding_message_size(MAX_MESSAGE_BYTES);
        // A dropped server leaves its connections open. A shutdown closes them, and the kubelet connects again.
        let (_alive, over) = oneshot::channel::<()>();
        let incoming = UnixListenerStream::new(listener);
        let over = async move { drop(over.await) };
        let server = Server::builder().add_service(service).serve_with_incoming_shutdown(incoming, over);
        let server = tokio::spawn(server);
        tokio::select! {
            // The server ends only when the listener breaks; the next round makes another one.
            _ = server => {}
            () = own.gone(&mut events) => {}
        }
        sleep(rest).await;
        pause.over(began);
    }
}

/// A driver as a service.
struct Service<D>(Arc<D>);

#[tonic::async_trait]
impl<D: Driver> DraPlugin for Service<D> {
    async fn node_prepare_resources(
        &self,
        request: Request<wire::NodePrepareResourcesRequest>,
    ) -> Result<Response<wire::NodePrepareResourcesResponse>, tonic::Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let answer = match self.0.prepare(&claim).await {
                Ok(devices) => wire::NodePrepareResourceResponse { devices, error: String::new() },
                Err(error) => {
                    wire::NodePrepareResourceResponse { devices: Vec::new(), error: non_empty(error) }
                }
            };
            claims.insert(claim.uid, answer);
        }
        Ok(Response::new(wire::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<wire::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<wire::NodeUnprepareResourcesResponse>, tonic::Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let error = self.0.unprepare(&claim).await.err().map(non_empty).unwrap_or_default();
            claims.insert(claim.uid, wire::NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(wire::NodeUnprepareResourcesResponse { claims }))
    }
}

/// An error with a text, since an empty one means success.
fn non_empty(error: String) -> String {
    if error.is_empty() { "failed for no known reason".to_owned() } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pluginwatcher::tests::wait_until;
    use crate::socket::Identity;
    use std::path::Path;
    use std::time::Duration;
    use tonic::transport::Endpoint;
    use wire::dra_plugin_client::DraPluginClient;

    struct Odd;

    impl Driver for Odd {
        async fn prepare(&self, claim: &wire::Claim) -> Result<Vec<wire::Device>, String> {
            match &*claim.uid {
                "bad" => Err("no such device".to_owned()),
                "silent" => Err(String::new()),
                uid => Ok(vec![wire::Device { device_name: uid.to_owned(), ..wire::Device::default() }]),
            }
        }

        async fn unprepare(&self, claim: &wire::Claim) -> Result<(), String> {
            self.prepare(claim).await.map(drop)
        }
    }

    async fn client(path: &Path) -> DraPluginClient<tonic::transport::Channel> {
        loop {
            let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
            match endpoint.connect().await {
                Ok(channel) => return DraPluginClient::new(channel),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    #[tokio::test]
    async fn every_claim_is_answered_and_the_socket_is_restored() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| root.path().join(name);
        std::fs::create_dir(folder("registry")).unwrap();
        let paths = SocketPaths {
            driver: "d.example".to_owned(),
            plugins: folder("plugins"),
            registry: folder("registry"),
        };
        let socket = paths.socket();
        let (status, _) = watch::channel(Status::Unseen);
        let running = tokio::spawn(async move { run(&paths, Arc::new(Odd), status).await.map(drop) });
        let claim = |uid: &str| wire::Claim { uid: uid.to_owned(), ..wire::Claim::default() };
        let claims = ["a", "bad", "silent"].map(claim).to_vec();
        let mut kubelet = client(&socket).await;
        let request = wire::NodePrepareResourcesRequest { claims: claims.clone() };
        let answer = kubelet.node_prepare_resources(request).await.unwrap().into_inner().claims;
        assert_eq!(answer.len(), 3);
        assert_eq!((answer["a"].devices[0].device_name.as_str(), answer["a"].error.as_str()), ("a", ""));
        assert_eq!(answer["bad"].error, "no such device");
        assert_eq!(answer["silent"].error, "failed for no known reason");
        let request = wire::NodeUnprepareResourcesRequest { claims };
        let answer = kubelet.node_unprepare_resources(request).await.unwrap().into_inner().claims;
        assert!(
            answer["a"].error.is_empty()
                && !answer["bad"].error.is_empty()
                && !answer["silent"].error.is_empty()
        );

        std::fs::remove_dir_all(folder("plugins")).unwrap();
        client(&socket).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        assert!(!socket.exists() && std::fs::read_dir(folder("registry")).unwrap().next().is_none());
    }

    #[tokio::test]
    async fn of_two_processes_one_serves_and_the_other_waits() {
        let root = tempfile::tempdir().unwrap();
        let folder = |name: &str| root.path().join(name);
        std::fs::create_dir(folder("registry")).unwrap();
        let paths = SocketPaths {
            driver: "d.example".to_owned(),
            plugins: folder("plugins"),
            registry: folder("registry"),
        };
        let start = || {
            let (paths, status) = (paths.clone(), watch::Sender::new(Status::Unseen));
            let updates = status.subscribe();
            (tokio::spawn(async move { run(&paths, Arc::new(Odd), status).await.map(drop) }), updates)
        };
        let (first, _) = start();
        let sockets = [paths.socket(), paths.registration().path()];
        client(&sockets[1]).await;
        let before = sockets.each_ref().map(|path| Identity::of(path));
        let (second, mut updates) = start();
        wait_until(&mut updates, |status| matches!(status, Status::Away(_))).await;
        let reason = format!("another process serves {}", sockets[0].display());
        assert_eq!(*updates.borrow(), Status::Away(reason));
        assert_eq!(sockets.each_ref().map(|path| Identity::of(path)), before);
        first.abort();
        wait_until(&mut updates, |status| *status == Status::Unseen).await;
        client(&sockets[0]).await;
        client(&sockets[1]).await;
        second.abort();
    }
}
