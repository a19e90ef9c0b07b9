use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use wire::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};

use super::*;

/// What the fake kubelet does when asked.
#[derive(Clone, Default)]
enum Behaviour {
    /// Answers with these messages.
    #[default]
    Empty,
    Answer(wire::ListPodResourcesResponse, wire::AllocatableResourcesResponse),
    Refuse(&'static str),
    Hang,
}

/// A podresources server whose behaviour can be changed.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Behaviour>>);

impl Fake {
    async fn answer(
        &self,
    ) -> Result<(wire::ListPodResourcesResponse, wire::AllocatableResourcesResponse), Status> {
        let behaviour = self.0.lock().unwrap().clone();
        match behaviour {
            Behaviour::Empty => Ok(Default::default()),
            Behaviour::Answer(list, allocatable) => Ok((list, allocatable)),
            Behaviour::Refuse(why) => Err(Status::resource_exhausted(why)),
            Behaviour::Hang => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Fake {
    async fn list(
        &self,
        _: Request<wire::ListPodResourcesRequest>,
    ) -> Result<Response<wire::ListPodResourcesResponse>, Status> {
        Ok(Response::new(self.answer().await?.0))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<wire::AllocatableResourcesRequest>,
    ) -> Result<Response<wire::AllocatableResourcesResponse>, Status> {
        Ok(Response::new(self.answer().await?.1))
    }

    async fn get(
        &self,
        _: Request<wire::GetPodResourcesRequest>,
    ) -> Result<Response<wire::GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("not needed"))
    }
}

/// A server on a socket in its own directory, and a client of it.
struct Rig {
    dir: TempDir,
    fake: Fake,
    server: Option<Runtime>,
    client: Client,
}

impl Rig {
    fn new(deadline: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::new(&dir.path().join("kubelet.sock"), deadline).unwrap();
        let mut rig = Self { dir, fake: Fake::default(), server: None, client };
        rig.start();
        rig
    }

    fn set(&self, behaviour: Behaviour) {
        *self.fake.0.lock().unwrap() = behaviour;
    }

    /// Serves in a runtime of its own, so that `stop` ends connections too, as the death of a process does.
    fn start(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let service = PodResourcesListerServer::new(self.fake.clone()).max_encoding_message_size(usize::MAX);
        let server = tonic::transport::Server::builder().add_service(service);
        let guard = runtime.enter();
        let listener = UnixListener::bind(self.dir.path().join("kubelet.sock")).unwrap();
        drop(guard);
        runtime.spawn(async move { server.serve_with_incoming(UnixListenerStream::new(listener)).await });
        self.server = Some(runtime);
    }

