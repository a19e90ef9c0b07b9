//! N1 to N13: from a device to a NUMA zone, and what a pod gets.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use node::deviceplugin::wire;
use testkit::device_plugin::{DevicePlugin, Options, device};

use crate::rig::{NIC, Rig, channel, entry, fingerprint, listed, replace, show, until};

/// Unhealthy devices count in the node's capacity, and in no zone.
#[tokio::test]
async fn n01_an_unhealthy_device_counts_in_node_capacity_only() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0", "!b 0"], ""));
    rig.node_has(NIC, "2", "1").await;
    rig.zones(NIC, "0 1/1/1 | 1 -").await;
    plugin.stop().await;
    exporter.stop().await;
}

/// A pod's device is missing from its zone, and the report covers the pod.
#[tokio::test]
async fn n02_a_pod_takes_one_and_the_zone_has_one_less() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0", "!b 0"], ""));
    let before = rig.zones(NIC, "0 1/1/1 | 1 -").await;
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    assert_eq!(rig.held(NIC).await, BTreeMap::from([("p".to_owned(), vec!["a".to_owned()])]));
    let after = rig.zones(NIC, "0 0/1/1 | 1 -").await;
    assert_ne!(fingerprint(&before), fingerprint(&after));
    plugin.stop().await;
    exporter.stop().await;
}

/// Two devices of two zones: the kubelet rejects the pod, and our scheduler does not send it.
#[tokio::test]
async fn n03_devices_of_two_zones_do_not_align() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0", "b 1"], ""));
    // No zone has two devices, which a scheduler that reads zones needs to know.
    rig.zones(NIC, "0 1/1/1 | 1 1/1/1").await;
    rig.node_has(NIC, "2", "2").await;
    rig.pod("p", &[(NIC, 2)]).await;
    let (reason, message) = rig.refused("p").await;
    assert_eq!(reason, "TopologyAffinityError", "{message}");
    // Our scheduler sends no such pod.
    let scheduler = rig.scheduler();
    rig.unplaced_pod("q", &[(NIC, 2)]).await;
    let message = rig.unschedulable("q").await;
    assert!(message.contains("0/1 nodes are available") && message.contains("cannot align"), "{message}");
    assert_eq!(rig.state("q").await.0, "Pending");
    scheduler.stop().await;
    plugin.stop().await;
    exporter.stop().await;
}

/// A device without a zone is in no zone, and can be allocated, through our scheduler too.
#[tokio::test]
async fn n04_a_device_without_a_zone_is_in_none() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a -"], ""));
    rig.node_has(NIC, "1", "1").await;
    rig.zones("cpu", "0 7/7/8 | 1 8/8/8").await;
    let scheduler = rig.scheduler();
    rig.unplaced_pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    scheduler.stop().await;
    rig.zones("cpu", "0 6/7/8 | 1 8/8/8").await;
    rig.zones(NIC, "0 - | 1 -").await;
    plugin.stop().await;
    exporter.stop().await;
}

/// A device of two zones counts in both, and is taken from both.
#[tokio::test]
async fn n05_a_device_of_two_zones_is_taken_in_both() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0,1", "b 1,0"], ""));
    rig.zones(NIC, "0 2/2/2 | 1 2/2/2").await;
    rig.pod("p", &[(NIC, 1)]).await;
    rig.zones(NIC, "0 1/2/2 | 1 1/2/2").await;
    plugin.stop().await;
    exporter.stop().await;
}

