//! From a node to its NodeResourceTopology object: what the kubelet has handed out, per NUMA zone, within milliseconds.
//!
//! In: the kubelet's podresources service, configuration and state files, sysfs ([`scan`], woken by [`lookout`] at the
//! moments [`pace`] decides). Out: one object on the API server ([`object`] says what, [`publish`] sees to it), metrics and
//! health. Never: an opinion about placement, an object of another node, a write without a change.
//!
//! [`readiness`] tells our own pod how it goes. RBAC is in [`rbac`], its gap is closed by [`policy`]. On the node: read access
//! to the podresources socket, the kubelet's root directory and sysfs.

pub mod args;
pub mod belief;
pub mod configuration;
pub mod dialect;
pub mod lookout;
pub mod metrics;
pub mod object;
pub mod pace;
pub mod placements;
pub mod policy;
pub mod preview;
pub mod process;
pub mod publish;
pub mod rbac;
pub mod readiness;
pub mod report;
pub mod scan;
pub mod settings;
pub mod status;
pub mod zones;

#[cfg(test)]
mod script;

use tokio_util::sync::CancellationToken;

pub use args::Args;
pub use settings::Settings;

use process::Process;

/// Runs the exporter until `shutdown` is cancelled; once only, until the first success.
///
/// Needs no more than a current-thread runtime.
///
/// # Errors
/// When it cannot start: settings that contradict the machine, no Kubernetes configuration, the port is taken. Once running
/// it keeps trying, whatever fails; except for a dry run of a single look, which ends with what failed.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    match settings.dry_run {
        Some(format) if settings.once => preview::once(&settings, format).await,
        _ => Process::new(settings, &shutdown).run().await,
    }
}
