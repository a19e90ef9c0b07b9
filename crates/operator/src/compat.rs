//! The Go operator's command line.
//!
//! In: its flags and variables. Out: the same settings as [`crate::cli`]'s, or output and an exit code. Never: a rule
//! of a controller.
//!
//! Flags that are not needed here (webhooks, the scheduler's default image) are accepted with a warning.

pub mod render;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use deployer::detect::{self, ClusterInfo, PlatformSpec};
use deployer::manifests::text::render_objects;
use hardware::process::{BINDING, PATIENCE};
use runtime::client::{ClusterArgs, Connection, Options};
use runtime::goflag::{self, FlagSet, KLOG, Outcome, Parsed};
use runtime::stdout::print;
use runtime::{http, log};
use tokio_util::sync::CancellationToken;

use crate::environment::EnvironmentOptions;
use crate::process::{self, CERTIFICATES, Part, Settings};
use crate::watch::kubelets::Trust;
pub use exporter::compat::{Ending, Note};
use table::FLAGS;

/// The name of the program.
pub const PROGRAM: &str = "numaresources-operator";
/// The deadline of a call to the cluster.
const CALL: std::time::Duration = std::time::Duration::from_secs(15);

/// The action of a command line.
#[derive(Debug)]
pub struct Plan {
    action: Action,
    /// The verbosity, as klog's `-v`.
    pub verbosity: u8,
    /// Notes for the log, once it is set up.
    pub notes: Vec<Note>,
}

#[derive(Debug)]
enum Action {
    /// Run the operator.
    Run(Box<Settings>),
    /// Print the platform.
    Detect(Options, PlatformSpec),
    /// Print manifests.
    Render(Options, PlatformSpec, render::Options),
}

/// Whether a program of this name is the Go operator.
#[must_use]
pub fn named(program: &str) -> bool {
    program == PROGRAM
}

