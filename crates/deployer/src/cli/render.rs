//! `tholepin render`, `images`, `crds` and `version`: commands that need no cluster.

use std::process::ExitCode;

use anyhow::Context as _;
use runtime::output::{OutputArgs, OutputFormat};
use runtime::stdout::print;
use serde_json::{Map, Value, json};

use super::flags::{ImageFlags, InstallFlags, ProgramFlags};
use super::values::variable;
use crate::manifests::access::ServiceAccountRef;
use crate::manifests::{self, resource_claims, text, web};
use crate::options::Options;
use crate::part::{Component, Part};
use crate::platform::Platform;
use crate::session::{self, PROGRAM};
use crate::version;
use objects::Object;
use runtime::client::ClusterArgs;

/// Prints the manifests of exactly the objects that deploy would install.
///
/// Needs no cluster, kubeconfig or home directory, except that `--replicas=auto` counts control plane nodes.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin render > all.yaml\n  tholepin render exporter --kubelet-profile k3s\n  \
    tholepin render --platform openshift:4.20 -o json\n  tholepin render policy --platform openshift:4.18\n  \
    tholepin render operator --platform openshift --image registry.example/tholepin:1\n  \
    tholepin render hardware --image registry.example/tholepin:1\n  \
    tholepin render web --image registry.example/tholepin:1\n  \
    tholepin render resource-claims --namespace devices --account nic-plugin\n  \
    tholepin render --updater-type rte --sched-type plugin"
)]
pub struct Args {
    /// Manifests to print: api, exporter, scheduler, policy (RTE's SELinux policy), operator (installs
    /// and keeps the former), hardware (brings device drivers to nodes), web (the page of the cluster) or
    /// resource-claims (permissions of a device plugin) [default: everything that deploy installs]
    #[arg(value_name = "WHAT", hide_possible_values = true)]
    pub target: Option<RenderTarget>,
    /// The format of the manifests.
    #[command(flatten)]
    pub output: OutputArgs<ManifestFormat>,
    /// Namespace that is there already, for exporter and scheduler together, instead of one for each
    #[arg(long, value_name = "NAME", value_parser = super::values::namespace)]
    #[arg(conflicts_with_all = ["namespace", "updater_namespace", "sched_namespace"])]
    existing_namespace: Option<String>,
    /// The device plugin's service account (resource-claims)
    #[arg(long, value_name = "NAME", default_value = resource_claims::ACCOUNT)]
    #[arg(value_parser = super::values::object_name)]
    account: String,
    /// A flag of tholepin operator, such as --operator-flag=--leader-elect=false; can be repeated (operator, hardware)
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub operator_flag: Vec<String>,
    #[command(flatten)]
    pub(super) install: InstallFlags,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The argument of `render`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RenderTarget {
    /// The CustomResourceDefinition of NodeResourceTopology.
    Api,
    /// The program that publishes NodeResourceTopology objects.
    #[value(alias = "topology-updater")]
    Exporter,
    /// The scheduler that reads them.
    #[value(alias = "scheduler-plugin")]
    Scheduler,
    /// The SELinux policy for RTE, as text.
    Policy,
    /// The operator; the crate `operator` makes its objects.
    Operator,
    /// The controller of DeviceConfigs, likewise.
    Hardware,
    /// The permissions that a device plugin needs for resource claims.
    ResourceClaims,
    /// The page of the cluster, as a Deployment.
    Web,
}

/// Formats of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ManifestFormat {
    /// One YAML document for each object.
    Yaml,
    /// One JSON List.
    Json,
}

impl OutputFormat for ManifestFormat {
    const DEFAULT: &'static str = "yaml";
}

/// The first line of YAML.
const HEADER: &str =
    concat!("# Rendered by tholepin ", env!("CARGO_PKG_VERSION"), "; kubectl apply --server-side -f FILE\n");

impl ManifestFormat {
    /// The objects in this format.
    ///
    /// # Errors
    /// When an object has no YAML form.
    pub fn write<'o>(self, objects: impl IntoIterator<Item = &'o Object>) -> anyhow::Result<String> {
        Ok(match self {
            Self::Yaml => format!("{HEADER}{}", text::render_objects(objects)?),
            Self::Json => text::render_objects_json(objects),
        })
    }
}

