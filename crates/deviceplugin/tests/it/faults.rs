//! Calls that no kubelet makes: garbage on the socket, huge messages, unknown devices. And faults of a node: broken
//! devices, files in the way, folders that vanish.

use std::path::{Path, PathBuf};

use deviceplugin::config::Config;
use deviceplugin::settings::{ConfigSource, Settings};
use node::deviceplugin::{RegistrationMode, wire};
use node::pluginwatcher::wire::RegistrationStatus;
use node::pluginwatcher::wire::registration_client::RegistrationClient;
use prometheus_client::encoding::text::encode;
use testkit::exposition::assert_known;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tonic::Code;

use crate::rig::{NIC, Rig, channel, listed, replace, run, until};

fn allocate(ids: &[&str]) -> wire::AllocateRequest {
    let devices_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    wire::AllocateRequest { container_requests: vec![wire::ContainerAllocateRequest { devices_ids }] }
}

/// 5 MiB of ids.
fn huge() -> wire::AllocateRequest {
    allocate(&vec![&*"x".repeat(50); 100_000])
}

fn socket(rig: &Rig) -> PathBuf {
    rig.folder().join("example.com_nic.sock")
}

/// Writes what no gRPC client writes, then leaves silent connections open: they last as long as the returned value.
pub(crate) async fn send_garbage(socket: &Path) -> Vec<UnixStream> {
    let garbage: [&[u8]; 5] = [
        b"\0\0\0\0\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\xff\xff\x01\x05\0\0\0\x01aaaa",
        b"",
    ];
    for _ in 0..20 {
        for bytes in garbage {
            let mut stream = UnixStream::connect(socket).await.unwrap();
            // The plugin may have closed the connection already.
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
        }
    }
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(UnixStream::connect(socket).await.unwrap());
    }
    silent
}

/// Sends a plugin a larger message than any kubelet's; returns the status code.
pub(crate) async fn send_oversized_status(registration: &Path) -> Code {
    let mut client = RegistrationClient::new(channel(registration).await);
    let status = RegistrationStatus { plugin_registered: false, error: "no ".repeat(100_000) };
    client.notify_registration_status(status).await.unwrap_err().code()
}

