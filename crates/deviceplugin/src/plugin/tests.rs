use node::deviceplugin::{Devices as _, Plugin as _};

use super::*;
use crate::config::Config;
use crate::inventory::{Device, Hardware};

fn plugin(lines: &str) -> Plugin {
    let text = format!(
        "version: v1alpha1\nresources:\n- name: example.com/nic\n  discovery: {{list: {{devices: {{}}}}}}\n{lines}"
    );
    Plugin::new(
        Config::parse("x", &text).unwrap().resources.remove(0),
        Metrics::default(),
        ReclaimTrigger::default(),
    )
}

fn inventory(devices: &[(&str, bool)]) -> Arc<inventory::Resource> {
    let device = |(id, healthy): &(&str, bool)| {
        let unhealthy_reason = (!healthy).then(|| "broken".to_owned());
        (
            (*id).into(),
            Device {
                hardware: Arc::new(Hardware { zones: vec![1], ..Hardware::default() }),
                unhealthy_reason,
            },
        )
    };
    let devices = devices.iter().map(device).collect();
    Arc::new(inventory::Resource { devices, ..inventory::Resource::default() })
}

#[test]
fn the_kubelet_gets_a_list_only_when_it_changed() {
    let plugin = plugin("  sharing: {replicas: 2}\n");
    let mut devices = plugin.devices();
    assert!(matches!(*plugin.state().borrow(), PluginState::DevicesUnknown(_)));
    plugin.offer(inventory(&[("a", true), ("b", false)]));
    assert_eq!(*plugin.state().borrow(), PluginState::NotListening("not registered yet".to_owned()));
    let list: Vec<_> = devices.borrow_and_update().list().map(|device| (device.id, device.healthy)).collect();
    let wanted = [("a::0", true), ("a::1", true), ("b::0", false), ("b::1", false)];
    assert_eq!(list, wanted.map(|(id, healthy)| (id.to_owned(), healthy)));
    plugin.offer(inventory(&[("a", true), ("b", false)]));
    assert!(!devices.has_changed().unwrap());
    plugin.offer(inventory(&[("a", false), ("b", false)]));
    assert!(devices.has_changed().unwrap());
}

#[test]
fn state_follows_registration_events() {
    let plugin = plugin("");
    let away = |reason: &str| PluginState::NotListening(reason.to_owned());
    for (event, wanted) in [
        (RegistrationEvent::Refused("no".to_owned()), away("registration failed: no")),
        (RegistrationEvent::Registered, away("registration failed: no")),
        (RegistrationEvent::Listening, PluginState::Listening),
        (RegistrationEvent::Lost, away("the kubelet stopped listening")),
        (RegistrationEvent::Clash, away("another process serves the plugin's socket; waiting until it ends")),
    ] {
        plugin.on_registration(event.clone());
        assert_eq!(*plugin.state().borrow(), wanted, "{event:?}");
    }
}

#[tokio::test]
async fn shares_of_one_device_are_prepared_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log").display().to_string();
    let lines = format!(
        "  sharing: {{replicas: 2}}\n  preStart: {{command: [/bin/sh, -c, \"echo {{id}} >> {log}\"]}}\n"
    );
    let plugin = plugin(&lines);
    assert!(plugin.wants_pre_start());
    plugin.offer(inventory(&[("a", true), ("b", true)]));
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    plugin.pre_start(ids(&["a::1", "b::0", "a::0"])).await.unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "a\nb\n");
    let error = plugin.pre_start(ids(&["c::0"])).await.unwrap_err();
    assert!(error.message().contains("unknown"), "{error}");
}
