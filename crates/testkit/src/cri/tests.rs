//! The server as a kubelet meets it: through a client on its socket.

use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::api::image_service_client::ImageServiceClient;
use super::api::runtime_service_client::RuntimeServiceClient;
use super::api::*;
use super::{CriServer, Options, State};

struct Rig {
    server: CriServer,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    dir: tempfile::TempDir,
}

async fn rig() -> Rig {
    let dir = tempfile::tempdir().expect("temporary folder");
    let server = CriServer::start(dir.path(), Options::default()).expect("server");
    let endpoint = Endpoint::from_shared(format!("unix://{}", server.socket().display())).expect("endpoint");
    let channel = endpoint.connect().await.expect("connection");
    let (runtime, images) = (RuntimeServiceClient::new(channel.clone()), ImageServiceClient::new(channel));
    Rig { server, runtime, images, dir }
}

impl Rig {
    async fn sandbox(&mut self, name: &str, annotations: &[(&str, &str)]) -> (String, PodSandboxConfig) {
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                namespace: "ns".to_owned(),
                ..Default::default()
            }),
            log_directory: self.dir.path().display().to_string(),
            labels: [("pod".to_owned(), name.to_owned())].into(),
            annotations: annotations.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            ..Default::default()
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let id = self.runtime.run_pod_sandbox(request).await.expect("sandbox").into_inner().pod_sandbox_id;
        (id, config)
    }

    async fn create(&mut self, sandbox: &str, name: &str, cpus: &str) -> Result<String, tonic::Status> {
        let resources = LinuxContainerResources { cpuset_cpus: cpus.to_owned(), ..Default::default() };
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: "app:v1".to_owned(), ..Default::default() }),
            labels: [("name".to_owned(), name.to_owned())].into(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainerConfig {
                resources: Some(resources),
                ..LinuxContainerConfig::default()
            }),
            ..Default::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: None,
        };
        Ok(self.runtime.create_container(request).await?.into_inner().container_id)
    }

    async fn start(&mut self, id: &str) {
        let request = StartContainerRequest { container_id: id.to_owned() };
        self.runtime.start_container(request).await.expect("start");
    }

    async fn status(&mut self, id: &str) -> Result<ContainerStatus, tonic::Status> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        Ok(self.runtime.container_status(request).await?.into_inner().status.expect("status"))
    }

    async fn list(&mut self, filter: ContainerFilter) -> Vec<String> {
        let request = ListContainersRequest { filter: Some(filter) };
        let found = self.runtime.list_containers(request).await.expect("list").into_inner().containers;
        found.into_iter().filter_map(|container| Some(container.metadata?.name)).collect()
    }
}

#[tokio::test]
async fn says_it_is_ready() {
    let mut rig = rig().await;
    let version = rig.runtime.version(VersionRequest::default()).await.expect("version").into_inner();
    assert_eq!(version.runtime_api_version, "v1");
    let status = rig.runtime.status(StatusRequest::default()).await.expect("status").into_inner();
    let conditions = status.status.expect("status").conditions;
    let ready: Vec<_> = conditions.iter().filter(|c| c.status).map(|c| c.r#type.as_str()).collect();
    assert_eq!(ready, ["RuntimeReady", "NetworkReady"]);
}

#[tokio::test]
async fn a_pod_from_birth_to_removal() {
    let mut rig = rig().await;
    let (sandbox, _) = rig.sandbox("p", &[]).await;
    let id = rig.create(&sandbox, "c", "2-3").await.expect("container");
    assert_eq!(rig.status(&id).await.expect("status").state(), ContainerState::ContainerCreated);
    rig.start(&id).await;
    let status = rig.status(&id).await.expect("status");
    assert_eq!(status.state(), ContainerState::ContainerRunning);
    assert!(status.started_at >= status.created_at && status.finished_at == 0, "{status:?}");
    let log = std::fs::read_to_string(&status.log_path).expect("log");
    assert!(log.ends_with(" stdout F c started, attempt 0, cpus 2-3, mems any\n"), "{log}");

    let update = LinuxContainerResources { cpuset_cpus: "5".to_owned(), ..Default::default() };
    let request = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(update),
        ..Default::default()
    };
    rig.runtime.update_container_resources(request).await.expect("update");
    let seen = rig.server.snapshot();
    let container = seen.pod("ns", "p").and_then(|pod| pod.container("c")).expect("container");
    assert_eq!((container.resources.cpuset_cpus.as_str(), container.state), ("5", State::Running));

    rig.runtime
        .stop_container(StopContainerRequest { container_id: id.clone(), timeout: 30 })
        .await
        .expect("stop");
    let status = rig.status(&id).await.expect("status");
    assert_eq!((status.state(), status.exit_code), (ContainerState::ContainerExited, 0));
    assert!(status.finished_at >= status.started_at, "{status:?}");
    let request = RemoveContainerRequest { container_id: id.clone() };
    rig.runtime.remove_container(request.clone()).await.expect("remove");
    rig.runtime.remove_container(request).await.expect("remove again");
    assert_eq!(rig.status(&id).await.unwrap_err().code(), Code::NotFound);
    assert!(!std::path::Path::new(&status.log_path).exists(), "log left behind");

    let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    rig.runtime.stop_pod_sandbox(request).await.expect("stop");
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: false };
    let status = rig.runtime.pod_sandbox_status(request).await.expect("status").into_inner().status;
    assert_eq!(status.expect("status").state(), PodSandboxState::SandboxNotready);
    rig.runtime
        .remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: sandbox })
        .await
        .expect("remove");
    assert_eq!(rig.server.snapshot().sandboxes, []);
}

