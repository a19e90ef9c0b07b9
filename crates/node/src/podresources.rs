//! A client of the kubelet's podresources service: the resources it has handed out exclusively, and those it could.
//!
//! In: the address of a unix socket, or of a directory with recorded answers (`folder`). Out: [`PodResources`] and
//! [`Allocatable`], checked (see `parse`); or an error that names the call and the cause. Never: an answer of more
//! than 16 MiB, or 32 MiB decoded (see `bound`), a call without a deadline, a retry (callers decide when to ask
//! again), or a partial answer: one impossible value refuses the whole.
//!
//! The connection is made at the first call, and again at the next call after it broke. So a restart of the kubelet
//! makes only the calls in between fail.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use topology::cpuset::CpuSet;
use topology::resource::ResourceName;
use topology::zone::ZoneId;

use crate::file::FileError;

mod bound;
mod folder;
mod parse;
mod recording;

/// The messages and the client and server of `v1.PodResourcesLister`, generated from `proto/podresources/v1.proto`.
// `allow`, because only rustdoc has this lint and an expectation would be unfulfilled elsewhere.
#[allow(rustdoc::invalid_html_tags, reason = "generated")]
#[expect(missing_docs, reason = "generated")]
#[rustfmt::skip]
pub mod wire {
    include!("gen/podresources.v1.rs");
}

/// The peers' limit in bytes; a List of 500 pods with 8 devices each is about 300 KiB.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// A pod that the kubelet considers active, with the resources of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodResources {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// Its containers and restartable init containers, in the pod's order.
    pub containers: Vec<ContainerResources>,
}

/// The resources of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerResources {
    /// The name of the container.
    pub name: String,
    /// Exclusive CPUs; empty when the container runs on the shared ones.
    pub cpus: CpuSet,
    /// Memory and hugepages, only with the memory manager's policy `Static`.
    pub memory: Vec<MemoryBlock>,
    /// Devices.
    pub devices: Vec<Devices>,
}

impl PodResources {
    /// Whether some container holds a resource with a known zone: a CPU, or memory or a device whose zone is known. The
    /// peers call this a pod "with exclusive resources".
    #[must_use]
    pub fn holds_something_local(&self) -> bool {
        self.containers.iter().any(|container| {
            !container.cpus.is_empty()
                || container.memory.iter().any(|block| !block.zones.is_empty())
                || container.devices.iter().any(|devices| !devices.zones.is_empty())
        })
    }
}

/// All resources that the kubelet can hand out, whether handed out or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// CPUs that can become exclusive: none with the CPU manager's policy `none`.
    pub cpus: CpuSet,
    /// One block per zone and kind of memory, only with the memory manager's policy `Static`.
    pub memory: Vec<MemoryBlock>,
    /// Healthy devices.
    pub devices: Vec<Devices>,
}

/// Memory or hugepages of one or several zones together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// `memory` or `hugepages-<size>`.
    pub resource: ResourceName,
    /// The size in bytes, over all the zones together.
    pub bytes: u64,
    /// The zones of the memory, ascending; empty when the kubelet does not say.
    pub zones: Vec<ZoneId>,
}

/// Devices of one resource with the same locality. The kubelet lists a device that is close to several zones once per
/// zone, under the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The resource.
    pub resource: ResourceName,
    /// The plugin's ids of the devices, sorted.
    pub ids: Vec<String>,
    /// The zones that the devices are close to, ascending; empty when the plugin does not say.
    pub zones: Vec<ZoneId>,
}

/// A call of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `List`.
    List,
    /// `GetAllocatableResources`.
    Allocatable,
}