    fn stop(&mut self) {
        std::fs::remove_file(self.dir.path().join("kubelet.sock")).unwrap();
        if let Some(runtime) = self.server.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Long enough for a busy machine; only a test that must see it expire uses a shorter one.
const PATIENT: Duration = Duration::from_secs(30);

fn pod(containers: Vec<wire::ContainerResources>) -> wire::PodResources {
    wire::PodResources { name: "p".to_owned(), namespace: "ns".to_owned(), containers }
}

fn container() -> wire::ContainerResources {
    wire::ContainerResources { name: "c".to_owned(), ..Default::default() }
}

fn zones(ids: &[i64]) -> Option<wire::TopologyInfo> {
    Some(wire::TopologyInfo { nodes: ids.iter().map(|id| wire::NumaNode { id: *id }).collect() })
}

fn memory(kind: &str, size: u64, ids: &[i64]) -> wire::ContainerMemory {
    wire::ContainerMemory { memory_type: kind.to_owned(), size, topology: zones(ids) }
}

fn devices(name: &str, ids: &[&str], topology: Option<wire::TopologyInfo>) -> wire::ContainerDevices {
    let device_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    wire::ContainerDevices { resource_name: name.to_owned(), device_ids, topology }
}

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap()
}

#[tokio::test]
async fn answers_arrive_checked_and_typed() {
    let rig = Rig::new(PATIENT);
    assert_eq!(rig.client.list().await.unwrap(), []);
    assert_eq!(rig.client.allocatable().await.unwrap(), Allocatable::default());

    let c = wire::ContainerResources {
        cpu_ids: vec![7, 1, 1],
        memory: vec![memory("memory", 512, &[1, 0]), memory("hugepages-2Mi", 0, &[0])],
        devices: vec![
            devices("v.io/nic", &["b", "a", "b"], zones(&[1])),
            devices("v.io/x", &["y"], zones(&[-1])),
            devices("v.io/far", &["z"], zones(&[64, 255])),
        ],
        ..container()
    };
    let allocatable = wire::AllocatableResourcesResponse {
        cpu_ids: vec![3, 1],
        memory: vec![memory("hugepages-1Gi", 1 << 30, &[8])],
        devices: vec![devices("v.io/nic", &["a"], None)],
    };
    rig.set(Behaviour::Answer(
        wire::ListPodResourcesResponse { pod_resources: vec![pod(vec![c, container()])] },
        allocatable,
    ));
    let expected = PodResources {
        namespace: "ns".to_owned(),
        name: "p".to_owned(),
        containers: vec![
            ContainerResources {
                name: "c".to_owned(),
                cpus: CpuSet::parse("1,7").unwrap(),
                memory: vec![MemoryBlock {
                    resource: ResourceName::MEMORY,
                    bytes: 512,
                    zones: vec![ZoneId(0), ZoneId(1)],
                }],
                devices: vec![
                    Devices {
                        resource: name("v.io/nic"),
                        ids: vec!["a".to_owned(), "b".to_owned()],
                        zones: vec![ZoneId(1)],
                    },
                    Devices { resource: name("v.io/x"), ids: vec!["y".to_owned()], zones: vec![] },
                    Devices { resource: name("v.io/far"), ids: vec!["z".to_owned()], zones: vec![] },
                ],
            },
            ContainerResources { name: "c".to_owned(), cpus: CpuSet::new(), memory: vec![], devices: vec![] },
        ],
    };
    assert_eq!(rig.client.list().await.unwrap(), [expected]);
    let expected = Allocatable {
        cpus: CpuSet::parse("1,3").unwrap(),
        memory: vec![MemoryBlock { resource: name("hugepages-1Gi"), bytes: 1 << 30, zones: vec![ZoneId(8)] }],
        devices: vec![Devices { resource: name("v.io/nic"), ids: vec!["a".to_owned()], zones: vec![] }],
    };
    assert_eq!(rig.client.allocatable().await.unwrap(), expected);
}

#[test]
fn nonsense_is_refused_with_its_place() {
    let cpus = |ids: &[i64]| wire::ContainerResources { cpu_ids: ids.to_vec(), ..container() };
    let with_memory = |block| wire::ContainerResources { memory: vec![block], ..container() };
    let with_devices = |entry| wire::ContainerResources { devices: vec![entry], ..container() };
    let table = [
        (pod(vec![cpus(&[0, -1])]), "ns/p/c: cpu_ids: -1 is not a CPU id"),
        (pod(vec![cpus(&[i64::MAX])]), "ns/p/c: cpu_ids: 9223372036854775807 is not a CPU id"),
        (pod(vec![cpus(&[8_192])]), "ns/p/c: cpu_ids: CPU id 8192 is too large; allowed are 0 to 8191"),
        (
            pod(vec![with_memory(memory("memory", u64::MAX, &[0]))]),
            "ns/p/c: memory: 18446744073709551615 bytes is impossible",
        ),
        (
            pod(vec![with_memory(memory("", 1, &[0]))]),
            "ns/p/c: memory_type: resource name has 0 bytes; allowed are 1 to 317 (a 253 byte domain, `/`, a 63 byte name)",
        ),
        (
            pod(vec![with_devices(devices(&"x".repeat(400), &["a"], None))]),
            "ns/p/c: resource_name: resource name has 400 bytes; allowed are 1 to 317 (a 253 byte domain, `/`, a 63 byte \
             name)",
        ),
        (
            pod(vec![with_devices(devices("v.io/x", &["a"], zones(&[1 << 40])))]),
            "ns/p/c: v.io/x: NUMA node id 1099511627776 is too large",
        ),
        (
            wire::PodResources { namespace: String::new(), ..pod(vec![]) },
            "pod_resources[0]: pod \"p\" in namespace \"\" has no full name",
        ),
    ];
    for (pod, wanted) in table {
        let error = parse::pods(vec![pod]).unwrap_err().to_string();
        assert_eq!(error, format!("podresources list answered nonsense: {wanted}"));
    }
    // A zone with more reserved than it has: the kubelet's number is below zero.
    let starved = || vec![memory("memory", u64::MAX - 7, &[0])];
    let answer = wire::AllocatableResourcesResponse { memory: starved(), ..Default::default() };
    assert_eq!(parse::allocatable(answer).unwrap().memory[0].bytes, u64::MAX - 7);
    let answer = wire::AllocatableResourcesResponse { cpu_ids: vec![-7], ..Default::default() };
    assert_eq!(
        parse::allocatable(answer).unwrap_err().to_string(),
        "podresources get_allocatable_resources answered nonsense: allocatable: cpu_ids: -7 is not a CPU id"
    );
}

#[tokio::test]
async fn a_huge_answer_is_refused_and_the_client_lives_on() {
    let rig = Rig::new(PATIENT);
    let huge = wire::PodResources { name: "x".repeat(MAX_ANSWER_BYTES + 1), ..pod(vec![]) };
    rig.set(Behaviour::Answer(
        wire::ListPodResourcesResponse { pod_resources: vec![huge] },
        Default::default(),
    ));
    let error = rig.client.list().await.unwrap_err();
    assert!(matches!(error, Error::Status { call: Call::List, .. }), "{error}");
    assert!(error.to_string().contains("16777216"), "{error}");
    // 1 MB, of which decoding would make more than 32 MiB.
    let hollow = pod(vec![wire::ContainerResources::default(); 500_000]);
    rig.set(Behaviour::Answer(
        wire::ListPodResourcesResponse { pod_resources: vec![hollow] },
        Default::default(),
    ));
    let error = rig.client.list().await.unwrap_err();
    assert!(error.to_string().contains("the answer takes more than 32 MiB of memory"), "{error}");
    rig.set(Behaviour::Empty);
    assert_eq!(rig.client.list().await.unwrap(), []);
}

#[tokio::test]
async fn refusals_and_silence_are_errors_that_say_which_call() {
    let rig = Rig::new(PATIENT);
    rig.set(Behaviour::Refuse("rejected by rate limit"));
    let error = rig.client.allocatable().await.unwrap_err();
    assert_eq!(error.to_string(), "podresources get_allocatable_resources failed: rejected by rate limit");
    assert_eq!(error.call(), Some(Call::Allocatable));

    let rig = Rig::new(Duration::from_millis(50));
    rig.set(Behaviour::Hang);
    let error = rig.client.list().await.unwrap_err().to_string();
    assert_eq!(error, "the kubelet did not answer list within 50ms");
}

#[tokio::test]
async fn garbage_instead_of_grpc_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("kubelet.sock")).unwrap();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.writable().await.unwrap();
            let _ = stream.try_write(&[0x5a; 4096]);
        }
    });
    let client = Client::new(&dir.path().join("kubelet.sock"), PATIENT).unwrap();
    let error = client.list().await.unwrap_err();
    assert!(matches!(error, Error::Status { call: Call::List, .. }), "{error}");
    server.abort();
}