/// Health changes at run time, by the list and by a file; capacity stays.
#[tokio::test]
async fn n06_health_is_followed() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let (config, health) = (rig.path("devices.yaml"), rig.path("health"));
    let text = |healthy: bool| {
        let list = format!(
            "{{id: a, numanode: 0, healthy: {healthy}}}, {{id: b, numanode: 1, health: {{file: {}}}}}",
            health.display()
        );
        let discovery = format!("discovery: {{list: {{devices: {{node-0: [{list}]}}}}}}");
        format!(
            "version: v1alpha1\nresources:\n- name: {NIC}\n  {discovery}\n  health: {{recoverAfter: 1s}}\n"
        )
    };
    replace(&health, "ok");
    replace(&config, &text(true));
    let plugin = rig.plugin_of(&config);
    rig.zones(NIC, "0 1/1/1 | 1 1/1/1").await;
    replace(&health, "link is down");
    rig.node_has(NIC, "2", "1").await;
    rig.zones(NIC, "0 1/1/1 | 1 -").await;
    replace(&health, "ok");
    rig.zones(NIC, "0 1/1/1 | 1 1/1/1").await;
    // The list is part of the configuration, which is read again when it changes, without a new registration.
    let socket = || std::fs::metadata(rig.folder().join("example.com_nic.sock")).unwrap().ino();
    let before = socket();
    replace(&config, &text(false));
    rig.node_has(NIC, "2", "1").await;
    rig.zones(NIC, "0 - | 1 1/1/1").await;
    assert_eq!(socket(), before);
    // A wrong configuration changes nothing.
    replace(&config, "version: v9\nresources: []\n");
    replace(&health, "broken");
    rig.node_has(NIC, "2", "0").await;
    replace(&health, "ok");
    replace(&config, &text(true));
    rig.node_has(NIC, "2", "2").await;
    plugin.stop().await;
    exporter.stop().await;
}

/// Without the plugin no device can be allocated; the node's capacity stays for a while.
#[tokio::test]
async fn n07_devices_end_with_their_plugin() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=1s"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0", "b 1"], ""));
    rig.zones(NIC, "0 1/1/1 | 1 1/1/1").await;
    let socket = rig.folder().join("example.com_nic.sock");
    assert!(socket.exists());
    plugin.stop().await;
    assert!(!socket.exists());
    rig.node_has(NIC, "2", "0").await;
    rig.zones(NIC, "0 - | 1 -").await;
    if std::env::var_os("FIVE_MINUTES").is_some() {
        // The kubelet's own timeout, and the time until its next status.
        rig.node_has_within(Duration::from_secs(400), NIC, "0", "0").await;
    }
    exporter.stop().await;
}

/// A starting kubelet removes our socket: the plugin registers again, pods keep their devices, and zones never count a
/// device twice.
#[tokio::test]
async fn n08_a_kubelet_restarts() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0", "b 0", "c 1"], ""));
    rig.node_has(NIC, "3", "3").await;
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    let held = rig.held(NIC).await;
    assert_eq!(held["p"].len(), 1);
    // What the zones have left while these pods hold these devices.
    let left = |held: &BTreeMap<String, Vec<String>>| {
        let taken = |ids: &[&str]| held.values().flatten().filter(|id| ids.contains(&id.as_str())).count();
        format!("0 {}/2/2 | 1 {}/1/1", 2 - taken(&["a", "b"]), 1 - taken(&["c"]))
    };
    rig.zones(NIC, &left(&held)).await;
    let reports = rig.reports().await;
    for _ in 0..2 {
        rig.cluster.nodes()[0].kubelet().restart().await.unwrap();
        rig.offers(NIC, 3).await;
        rig.holds(NIC, &held).await;
        rig.zones(NIC, &left(&held)).await;
    }
    rig.pod("q", &[(NIC, 1)]).await;
    rig.runs("q").await;
    let both = rig.held(NIC).await;
    assert_ne!(both["p"], both["q"]);
    rig.zones(NIC, &left(&both)).await;
    for nrt in reports.stop().await {
        for (zone, most) in nrt.zones.iter().zip([2, 1]) {
            let nics = zone.resources.iter().find(|amounts| amounts.name == NIC);
            let counted = nics.map_or(0, |nics| nics.capacity.0.parse::<u32>().unwrap());
            assert!(counted <= most, "{}", show(&nrt, NIC));
        }
    }
    plugin.stop().await;
    exporter.stop().await;
}

