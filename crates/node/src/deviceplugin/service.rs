//! The server of one round.
//!
//! In: calls of the kubelet. Out: the plugin's answers, the number of lists that the kubelet listens to. Never: a
//! decision about devices, or a message larger than a kubelet has reason to send.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::wire::device_plugin_server::{DevicePlugin, DevicePluginServer};
use super::{Device, Devices, Plugin, wire};

/// The largest message: the names of 16,000 devices, twice.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The most containers of one call; the kubelet sends one.
const MAX_CONTAINERS: usize = 64;

/// The lists of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// Lists that the kubelet listens to now.
    pub(super) open: usize,
    /// Lists that it has ever listened to.
    pub(super) opened: u64,
}

/// The service of one round.
pub(super) struct Service<P> {
    plugin: Arc<P>,
    /// The lists end with its sender.
    over: watch::Receiver<()>,
    lists: watch::Sender<Lists>,
}

/// One list that the kubelet listens to.
struct Open(watch::Sender<Lists>);

impl Open {
    fn new(lists: watch::Sender<Lists>) -> Self {
        lists.send_modify(|lists| {
            lists.open += 1;
            lists.opened += 1;
        });
        Self(lists)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|lists| lists.open = lists.open.saturating_sub(1));
    }
}

impl<P: Plugin> Service<P> {
    /// The server of a plugin. Lists end with the sender of `over`, and are counted in `lists`.
    pub(super) fn server(
        plugin: Arc<P>,
        over: watch::Receiver<()>,
        lists: watch::Sender<Lists>,
    ) -> DevicePluginServer<Self> {
        DevicePluginServer::new(Self { plugin, over, lists }).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// The optional calls that the plugin supports.
pub(super) fn options(plugin: &impl Plugin) -> wire::DevicePluginOptions {
    wire::DevicePluginOptions {
        pre_start_required: plugin.wants_pre_start(),
        get_preferred_allocation_available: plugin.prefers(),
    }
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
        let open = Open::new(self.lists.clone());
        tokio::spawn(send_devices(self.plugin.devices(), self.over.clone(), sender, open));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<wire::PreferredAllocationRequest>,
    ) -> Result<Response<wire::PreferredAllocationResponse>, Status> {
        let mut answer = wire::PreferredAllocationResponse::default();
        for one in bounded(request.into_inner().container_requests)? {
            let size = usize::try_from(one.allocation_size).map_err(|_| {
                let size = one.allocation_size;
                Status::invalid_argument(format!("allocation size {size}: allowed are 0 and more"))
            })?;
            let ids = self.plugin.prefer(one.available_device_i_ds, one.must_include_device_i_ds, size)?;
            let chosen = wire::ContainerPreferredAllocationResponse { device_i_ds: ids };
            answer.container_responses.push(chosen);
        }
        Ok(Response::new(answer))
    }

    async fn allocate(
        &self,
        request: Request<wire::AllocateRequest>,
    ) -> Result<Response<wire::AllocateResponse>, Status> {
        let mut answer = wire::AllocateResponse::default();
        for one in bounded(request.into_inner().container_requests)? {
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

/// Refuses requests for more than [`MAX_CONTAINERS`] containers, as each costs an answer.
fn bounded<T>(requests: Vec<T>) -> Result<Vec<T>, Status> {
    match requests.len() {
        0..=MAX_CONTAINERS => Ok(requests),
        many => {
            Err(Status::invalid_argument(format!("{many} containers: allowed are at most {MAX_CONTAINERS}")))
        }
    }
}

/// Sends the devices at once and after each change, until the plugin, the round or the receiver ends.
async fn send_devices(
    mut devices: watch::Receiver<impl Devices>,
    mut over: watch::Receiver<()>,
    sender: mpsc::Sender<Result<wire::ListAndWatchResponse, Status>>,
    _open: Open,
) {
    loop {
        let list = devices.borrow_and_update().list().map(Device::into_wire).collect();
        let sent = sender.send(Ok(wire::ListAndWatchResponse { devices: list }));
        tokio::select! {
            sent = sent => if sent.is_err() { return },
            _ = over.changed() => return,
        }
        tokio::select! {
            changed = devices.changed() => if changed.is_err() { return },
            _ = over.changed() => return,
            () = sender.closed() => return,
        }
    }
}