#[tokio::test]
async fn a_restarted_kubelet_is_found_again() {
    let mut rig = Rig::new(PATIENT);
    for _ in 0..3 {
        assert_eq!(rig.client.list().await.unwrap(), []);
        rig.stop();
        // The first call may still find the old connection; while the socket is away the error says so.
        let mut error = String::new();
        while !error.contains("No such file") {
            error = rig.client.list().await.unwrap_err().to_string();
            assert!(error.starts_with("podresources list failed: "), "{error}");
        }
        rig.start();
    }
}

#[test]
fn addresses() {
    for text in ["unix:///k/kubelet.sock", "unix:/k/kubelet.sock", "/k/kubelet.sock"] {
        assert_eq!(socket_path(text).unwrap(), Path::new("/k/kubelet.sock"), "{text}");
        let address = Address::parse(text).unwrap();
        assert_eq!((&address, address.file()), (&Address::Socket(address.file()), "/k/kubelet.sock".into()));
    }
    for text in ["", "unix://", "fake:///k", "k/kubelet.sock", "unix://k"] {
        let error = socket_path(text).unwrap_err().to_string();
        assert_eq!(error, format!("{text:?} is not a unix socket path; expected unix:///path or /path"));
    }
    for (text, dir) in [("fake:///k/x", "/k/x"), ("fake://data", "data")] {
        let address = Address::parse(text).unwrap();
        assert_eq!(address, Address::Folder(dir.into()));
        assert_eq!(address.file(), Path::new(dir).join("list.json"));
    }
    for text in ["", "unix://", "fake://", "fake:/k", "foobar:///k", "k/kubelet.sock", "unix://k"] {
        let error = Address::parse(text).unwrap_err().to_string();
        let wanted = "is no podresources address; expected unix:///path or /path of a socket, or fake://dir with answers";
        assert_eq!(error, format!("{text:?} {wanted}"));
    }
}

