//! Devices of real plugins: where they count, who takes them, and what becomes of them when they break or go.
//!
//! The timer is off in nearly all of these, so what is seen came by an event.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::DeleteParams;
use testkit::device_plugin::{Device, DevicePlugin, Options, device};
use testkit::machine::Machine;
use topology::fingerprint::Fingerprint;

use super::*;

const NIC: &str = "example.com/nic";
const NO_TIMER: [&str; 1] = ["--sleep-interval=0"];

/// A cluster of one node with two zones of 8 CPUs, and its exporter.
async fn rig(more: &[&str]) -> Option<(Cluster, Client, Exporter)> {
    let machine = Machine::new().zones(2).cpus_per_zone(8);
    let cluster = cluster(|builder| builder.machines([machine])).await?;
    let client = cluster.client().await.unwrap();
    let mut flags = flags(&cluster, 0);
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    let exporter = Exporter::start(&flags);
    Some((cluster, client, exporter))
}

/// A plugin that the kubelet has accepted.
async fn plugin(
    cluster: &Cluster,
    resource: &str,
    devices: impl IntoIterator<Item = Device>,
) -> DevicePlugin {
    let kubelet = cluster.nodes()[0].kubelet();
    let plugin = DevicePlugin::start(kubelet, resource, devices, Options::default()).unwrap();
    plugin.registered(1).await.unwrap();
    plugin
}

/// Creates a pod of one CPU and these devices on the node.
async fn hold(client: &Client, name: &str, devices: &[(&str, u32)]) {
    let mut pod = bound_pod(name, "node-0", 1);
    let resources = pod.spec.as_mut().unwrap().containers[0].resources.as_mut().unwrap();
    for list in [&mut resources.requests, &mut resources.limits] {
        let amounts = devices.iter().map(|(resource, n)| ((*resource).to_owned(), Quantity(n.to_string())));
        list.get_or_insert_default().extend(amounts);
    }
    Api::<Pod>::default_namespaced(client.clone()).create(&PostParams::default(), &pod).await.unwrap();
}

async fn reason(client: &Client, name: &str) -> Option<String> {
    Api::<Pod>::default_namespaced(client.clone()).get(name).await.unwrap().status.unwrap_or_default().reason
}

/// What is said of devices without a zone.
fn unaligned(nrt: &NodeResourceTopology) -> &str {
    attribute::get(&nrt.attributes, api::keys::ATTRIBUTE_UNALIGNED_DEVICES).unwrap_or_default()
}

async fn let_go(client: &Client, name: &str) {
    let force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    Api::<Pod>::default_namespaced(client.clone()).delete(name, &force).await.unwrap();
}

