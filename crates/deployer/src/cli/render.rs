//! `tholepin render`, `images`, `crds` and `version`: what can be said without a cluster.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::act;
use super::choices::Choices;
use super::output::{Answer, Format, formatted, print};
use super::{ClusterArgs, Which, components, version};
use crate::images::Used;
use crate::manifests;
use crate::platform::Platform;

/// Prints the manifests of what deploy would install, object for object the same.
///
/// Needs no cluster, no kubeconfig and no home directory (only `--replicas=auto` counts control plane nodes).
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin render > all.yaml\n  tholepin render topology-updater --kubelet-profile k3s\n  \
    tholepin render --platform openshift:4.20 -o json\n  tholepin render policy --platform openshift:4.18\n  \
    tholepin render --updater-type rte --sched-type plugin"
)]
pub struct Args {
    /// What to print: api, topology-updater, scheduler-plugin, or policy (the SELinux policy, text) [default: all objects]
    #[arg(value_name = "WHAT", hide_possible_values = true)]
    pub what: Option<What>,
    /// How to print: yaml, or json (one List)
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "yaml",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Manifest,
    #[command(flatten)]
    pub(super) choices: Choices,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// What can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// The NodeResourceTopology definition.
    Api,
    /// What publishes NodeResourceTopology objects.
    TopologyUpdater,
    /// What schedules by them.
    SchedulerPlugin,
    /// The SELinux policy.
    Policy,
}

/// How manifests are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Manifest {
    /// One document for each object.
    Yaml,
    /// One List.
    Json,
}

/// Runs `render`.
///
/// # Errors
/// When a flag's value makes no sense.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let given = args.choices.platform.clone().unwrap_or_default();
    let mut options = args.choices.options(&variable)?;
    let which: &[Which] = match args.what {
        None => &[],
        Some(What::Api) => &[Which::Api],
        Some(What::TopologyUpdater) => &[Which::TopologyUpdater],
        Some(What::SchedulerPlugin) => &[Which::SchedulerPlugin],
        Some(What::Policy) => {
            let openshift = given.version.filter(|_| given.platform == Some(Platform::OpenShift));
            let version =
                openshift.context("the SELinux policy is OpenShift's: say --platform openshift:VERSION")?;
            print(&manifests::selinux_policy(&version))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    options.platform = given.platform.unwrap_or(Platform::Kubernetes);
    options.version = given.version;
    if args.choices.needs_cluster() {
        let clients = act::connect(&args.cluster.options()).await?;
        options.scheduler.replicas = act::control_plane(&clients.ask).await?;
    }
    let parts = manifests::parts(&options, &components(which))?;
    print(&match args.output {
        Manifest::Yaml => manifests::render(&parts)?,
        Manifest::Json => manifests::render_json(&parts),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the images that deploy uses with the same flags and variables.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin images\n  tholepin images --updater-type rte --sched-type plugin --use-sha\n  \
    tholepin images -o json"
)]
pub struct ImagesArgs {
    /// How to print: text (lines of VARIABLE=IMAGE), json or yaml
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        hide_possible_values = true
    )]
    pub output: Format,
    #[command(flatten)]
    choices: Choices,
}

/// Runs `images`.
///
/// # Errors
/// When a flag's value makes no sense.
pub fn images(args: &ImagesArgs) -> anyhow::Result<ExitCode> {
    let options = args.choices.options(&variable)?;
    let Used { topology_updater, scheduler_plugin, scheduler_controller } =
        options.images.used(options.updater.kind, options.scheduler.kind);
    let mut named = vec![("scheduler_plugin", scheduler_plugin)];
    named.extend(scheduler_controller.map(|controller| ("scheduler_controller", controller)));
    named.push(("topology_updater", topology_updater));
    let value: Map<String, Value> =
        named.iter().map(|(role, (_, image))| ((*role).to_owned(), image.clone().into())).collect();
    let mut lines: Vec<String> = named.iter().map(|(_, (name, image))| format!("{name}={image}\n")).collect();
    // Ours is one image in two roles.
    lines.dedup();
    print(&formatted(args.output, &value, || lines.concat())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `crds`.
///
/// # Errors
/// When standard output cannot be written.
pub fn crds() -> anyhow::Result<ExitCode> {
    print(&format!("---\n{}", api::crd::NRT_CRD_YAML))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the version.
#[derive(Clone, Debug, clap::Args)]
pub struct VersionArgs {
    #[command(flatten)]
    answer: Answer,
}

/// Runs `version`.
///
/// # Errors
/// When standard output cannot be written.
pub fn version(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let value = json!({ "version": version::tag(), "commit": version::commit() });
    print(&formatted(args.answer.output, &value, || format!("{}\n", version::full()))?)?;
    Ok(ExitCode::SUCCESS)
}

/// A variable of the environment; one that is not UTF-8 cannot be any of ours.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
