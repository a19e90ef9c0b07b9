//! The rig itself, for real: what starts, what it looks like, and that nothing of it stays.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests"
)]

#[path = "it/cluster.rs"]
mod cluster;
#[path = "it/containers.rs"]
mod containers;
#[path = "it/controlplane.rs"]
mod controlplane;
#[path = "it/device_plugin.rs"]
mod device_plugin;
#[path = "it/oracle.rs"]
mod oracle;
#[path = "it/process_group.rs"]
mod process_group;
#[path = "it/proxy.rs"]
mod proxy;
