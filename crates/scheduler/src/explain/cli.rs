//! The command line of `tholepin explain`.
//!
//! In: flags. Out: an explanation on standard output, notes on standard error, an exit code. Never: a write to the
//! cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use runtime::output::{OutputArgs, TableFormat};
use runtime::stdout::print;
use tokio_util::sync::CancellationToken;

use super::target_pod::TargetPod;
use super::{Explanation, answer, print};
use crate::cluster_input::{ClusterInput, answered, tell};
use crate::shell::now_ms;
use crate::shell::snapshot::Snapshot;

/// Most pods that an error names.
const MAX_NAMED: usize = 5;

/// Tell for every node whether a pod fits there, the first thing that keeps it away, its scores, and the smallest
/// change with which it would fit. The scheduler's own code decides; nothing is changed.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    tholepin explain pod default/trainer-0\n  \
    tholepin explain --pod trainer.yaml -o wide\n  \
    kubectl get nodes,pods,noderesourcetopologies -A -o yaml >dump.yaml\n  \
    tholepin explain pod default/trainer-0 --cluster dump.yaml --config scheduler.yaml\n  \
    tholepin explain --cluster must-gather/ --pod trainer.yaml -o json\n\n\
    The exit code is 0 if the pod would get a node of the cluster, 1 if not, 2 for wrong input. Extenders are not asked.")]
pub struct Args {
    /// The pod: pod NAMESPACE/NAME, or NAME alone with -n
    #[arg(value_name = "POD", num_args = 0..=2, required_unless_present = "pod", conflicts_with = "pod")]
    pub subject: Vec<String>,
    /// Namespace of a pod that is named without one
    #[arg(short = 'n', long, value_name = "NAME", default_value = "default")]
    pub namespace: String,
    /// A pod that is not there yet: the first of a file, or the template of a Deployment or the like; - for standard
    /// input
    #[arg(long, value_name = "FILE")]
    pub pod: Option<PathBuf>,
    /// Only these nodes in the result
    #[arg(long, value_name = "NAME")]
    pub node: Vec<String>,
    /// The cluster.
    #[command(flatten)]
    pub input: ClusterInput,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<TableFormat>,
}

/// Runs the command. Wrong input is told on standard error, with file and field, and the exit code is 2.
///
/// # Errors
/// When the output cannot be written, or `token` is cancelled before the answer.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let explanation = match answered(explain(&args), &token).await? {
        Ok(explanation) => explanation,
        Err(code) => return Ok(code),
    };
    print(&args.output.format.write(&explanation, |wide| print::text(&explanation, wide))?)?;
    Ok(if explanation.chosen.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the flags ask for. Notes are told on standard error.
///
/// # Errors
/// When a file or a cluster cannot be read, or does not have the pod.
pub async fn explain(args: &Args) -> anyhow::Result<Explanation> {
    let settings = args.input.settings()?;
    let wanted = match args.pod {
        Some(_) => None,
        None => Some(subject(&args.subject, &args.namespace)?),
    };
    let mut snapshot = Snapshot::new(wanted.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())));
    args.input.fill(&mut snapshot, "explain").await?;
    let target = match (&args.pod, wanted) {
        (Some(file), _) => TargetPod::of_file(file)?,
        (None, wanted) => of_snapshot(wanted.unwrap_or_default(), &mut snapshot)?,
    };
    let (mut explanation, notes) = answer(settings, snapshot, target, now_ms())?;
    tell(&notes);
    if let Some(unknown) =
        args.node.iter().find(|name| !explanation.nodes.iter().any(|it| *it.node == ***name))
    {
        bail!("--node {unknown}: there is no such node");
    }
    if !args.node.is_empty() {
        explanation.nodes.retain(|row| args.node.iter().any(|name| **name == *row.node));
    }
    Ok(explanation)
}

fn of_snapshot((namespace, name): (&str, &str), snapshot: &mut Snapshot) -> anyhow::Result<TargetPod> {
    let Some(object) = snapshot.pod.take() else {
        let alike: Vec<String> = snapshot
            .pods()
            .filter(|(_, other)| *other == name || other.starts_with(name))
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .take(MAX_NAMED)
            .collect();
        let hint = if alike.is_empty() { String::new() } else { format!("; there is {}", alike.join(", ")) };
        bail!("there is no pod {namespace}/{name}{hint}");
    };
    TargetPod::of_cluster(object).map_err(|error| anyhow::anyhow!("pod {namespace}/{name}: {error}"))
}

/// Namespace and name from `pod NS/NAME`, `pod/NAME`, `NS/NAME` or `NAME`.
fn subject<'a>(words: &'a [String], namespace: &'a str) -> anyhow::Result<(&'a str, &'a str)> {
    const KINDS: [&str; 3] = ["pod", "pods", "po"];
    let is_kind = |word: &str| KINDS.contains(&word);
    let name = match words {
        [kind, name] if is_kind(kind) => name.as_str(),
        [kind, _] => bail!("{kind:?}: allowed is pod NAMESPACE/NAME"),
        [name] if is_kind(name) => bail!("the name is missing: pod NAMESPACE/NAME"),
        [name] => name.as_str(),
        _ => bail!("allowed is pod NAMESPACE/NAME"),
    };
    match name.split_once('/') {
        Some((kind, name)) if is_kind(kind) && words.len() == 1 => Ok((namespace, name)),
        Some((namespace, name)) if !name.contains('/') => Ok((namespace, name)),
        Some(_) => bail!("{name:?}: allowed is NAMESPACE/NAME"),
        None => Ok((namespace, name)),
    }
}