/// Whatever arrives on the socket, the kubelet is served as before.
#[tokio::test]
async fn garbage_on_the_socket_is_harmless() {
    let Some(rig) = Rig::start().await else { return };
    let plugin = rig.plugin(&listed(NIC, &["a 0", "!b 1"], ""));
    rig.node_has(NIC, "2", "1").await;
    let silent = send_garbage(&socket(&rig)).await;
    let mut client = rig.client_of(&socket(&rig)).await;
    let code = |result: Result<tonic::Response<wire::AllocateResponse>, tonic::Status>| {
        let status = result.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    // 5 MiB of ids, and one id of a million letters.
    assert_eq!(code(client.allocate(huge()).await).0, Code::OutOfRange);
    let long = "y".repeat(1_000_000);
    let (long, message) = code(client.allocate(allocate(&[&long])).await);
    assert!(long == Code::InvalidArgument && message.len() < 500, "{long:?} {message}");
    for (ids, wanted) in [
        (vec!["c"], "device \"c\" of example.com/nic is unknown; known are 2 (a, b)"),
        (vec!["a", "a"], "device \"a\" was asked for twice"),
        (vec![], "no devices were asked for"),
        (vec!["\u{1b}[31m\n"], "device \"\\u{1b}[31m\\n\" of example.com/nic is unknown; known are 2 (a, b)"),
    ] {
        assert_eq!(code(client.allocate(allocate(&ids)).await), (Code::InvalidArgument, wanted.to_owned()));
    }
    assert_eq!(
        code(client.allocate(allocate(&["b"])).await),
        (
            Code::FailedPrecondition,
            "device \"b\" of example.com/nic is not healthy: listed as unhealthy".to_owned()
        )
    );
    // The same question has the same answer.
    let first = client.allocate(allocate(&["a"])).await.unwrap().into_inner();
    assert_eq!(client.allocate(allocate(&["a"])).await.unwrap().into_inner(), first);
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    drop(silent);
    plugin.stop().await;
}

/// The same with the plugin watcher, which asks on the same socket.
#[tokio::test]
async fn garbage_on_the_watchers_socket_is_harmless() {
    let Some(rig) = Rig::start().await else { return };
    let config = Config::parse("test", &listed(NIC, &["a 0"], "")).unwrap();
    let settings = Settings {
        registration: RegistrationMode::Watcher,
        socket_dir: rig.registry(),
        ..rig.settings(ConfigSource::Flags(config))
    };
    let plugin = run(settings);
    rig.node_has(NIC, "1", "1").await;
    let socket = rig.registry().join("example.com_nic@localhost-reg.sock");
    let silent = send_garbage(&socket).await;
    let mut client = rig.client_of(&socket).await;
    assert_eq!(client.allocate(huge()).await.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(send_oversized_status(&socket).await, Code::OutOfRange);
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    // A restarted kubelet finds the plugin again.
    let held = rig.held(NIC).await;
    rig.cluster.nodes()[0].kubelet().restart().await.unwrap();
    rig.offers(NIC, 1).await;
    rig.holds(NIC, &held).await;
    drop(silent);
    plugin.stop().await;
}

/// A pod that cannot have its devices shows why.
#[tokio::test]
async fn a_rejected_pod_says_why() {
    let Some(rig) = Rig::start().await else { return };
    let more = "  sharing: {replicas: 2, onePerContainer: true}\n";
    let plugin = rig.plugin(&listed(NIC, &["a 0"], more));
    rig.node_has(NIC, "2", "2").await;
    rig.pod("greedy", &[(NIC, 2)]).await;
    let (reason, message) = rig.refused("greedy").await;
    assert_eq!(reason, "UnexpectedAdmissionError");
    assert!(message.contains("the configuration allows one for a container"), "{message}");
    rig.pod("one", &[(NIC, 1)]).await;
    rig.pod("two", &[(NIC, 1)]).await;
    rig.runs("one").await;
    rig.runs("two").await;
    let held = rig.held(NIC).await;
    assert_ne!(held["one"], held["two"]);
    plugin.stop().await;
}

/// A failed preparation keeps the container from starting, and is retried with it.
#[tokio::test]
async fn a_device_is_prepared_before_its_container_starts() {
    let Some(rig) = Rig::start().await else { return };
    let reset = rig.path("reset-a");
    let more = format!("  preStart: {{reset: \"{}/reset-{{id}}\"}}\n", rig.files.path().display());
    let plugin = rig.plugin(&listed(NIC, &["a 0"], &more));
    rig.node_has(NIC, "1", "1").await;
    rig.pod("p", &[(NIC, 1)]).await;
    until("a failed start", async || {
        let status = rig.pods().get("p").await.unwrap().status?;
        let waiting = status.container_statuses?.first()?.state.clone()?.waiting?;
        waiting.message.filter(|message| message.contains("reset-a: No such file or directory"))
    })
    .await;
    std::fs::write(&reset, "").unwrap();
    rig.runs("p").await;
    assert_eq!(std::fs::read_to_string(&reset).unwrap(), "1");
    plugin.stop().await;
}

/// Device nodes of a folder: they are gone with their driver, and have to stay once they are back.
#[tokio::test]
async fn devices_follow_a_folder_that_vanishes_and_returns() {
    let Some(rig) = Rig::start().await else { return };
    let dev = rig.path("dev");
    let make = |names: &[&str]| {
        std::fs::create_dir_all(&dev).unwrap();
        names.iter().for_each(|name| std::fs::write(dev.join(name), "").unwrap());
    };
    let text = format!(
        "version: v1alpha1\nresources:\n- name: {NIC}\n  \
         health: {{recoverAfter: 300ms, checkEvery: 100ms, forgetAfter: 1h}}\n  \
         discovery: {{directory: {{path: {}, prefix: acc, anyFile: true, zones: {{acc0: [0], acc1: [1]}}}}}}\n",
        dev.display()
    );
    let config = rig.path("devices.yaml");
    replace(&config, &text);
    let plugin = rig.plugin_of(&config);
    // Nothing is known, so nothing is registered.
    until("waiting", async || (rig.node(NIC).await.0 == "-").then_some(())).await;
    make(&["acc0", "acc1", "other"]);
    rig.node_has(NIC, "2", "2").await;
    std::fs::remove_dir_all(&dev).unwrap();
    rig.node_has(NIC, "2", "0").await;
    make(&["acc1"]);
    rig.node_has(NIC, "2", "1").await;
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    let devices = rig.container("p").devices;
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].host_path, dev.join("acc1").display().to_string());
    plugin.stop().await;
}