/// One zone, two zones, and two resources of which one's name begins with the other's. All plugins come after the
/// exporter.
#[tokio::test]
async fn a_device_counts_in_each_of_its_zones_and_is_taken_in_all() {
    const NICE: &str = "example.com/nice";
    const WIDE: &str = "example.com/wide";
    let Some((cluster, client, exporter)) = rig(&NO_TIMER).await else { return };
    let nrt = shows(&client, "cpu", "0 7/7/8 | 1 8/8/8").await;
    assert_eq!(show(&nrt, NIC), "0 - | 1 -");
    let _nic = plugin(&cluster, NIC, [device("a", &[0]), device("b", &[1]), device("c", &[1])]).await;
    shows(&client, NIC, "0 1/1/1 | 1 2/2/2").await;
    let _nice = plugin(&cluster, NICE, [device("a", &[0])]).await;
    shows(&client, NICE, "0 1/1/1 | 1 -").await;
    let _wide = plugin(&cluster, WIDE, [device("v", &[0, 1]), device("w", &[1, 0])]).await;
    let nrt = shows(&client, WIDE, "0 2/2/2 | 1 2/2/2").await;
    assert_eq!(show(&nrt, NIC), "0 1/1/1 | 1 2/2/2");

    hold(&client, "both", &[(NIC, 2), (WIDE, 1)]).await;
    let nrt = shows(&client, WIDE, "0 1/2/2 | 1 1/2/2").await;
    assert_eq!(show(&nrt, NIC), "0 1/1/1 | 1 0/2/2");
    assert_eq!(show(&nrt, "cpu"), "0 7/7/8 | 1 7/8/8");
    assert_eq!(show(&nrt, NICE), "0 1/1/1 | 1 -");
    assert_eq!(fingerprint(&nrt), Fingerprint::of_names([("default", "both")]).to_string());

    // Devices make a pod one with exclusive resources, whatever its class.
    let mut light = bound_pod("light", "node-0", 1);
    let amounts = [("example.com/nic".to_owned(), Quantity("1".to_owned()))];
    let container = &mut light.spec.as_mut().unwrap().containers[0];
    let resources = container.resources.as_mut().unwrap();
    (resources.requests, resources.limits) = (None, Some(amounts.into()));
    Api::<Pod>::default_namespaced(client.clone()).create(&PostParams::default(), &light).await.unwrap();
    let nrt = shows(&client, NIC, "0 0/1/1 | 1 0/2/2").await;
    assert_eq!(
        fingerprint(&nrt),
        Fingerprint::of_names([("default", "both"), ("default", "light")]).to_string()
    );

    hold(&client, "late", &[(NIC, 1)]).await;
    until("refused", async || reason(&client, "late").await).await;
    let_go(&client, "both").await;
    let nrt = shows(&client, WIDE, "0 2/2/2 | 1 2/2/2").await;
    assert_eq!(show(&nrt, NIC), "0 0/1/1 | 1 2/2/2");
    let_go(&client, "light").await;
    shows(&client, NIC, "0 1/1/1 | 1 2/2/2").await;
    exporter.stop().await;
}

/// A resource that has no locality takes no part in alignment, and one whose devices are in an unknown zone is in
/// no zone; neither may spoil what else the node has.
#[tokio::test]
async fn devices_without_a_zone_of_the_machine_stand_in_none() {
    const FREE: &str = "example.com/free";
    const MIXED: &str = "example.com/mixed";
    const STRAY: &str = "example.com/stray";
    let Some((cluster, client, exporter)) = rig(&NO_TIMER).await else { return };
    let _free = plugin(&cluster, FREE, [device("a", &[]), device("b", &[])]).await;
    let _stray = plugin(&cluster, STRAY, [device("a", &[9])]).await;
    let _mixed = plugin(&cluster, MIXED, [device("a", &[]), device("b", &[1]), device("c", &[1, 9])]).await;
    let nrt = shows(&client, MIXED, "0 - | 1 2/2/2").await;
    assert_eq!(show(&nrt, FREE), "0 - | 1 -");
    assert_eq!(show(&nrt, STRAY), "0 - | 1 -");
    assert_eq!(unaligned(&nrt), "example.com/free:2:2,example.com/mixed:1:1");

    hold(&client, "free", &[(FREE, 1)]).await;
    let nrt = shows(&client, "cpu", "0 6/7/8 | 1 8/8/8").await;
    assert_eq!(show(&nrt, MIXED), "0 - | 1 2/2/2");
    assert_eq!(unaligned(&nrt), "example.com/free:2:1,example.com/mixed:1:1");
    hold(&client, "mixed", &[(MIXED, 2)]).await;
    let nrt = shows(&client, MIXED, "0 - | 1 0/2/2").await;
    assert_eq!(show(&nrt, "cpu"), "0 6/7/8 | 1 7/8/8");

    // The kubelet aligns such a device to nothing: it wants its zone, and there is none.
    hold(&client, "stray", &[(STRAY, 1)]).await;
    assert_eq!(until("refused", async || reason(&client, "stray").await).await, "TopologyAffinityError");
    exporter.stop().await;
}

