//! N1 to N13: from a device to a NUMA zone, and what a pod gets.

use crate::rig::{NIC, Rig, listed};

/// Unhealthy devices count in the node's capacity, and in no zone.
#[tokio::test]
async fn n01_an_unhealthy_device_is_capacity_of_the_node_only() {
    let Some(rig) = Rig::start().await else { return };
    let exporter = rig.exporter(&["--sleep-interval=0"]);
    let plugin = rig.plugin(&listed(NIC, &["a 0", "!b 0"], ""));
    rig.node_has(NIC, "2", "1").await;
    rig.zones(NIC, "0 1/1/1 | 1 -").await;
    plugin.stop().await;
    exporter.stop().await;
}