/// A file in the place of our socket stays and is reported; once it is gone the plugin serves.
#[tokio::test]
async fn a_file_in_place_of_the_socket_stays() {
    let Some(rig) = Rig::start().await else { return };
    std::fs::write(socket(&rig), "precious").unwrap();
    let port = testkit::port::free().unwrap();
    let config = Config::parse("test", &listed(NIC, &["a 0"], "")).unwrap();
    let mut settings = rig.settings(ConfigSource::Flags(config));
    settings.http = Some(([127, 0, 0, 1], port).into());
    let plugin = run(settings);
    until("reported", async || {
        let answer = ask(port, "/readyz").await?;
        answer.contains("something that is not a socket is in its place").then_some(())
    })
    .await;
    assert_eq!(std::fs::read_to_string(socket(&rig)).unwrap(), "precious");
    std::fs::remove_file(socket(&rig)).unwrap();
    rig.node_has(NIC, "1", "1").await;
    until("ready", async || ask(port, "/readyz").await?.ends_with("ok").then_some(())).await;
    assert!(ask(port, "/healthz").await.unwrap().ends_with("ok"));
    let metrics = ask(port, "/metrics").await.unwrap();
    for line in [
        "tholepin_device_plugin_devices{resource=\"example.com/nic\",zone=\"0\",health=\"healthy\"} 1",
        "tholepin_device_plugin_listening{resource=\"example.com/nic\"} 1",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let mut known = String::new();
    encode(&mut known, &deviceplugin::metrics::specimen()).unwrap();
    assert_known(&metrics, &known);
    plugin.stop().await;
}

pub(crate) async fn ask(port: u16, path: &str) -> Option<String> {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// The file of devices that the sample plugin reads, with its variables and its `/dev/null`.
#[tokio::test]
async fn the_sample_plugins_files_and_flags_work() {
    let Some(rig) = Rig::start().await else { return };
    let text = "devices:\n  node-0:\n  - {id: A1, healthy: true, numanode: 1, devicename: tty0}\n  \
                - {id: A2, numanode: 1}\n  \
                \"*\": [{id: B, healthy: true, numanode: 0}]\n";
    replace(&rig.path("example_com_nic.yaml"), text);
    let words =
        ["deviceplugin", "--alsologtostderr", "-C", rig.files.path().to_str().unwrap(), "-r", NIC, "-v=4"];
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut settings = deviceplugin::args::parse_sample(&words).unwrap().settings().unwrap();
    let own = rig.settings(settings.source.clone());
    (settings.environment, settings.socket_dir) = (own.environment, own.socket_dir);
    let plugin = run(settings);
    rig.node_has(NIC, "2", "1").await;
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    let container = rig.container("p");
    let variables = [
        ("_SAMPLE_DEVICE_RESOURCE", NIC),
        ("_SAMPLE_DEVICE_ASSIGNED", "A1"),
        ("_SAMPLE_DEVICE_NUMA_LOCALITY", "1"),
        ("EXAMPLECOMNIC_A1", "1"),
    ];
    for (name, value) in variables {
        assert_eq!(container.env[name], value.as_bytes(), "{name}");
    }
    assert_eq!(
        container.devices.iter().map(|device| device.host_path.as_str()).collect::<Vec<_>>(),
        ["/dev/null"]
    );
    plugin.stop().await;
}

/// Many questions at once, from many connections.
#[tokio::test]
async fn a_hundred_connections_are_served() {
    let Some(rig) = Rig::start().await else { return };
    let plugin = rig.plugin(&listed(NIC, &["a 0", "b 1"], ""));
    rig.node_has(NIC, "2", "2").await;
    let path = socket(&rig);
    let one = async |path: &Path| {
        let channel = channel(path).await;
        let mut client = wire::device_plugin_client::DevicePluginClient::new(channel);
        for _ in 0..20 {
            client.allocate(allocate(&["a", "b"])).await.unwrap();
        }
    };
    futures::future::join_all((0..100).map(|_| one(&path))).await;
    plugin.stop().await;
}
