//! Serving and registering, round after round.
//!
//! In: a plugin and its seat. Out: the calls of the kubelet reach the plugin. A round is: make the socket, serve, register,
//! and stay until the plugin's or the kubelet's socket is not the one it was any more.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use super::wire::device_plugin_server::{DevicePlugin, DevicePluginServer};
use super::wire::registration_client::RegistrationClient;
use super::{Device, Error, MAX_SOCKET_PATH, Plugin, Seat, VERSION, wire};
use crate::watch::{Names, Target, Watcher};

/// A registration comes back only after the kubelet has dialled the plugin, for which it gives itself 10 s.
const DEADLINE: Duration = Duration::from_secs(15);
/// Between attempts to register while the kubelet's socket is there but nobody answers behind it.
const RETRY: Duration = Duration::from_millis(250);
/// Between looks at the sockets without an event: folders can be mounted over without one.
const RECHECK: Duration = Duration::from_secs(10);
/// The same when there are no events at all.
const BLIND: Duration = Duration::from_secs(1);

/// Serves the plugin and keeps it registered until the future is dropped, which tells the kubelet that the plugin is gone
/// and removes the socket. Must be called inside a tokio runtime.
///
/// # Errors
/// When the socket cannot be made or served. A kubelet that is away or refuses is asked again for ever.
pub async fn run<P: Plugin>(seat: &Seat, plugin: Arc<P>) -> Result<Infallible, Error> {
    let target = |name: &str| Target { dir: seat.folder.clone(), names: Names::Is(name.to_owned()), tag: () };
    let targets = vec![target(super::KUBELET_SOCKET), target(&seat.endpoint)];
    // The kernel may have no watch left (`fs.inotify.max_user_instances`): then looking now and then has to do.
    let mut watcher = Watcher::new(targets).ok();
    loop {
        let (listener, own) = Own::bind(&seat.socket())?;
        // Its end is the end of this round's streams.
        let (round, over) = watch::channel(());
        let service = DevicePluginServer::new(Service { plugin: Arc::clone(&plugin), over });
        let server =
            Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
        let stay = async {
            if let Some(kubelet) = register(seat, &*plugin, &mut watcher, &own).await {
                plugin.registered();
                while own.is_there() && identity(&seat.kubelet_socket()) == Some(kubelet) {
                    changed(&mut watcher, RECHECK).await;
                }
            }
        };
        tokio::select! {
            served = server => {
                served.map_err(|source| Error::Serve { path: seat.socket(), source })?;
            }
            () = stay => {}
        }
        drop(round);
    }
}

/// Registers as soon as the kubelet is there, and says behind which socket it was; `None` when our own socket went
/// meanwhile, so that there is nothing left to register.
async fn register(
    seat: &Seat,
    plugin: &impl Plugin,
    watcher: &mut Option<Watcher<()>>,
    own: &Own,
) -> Option<Identity> {
    loop {
        if !own.is_there() {
            return None;
        }
        let kubelet = identity(&seat.kubelet_socket());
        if kubelet.is_some() && matches!(tokio::time::timeout(DEADLINE, ask(seat, plugin)).await, Ok(Ok(())))
        {
            return kubelet;
        }
        let patience = if kubelet.is_some() { RETRY } else { RECHECK };
        changed(watcher, patience).await;
    }
}

async fn ask(seat: &Seat, plugin: &impl Plugin) -> Result<(), Status> {
    let path = seat.kubelet_socket();
    let text = path.to_str().ok_or_else(|| Status::internal("the kubelet's socket has no UTF-8 path"))?;
    let endpoint = Endpoint::from_shared(format!("unix://{text}"));
    let channel = async { endpoint?.connect().await };
    let channel = channel.await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = wire::RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: seat.endpoint.clone(),
        resource_name: seat.resource.clone(),
        options: Some(options(plugin)),
    };
    RegistrationClient::new(channel).register(request).await.map(drop)
}