impl Call {
    /// The path of the call.
    fn path(self) -> &'static str {
        match self {
            Self::List => "/v1.PodResourcesLister/List",
            Self::Allocatable => "/v1.PodResourcesLister/GetAllocatableResources",
        }
    }

    /// The name of the file with the recorded answer, in a folder of such answers.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("{}.json", self.as_str())
    }

    /// The name in metrics: `list` or `get_allocatable_resources`, as the peers have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Allocatable => "get_allocatable_resources",
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path of the socket is not a valid address.
    #[error("{0:?} is not a unix socket path; expected unix:///path or /path")]
    Socket(String),
    /// The kind of the address is unknown.
    #[error(
        "{0:?} is no podresources address; expected unix:///path or /path of a socket, or fake://dir with answers"
    )]
    Address(String),
    /// A recorded answer cannot be read.
    #[error("podresources {} failed", call.as_str())]
    File {
        /// The call.
        call: Call,
        /// The cause.
        source: FileError,
    },
    /// The call exceeded its deadline.
    #[error("the kubelet did not answer {} within {after:?}", call.as_str())]
    Deadline {
        /// The call.
        call: Call,
        /// The deadline.
        after: Duration,
    },
    /// The kubelet is unavailable, refused, or its answer is too large or garbled.
    #[error("podresources {} failed: {}{}", call.as_str(), status.message(), cause(status))]
    Status {
        /// The call.
        call: Call,
        /// The status of gRPC.
        status: Box<tonic::Status>,
    },
    /// The answer contains an impossible value.
    #[error("podresources {} answered nonsense: {field}: {reason}", call.as_str())]
    Nonsense {
        /// The call.
        call: Call,
        /// The path of the value in the answer.
        field: String,
        /// The cause.
        reason: String,
    },
    /// The answer is too large for a recording.
    #[error(
        "podresources {}: {bytes} bytes are more than the {MAX_ANSWER_BYTES} of a recording", call.as_str()
    )]
    Unrecorded {
        /// The call.
        call: Call,
        /// The size of the recording.
        bytes: usize,
    },
}

impl Error {
    /// The call that failed, if one was made.
    #[must_use]
    pub fn call(&self) -> Option<Call> {
        match self {
            Self::Socket(_) | Self::Address(_) => None,
            Self::File { call, .. }
            | Self::Deadline { call, .. }
            | Self::Status { call, .. }
            | Self::Unrecorded { call, .. }
            | Self::Nonsense { call, .. } => Some(*call),
        }
    }
}

/// The source of answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The kubelet's socket.
    Socket(PathBuf),
    /// A directory with recorded answers: `list.json` and `get_allocatable_resources.json`.
    Folder(PathBuf),
}

impl Address {
    /// Parses an address as flags give it: as [`socket_path`] does, or `fake://` and a directory, absolute or relative.
    ///
    /// # Errors
    /// For anything else.
    pub fn parse(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("fake://") {
            Some("") => Err(Error::Address(text.to_owned())),
            Some(dir) => Ok(Self::Folder(PathBuf::from(dir))),
            None => socket_path(text).map(Self::Socket).map_err(|_| Error::Address(text.to_owned())),
        }
    }

    /// The file to watch: when it is created anew, there are new answers.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        match self {
            Self::Socket(path) => path.clone(),
            Self::Folder(dir) => folder::path(dir, Call::List),
        }
    }
}

/// The socket of an address as flags give it: `unix:///path`, `unix:/path` or a plain absolute path.
///
/// # Errors
/// For anything else.
pub fn socket_path(address: &str) -> Result<PathBuf, Error> {
    let path = address.strip_prefix("unix://").or_else(|| address.strip_prefix("unix:")).unwrap_or(address);
    if path.starts_with('/') { Ok(PathBuf::from(path)) } else { Err(Error::Socket(address.to_owned())) }
}

/// A client of the service.
#[derive(Clone, Debug)]
pub struct Client {
    source: Source,
    deadline: Duration,
}

/// The server or folder that a client asks.
#[derive(Clone, Debug)]
enum Source {
    Kubelet(Grpc<Channel>),
    Folder(PathBuf),
}