/// A client of a directory with these files.
fn folder(files: &[(&str, &str)]) -> (TempDir, Client) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let address = Address::parse(&format!("fake://{}", dir.path().display())).unwrap();
    (dir, Client::at(&address, PATIENT).unwrap())
}

#[tokio::test]
async fn recorded_answers_are_read_anew_at_every_call() {
    let list = r#"{"pod_resources": [{"name": "p", "namespace": "ns", "extra": [1], "containers": [
        {"Name": "c", "cpu_ids": [7, 1], "devices": null, "memory": [
            {"memory_type": "memory", "size": 512, "topology": {"nodes": [{"ID": 1}, {}]}},
            {"memory_type": "hugepages-2Mi", "size_": 4096, "topology": {"nodes": [{"id": 2}]}}]},
        {"name": "d", "devices": [{"resource_name": "v.io/nic", "device_ids": ["b", "a"], "topology": {}}]}]}]}"#;
    let allocatable = r#"{"cpu_ids": [3], "devices": [{"resource_name": "v.io/nic", "device_ids": ["a"]}]}"#;
    let (dir, client) = folder(&[("list.json", list), ("get_allocatable_resources.json", allocatable)]);
    let pods = client.list().await.unwrap();
    let [pod] = pods.as_slice() else { panic!("{pods:?}") };
    assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("ns", "p"));
    let block = |resource, bytes, zones: &[u32]| MemoryBlock {
        resource: name(resource),
        bytes,
        zones: zones.iter().copied().map(ZoneId).collect(),
    };
    assert_eq!(pod.containers[0].cpus, CpuSet::parse("1,7").unwrap());
    let blocks = [block("memory", 512, &[0, 1]), block("hugepages-2Mi", 4096, &[2])];
    assert_eq!(pod.containers[0].memory, blocks);
    let ids = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(pod.containers[1].devices, [Devices { resource: name("v.io/nic"), ids, zones: vec![] }]);
    let all = client.allocatable().await.unwrap();
    assert_eq!((all.cpus, all.devices.len()), (CpuSet::parse("3").unwrap(), 1));

    std::fs::write(dir.path().join("list.json"), "{}").unwrap();
    assert_eq!(client.list().await.unwrap(), []);
}

#[tokio::test]
async fn a_recording_is_read_as_the_answer() {
    let held = wire::ContainerResources {
        cpu_ids: vec![7, 1],
        memory: vec![memory("memory", 512, &[0, 1]), memory("hugepages-2Mi", 0, &[])],
        devices: vec![devices("v.io/nic", &["b", "a"], zones(&[1])), devices("v.io/x", &["c"], None)],
        dynamic_resources: vec![wire::DynamicResource { claim_name: "secret".into(), ..Default::default() }],
        ..container()
    };
    let list = wire::ListPodResourcesResponse { pod_resources: vec![pod(vec![held, container()])] };
    let all = wire::AllocatableResourcesResponse {
        cpu_ids: vec![0, 3],
        devices: vec![devices("v.io/nic", &["a"], Some(wire::TopologyInfo::default()))],
        memory: vec![memory("memory", u64::MAX, &[0])],
    };
    let (first, second) = (recording::list(&list).unwrap(), recording::allocatable(&all).unwrap());
    assert!(!first.contains("secret"), "{first}");
    let (dir, client) = folder(&[("list.json", &first), ("get_allocatable_resources.json", &second)]);
    let mut wanted = list;
    wanted.pod_resources[0].containers[0].dynamic_resources.clear();
    assert_eq!(folder::list(dir.path()).unwrap(), wanted);
    assert_eq!(folder::allocatable(dir.path()).unwrap(), all);
    assert_eq!(client.recording(Call::List).await.unwrap(), first);
    assert_eq!(client.recording(Call::Allocatable).await.unwrap(), second);

    let text = "x".repeat(MAX_ANSWER_BYTES);
    let huge = wire::ContainerResources { name: text, ..container() };
    let huge = wire::ListPodResourcesResponse { pod_resources: vec![pod(vec![huge])] };
    let error = recording::list(&huge).unwrap_err().to_string();
    assert!(error.ends_with("are more than the 16777216 of a recording"), "{error}");
}