/// A device that breaks is not allocatable, whether a container holds it or not; its holder keeps it.
#[tokio::test]
async fn broken_devices_are_not_allocatable() {
    let Some((cluster, client, exporter)) = rig(&NO_TIMER).await else { return };
    let plugin = plugin(&cluster, NIC, [device("a", &[0]), device("b", &[1]), device("c", &[1])]).await;
    shows(&client, NIC, "0 1/1/1 | 1 2/2/2").await;
    plugin.set_health("c", false);
    shows(&client, NIC, "0 1/1/1 | 1 1/1/1").await;
    hold(&client, "first", &[(NIC, 1)]).await;
    shows(&client, NIC, "0 0/1/1 | 1 1/1/1").await;
    hold(&client, "second", &[(NIC, 1)]).await;
    shows(&client, NIC, "0 0/1/1 | 1 0/1/1").await;

    plugin.set_health("c", true);
    shows(&client, NIC, "0 0/1/1 | 1 1/2/2").await;
    // The held one breaks: what is left is the other, and it is free.
    plugin.set_health("b", false);
    let nrt = shows(&client, NIC, "0 0/1/1 | 1 1/1/1").await;
    assert_eq!(
        fingerprint(&nrt),
        Fingerprint::of_names([("default", "first"), ("default", "second")]).to_string()
    );
    plugin.set_health("a", false);
    shows(&client, NIC, "0 - | 1 1/1/1").await;
    plugin.set_health("a", true);
    shows(&client, NIC, "0 0/1/1 | 1 1/1/1").await;
    let_go(&client, "second").await;
    let nrt = shows(&client, "cpu", "0 6/7/8 | 1 8/8/8").await;
    assert_eq!(show(&nrt, NIC), "0 0/1/1 | 1 1/1/1");
    plugin.set_health("b", true);
    shows(&client, NIC, "0 0/1/1 | 1 2/2/2").await;

    // Unplugged and plugged, elsewhere.
    plugin.set([device("d", &[1])]);
    shows(&client, NIC, "0 - | 1 1/1/1").await;
    plugin.set([device("a", &[0]), device("e", &[0])]);
    shows(&client, NIC, "0 1/2/2 | 1 -").await;
    exporter.stop().await;
}

/// The kubelet writes nothing when a plugin dies: the timer finds it out.
#[tokio::test]
async fn devices_of_a_plugin_that_died_are_gone_after_a_while() {
    let Some((cluster, client, exporter)) = rig(&["--sleep-interval=1s"]).await else { return };
    let plugin = plugin(&cluster, NIC, [device("a", &[0]), device("b", &[1])]).await;
    hold(&client, "a", &[(NIC, 1)]).await;
    shows(&client, NIC, "0 0/1/1 | 1 1/1/1").await;
    drop(plugin);
    let nrt = shows(&client, NIC, "0 - | 1 -").await;
    assert_eq!(show(&nrt, "cpu"), "0 6/7/8 | 1 8/8/8");
    let _again = self::plugin(&cluster, NIC, [device("a", &[0]), device("b", &[1])]).await;
    shows(&client, NIC, "0 0/1/1 | 1 1/1/1").await;
    exporter.stop().await;
}

/// A kubelet that starts knows which devices it has handed out before it knows that there are any: readers must not see
/// more of them free than are.
#[tokio::test]
async fn held_devices_are_never_free_while_the_kubelet_restarts() {
    let Some((cluster, client, exporter)) = rig(&NO_TIMER).await else { return };
    let plugin = plugin(&cluster, NIC, [device("a", &[0]), device("b", &[0]), device("c", &[1])]).await;
    shows(&client, NIC, "0 2/2/2 | 1 1/1/1").await;
    hold(&client, "a", &[(NIC, 1)]).await;
    const HELD: &str = "0 1/2/2 | 1 1/1/1";
    shows(&client, NIC, HELD).await;
    runs(&client, "a").await;
    let mut states = states(&client);
    for restart in 0..2 {
        cluster.nodes()[0].kubelet().restart().await.unwrap();
        plugin.registered(restart + 2).await.unwrap();
    }
    shows(&client, NIC, HELD).await;
    hold(&client, "b", &[(NIC, 1)]).await;
    loop {
        let (_, nrt) = next(&mut states).await;
        match show(&nrt, NIC).as_str() {
            "0 - | 1 -" | HELD => assert_eq!(show(&nrt, "cpu"), "0 6/7/8 | 1 8/8/8"),
            "0 0/2/2 | 1 1/1/1" => break,
            other => panic!("{other}"),
        }
    }
    let_go(&client, "a").await;
    let_go(&client, "b").await;
    shows(&client, NIC, "0 2/2/2 | 1 1/1/1").await;
    exporter.stop().await;
}