/// Runs `render`.
///
/// # Errors
/// When a flag's value is not allowed, or control plane nodes have to be counted and cannot be.
pub async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let stated = args.install.platform.clone().unwrap_or_default();
    args.refuse_unused()?;
    let mut options = args.options()?;
    let components: &[Component] = match args.target {
        None => &Component::ALL,
        Some(RenderTarget::Api) => &[Component::Api],
        Some(RenderTarget::Exporter) => &[Component::Exporter],
        Some(RenderTarget::Scheduler) => &[Component::Scheduler],
        Some(RenderTarget::Policy) => {
            let openshift = stated.version.filter(|_| stated.platform == Some(Platform::OpenShift));
            let version = openshift.context(
                "the SELinux policy depends on OpenShift's version: give --platform openshift:VERSION",
            )?;
            print(&manifests::openshift::selinux::policy(Some(&version)))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(RenderTarget::ResourceClaims) => {
            let namespace = args.namespace().unwrap_or(resource_claims::NAMESPACE);
            return args
                .print(&resource_claims::objects(ServiceAccountRef { namespace, name: &args.account }));
        }
        Some(RenderTarget::Web) => {
            let namespace = args.namespace().unwrap_or(web::NAME);
            return args.print(&web::objects(&options, namespace));
        }
        Some(RenderTarget::Operator | RenderTarget::Hardware) => {
            anyhow::bail!("the operator's manifests are not made here")
        }
    };
    if args.install.needs_cluster() {
        let clients = session::connect(&args.cluster.options(PROGRAM)).await?;
        options.scheduler.replicas = session::control_plane_replicas(&clients.reads).await?;
    }
    let parts = args.install.parts(&options, args.existing_namespace.as_deref(), components)?;
    args.print(parts.iter().flat_map(Part::objects))
}

impl Args {
    /// Refuses flags of other manifests than those that are printed.
    fn refuse_unused(&self) -> anyhow::Result<()> {
        if !self.operator_flag.is_empty() {
            anyhow::bail!("--operator-flag is for operator and hardware");
        }
        let is_monitored =
            matches!(self.target, None | Some(RenderTarget::Exporter | RenderTarget::Scheduler));
        if self.monitoring().is_some() && !is_monitored {
            anyhow::bail!(
                "--monitoring is for exporter, scheduler, operator and hardware; nothing else has metrics"
            );
        }
        Ok(())
    }

    /// Whether objects for the Prometheus operator were asked for or refused.
    #[must_use]
    pub fn monitoring(&self) -> Option<bool> {
        self.install.monitoring
    }

    /// The namespace that was given.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.install.namespace.as_deref()
    }

    /// The options that the flags state; the platform is Kubernetes unless a flag names another.
    ///
    /// # Errors
    /// When a flag's value is not allowed.
    pub fn options(&self) -> anyhow::Result<Options> {
        let is_for_both = matches!(
            self.target,
            None | Some(RenderTarget::Api | RenderTarget::Exporter | RenderTarget::Scheduler)
        );
        if self.existing_namespace.is_some() && !is_for_both {
            anyhow::bail!("--existing-namespace is for exporter and scheduler; here there is --namespace");
        }
        let stated = self.install.platform.clone().unwrap_or_default();
        let options = self.install.options(&variable)?;
        let platform = stated.platform.unwrap_or(Platform::Kubernetes);
        Ok(Options { platform, version: stated.version, ..options })
    }

    /// A warning about the check of kubelets' certificates.
    #[must_use]
    pub fn certificate_note(&self, options: &Options) -> Option<String> {
        self.install.certificate_note(options)
    }

    /// Prints objects in the format of `--output`.
    ///
    /// # Errors
    /// When an object has no YAML form, or standard output cannot be written.
    pub fn print<'o>(&self, objects: impl IntoIterator<Item = &'o Object>) -> anyhow::Result<ExitCode> {
        print(&self.output.format.write(objects)?)?;
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
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    programs: ProgramFlags,
    #[command(flatten)]
    images: ImageFlags,
}

/// Runs `images`: lines of `VARIABLE=IMAGE`, or a map from role to image.
///
/// # Errors
/// When standard output cannot be written.
pub fn images(args: &ImagesArgs) -> anyhow::Result<ExitCode> {
    let options = args.programs.with_images(args.images.images(&variable));
    let mut used = options.used_images();
    used.rotate_left(1);
    let value: Map<String, Value> =
        used.iter().map(|used| (used.role.to_owned(), used.image.into())).collect();
    let mut lines: Vec<String> =
        used.iter().map(|used| format!("{}={}\n", used.variable, used.image)).collect();
    // Our own image serves both roles; its line is printed once.
    lines.dedup();
    print(&args.output.format.write(&value, || lines.concat())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `crds`.
///
/// # Errors
/// When standard output cannot be written.
pub fn crds() -> anyhow::Result<ExitCode> {
    let all = [
        api::crd::NRT_CRD_YAML,
        api::crd::OPERATOR_CRD_YAML,
        api::crd::SCHEDULER_CRD_YAML,
        api::crd::DEVICE_CONFIG_CRD_YAML,
    ];
    print(&all.map(|definition| format!("---\n{definition}")).concat())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the version.
#[derive(Clone, Debug, clap::Args)]
pub struct VersionArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs `version`.
///
/// # Errors
/// When standard output cannot be written.
pub fn version(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let value = json!({ "version": env!("CARGO_PKG_VERSION"), "commit": version::commit() });
    print(&args.output.format.write(&value, || format!("tholepin {}\n", *version::VERSION))?)?;
    Ok(ExitCode::SUCCESS)
}
