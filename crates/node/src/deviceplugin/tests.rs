use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use super::wire::device_plugin_client::DevicePluginClient;
use super::wire::registration_server::{Registration, RegistrationServer};
use super::*;
use crate::watch::Hub;

/// Far above what anything here takes, for a machine busy with compiling.
const PATIENCE: Duration = Duration::from_secs(30);

struct Two(watch::Sender<Vec<Device>>);

impl Plugin for Two {
    type Devices = Vec<Device>;

    fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.0.subscribe()
    }

    async fn allocate(&self, ids: Vec<String>) -> Result<wire::ContainerAllocateResponse, Status> {
        if ids.iter().any(|id| id == "broken") {
            return Err(Status::internal("broken"));
        }
        let envs = [("DEVICES".to_owned(), ids.join(","))].into();
        Ok(wire::ContainerAllocateResponse { envs, ..Default::default() })
    }

    fn prefers(&self) -> bool {
        true
    }

    fn prefer(&self, available: Vec<String>, _: Vec<String>, size: usize) -> Result<Vec<String>, Status> {
        Ok(available.into_iter().rev().take(size).collect())
    }
}

/// A kubelet that only takes registrations, and dials back before it answers as the real one does.
struct Kubelet {
    folder: PathBuf,
    clients: mpsc::UnboundedSender<DevicePluginClient<Channel>>,
}

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(
        &self,
        request: Request<wire::RegisterRequest>,
    ) -> Result<Response<wire::Empty>, Status> {
        let request = request.into_inner();
        assert_eq!((request.version.as_str(), request.resource_name.as_str()), ("v1beta1", "test.dev/x"));
        let socket = self.folder.join(request.endpoint);
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await;
        let mut client =
            DevicePluginClient::new(channel.map_err(|error| Status::internal(error.to_string()))?);
        client.get_device_plugin_options(wire::Empty {}).await?;
        self.clients.send(client).unwrap();
        Ok(Response::new(wire::Empty {}))
    }
}