#[tokio::test]
async fn slow_containers_hold_the_call_up() {
    let mut rig = rig().await;
    let slow = [("testkit/start-delay", "150ms"), ("testkit/stop-delay", "200ms")];
    let (sandbox, _) = rig.sandbox("p", &slow).await;
    let id = rig.create(&sandbox, "c", "").await.expect("container");
    let before = Instant::now();
    rig.start(&id).await;
    assert!(before.elapsed() >= Duration::from_millis(150), "{:?}", before.elapsed());
    let before = Instant::now();
    let request = StopContainerRequest { container_id: id.clone(), timeout: 30 };
    rig.runtime.stop_container(request).await.expect("stop");
    assert!(before.elapsed() >= Duration::from_millis(200), "{:?}", before.elapsed());
    assert_eq!(rig.status(&id).await.expect("status").state(), ContainerState::ContainerExited);
}

#[tokio::test]
async fn no_log_no_start() {
    let mut rig = rig().await;
    let (sandbox, _) = rig.sandbox("p", &[]).await;
    let container_id = rig.create(&sandbox, "missing/c", "").await.expect("container");
    let request = StartContainerRequest { container_id: container_id.clone() };
    let error = rig.runtime.start_container(request).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    assert!(error.message().contains("missing/c.log"), "{error}");
    assert_eq!(rig.status(&container_id).await.expect("status").state(), ContainerState::ContainerCreated);
}

#[tokio::test]
async fn lists_are_filtered() {
    let mut rig = rig().await;
    let (first, _) = rig.sandbox("p", &[("testkit/run.b", "exit 0")]).await;
    let (second, _) = rig.sandbox("q", &[]).await;
    let mut ids = Vec::new();
    for (sandbox, name) in [(&first, "a"), (&first, "b"), (&second, "c")] {
        let id = rig.create(sandbox, name, "").await.expect("container");
        rig.start(&id).await;
        ids.push(id);
    }
    let all = ContainerFilter::default;
    let state = |state: ContainerState| Some(ContainerStateValue { state: state.into() });
    assert_eq!(rig.list(all()).await, ["c", "b", "a"], "newest first");
    assert_eq!(rig.list(ContainerFilter { id: ids[0].clone(), ..all() }).await, ["a"]);
    assert_eq!(rig.list(ContainerFilter { pod_sandbox_id: first.clone(), ..all() }).await, ["b", "a"]);
    let running = state(ContainerState::ContainerRunning);
    assert_eq!(rig.list(ContainerFilter { state: running, ..all() }).await, ["c", "a"]);
    let exited = state(ContainerState::ContainerExited);
    assert_eq!(rig.list(ContainerFilter { state: exited, ..all() }).await, ["b"]);
    let label_selector = [("name".to_owned(), "c".to_owned())].into();
    assert_eq!(rig.list(ContainerFilter { label_selector, ..all() }).await, ["c"]);

    rig.runtime
        .stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: first.clone() })
        .await
        .expect("stop");
    let mut pods = async |filter: PodSandboxFilter| -> Vec<String> {
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let items = rig.runtime.list_pod_sandbox(request).await.expect("list").into_inner().items;
        items.into_iter().filter_map(|sandbox| Some(sandbox.metadata?.name)).collect()
    };
    let all = PodSandboxFilter::default;
    let state = |state: PodSandboxState| Some(PodSandboxStateValue { state: state.into() });
    assert_eq!(pods(all()).await, ["q", "p"]);
    assert_eq!(pods(PodSandboxFilter { id: second, ..all() }).await, ["q"]);
    assert_eq!(
        pods(PodSandboxFilter { state: state(PodSandboxState::SandboxNotready), ..all() }).await,
        ["p"]
    );
    assert_eq!(pods(PodSandboxFilter { state: state(PodSandboxState::SandboxReady), ..all() }).await, ["q"]);
    let label_selector = [("pod".to_owned(), "p".to_owned())].into();
    assert_eq!(pods(PodSandboxFilter { label_selector, ..all() }).await, ["p"]);
    let stats = rig.runtime.list_container_stats(ListContainerStatsRequest::default()).await.expect("stats");
    let names: Vec<_> = stats.into_inner().stats.into_iter().filter_map(|s| s.attributes?.metadata).collect();
    assert_eq!(
        names.iter().map(|metadata| metadata.name.as_str()).collect::<Vec<_>>(),
        ["c"],
        "only running ones"
    );
}

