//! Registration through the kubelet's plugin watcher: the kubelet finds the plugin.

use deviceplugin::config::Config;
use deviceplugin::settings::{ConfigSource, Settings};
use node::deviceplugin::RegistrationMode;

use crate::rig::{NIC, Rig, listed, run};

/// The plugin is found, served, found again by a restarted kubelet, and gone when it ends.
#[tokio::test]
async fn the_plugin_watcher_finds_the_plugin_after_restarts() {
    let Some(rig) = Rig::start().await else { return };
    let config = Config::parse("test", &listed(NIC, &["a 0", "b 1"], "")).unwrap();
    let settings = Settings {
        registration: RegistrationMode::Watcher,
        socket_dir: rig.registry(),
        ..rig.settings(ConfigSource::Flags(config))
    };
    let plugin = run(settings);
    rig.node_has(NIC, "2", "2").await;
    let socket = rig.registry().join("example.com_nic@localhost-reg.sock");
    assert!(socket.exists());
    assert!(!rig.folder().join("example.com_nic.sock").exists());
    rig.pod("p", &[(NIC, 1)]).await;
    rig.runs("p").await;
    let held = rig.held(NIC).await;
    for _ in 0..2 {
        rig.cluster.nodes()[0].kubelet().restart().await.unwrap();
        rig.offers(NIC, 2).await;
        rig.holds(NIC, &held).await;
    }
    rig.pod("q", &[(NIC, 1)]).await;
    rig.runs("q").await;
    plugin.stop().await;
    assert!(!socket.exists());
    rig.node_has(NIC, "2", "0").await;
}
