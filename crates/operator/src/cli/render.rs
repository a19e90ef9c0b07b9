//! `tholepin render operator` and `render hardware`: the operator's own objects as text.
//!
//! In: the flags of `tholepin render`. Out: manifests on standard output. Never: a cluster.

use std::process::ExitCode;

use deployer::cli::render::Args;

use crate::manifests::{self, NAMESPACE, Options};

/// Prints the operator's objects. Of the flags of exporters and schedulers only `--sched-type` has an effect: whether
/// the operator may grant the rights of the Go scheduler.
///
/// # Errors
/// When a flag's value is invalid, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.print(&manifests::objects(&options(args, NAMESPACE)?))
}

/// Prints the objects of the operator with the controller of DeviceConfigs.
///
/// # Errors
/// In the same cases as [`run`].
pub fn hardware(args: &Args) -> anyhow::Result<ExitCode> {
    args.print(&::hardware::manifests::objects(&options(args, ::hardware::manifests::NAMESPACE)?))
}

fn options(args: &Args, namespace: &str) -> anyhow::Result<Options> {
    let common = args.options()?;
    let monitoring = args.monitoring.unwrap_or(common.platform.is_openshift());
    let namespace = args.namespace.clone().unwrap_or_else(|| namespace.to_owned());
    Ok(Options { namespace, common, monitoring })
}
