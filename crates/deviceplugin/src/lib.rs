//! A device plugin for a kubelet: devices of the node, with their NUMA zones and their health.
//!
//! In: a configuration ([`config`]), the node's files ([`discovery`], through [`stock`] and [`health`]). Out: the kubelet knows the devices ([`plugin`]), hands them out
//! ([`prefer`](mod@prefer), [`allocate`]), and containers can use them ([`cdi_file`], [`pre_start`]). Never: a device
//! handed out that is unknown or not healthy, or an opinion about who gets one.

pub mod allocate;
pub mod args;
pub mod cdi_file;
pub mod config;
pub mod discovery;
pub mod dra;
pub mod health;
pub mod inventory;
pub mod keeper;
pub mod last;
pub mod metrics;
pub mod plugin;
pub mod pre_start;
pub mod prefer;
pub mod process;
pub mod settings;
pub mod sharing;
pub mod stock;
pub mod variables;

use tokio_util::sync::CancellationToken;

pub use args::Args;
pub use settings::Settings;

/// Runs the device plugin until `shutdown` is cancelled.
///
/// Needs no more than a current-thread runtime.
///
/// # Errors
/// When it cannot start: the configuration is wrong, the port is taken. Once running it keeps trying, whatever fails.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    process::Process::new(settings, &shutdown).run().await
}
