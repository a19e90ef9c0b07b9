//! Publishes a node's NUMA zones: what the kubelet has handed out, per zone, as one NodeResourceTopology object.
//!
//! In: the kubelet's podresources service, configuration and state files, sysfs ([`scan`], run by [`scan_loop`] at the
//! times that [`schedule`] decides). Out: one object on the API server ([`object`] computes its content, [`publish`]
//! writes it), metrics and health. Never: an opinion about placement, an object of another node, a write without a
//! change.
//!
//! [`record`] copies the inputs of a scan to a folder. [`readiness`] keeps conditions on the exporter's own pod.
//! [`rbac`] lists the permissions, and [`policy`] ties them to the own node. On the node the exporter needs read access
//! to the podresources socket, the kubelet's root directory and sysfs.

pub mod args;
pub mod compat;
pub mod configuration;
pub mod holdings;
pub mod metrics;
pub mod object;
pub mod placements;
pub mod policy;
pub mod preview;
pub mod process;
pub mod publish;
pub mod rbac;
pub mod readiness;
pub mod record;
pub mod report;
pub mod scan;
pub mod scan_loop;
pub mod schedule;
pub mod settings;
pub mod stability;
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
/// When it cannot start: settings that contradict the machine, no Kubernetes configuration, a port in use. A running
/// exporter retries after every failure. Only a dry run of a single scan ends with the failure of that scan.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> anyhow::Result<()> {
    match settings.dry_run {
        Some(format) if settings.once => preview::once(&settings, format).await,
        _ => Process::new(settings, &shutdown).run().await,
    }
}
