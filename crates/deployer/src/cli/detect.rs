//! `tholepin detect`.

use std::process::ExitCode;

use anyhow::Context as _;
use runtime::stdout::print;
use serde_json::json;

use super::output::{Answer, formatted};
use super::{ClusterArgs, act};
use crate::detect::{self, Given};

/// Tells what kind of cluster it is: Kubernetes, OpenShift or HyperShift, and which version.
///
/// What cannot be found out is told on standard error, with the reason, and the exit code is 2.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin detect\n  tholepin detect -o json\n  tholepin detect --control-plane\n  \
    tholepin detect --platform openshift:4.18"
)]
pub struct Args {
    /// Believe this instead of asking: a kind, or kind:version, such as kubernetes, openshift:4.18, hypershift
    #[arg(short = 'P', long, value_name = "KIND[:VERSION]")]
    pub platform: Option<Given>,
    /// Count the control plane's nodes instead
    #[arg(long)]
    pub control_plane: bool,
    #[command(flatten)]
    answer: Answer,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
}

const UNANSWERED: u8 = 2;

/// Runs the command.
///
/// # Errors
/// When the cluster cannot be reached at all.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let clients = act::connect(&args.cluster.options()).await?;
    if args.control_plane {
        let nodes = detect::control_plane_nodes(&clients.ask).await;
        return match nodes {
            Ok(nodes) => {
                let text = || format!("nodes={nodes}\n");
                print(&formatted(args.answer.output, &json!({ "nodeCount": nodes }), text)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Ok(unanswered(&[error])),
        };
    }
    let found = detect::cluster(&clients.ask, &args.platform.clone().unwrap_or_default()).await;
    print(&formatted(args.answer.output, &found, || format!("{found}\n")).context("the answer")?)?;
    let errors: Vec<_> =
        [found.platform.get().err(), found.version.get().err()].into_iter().flatten().collect();
    Ok(unanswered(&errors))
}

fn unanswered(errors: &[detect::Error]) -> ExitCode {
    errors.iter().for_each(|error| eprintln!("error: {error}"));
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNANSWERED) }
}