#[tokio::test]
async fn commands_inside_a_container() {
    let mut rig = rig().await;
    let (sandbox, _) = rig.sandbox("p", &[]).await;
    let container_id = rig.create(&sandbox, "c", "").await.expect("container");
    let exec = |command: &str, timeout| ExecSyncRequest {
        container_id: container_id.clone(),
        cmd: command.split_whitespace().map(str::to_owned).collect(),
        timeout,
    };
    let early = rig.runtime.exec_sync(exec("true", 0)).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    rig.start(&container_id).await;
    for (command, code) in [("true", 0), ("false", 1), ("exit 7", 7), ("curl localhost", 0)] {
        let done = rig.runtime.exec_sync(exec(command, 1)).await.expect("exec").into_inner();
        assert_eq!(done.exit_code, code, "{command}");
    }
    let late = rig.runtime.exec_sync(exec("sleep infinity", 1)).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);

    // Streams want a process at their other end.
    let request =
        ExecRequest { container_id, cmd: vec!["true".to_owned()], stdout: true, ..Default::default() };
    let refused = rig.runtime.exec(request).await.unwrap_err();
    let request = PortForwardRequest { pod_sandbox_id: sandbox, port: vec![80] };
    for error in [refused, rig.runtime.port_forward(request).await.unwrap_err()] {
        assert_eq!(error.code(), Code::FailedPrecondition);
        assert!(error.message().contains("make the cluster an installable one"), "{error}");
    }
}

#[tokio::test]
async fn images_have_an_id_and_a_size() {
    let mut rig = rig().await;
    let spec = || Some(ImageSpec { image: "app:v1".to_owned(), ..Default::default() });
    let request = ImageStatusRequest { image: spec(), verbose: false };
    let image = rig.images.image_status(request).await.expect("status").into_inner().image.expect("present");
    assert!(!image.id.is_empty() && image.size > 0, "{image:?}");
    let request = PullImageRequest { image: spec(), ..Default::default() };
    assert_eq!(rig.images.pull_image(request).await.expect("pull").into_inner().image_ref, image.id);
    let nameless = rig.images.image_status(ImageStatusRequest::default()).await.unwrap_err();
    assert_eq!(nameless.code(), Code::InvalidArgument);
    let info = rig.images.image_fs_info(ImageFsInfoRequest {}).await.expect("info").into_inner();
    let mountpoint = info.image_filesystems[0].fs_id.clone().expect("file system").mountpoint;
    assert!(std::path::Path::new(&mountpoint).is_dir(), "{mountpoint}");
    assert_eq!(info.image_filesystems[0].used_bytes, Some(UInt64Value { value: image.size }));
    let request = RemoveImageRequest { image: Some(ImageSpec { image: image.id, ..Default::default() }) };
    rig.images.remove_image(request).await.expect("remove");
    let left = rig.images.list_images(ListImagesRequest::default()).await.expect("list").into_inner().images;
    assert_eq!(left, []);
}

#[tokio::test]
async fn what_is_not_spoken_is_unimplemented() {
    let rig = rig().await;
    let url = format!("unix://{}", rig.server.socket().display());
    let channel = Endpoint::from_shared(url).expect("endpoint").connect().await.expect("connection");
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("ready");
    let path = "/runtime.v1.RuntimeService/GetContainerEvents".parse().expect("path");
    let codec = tonic_prost::ProstCodec::<VersionRequest, VersionResponse>::default();
    let answer = client.unary(tonic::Request::new(VersionRequest::default()), path, codec).await;
    assert_eq!(answer.unwrap_err().code(), Code::Unimplemented);
}

#[test]
fn the_socket_lives_and_dies_with_the_server() {
    let dir = tempfile::tempdir().expect("temporary folder");
    let start = || CriServer::start(dir.path(), Options::default());
    let server = start().expect("server");
    let socket = server.socket().to_path_buf();
    assert!(socket.exists());
    let _stream = std::os::unix::net::UnixStream::connect(&socket).expect("connection");
    drop(server);
    assert!(!socket.exists(), "socket left behind");

    drop(std::os::unix::net::UnixListener::bind(&socket).expect("stale socket"));
    drop(start().expect("a stale socket is replaced"));
    std::fs::write(&socket, "precious").expect("file");
    let error = start().expect_err("a file is in the way").to_string();
    assert!(error.ends_with("cri.sock: exists and is not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&socket).expect("file"), "precious");

    let deep = dir.path().join("x".repeat(100));
    std::fs::create_dir(&deep).expect("folder");
    let error = CriServer::start(&deep, Options::default()).expect_err("path too long").to_string();
    assert!(error.contains("too long for a unix socket"), "{error}");
}
