//! A device plugin for a kubelet: devices of the node, with their NUMA zones and their health.
//!
//! In: a configuration ([`config`]) and the node's files ([`discovery`], through [`device_store`] and [`health`]). Out:
//! the kubelet knows the devices ([`plugin`]), allocates them ([`prefer`](mod@prefer), [`allocate`]), and containers
//! can use them ([`cdi_file`], [`pre_start`]). Never: an allocation of a device that is unknown or unhealthy, or an
//! opinion about which pod gets one.

pub mod allocate;
pub mod args;
pub mod cdi_file;
pub mod config;
pub mod content_hash;
pub mod device_store;
pub mod device_watcher;
pub mod discovery;
pub mod dra;
pub mod health;
pub mod inventory;
pub mod metrics;
pub mod plugin;
pub mod pre_start;
pub mod prefer;
pub mod process;
pub mod settings;
pub mod sharing;
pub mod variables;

use tokio_util::sync::CancellationToken;

pub use args::Args;
pub use settings::Settings;

/// Runs the device plugin until `shutdown` is cancelled.
///
/// A current-thread runtime is enough.
///
/// # Errors
/// When the plugin cannot start: the configuration is wrong, or the port is taken. Once running it retries whatever
/// fails.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    process::Process::new(settings, &shutdown).run().await
}