fn kubelet(folder: &Path) -> (JoinHandle<()>, mpsc::UnboundedReceiver<DevicePluginClient<Channel>>) {
    // As it does when it starts: all sockets go.
    for entry in std::fs::read_dir(folder).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let listener = UnixListener::bind(folder.join(KUBELET_SOCKET)).unwrap();
    let (clients, receiver) = mpsc::unbounded_channel();
    let service = RegistrationServer::new(Kubelet { folder: folder.to_owned(), clients });
    let served =
        Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
    (tokio::spawn(async move { served.await.unwrap() }), receiver)
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

fn device(id: &str, healthy: bool, zones: &[u32]) -> Device {
    Device { id: id.to_owned(), healthy, zones: zones.to_vec() }
}

fn start(folder: &Path, plugin: &Arc<Two>) -> JoinHandle<Result<Infallible, Error>> {
    let paths = SocketPaths {
        folder: folder.to_owned(),
        endpoint: "two.sock".to_owned(),
        resource: "test.dev/x".to_owned(),
        mode: RegistrationMode::Register,
    };
    let plugin = Arc::clone(plugin);
    tokio::spawn(async move { run(&paths, plugin, &Hub::default()).await })
}

#[tokio::test]
async fn a_plugin_is_served_and_its_devices_followed() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Arc::new(Two(watch::Sender::new(vec![device("a", true, &[1]), device("b", false, &[])])));
    let (_kubelet, mut clients) = kubelet(folder.path());
    let running = start(folder.path(), &plugin);
    let mut client = soon(clients.recv()).await.unwrap();

    let mut lists = client.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
    let list = soon(lists.next()).await.unwrap().unwrap().devices;
    assert_eq!(list[0].topology, Some(wire::TopologyInfo { nodes: vec![wire::NumaNode { id: 1 }] }));
    assert_eq!((list[0].health.as_str(), list[1].health.as_str()), ("Healthy", "Unhealthy"));
    assert_eq!(list[1].topology, None);
    plugin.0.send_modify(|devices| drop(devices.pop()));
    assert_eq!(soon(lists.next()).await.unwrap().unwrap().devices.len(), 1);

    let ask = |ids: &[&str]| wire::AllocateRequest {
        container_requests: ids
            .iter()
            .map(|id| wire::ContainerAllocateRequest { devices_ids: vec![(*id).to_owned()] })
            .collect(),
    };
    let answers = client.allocate(ask(&["a", "b"])).await.unwrap().into_inner().container_responses;
    assert_eq!(answers.iter().map(|a| a.envs["DEVICES"].as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(client.allocate(ask(&["a", "broken"])).await.unwrap_err().message(), "broken");
    let preferred = client
        .get_preferred_allocation(wire::PreferredAllocationRequest {
            container_requests: vec![wire::ContainerPreferredAllocationRequest {
                available_device_i_ds: vec!["a".to_owned(), "b".to_owned()],
                must_include_device_i_ds: vec![],
                allocation_size: 1,
            }],
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(preferred.container_responses[0].device_i_ds, ["b"]);

    // Its end is the end of the stream, and of the socket.
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert!(!matches!(soon(lists.next()).await, Some(Ok(_))));
    assert!(!folder.path().join("two.sock").exists());
}

/// As many as a kubelet takes without complaint come in one message, at first and when one of them changes.
#[tokio::test]
async fn thousands_of_devices_are_one_list() {
    const COUNT: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let all = (0..COUNT).map(|number| device(&format!("device-{number}"), true, &[0])).collect();
    let plugin = Arc::new(Two(watch::Sender::new(all)));
    let (_kubelet, mut clients) = kubelet(folder.path());
    let running = start(folder.path(), &plugin);
    let mut client = soon(clients.recv()).await.unwrap();
    let mut lists = client.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
    let healthy = |list: &wire::ListAndWatchResponse| {
        (list.devices.len(), list.devices.iter().filter(|device| device.health == "Healthy").count())
    };
    assert_eq!(healthy(&soon(lists.next()).await.unwrap().unwrap()), (COUNT, COUNT));
    plugin.0.send_modify(|devices| devices[7].healthy = false);
    assert_eq!(healthy(&soon(lists.next()).await.unwrap().unwrap()), (COUNT, COUNT - 1));
    running.abort();
}

#[tokio::test]
async fn a_plugin_registers_with_every_kubelet_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Arc::new(Two(watch::Sender::new(vec![device("a", true, &[0])])));
    // First without any kubelet.
    let running = start(folder.path(), &plugin);
    for _ in 0..3 {
        let (kubelet, mut clients) = kubelet(folder.path());
        let mut client = soon(clients.recv()).await.unwrap();
        let mut lists = client.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
        assert_eq!(soon(lists.next()).await.unwrap().unwrap().devices.len(), 1);
        // Killed: the socket stays without a server.
        kubelet.abort();
        let _ = kubelet.await;
    }
    assert!(!running.is_finished());
    running.abort();
}

/// The kubelet may take the end of an old connection for the end of ours, and then never listens again by itself.
#[tokio::test]
async fn a_plugin_that_is_not_listened_to_registers_again() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Arc::new(Two(watch::Sender::new(vec![device("a", true, &[0])])));
    let (_kubelet, mut clients) = kubelet(folder.path());
    let running = start(folder.path(), &plugin);
    // Never listens at all, then stops listening twice.
    drop(soon(clients.recv()).await.unwrap());
    for _ in 0..2 {
        let mut client = soon(clients.recv()).await.unwrap();
        let mut lists = client.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
        assert_eq!(soon(lists.next()).await.unwrap().unwrap().devices.len(), 1);
    }
    soon(clients.recv()).await.unwrap();
    running.abort();
}

#[tokio::test]
async fn a_socket_that_is_served_is_left_to_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = Arc::new(Two(watch::Sender::new(vec![device("a", true, &[0])])));
    let (_kubelet, mut clients) = kubelet(folder.path());
    let first = start(folder.path(), &plugin);
    let mut client = soon(clients.recv()).await.unwrap();
    let mut lists = client.list_and_watch(wire::Empty {}).await.unwrap().into_inner();
    let second = start(folder.path(), &plugin);
    assert_eq!(soon(lists.next()).await.unwrap().unwrap().devices.len(), 1);
    client.get_device_plugin_options(wire::Empty {}).await.unwrap();
    assert!(clients.try_recv().is_err());
    // It takes over when the first is gone.
    first.abort();
    soon(clients.recv()).await.unwrap();
    assert!(!second.is_finished());
    second.abort();
}

#[test]
fn sockets_are_named_by_the_resource() {
    assert_eq!(RegistrationMode::Register.endpoint("test.dev/x"), "test.dev_x.sock");
    assert_eq!(RegistrationMode::Watcher.endpoint("test.dev/x"), "test.dev_x@localhost-reg.sock");
    let long = |end: &str| RegistrationMode::Watcher.endpoint(&format!("{}/x{end}", "a".repeat(200)));
    assert!(long("1") != long("2") && long("1") == long("1"));
    assert!(crate::pluginwatcher::FOLDER.len() + long("1").len() < crate::socket::MAX_PATH, "{}", long("1"));
}

#[tokio::test]
async fn impossible_paths_are_errors() {
    let paths = |folder: String| SocketPaths {
        folder: folder.into(),
        endpoint: "x.sock".to_owned(),
        resource: "test.dev/x".to_owned(),
        mode: RegistrationMode::Register,
    };
    let plugin = Arc::new(Two(watch::Sender::new(vec![])));
    for folder in [format!("/tmp/{}", "x".repeat(100)), "relative".to_owned()] {
        let error = run(&paths(folder), Arc::clone(&plugin), &Hub::default()).await.unwrap_err().to_string();
        assert!(
            error.ends_with(
                "cannot be a unix socket: allowed are absolute paths of at most 107 bytes of UTF-8"
            ),
            "{error}"
        );
    }
}
