//! `tholepin render`, `images`, `crds` and `version`: what can be said without a cluster.

use std::process::ExitCode;

use anyhow::Context as _;
use runtime::stdout::print;
use serde_json::{Map, Value, json};

use super::act;
use super::choices::{Choices, bool_word};
use super::output::{Answer, Format, formatted};
use super::{ClusterArgs, Which, components, version};
use crate::images::Used;
use crate::manifests::access::Account;
use crate::manifests::{self, claims, text};
use crate::options::Options;
use crate::part::Part;
use crate::platform::Platform;
use objects::Object;

/// Prints the manifests of what deploy would install, object for object the same.
///
/// Needs no cluster, no kubeconfig and no home directory (only `--replicas=auto` counts control plane nodes).
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin render > all.yaml\n  tholepin render topology-updater --kubelet-profile k3s\n  \
    tholepin render --platform openshift:4.20 -o json\n  tholepin render policy --platform openshift:4.18\n  \
    tholepin render operator --platform openshift --image registry.example/tholepin:1\n  \
    tholepin render hardware --image registry.example/tholepin:1\n  \
    tholepin render resource-claims --namespace devices --account nic-plugin\n  \
    tholepin render --updater-type rte --sched-type plugin"
)]
pub struct Args {
    /// What to print: api, topology-updater, scheduler-plugin, policy (the SELinux policy, text), operator (which installs and keeps
    /// the others), hardware (which brings drivers of devices to nodes), or resource-claims (what a device plugin's account needs for
    /// them) [default: all that deploy installs]
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
    /// Namespace (operator, hardware, resource-claims) [default: numaresources, tholepin-hardware, or tholepin]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The device plugin's service account (resource-claims)
    #[arg(long, value_name = "NAME", default_value = claims::ACCOUNT)]
    account: String,
    /// Whether there are objects for the Prometheus operator (operator, hardware) [default: on openshift and hypershift]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = bool_word)]
    pub monitoring: Option<bool>,
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
    /// What keeps all of it true; its objects are its own crate's.
    Operator,
    /// What brings drivers of devices to nodes, likewise.
    Hardware,
    /// What a device plugin's account needs for resource claims.
    ResourceClaims,
}

/// How manifests are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Manifest {
    /// One document for each object.
    Yaml,
    /// One List.
    Json,
}

impl Manifest {
    /// Objects in this form.
    ///
    /// # Errors
    /// When one has no text form.
    pub fn of<'o>(self, objects: impl IntoIterator<Item = &'o Object>) -> anyhow::Result<String> {
        Ok(match self {
            Self::Yaml => text::render_objects(objects)?,
            Self::Json => text::render_objects_json(objects),
        })
    }
}

/// Runs `render`.
///
/// # Errors
/// When a flag's value makes no sense.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let given = args.choices.platform.clone().unwrap_or_default();
    let mut options = args.options()?;
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
        Some(What::ResourceClaims) => {
            let namespace = args.namespace.as_deref().unwrap_or(claims::NAMESPACE);
            return args.print(&claims::objects(Account { namespace, name: &args.account })?);
        }
        Some(What::Operator | What::Hardware) => anyhow::bail!("the operator's manifests are not made here"),
    };
    if args.choices.needs_cluster() {
        let clients = act::connect(&args.cluster.options()).await?;
        options.scheduler.replicas = act::control_plane(&clients.ask).await?;
    }
    let parts = manifests::parts(&options, &components(which))?;
    args.print(parts.iter().flat_map(Part::objects))
}

impl Args {
    /// What the flags come to, for the platform they name, else for Kubernetes.
    ///
    /// # Errors
    /// When a flag's value makes no sense.
    pub fn options(&self) -> anyhow::Result<Options> {
        let given = self.choices.platform.clone().unwrap_or_default();
        let options = self.choices.options(&variable)?;
        let platform = given.platform.unwrap_or(Platform::Kubernetes);
        Ok(Options { platform, version: given.version, ..options })
    }

    /// Prints objects in the form that was asked for.
    ///
    /// # Errors
    /// When one has no text form, or standard output cannot be written.
    pub fn print<'o>(&self, objects: impl IntoIterator<Item = &'o Object>) -> anyhow::Result<ExitCode> {
        print(&self.output.of(objects)?)?;
        Ok(ExitCode::SUCCESS)
    }
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
