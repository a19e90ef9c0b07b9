//! The calls of the fake runtime: each locks the store, asks it, and words the answer. Decisions are the
//! store's; here are only the clock, the waiting (slow starts and stops) and the log files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tonic::{Request, Response, Status};

use super::HANDLERS;
use super::api::image_service_server::ImageService;
use super::api::runtime_service_server::RuntimeService;
use super::api::*;
use super::behaviour::Behaviour;
use super::runner::{Runner, StartRequest};
use super::snapshot::State;
use super::store::{self, Store};
use super::streaming::Streaming;
use super::{image, wire};

/// Exit code of a container whose process could not be started, as other runtimes have it.
const NEVER_STARTED: i32 = 128;

type Answer<T> = Result<Response<T>, Status>;

/// Both services of the interface over one store.
#[derive(Debug, Clone)]
pub(super) struct Service {
    store: Arc<Mutex<Store>>,
    defaults: Behaviour,
    /// A folder that exists, standing for the file system images and containers live on.
    mountpoint: Arc<str>,
    /// Makes it real.
    runner: Option<Arc<Runner>>,
    streaming: Option<Arc<Streaming>>,
}

impl Service {
    pub(super) fn new(
        store: Arc<Mutex<Store>>,
        defaults: Behaviour,
        dir: &Path,
        runner: Option<Arc<Runner>>,
    ) -> Self {
        let streaming = runner.as_ref().map(|runner| Arc::new(Streaming::new(runner.clone(), dir)));
        Self { store, defaults, mountpoint: dir.to_string_lossy().into(), runner, streaming }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        lock(&self.store)
    }

    /// Whether there is such an image. Ids are only given to those that are.
    fn knows(&self, reference: &str) -> bool {
        let Some(runner) = &self.runner else { return true };
        image::is_id(reference) || runner.image(reference).is_some()
    }

    fn describe(&self, name: &str) -> Image {
        let mut description = image::describe(name);
        if let Some(image) = self.runner.as_ref().and_then(|runner| runner.image(name)) {
            description.uid = Some(Int64Value { value: i64::from(image.user.0) });
        }
        description
    }

    async fn start_process(&self, runner: Arc<Runner>, id: String) -> Answer<StartContainerResponse> {
        let what = {
            let mut store = self.store();
            store.start_container(&id, now())?;
            let container = store.container(&id)?;
            let sandbox = store.sandbox(&container.sandbox)?.config.clone();
            let log = container.log_path.clone().map(PathBuf::from);
            StartRequest {
                id: id.clone(),
                of: container.sandbox.clone(),
                sandbox,
                config: container.config.clone(),
                log,
            }
        };
        if let Err(error) = blocking(move || runner.start(what)).await {
            self.store().exited(&id, NEVER_STARTED, now());
            return Err(error);
        }
        Ok(Response::new(StartContainerResponse {}))
    }

    fn streaming(&self) -> Result<&Arc<Streaming>, Status> {
        self.streaming.as_ref().ok_or_else(|| {
            Status::failed_precondition(
                "containers of this cluster are states without processes, and exec and port-forward want processes: \
                 make the cluster an installable one",
            )
        })
    }

    fn stats(&self, filter: &ContainerStatsFilter) -> Vec<ContainerStats> {
        let now = now();
        let filter = ContainerFilter {
            id: filter.id.clone(),
            state: Some(ContainerStateValue { state: ContainerState::ContainerRunning.into() }),
            pod_sandbox_id: filter.pod_sandbox_id.clone(),
            label_selector: filter.label_selector.clone(),
        };
        let store = self.store();
        let running =
            store.containers().into_iter().filter(|(id, c)| wire::container_matches(&filter, id, c, now));
        running.map(|(id, container)| wire::container_stats(id, container, &self.mountpoint, now)).collect()
    }