/// Two resources of one process: a pod gets both in one zone, or is rejected.
#[tokio::test]
async fn n09_two_resources_align_together() {
    const GPU: &str = "example.com/gpu";
    let Some(rig) = Rig::start().await else { return };
    let text = listed(NIC, &["n0 0", "n1 1"], "") + &entry(GPU, &["g1 1", "g2 1"], "");
    let plugin = rig.plugin(&text);
    rig.node_has(NIC, "2", "2").await;
    rig.node_has(GPU, "2", "2").await;
    rig.pod("p", &[(NIC, 1), (GPU, 1)]).await;
    rig.runs("p").await;
    assert_eq!(rig.held(NIC).await["p"], ["n1"]);
    // The remaining devices of the two resources are in different zones.
    rig.pod("q", &[(NIC, 1), (GPU, 1)]).await;
    assert_eq!(rig.refused("q").await.0, "TopologyAffinityError");
    plugin.stop().await;
}

/// The sample plugin names its socket by the second in which it starts; ours by the resource.
#[tokio::test]
async fn n10_plugins_started_in_one_second_have_distinct_sockets() {
    let Some(rig) = Rig::start().await else { return };
    let names = ["example.com/a", "example.com/b", "test.dev/a"];
    let plugins = names.map(|name| rig.plugin(&listed(name, &["x 0"], "")));
    for name in names {
        rig.node_has(name, "1", "1").await;
    }
    let mut sockets: Vec<String> = std::fs::read_dir(rig.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".sock") && name != "kubelet.sock")
        .collect();
    sockets.sort_unstable();
    assert_eq!(sockets, ["example.com_a.sock", "example.com_b.sock", "test.dev_a.sock"]);
    for plugin in plugins {
        plugin.stop().await;
    }
}

/// The kubelet follows the preferred devices within a zone, and they include those it requires.
#[tokio::test]
async fn n11_preferred_devices_are_compact_and_include_required_ones() {
    let Some(rig) = Rig::start().await else { return };
    let devices = ["a 0", "b 0", "c 1", "d 1", "e 1"];
    let plugin = rig.plugin(&listed(NIC, &devices, "  allocation: {policy: packed}\n"));
    rig.node_has(NIC, "5", "5").await;
    let mut client = rig.client_of(&rig.folder().join("example.com_nic.sock")).await;
    let mut prefer = async |available: &[&str], required: &[&str], size| {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let one = wire::ContainerPreferredAllocationRequest {
            available_device_i_ds: owned(available),
            must_include_device_i_ds: owned(required),
            allocation_size: size,
        };
        let request = wire::PreferredAllocationRequest { container_requests: vec![one] };
        let answer = client.get_preferred_allocation(request).await;
        answer.map(|answer| answer.into_inner().container_responses[0].device_i_ds.clone())
    };
    let all = ["e", "d", "c", "b", "a"];
    assert_eq!(prefer(&all, &[], 2).await.unwrap(), ["a", "b"]);
    assert_eq!(prefer(&all, &["d"], 2).await.unwrap(), ["c", "d"]);
    assert_eq!(prefer(&all, &["a", "d"], 3).await.unwrap(), ["a", "b", "d"]);
    assert_eq!(prefer(&all, &[], 3).await.unwrap(), ["c", "d", "e"]);
    assert!(prefer(&all, &[], 6).await.is_err());
    assert!(prefer(&all, &["a", "b"], 1).await.is_err());
    assert!(prefer(&["a"], &["z"], 1).await.is_err());
    // A real pod, with the kubelet's own question.
    rig.pod("p", &[(NIC, 3)]).await;
    rig.runs("p").await;
    assert_eq!(rig.held(NIC).await["p"], ["c", "d", "e"]);
    plugin.stop().await;
}