#[tokio::test]
async fn odd_recordings_name_file_and_field() {
    for (text, wanted) in [
        ("", "{}/list.json: not JSON: EOF while parsing a value at line 1 column 0"),
        ("[]", "{}/list.json: the document: a list is not an object"),
        (r#"{"pod_resources": {}}"#, "{}/list.json: pod_resources: an object is not a list"),
        (
            r#"{"pod_resources": [{"containers": [{"cpu_ids": [1.5]}]}]}"#,
            "{}/list.json: pod_resources[0].containers[0].cpu_ids[0]: 1.5 is not a whole number",
        ),
        (
            r#"{"pod_resources": [{"containers": [{"memory": [{"size": -1}]}]}]}"#,
            "{}/list.json: pod_resources[0].containers[0].memory[0].size: -1 is not a whole number that is not negative",
        ),
        (
            r#"{"pod_resources": [{"name": "p", "namespace": "ns", "containers": [{"name": "c", "cpu_ids": [-1]}]}]}"#,
            "{}/list.json: ns/p/c: cpu_ids: -1 is not a CPU id",
        ),
    ] {
        let (dir, client) = folder(&[("list.json", text)]);
        let error = client.list().await.unwrap_err().to_string();
        let error = error.replace(&dir.path().display().to_string(), "{}");
        assert_eq!(error, format!("podresources list answered nonsense: {wanted}"));
    }
    let (dir, client) = folder(&[("list.json", &" ".repeat(MAX_ANSWER_BYTES + 1))]);
    for (error, wanted) in [
        (client.list().await.unwrap_err(), "list.json has more than 16777216 bytes"),
        (client.allocatable().await.unwrap_err(), "cannot read {}/get_allocatable_resources.json"),
    ] {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.replace(&dir.path().display().to_string(), "{}").contains(wanted), "{cause}");
        assert!(error.call().is_some());
    }
}

proptest! {
    /// Whatever numbers the kubelet sends: an error or sane values.
    #[test]
    fn no_numbers_make_it_panic(
        cpus in proptest::collection::vec(any::<i64>(), 0..4),
        size in any::<u64>(),
        zone in any::<i64>(),
    ) {
        let container = wire::ContainerResources {
            cpu_ids: cpus,
            memory: vec![memory("memory", size, &[zone])],
            devices: vec![devices("v.io/x", &["a"], zones(&[zone, 0]))],
            ..container()
        };
        if let Ok(pods) = parse::pods(vec![pod(vec![container])]) {
            prop_assert!(pods[0].containers[0].memory.iter().all(|block| i64::try_from(block.bytes).is_ok()));
        }
    }

    /// Whatever is in the file: an answer, or an error.
    #[test]
    fn no_recording_makes_it_panic(text in prop_oneof![
        "\\PC{0,80}",
        r#"\{"pod_resources": \[\{"name": "p", "namespace": ("n"|null|3), "containers": \[\{("cpu_ids"|"memory"|"devices"): (\[(-?[0-9]{1,21}|\{\}|"x")?\]|\{\}|[0-9])\}\]\}\]\}"#,
    ]) {
        let (_dir, client) = folder(&[("list.json", &text)]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = runtime.block_on(client.list());
    }
}