/// Reads the arguments that follow the program's name, which is `program` in the usage text.
///
/// # Errors
/// The output and exit code of a command line that needs no plan.
pub fn start(
    program: &str,
    arguments: Vec<String>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Plan, Ending> {
    let set = FlagSet { program, flags: &[FLAGS, KLOG] };
    let flags = set.parse(arguments).map_err(|outcome| ended(&outcome))?;
    let on = |name: &str| flags.bool(name).unwrap_or(false);
    if on("version") {
        return Err(printed(format!("{PROGRAM} {}\n", env!("CARGO_PKG_VERSION"))));
    }
    if on("inspect-features") {
        return Err(printed(api::features::Topics::own().to_json() + "\n"));
    }
    match flags.text("handle-lifecycle-event") {
        None => {}
        Some("postStart" | "preStop") => return Err(Ending::default()),
        Some(other) => {
            let error = goflag::Error::Value {
                name: "handle-lifecycle-event",
                value: other.to_owned(),
                reason: "must be postStart or preStop",
            };
            return Err(ended(&Outcome::Wrong { error, usage: set.usage() }));
        }
    }
    let mut notes = notes(&flags);
    let platform = platform(&flags, &mut notes).map_err(failed)?;
    let kubeconfig = text(&flags, "kubeconfig").map(PathBuf::from);
    let cluster = ClusterArgs { kubeconfig, ..ClusterArgs::default() }.options("operator");
    let environment = environment(&flags, platform.clone(), variable);
    let action = if on("detect-platform-only") {
        Action::Detect(cluster, platform)
    } else if on("render-nrt-crd") {
        return Err(printed(format!("---\n{}", api::crd::NRT_CRD_YAML)));
    } else if on("render") {
        Action::Render(cluster, platform, render_options(&flags, &environment))
    } else {
        Action::Run(Box::new(settings(&flags, environment).map_err(failed)?))
    };
    let verbosity = u8::try_from(flags.int("v").unwrap_or(0).max(0)).unwrap_or(u8::MAX);
    Ok(Plan { action, verbosity, notes })
}

impl Plan {
    /// Carries out the plan.
    ///
    /// # Errors
    /// In the cases in which the Go operator exits with 1.
    pub async fn run(self, level: log::Handle, token: CancellationToken) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Run(settings) => process::run(*settings, level, token).await?,
            Action::Detect(cluster, given) => {
                let found = detect(&cluster, &given).await?;
                let (platform, version) = (found.platform.get()?, found.version.get()?.to_string());
                print(&format!("platform={platform} version={}\n", short(&version)))?;
            }
            Action::Render(cluster, given, options) => {
                // No cluster is needed when everything is known.
                let (platform, version) = match given {
                    PlatformSpec { platform: Some(platform), version } => (platform, version),
                    given => {
                        let found = detect(&cluster, &given).await?;
                        (*found.platform.get()?, found.version.get().ok().cloned())
                    }
                };
                print(&render_objects(&render::objects(platform, version, &options)?)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn detect(cluster: &Options, given: &PlatformSpec) -> anyhow::Result<ClusterInfo> {
    let client =
        Connection::open(cluster).await?.client_with_timeout(CALL).context("cannot talk to the cluster")?;
    Ok(detect::cluster(&client, given).await)
}

/// The text before the first dash (U027).
fn short(version: &str) -> &str {
    version.split_once('-').map_or(version, |(short, _)| short)
}

/// Warnings about flags without effect.
fn notes(flags: &Parsed) -> Vec<Note> {
    let mut notes = Vec::new();
    for (name, why) in table::WITHOUT_EFFECT {
        if flags.has(name) && flags.bool(name) != Some(false) {
            notes.push(Note::Warning(format!("-{name} has no effect: {why}")));
        }
    }
    if !flags.rest.is_empty() {
        notes.push(Note::Warning(format!("arguments without effect: {:?}", flags.rest)));
    }
    notes
}

/// The platform of the flags. As with the Go operator, an unknown one is detected instead.
fn platform(flags: &Parsed, notes: &mut Vec<Note>) -> anyhow::Result<PlatformSpec> {
    let mut given = PlatformSpec::default();
    if let Some(platform) = text(flags, "platform") {
        match platform.parse() {
            Ok(platform) => given.platform = Some(platform),
            Err(error) => notes.push(Note::Warning(format!("-platform: {error}; it is detected instead"))),
        }
    }
    if let Some(version) = text(flags, "platform-version") {
        given.version = Some(version.parse().context("-platform-version")?);
    }
    Ok(given)
}

fn environment(
    flags: &Parsed,
    platform: PlatformSpec,
    variable: &dyn Fn(&str) -> Option<String>,
) -> EnvironmentOptions {
    let options = EnvironmentOptions {
        platform: Some(platform),
        exporter_image: text(flags, "image-exporter"),
        forward_pool_conditions: flags.bool("enable-mcp-conds-fwd").unwrap_or(false),
        ..EnvironmentOptions::default()
    };
    options.with_variables(variable)
}

fn render_options(flags: &Parsed, environment: &EnvironmentOptions) -> render::Options {
    render::Options {
        namespace: text(flags, "render-namespace").unwrap_or_else(|| environment.namespace()),
        exporter_image: text(flags, "render-image")
            .or_else(|| environment.exporter_image.clone())
            .unwrap_or_else(|| environment.built_in_image.clone()),
        scheduler_image: text(flags, "render-image-scheduler").unwrap_or_default(),
        scheduler: flags.bool("enable-scheduler").unwrap_or(true),
    }
}

fn settings(flags: &Parsed, environment: EnvironmentOptions) -> anyhow::Result<Settings> {
    let listen = |name: &'static str, default: &str| {
        http::address(flags.text(name).unwrap_or(default)).with_context(|| format!("-{name}"))
    };
    let metrics = match flags.bool("enable-metrics") {
        Some(false) => None,
        _ => listen("metrics-bind-address", ":8080")?,
    };
    Ok(Settings {
        kubeconfig: text(flags, "kubeconfig").map(PathBuf::from),
        context: None,
        environment,
        metrics,
        health: listen("health-probe-bind-address", ":8081")?,
        certificates: PathBuf::from(CERTIFICATES),
        leader_elect: flags.bool("leader-elect").unwrap_or(true),
        kubelets: Trust::default(),
        scheduler: flags.bool("enable-scheduler").unwrap_or(true),
        controllers: BTreeSet::from([Part::NumaResources]),
        driver_patience: PATIENCE,
        binding_patience: BINDING,
    })
}

fn text(flags: &Parsed, name: &str) -> Option<String> {
    flags.text(name).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn printed(stdout: String) -> Ending {
    Ending { stdout, ..Ending::default() }
}

fn ended(outcome: &Outcome) -> Ending {
    Ending { stderr: outcome.text(), code: outcome.code(), ..Ending::default() }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: anyhow::Error) -> Ending {
    Ending { stderr: format!("error: {error:#}\n"), code: 1, ..Ending::default() }
}
