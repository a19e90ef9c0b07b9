//! `tholepin render operator`: the operator's own objects as text.
//!
//! In: the flags of `tholepin render`. Out: manifests on standard output. Never: a cluster.

use std::process::ExitCode;

use deployer::cli::render::Args;

use crate::manifests::{self, Options};

/// Prints them. Flags about exporters and schedulers do not matter: those are what the operator is asked for.
///
/// # Errors
/// When a flag's value makes no sense, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let common = args.options()?;
    let monitoring = args.monitoring.unwrap_or(common.platform.is_openshift());
    let options = Options { namespace: args.namespace.clone(), common, monitoring };
    args.print(&manifests::objects(&options)?)
}
