//! `tholepin test`.
//!
//! In: flags. Out: a line for each node, an exit code. Never: a device plugin, or padding.

use std::process::ExitCode;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::common::{CommonArgs, Mode};
use crate::quick;
use crate::runner::{Devices, Plan};

/// The longest time of one pod, from its creation until the report is as before.
const LIMIT: Duration = Duration::from_secs(120);

/// Test in a minute whether pods get zones on every node: one pod a node, and one that no zone holds.
///
/// Each pod takes one core of its node for itself. The kubelet must give it what the model of the kubelet says, as the
/// exporter reports it, and give it back. A pod that a node holds and none of its zones must wait, and not be rejected.
/// Everything is taken away at the end. Exit codes: 0 all is well, 2 something is not, 1 nothing could be tested.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin test\n  tholepin test --scheduler-name default-scheduler\n  \
    tholepin test --context east --context west -o json")]
pub struct QuickArgs {
    /// What all tests have.
    #[command(flatten)]
    common: CommonArgs,
}

/// Runs the command.
///
/// # Errors
/// When nothing can be tested, in one line, or a result cannot be written.
pub async fn run(args: QuickArgs, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let plan = Plan {
        settings: common.settings(),
        scheduler: common.scheduler_name.clone(),
        limit: LIMIT,
        parallel: usize::from(common.parallel),
        keep_going: true,
        devices: Devices::Absent,
        kubelet_root: String::new(),
    };
    common.write(&common.test(&plan, quick::specs, &Mode::default(), &token).await?)
}