    fn sandbox_stats(&self, filter: &PodSandboxStatsFilter) -> Vec<PodSandboxStats> {
        let filter = PodSandboxFilter {
            id: filter.id.clone(),
            state: Some(PodSandboxStateValue { state: PodSandboxState::SandboxReady.into() }),
            label_selector: filter.label_selector.clone(),
        };
        let containers = self.stats(&ContainerStatsFilter::default());
        let store = self.store();
        let stats = |(id, sandbox): (&str, &store::Sandbox)| {
            let own = |stats: &&ContainerStats| {
                let id_of = stats.attributes.as_ref().map_or("", |attributes| &attributes.id);
                store.container(id_of).is_ok_and(|container| container.sandbox == id)
            };
            wire::sandbox_stats(id, sandbox, containers.iter().filter(own).cloned().collect(), now())
        };
        let ready = store.sandboxes().into_iter().filter(|(id, s)| wire::sandbox_matches(&filter, id, s));
        ready.map(stats).collect()
    }
}

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".to_owned(), // of the handshake, fixed since its beginning
            runtime_name: "testkit".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        let ready = |name: &str| RuntimeCondition {
            r#type: name.to_owned(),
            status: true,
            ..RuntimeCondition::default()
        };
        let conditions = vec![ready("RuntimeReady"), ready("NetworkReady")];
        Ok(Response::new(StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            runtime_handlers: HANDLERS
                .map(|name| RuntimeHandler {
                    name: name.to_owned(),
                    features: Some(RuntimeHandlerFeatures::default()),
                })
                .into(),
            features: Some(RuntimeFeatures::default()),
            ..StatusResponse::default()
        }))
    }

    async fn runtime_config(&self, _: Request<RuntimeConfigRequest>) -> Answer<RuntimeConfigResponse> {
        let linux = LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() };
        Ok(Response::new(RuntimeConfigResponse { linux: Some(linux) }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        if let Some(network) = network.filter(|network| !network.pod_cidr.is_empty()) {
            self.store().set_pod_cidr(&network.pod_cidr)?;
        }
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn run_pod_sandbox(&self, request: Request<RunPodSandboxRequest>) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Status::invalid_argument("config: missing"))?;
        let pod_sandbox_id = self.store().run_sandbox(config, request.runtime_handler, now())?;
        if let Some(runner) = &self.runner {
            let address = self.store().sandbox(&pod_sandbox_id)?.ip;
            let (runner, id) = (runner.clone(), pod_sandbox_id.clone());
            if let Err(error) = blocking(move || runner.open(&id, address)).await {
                self.store().remove_sandbox(&pod_sandbox_id);
                return Err(error);
            }
        }
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        if let Some(runner) = &self.runner {
            let containers = self.store().containers_of(&id);
            for container in containers {
                runner.stop(&container, Duration::ZERO).await;
            }
            runner.close(&id);
        }
        self.store().stop_sandbox(&id, now());
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        if let Some(runner) = &self.runner {
            let containers = self.store().containers_of(&id);
            for container in containers {
                runner.remove(&container).await;
            }
            runner.close(&id);
        }
        self.store().remove_sandbox(&id);
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let status = wire::sandbox_status(&id, self.store().sandbox(&id)?);
        Ok(Response::new(PodSandboxStatusResponse {
            status: Some(status),
            ..PodSandboxStatusResponse::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let store = self.store();
        let matching = store.sandboxes().into_iter().filter(|(id, s)| wire::sandbox_matches(&filter, id, s));
        let items = matching.map(|(id, sandbox)| wire::sandbox(id, sandbox)).collect();
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        self.store().update_sandbox(&request.pod_sandbox_id, request.overhead, request.resources)?;
        Ok(Response::new(UpdatePodSandboxResourcesResponse {}))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.ok_or_else(|| Status::invalid_argument("config: missing"))?;
        // A program does what it does; an image without one has the commands of the fake.
        let named = config.image.as_ref().map_or("", wire::image_named);
        let is_program = |runner: &Arc<Runner>| runner.image(named).is_some_and(|image| !image.is_pause());
        let defaults = (!self.runner.as_ref().is_some_and(is_program)).then_some(self.defaults);
        let container_id = self.store().create_container(&request.pod_sandbox_id, config, defaults, now())?;
        Ok(Response::new(CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
        if let Some(runner) = &self.runner {
            return self.start_process(runner.clone(), id).await;
        }
        let delay = self.store().container(&id)?.behaviour.start_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut store = self.store();
        let container = store.container(&id)?;
        if container.state(now()) == State::Created {
            write_log(container)?; // first: a container whose log cannot be written does not start
        }
        store.start_container(&id, now())?;
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<StopContainerRequest>) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        if let Some(runner) = &self.runner {
            runner.stop(&request.container_id, grace).await;
        }
        let ends_at = self.store().stop_container(&request.container_id, grace, now())?;
        if let Ok(left @ 1..) = u64::try_from(ends_at.saturating_sub(now())) {
            tokio::time::sleep(Duration::from_nanos(left)).await;
        }
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        if let Some(runner) = &self.runner {
            runner.remove(&id).await;
        }
        if let Some(log) = self.store().remove_container(&id) {
            // The kubelet removes the folder; that the file is gone already is no fault.
            let _ = std::fs::remove_file(log);
        }
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let (filter, now) = (request.into_inner().filter.unwrap_or_default(), now());
        let store = self.store();
        let matching =
            store.containers().into_iter().filter(|(id, c)| wire::container_matches(&filter, id, c, now));
        let containers = matching.map(|(id, container)| wire::container(id, container, now)).collect();
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let mut status = wire::container_status(&id, self.store().container(&id)?, now());
        if self.runner.is_some() {
            // Any user, but not the one that the fake reports by default.
            status.user = None;
        }
        Ok(Response::new(ContainerStatusResponse {
            status: Some(status),
            ..ContainerStatusResponse::default()
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        self.store().update_container(&request.container_id, request.linux.unwrap_or_default())?;
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    /// Without a process the command behaves as a container's would; one that is not understood succeeds at once.
    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        running(self.store().container(&request.container_id)?)?;
        let limit =
            u64::try_from(request.timeout).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs);
        let process = self.runner.as_ref().and_then(|runner| runner.process(&request.container_id));
        if let Some(process) = process {
            let output = process.exec_sync(request.cmd, limit).await.map_err(unknown)?;
            let output = output.ok_or_else(|| Status::deadline_exceeded(format!("longer than {limit:?}")))?;
            let (stdout, stderr, exit_code) = (output.stdout, output.stderr, output.code);
            return Ok(Response::new(ExecSyncResponse { stdout, stderr, exit_code }));
        }
        let (time, exit_code) = super::behaviour::exec(&request.cmd);
        if let Some(limit) = limit.filter(|&limit| time > limit) {
            tokio::time::sleep(limit).await;
            return Err(Status::deadline_exceeded(format!("{:?} took longer than {limit:?}", request.cmd)));
        }
        tokio::time::sleep(time).await;
        Ok(Response::new(ExecSyncResponse { exit_code, ..ExecSyncResponse::default() }))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let request = request.into_inner();
        let name = {
            let store = self.store();
            let container = store.container(&request.container_id)?;
            running(container)?;
            container.name().to_owned()
        };
        let streaming = self.streaming()?;
        if self.runner.as_ref().and_then(|runner| runner.process(&request.container_id)).is_none() {
            let reason = format!("container {name} has no process: its image is one that runs nothing");
            return Err(Status::failed_precondition(reason));
        }
        if request.tty {
            return Err(Status::unimplemented("tty: containers here have no terminals"));
        }
        let url = streaming.exec(request).await.map_err(unknown)?;
        Ok(Response::new(ExecResponse { url }))
    }

    async fn port_forward(&self, request: Request<PortForwardRequest>) -> Answer<PortForwardResponse> {
        let request = request.into_inner();
        if !self.store().sandbox(&request.pod_sandbox_id)?.ready {
            let reason = format!("sandbox {:?} is stopped", request.pod_sandbox_id);
            return Err(Status::failed_precondition(reason));
        }
        let url = self.streaming()?.port_forward(request).await.map_err(unknown)?;
        Ok(Response::new(PortForwardResponse { url }))
    }

    /// The kubelet has moved the old file away and wants to see a new one.
    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let store = self.store();
        let container = store.container(&request.get_ref().container_id)?;
        running(container)?;
        match self.runner.as_ref().and_then(|runner| runner.process(&request.get_ref().container_id)) {
            Some(process) => process.reopen_log()?,
            None => write_log(container)?,
        }
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        let stats = wire::container_stats(&id, self.store().container(&id)?, &self.mountpoint, now());
        Ok(Response::new(ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let stats = self.stats(&request.into_inner().filter.unwrap_or_default());
        Ok(Response::new(ListContainerStatsResponse { stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.store().sandbox(&id)?;
        let stats =
            self.sandbox_stats(&PodSandboxStatsFilter { id, ..PodSandboxStatsFilter::default() }).pop();
        Ok(Response::new(PodSandboxStatsResponse { stats }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let stats = self.sandbox_stats(&request.into_inner().filter.unwrap_or_default());
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn list_images(&self, request: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        let wanted = request.into_inner().filter.and_then(|filter| filter.image).unwrap_or_default().image;
        let store = self.store();
        let matching = store.images().filter(|name| wanted.is_empty() || *name == wanted);
        let images = matching.map(|name| self.describe(name)).collect();
        Ok(Response::new(ListImagesResponse { images }))
    }

    async fn image_status(&self, request: Request<ImageStatusRequest>) -> Answer<ImageStatusResponse> {
        let reference = named(request.into_inner().image)?;
        let known = self.knows(&reference);
        let image = self.store().find_image(&reference).filter(|_| known).map(|name| self.describe(name));
        Ok(Response::new(ImageStatusResponse { image, ..ImageStatusResponse::default() }))
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        let reference = named(request.into_inner().image)?;
        let known = self.knows(&reference);
        let found = self.store().find_image(&reference).filter(|_| known).map(image::id);
        let image_ref = found.ok_or_else(|| Status::not_found(format!("no image {reference:?}")))?;
        Ok(Response::new(PullImageResponse { image_ref }))
    }

    async fn remove_image(&self, request: Request<RemoveImageRequest>) -> Answer<RemoveImageResponse> {
        let reference = named(request.into_inner().image)?;
        self.store().remove_image(&reference);
        Ok(Response::new(RemoveImageResponse {}))
    }

    async fn image_fs_info(&self, _: Request<ImageFsInfoRequest>) -> Answer<ImageFsInfoResponse> {
        let used = self.store().images().map(|name| image::describe(name).size).sum();
        let filesystem = wire::filesystem(&self.mountpoint, used, now());
        Ok(Response::new(ImageFsInfoResponse {
            image_filesystems: vec![filesystem.clone()],
            container_filesystems: vec![filesystem],
        }))
    }
}

/// A poisoned lock is taken all the same: the store is never left half-changed by its short methods.
pub(super) fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unix time in nanoseconds.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Work that would keep the server's only thread from answering.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await.map_err(anyhow::Error::from);
    done.flatten().map_err(unknown)
}

fn unknown(error: anyhow::Error) -> Status {
    Status::unknown(format!("{error:#}"))
}

fn named(image: Option<ImageSpec>) -> Result<String, Status> {
    let name = image.unwrap_or_default().image;
    if name.is_empty() { Err(Status::invalid_argument("image.image: empty")) } else { Ok(name) }
}

fn running(container: &store::Container) -> Result<(), Status> {
    match container.state(now()) {
        State::Running => Ok(()),
        state => {
            let name = container.name();
            Err(Status::failed_precondition(format!("container {name} is not running but {state:?}")))
        }
    }
}

/// One line in the kubelet's log format, so that `kubectl logs` has something to show: what the container was given.
fn write_log(container: &store::Container) -> Result<(), Status> {
    let Some(path) = &container.log_path else { return Ok(()) };
    let resources = container.resources();
    let shown = |cpuset: &str| if cpuset.is_empty() { "any".to_owned() } else { cpuset.to_owned() };
    let line = format!(
        "{} stdout F {} started, attempt {}, cpus {}, mems {}\n",
        jiff::Timestamp::now(),
        container.name(),
        container.attempt(),
        shown(&resources.cpuset_cpus),
        shown(&resources.cpuset_mems),
    );
    std::fs::write(Path::new(path), line).map_err(|error| Status::internal(format!("log {path}: {error}")))
}
