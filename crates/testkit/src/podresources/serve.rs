//! The gRPC service, and the relay its bytes pass through.

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy, duplex, split};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status};

use super::wire::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use super::wire::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse,
};
use super::{Fault, State, lock};

const CHUNK: usize = 16 << 10;

pub(super) async fn serve(
    listener: std::os::unix::net::UnixListener,
    shared: Arc<Mutex<State>>,
) -> anyhow::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let (sender, incoming) = mpsc::unbounded_channel::<io::Result<DuplexStream>>();
    let service = PodResourcesListerServer::new(Service(Arc::clone(&shared)));
    let server = tonic::transport::Server::builder()
        .add_service(service.max_encoding_message_size(usize::MAX))
        .serve_with_incoming(UnboundedReceiverStream::new(incoming));
    let accept = async {
        loop {
            let (outer, _) = listener.accept().await?;
            let (near, far) = duplex(CHUNK);
            tokio::spawn(relay(outer, near, Arc::clone(&shared)));
            let _ = sender.send(Ok(far));
        }
    };
    tokio::select! {
        served = server => Ok(served?),
        failed = accept => failed,
    }
}

/// Carries bytes between a caller and the service until one of them, or a fault, ends it.
async fn relay(mut caller: UnixStream, service: DuplexStream, shared: Arc<Mutex<State>>) -> io::Result<()> {
    let (mut from_caller, mut to_caller) = caller.split();
    let (mut from_service, mut to_service) = split(service);
    let answers = async {
        let mut buffer = vec![0; CHUNK];
        let mut sent = 0;
        loop {
            let read = from_service.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            let fault = lock(&shared).fault.clone();
            match fault {
                Fault::Cut(bytes) => {
                    let last = read.min(bytes.saturating_sub(sent));
                    to_caller.write_all(&buffer[..last]).await?;
                    sent += last;
                    if sent >= bytes {
                        return Ok(());
                    }
                    continue;
                }
                Fault::Garbage => buffer[..read].fill(0x5a),
                _ => sent = 0,
            }
            to_caller.write_all(&buffer[..read]).await?;
        }
    };
    tokio::select! {
        done = answers => done,
        done = copy(&mut from_caller, &mut to_service) => done.map(drop),
    }
}

#[derive(Clone)]
struct Service(Arc<Mutex<State>>);

impl Service {
    /// The state an answer is made from, unless there is to be none. It is looked at before the wait: a slow
    /// answer is an old one.
    async fn state(&self) -> Result<State, Status> {
        let state = {
            let mut state = lock(&self.0);
            state.calls += 1;
            state.clone()
        };
        match &state.fault {
            Fault::Slow(wait) => tokio::time::sleep(*wait).await,
            Fault::Silent => pending().await,
            Fault::Exhausted => return Err(Status::resource_exhausted("rejected by rate limit")),
            Fault::None | Fault::Cut(_) | Fault::Garbage => {}
        }
        Ok(state)
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        Ok(Response::new(self.state().await?.list))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Ok(Response::new(self.state().await?.allocatable))
    }

    async fn get(
        &self,
        _: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}
