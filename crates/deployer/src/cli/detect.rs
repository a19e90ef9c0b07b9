//! `tholepin detect`.

use std::process::ExitCode;

use runtime::output::OutputArgs;
use runtime::stderr;
use runtime::stdout::print;
use serde_json::json;

use crate::detect::{self, PlatformSpec};
use crate::session::{self, PROGRAM};
use runtime::client::ClusterArgs;

/// Prints the platform of a cluster (Kubernetes, OpenShift or HyperShift) and its version.
///
/// A question that the cluster does not answer is explained on standard error; the exit code is then 2.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin detect\n  tholepin detect -o json\n  tholepin detect --control-plane\n  \
    tholepin detect --platform openshift:4.18"
)]
pub struct Args {
    /// Take this platform, or platform and version, as given: kubernetes, openshift:4.18, hypershift
    #[arg(short = 'P', long, value_name = "KIND[:VERSION]")]
    pub platform: Option<PlatformSpec>,
    /// Print the number of control plane nodes instead
    #[arg(long)]
    pub control_plane: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
}

const UNANSWERED: u8 = 2;

/// Runs the command.
///
/// # Errors
/// When there is no usable kubeconfig, or standard output cannot be written.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let clients = session::connect(&args.cluster.options(PROGRAM)).await?;
    let format = args.output.format;
    if args.control_plane {
        return match detect::control_plane_nodes(&clients.reads).await {
            Ok(nodes) => {
                let text = || format!("nodes={nodes}\n");
                print(&format.write(&json!({ "nodeCount": nodes }), text)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Ok(unanswered(&[error])),
        };
    }
    let found = detect::cluster(&clients.reads, &args.platform.clone().unwrap_or_default()).await;
    // Without any answer there is nothing to print for people.
    let has_answer = found.platform.get().is_ok() || found.version.get().is_ok();
    print(&format.write(&found, || if has_answer { format!("{found}\n") } else { String::new() })?)?;
    let errors: Vec<_> =
        [found.platform.get().err(), found.version.get().err()].into_iter().flatten().collect();
    Ok(unanswered(&errors))
}

fn unanswered(errors: &[detect::Error]) -> ExitCode {
    errors.iter().for_each(|error| stderr::line(format_args!("error: {error}")));
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNANSWERED) }
}