/// Waits for an event, but no longer than this; a watcher that breaks is given up.
async fn changed(watcher: &mut Option<Watcher<()>>, patience: Duration) {
    let Some(watching) = watcher else { return tokio::time::sleep(patience.min(BLIND)).await };
    let seen = match tokio::time::timeout(patience, watching.changed()).await {
        Ok(changes) => changes,
        Err(_) => watching.recheck(),
    };
    if seen.is_err() {
        *watcher = None;
    }
}

fn options(plugin: &impl Plugin) -> wire::DevicePluginOptions {
    wire::DevicePluginOptions {
        pre_start_required: plugin.wants_pre_start(),
        get_preferred_allocation_available: plugin.prefers(),
    }
}

/// Which socket is at a path. File systems give the number of a removed inode to the next file, so its time counts too.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

fn identity(path: &Path) -> Option<Identity> {
    let found = fs::symlink_metadata(path).ok()?;
    Some(Identity { inode: found.ino(), seconds: found.mtime(), nanoseconds: found.mtime_nsec() })
}

/// The socket we made; removed when dropped, unless something else is there by then.
struct Own {
    path: PathBuf,
    identity: Option<Identity>,
}

impl Own {
    fn bind(path: &Path) -> Result<(UnixListener, Self), Error> {
        let text = path.to_str().filter(|text| text.starts_with('/') && text.len() <= MAX_SOCKET_PATH);
        if text.is_none() {
            return Err(Error::Path(path.to_owned()));
        }
        let failed = |source| Error::Socket { path: path.to_owned(), source };
        // What an earlier life left behind would keep us from binding.
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        Ok((listener, Self { path: path.to_owned(), identity: identity(path) }))
    }

    fn is_there(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.is_there() {
            // Gone between the look and now is as good.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// One round's server.
struct Service<P> {
    plugin: Arc<P>,
    over: watch::Receiver<()>,
}

#[tonic::async_trait]
impl<P: Plugin> DevicePlugin for Service<P> {
    type ListAndWatchStream = ReceiverStream<Result<wire::ListAndWatchResponse, Status>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<wire::Empty>,
    ) -> Result<Response<wire::DevicePluginOptions>, Status> {
        Ok(Response::new(options(&*self.plugin)))
    }

    async fn list_and_watch(
        &self,
        _: Request<wire::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(tell(self.plugin.devices(), self.over.clone(), sender));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        let prefer = |one: wire::ContainerPreferredAllocationRequest| {
            let size = usize::try_from(one.allocation_size).unwrap_or(0);
            let ids = self.plugin.prefer(one.available_device_i_ds, one.must_include_device_i_ds, size);
            wire::ContainerPreferredAllocationResponse { device_i_ds: ids }
        };
        let container_responses = request.into_inner().container_requests.into_iter().map(prefer).collect();
        Ok(Response::new(wire::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        let mut answer = wire::AllocateResponse::default();
        for one in request.into_inner().container_requests {
            answer.container_responses.push(self.plugin.allocate(one.devices_ids).await?);
        }
        Ok(Response::new(answer))
    }

    async fn pre_start_container(
        &self,
        request: Request<wire::PreStartContainerRequest>,
    ) -> Result<Response<wire::PreStartContainerResponse>, Status> {
        self.plugin.pre_start(request.into_inner().devices_ids).await?;
        Ok(Response::new(wire::PreStartContainerResponse {}))
    }
}

/// Sends the devices at once and after each change, until one of the three ends is gone.
async fn tell(
    mut devices: watch::Receiver<Vec<Device>>,
    mut over: watch::Receiver<()>,
    sender: mpsc::Sender<Result<wire::ListAndWatchResponse, Status>>,
) {
    loop {
        let list = devices.borrow_and_update().iter().map(Device::to_wire).collect();
        let told = sender.send(Ok(wire::ListAndWatchResponse { devices: list }));
        tokio::select! {
            told = told => if told.is_err() { return },
            _ = over.changed() => return,
        }
        tokio::select! {
            changed = devices.changed() => if changed.is_err() { return },
            _ = over.changed() => return,
            () = sender.closed() => return,
        }
    }
}