/// Another plugin registers our resource and ends: the kubelet takes our resource for gone. Plugins that start and end
/// in quick succession, whose ends the kubelet confuses.
#[tokio::test]
async fn n12_a_plugin_the_kubelet_has_dropped_registers_again() {
    let Some(rig) = Rig::start().await else { return };
    let text = listed(NIC, &["a 0", "b 1"], "");
    for _ in 0..10 {
        let plugin = rig.plugin(&text);
        let socket = rig.folder().join("example.com_nic.sock");
        until("serving", async || tokio::net::UnixStream::connect(&socket).await.ok()).await;
        plugin.stop().await;
    }
    let plugin = rig.plugin(&text);
    rig.node_has(NIC, "2", "2").await;
    // The same socket once more: the kubelet opens a second connection and forgets the first.
    let kubelet = rig.folder().join("kubelet.sock");
    let request = wire::RegisterRequest {
        version: "v1beta1".to_owned(),
        endpoint: "example.com_nic.sock".to_owned(),
        resource_name: NIC.to_owned(),
        options: None,
    };
    let mut registration = wire::registration_client::RegistrationClient::new(channel(&kubelet).await);
    registration.register(request).await.unwrap();
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    rig.node_has(NIC, "2", "2").await;
    // The plugin that ours replaces has not ended yet, and registers once more. Then it ends, and for the kubelet the
    // resource ends with it.
    let options = Options { socket: Some("dp.1700000000".to_owned()), ..Options::default() };
    let kubelet = rig.cluster.nodes()[0].kubelet();
    let other =
        DevicePlugin::start(kubelet, NIC, ["x", "y", "z"].map(|id| device(id, &[0])), options).unwrap();
    rig.node_has(NIC, "3", "3").await;
    drop(other);
    rig.node_has(NIC, "2", "2").await;
    plugin.stop().await;
    rig.node_has(NIC, "2", "0").await;
}

/// The runtime gets names, by the field or by annotations, and the file describes them. It stays when the plugin ends.
#[tokio::test]
async fn n13_names_reach_the_container_runtime() {
    let Some(rig) = Rig::start().await else { return };
    const KIND: &str = "example.com/nic";
    let more = "  cdi: {mode: field}\n  sharing: {replicas: 2}\n";
    let plugin = rig.plugin(&listed(NIC, &["0000:3b:00.0 0"], more));
    rig.node_has(NIC, "2", "2").await;
    rig.pod("p", &[(NIC, 2)]).await;
    rig.runs("p").await;
    let container = rig.container("p");
    // Two shares are one device.
    let name = cdi::name::device_name("0000:3b:00.0");
    assert_eq!(container.cdi_devices, [format!("{KIND}={name}")]);
    assert_eq!(container.env["EXAMPLE_COM_NIC_DEVICES"], b"0000:3b:00.0::0,0000:3b:00.0::1");
    let file = rig.cdi_dir().join("example.com-nic.json");
    let check = || {
        let registry = cdi::Registry::read(&[rig.cdi_dir()]);
        assert!(!registry.has_errors());
        let qualified = container.cdi_devices[0].parse().unwrap();
        let (device, _) = registry.device(&qualified).unwrap();
        assert_eq!(device.container_edits.env, ["EXAMPLE_COM_NIC_0000_3B_00_0=0"]);
    };
    check();
    // A reboot empties the folder; an administrator may too.
    std::fs::remove_file(&file).unwrap();
    until("written again", async || file.exists().then_some(())).await;
    plugin.stop().await;
    check();

    let plugin = rig.plugin(&listed("example.com/old", &["x 1"], "  cdi: {mode: annotation}\n"));
    rig.node_has("example.com/old", "1", "1").await;
    rig.pod("q", &[("example.com/old", 1)]).await;
    rig.runs("q").await;
    let container = rig.container("q");
    assert!(container.cdi_devices.is_empty());
    let annotations =
        container.annotations.iter().filter(|(key, _)| key.starts_with(cdi::annotation::PREFIX));
    assert_eq!(annotations.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["example.com/old=x"]);
    plugin.stop().await;
}