impl Client {
    /// Prepares a client of a socket; nothing is connected yet. Each call must end within `deadline`.
    ///
    /// # Errors
    /// When the path is not absolute UTF-8 text.
    pub fn new(socket: &Path, deadline: Duration) -> Result<Self, Error> {
        let bad = || Error::Socket(socket.display().to_string());
        let path = socket.to_str().filter(|path| path.starts_with('/')).ok_or_else(bad)?;
        let channel = Endpoint::from_shared(format!("unix://{path}"))
            .map_err(|_| bad())?
            .connect_timeout(deadline)
            .connect_lazy();
        let grpc = Grpc::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        Ok(Self { source: Source::Kubelet(grpc), deadline })
    }

    /// Prepares a client of the source at the address; nothing is connected or read yet.
    ///
    /// # Errors
    /// As [`Client::new`], for sockets.
    pub fn at(address: &Address, deadline: Duration) -> Result<Self, Error> {
        match address {
            Address::Socket(path) => Self::new(path, deadline),
            Address::Folder(dir) => Ok(Self { source: Source::Folder(dir.clone()), deadline }),
        }
    }

    /// Asks for the resources that active pods hold.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self) -> Result<Vec<PodResources>, Error> {
        let answer = self.list_answer().await?;
        parse::pods(answer.pod_resources).map_err(|error| self.located(error))
    }

    /// Asks for the resources that can be handed out.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn allocatable(&self) -> Result<Allocatable, Error> {
        let answer = self.allocatable_answer().await?;
        parse::allocatable(answer).map_err(|error| self.located(error))
    }

    /// The answer to a call as the text of its file in a folder of recorded answers; its values are not checked.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn recording(&self, call: Call) -> Result<String, Error> {
        match call {
            Call::List => recording::list(&self.list_answer().await?),
            Call::Allocatable => recording::allocatable(&self.allocatable_answer().await?),
        }
    }

    async fn list_answer(&self) -> Result<wire::ListPodResourcesResponse, Error> {
        let call = Call::List;
        match &self.source {
            Source::Kubelet(grpc) => {
                self.bounded(call, ask(grpc.clone(), call, wire::ListPodResourcesRequest {})).await
            }
            Source::Folder(dir) => folder::list(dir),
        }
    }

    async fn allocatable_answer(&self) -> Result<wire::AllocatableResourcesResponse, Error> {
        let call = Call::Allocatable;
        match &self.source {
            Source::Kubelet(grpc) => {
                self.bounded(call, ask(grpc.clone(), call, wire::AllocatableResourcesRequest {})).await
            }
            Source::Folder(dir) => folder::allocatable(dir),
        }
    }

    /// Adds the name of the file to an error about a recorded answer.
    fn located(&self, error: Error) -> Error {
        match (&self.source, error) {
            (Source::Folder(dir), Error::Nonsense { call, field, reason }) => {
                let field = format!("{}: {field}", folder::path(dir, call).display());
                Error::Nonsense { call, field, reason }
            }
            (_, error) => error,
        }
    }

    async fn bounded<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(Error::Status { call, status: Box::new(status) }),
            Err(_) => Err(Error::Deadline { call, after: self.deadline }),
        }
    }
}

/// Makes a call. The generated client decodes answers whatever they become.
async fn ask<T, U>(
    mut grpc: Grpc<Channel>,
    call: Call,
    request: T,
) -> Result<tonic::Response<U>, tonic::Status>
where
    T: prost::Message + 'static,
    U: bound::Answer,
{
    let not_ready = |error| tonic::Status::from_error(Box::new(error));
    grpc.ready().await.map_err(not_ready)?;
    let codec = bound::BoundedCodec::<T, U>::default();
    grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(call.path()), codec).await
}

/// The innermost cause of a status, unless its message has it: "transport error" alone is no help.
fn cause(status: &tonic::Status) -> String {
    let mut cause = std::error::Error::source(status);
    let mut innermost = None;
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    innermost
        .filter(|text| !status.message().contains(text))
        .map(|text| format!(": {text}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
