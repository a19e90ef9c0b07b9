use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use testkit::cluster::Cluster;
use testkit::device_plugin::{DevicePlugin, Options, device};
use testkit::env::rig;
use testkit::kubelet::KubeletOptions;
use testkit::load;
use testkit::machine::Machine;

const RESOURCE: &str = "testkit.dev/oar";

/// A real kubelet takes the plugin, asks all that a plugin can be asked, and finds it again after a restart.
#[tokio::test]
async fn a_kubelet_hands_out_what_the_plugin_has() {
    let Ok(rig) = rig() else { return };
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let mut kubelet = KubeletOptions::default();
    kubelet.config.insert("nodeStatusUpdateFrequency".to_owned(), "1s".into());
    let cluster = Cluster::builder().node(machine, kubelet).start(&rig).await.unwrap();
    let client = cluster.client().await.unwrap();
    let kubelet = cluster.nodes()[0].kubelet();
    let options = Options { prefers_last: true, pre_start: true, ..Options::default() };
    let devices = [device("a", &[0]), device("b", &[1]), device("c", &[1]), device("d", &[1])];
    let plugin = DevicePlugin::start(kubelet, RESOURCE, devices, options).unwrap();
    plugin.registered(1).await.unwrap();
    shows(&client, "4").await;

    runs(&client, "two", "2").await;
    let calls = plugin.calls();
    assert_eq!(calls.allocate, [["c", "d"]], "only zone 1 has two, and of its three these are preferred");
    assert_eq!((calls.prefer.as_slice(), &calls.pre_start), ([2].as_slice(), &calls.allocate));

    kubelet.restart().await.unwrap();
    plugin.registered(2).await.unwrap();
    shows(&client, "4").await;
    runs(&client, "one", "1").await;
    assert_eq!(plugin.calls().allocate[1..], [["a"]], "a restarted kubelet has not handed c and d out again");

    plugin.set_health("b", false);
    shows(&client, "3").await;
    drop(plugin);
    shows(&client, "0").await;
}

/// Waits until the node has so many to give.
async fn shows(client: &kube::Client, wanted: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let shown = await_condition(nodes, "node-0", |node: Option<&Node>| {
        let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
        allocatable.and_then(|allocatable| allocatable.get(RESOURCE)).is_some_and(|n| n.0 == wanted)
    });
    tokio::time::timeout(Duration::from_secs(60), shown).await.expect(wanted).unwrap();
}

async fn runs(client: &kube::Client, name: &str, devices: &str) {
    let mut pod = load::guaranteed_pod(name, "none", [("cpu", "1"), ("memory", "16Mi"), (RESOURCE, devices)]);
    pod.spec.as_mut().unwrap().node_name = Some("node-0".to_owned());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let running = await_condition(pods.clone(), name, |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Running")
    });
    if tokio::time::timeout(Duration::from_secs(60), running).await.is_err() {
        panic!("{name} does not run: {:?}", pods.get(name).await.map(|pod| pod.status));
    }
}
