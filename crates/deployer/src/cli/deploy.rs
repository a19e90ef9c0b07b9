//! `tholepin deploy`, `remove` and `setup`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use runtime::output::{Format, OutputArgs};
use runtime::stderr;
use runtime::stdout::print;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::components;
use super::flags::InstallFlags;
use super::values::{duration, variable};
use crate::first_pod;
use crate::images::preloaded;
use crate::install::step::{Change, Observer};
use crate::install::{self, DryRun, Outcome, Removal, Settings};
use crate::manifests::schedulerconfig::scheduler_name;
use crate::options::{Options, Scheduler, SchedulerOptions, Updater};
use crate::part::{Component, Part};
use crate::progress::lines::Lines;
use crate::progress::terminal::Terminal;
use crate::progress::{done, to_stderr};
use crate::session::{self, Clients, PROGRAM};
use crate::validate;
use crate::validate::finding::Severity;
use objects::Object;
use runtime::client::ClusterArgs;

/// Installs exporter and scheduler (ours or the peers'), or updates an installation.
///
/// A second run changes nothing; a run after an interruption completes the installation. Objects of others are never
/// changed without --adopt.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin deploy --wait\n  tholepin deploy --diff\n  tholepin deploy exporter --kubelet-profile k3s --wait\n  \
    tholepin deploy --updater-type rte --sched-type plugin --replicas auto --wait --timeout 5m\n  \
    tholepin deploy --dry-run=server -o json\n\n\
    Exit codes: 0 done, 1 failed, 2 wrong command line. With --diff: 0 no differences, 1 differences, 2 failed."
)]
pub struct Args {
    /// Components to install: api, exporter, scheduler [default: all]
    #[arg(value_name = "COMPONENT", hide_possible_values = true)]
    pub components: Vec<Component>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Print the changes as a diff, and change nothing
    #[arg(long, conflicts_with_all = ["dry_run", "atomic", "output"])]
    pub diff: bool,
    /// On failure or Ctrl-C restore the previous state; implies --wait
    #[arg(long)]
    pub atomic: bool,
    /// Take over objects of others whose names the installation needs
    #[arg(long)]
    pub adopt: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    install: InstallFlags,
}

/// Removes everything that deploy made, and nothing else. Objects are found by their label, so the flags of deploy are
/// not needed.
///
/// CustomResourceDefinitions that still have objects, and namespaces with objects of others, stay unless --force is
/// given.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin remove --wait\n  tholepin remove scheduler --dry-run=client")]
pub struct RemoveArgs {
    /// Components to remove: api, exporter, scheduler [default: all]
    #[arg(value_name = "COMPONENT", hide_possible_values = true)]
    pub components: Vec<Component>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Remove also CustomResourceDefinitions and namespaces that others still use
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Checks the cluster; if there is no error, installs, waits, and checks again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin setup\n  tholepin setup --force --timeout 5m\n\n\
    Exit codes: 0 done without findings, 1 failed or findings, 2 some checks could not be done.")]
pub struct SetupArgs {
    /// Install in spite of errors
    #[arg(long)]
    pub force: bool,
    /// Time limit for each workload to become ready
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    install: InstallFlags,
}

/// Flags of `deploy` and `remove`.
#[derive(Clone, Debug, clap::Args)]
struct ChangeArgs {
    /// Wait until all workloads are ready (deploy) or all objects are gone (remove)
    #[arg(short = 'W', long)]
    wait: bool,
    /// Time limit of each wait
    #[arg(short = 'T', long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
    /// Longest time between two reads while waiting
    #[arg(short = 'E', long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    interval: Duration,
    /// Change nothing: client (only read) or server (let the API server check every change)
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    dry_run: Option<DryRun>,
}

impl ChangeArgs {
    fn settings(&self, cluster: &ClusterArgs) -> Settings {
        let usual = Settings::default();
        Settings {
            wait: self.wait,
            wait_interval: self.interval,
            wait_timeout: self.timeout,
            dry_run: self.dry_run,
            patience: cluster.request_timeout.unwrap_or(usual.patience),
            ..usual
        }
    }
}

/// Runs `deploy`.
///
/// # Errors
/// When the command failed; the error is one line.
pub(super) async fn run(args: Args, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let settings = Settings { atomic: args.atomic, adopt: args.adopt, ..args.change.settings(&args.cluster) };
    let components = components(&args.components);
    if args.diff {
        return Ok(diff(&args, &settings, components, token).await.unwrap_or_else(|error| {
            stderr::line(format_args!("error: {error:#}"));
            ExitCode::from(2)
        }));
    }
    let (clients, options) = resolve(&args.cluster, &args.install).await?;
    let parts = args.install.parts(&options, None, components)?;
    if settings.dry_run.is_none() {
        require_image(&clients, &options, &args.install, components).await?;
    }
    let outcome = install(&clients.changes, &parts, &settings, token).await?;
    print_value(args.output.format, &outcome_value(&outcome))?;
    if settings.dry_run.is_none() && (settings.wait || settings.atomic) && args.output.format == Format::Text
    {
        tell_first_pod(&options.scheduler, components);
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells which pod to try next, once a scheduler is ready.
fn tell_first_pod(options: &SchedulerOptions, components: &[Component]) {
    if components.contains(&Component::Scheduler) {
        stderr::line(format_args!("next, a pod to try (tholepin status tells how it is):\n"));
        stderr::print(first_pod::commands(scheduler_name(options)));
    }
}

async fn diff(
    args: &Args,
    settings: &Settings,
    components: &[Component],
    token: &CancellationToken,
) -> anyhow::Result<ExitCode> {
    let (clients, options) = resolve(&args.cluster, &args.install).await?;
    let parts = args.install.parts(&options, None, components)?;
    let differences = install::diff(&clients.changes, &parts, settings, token).await?;
    print(&differences.concat())?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Clients of the cluster, and the options for it.
async fn resolve(cluster: &ClusterArgs, flags: &InstallFlags) -> anyhow::Result<(Clients, Options)> {
    let options = flags.options(&variable)?;
    let clients = session::connect(&cluster.options(PROGRAM)).await?;
    let stated = flags.platform.clone().unwrap_or_default();
    let options = session::resolve(&clients.reads, &stated, flags.needs_cluster(), options).await?;
    if options.monitoring {
        session::require_prometheus(&clients.reads).await?;
    }
    Ok((clients, options))
}

/// Refuses to install pods that could never start: our default image is in no registry.
async fn require_image(
    clients: &Clients,
    options: &Options,
    flags: &InstallFlags,
    components: &[Component],
) -> anyhow::Result<()> {
    let updater = components.contains(&Component::Exporter) && options.updater.kind == Updater::Tholepin;
    let scheduler =
        components.contains(&Component::Scheduler) && options.scheduler.kind == Scheduler::Tholepin;
    if flags.states_image(&variable) || !(updater || scheduler) {
        return Ok(());
    }
    preloaded::check(&clients.reads, &options.images.tholepin).await
}

async fn install(
    client: &kube::Client,
    parts: &[Part],
    settings: &Settings,
    token: &CancellationToken,
) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let mut observer = observer(settings);
    let outcome = install::deploy(client, parts, settings, observer.as_mut(), token).await;
    // The live line goes before anything else is printed.
    drop(observer);
    let outcome = outcome?;
    let mut counts: BTreeMap<Change, usize> = BTreeMap::new();
    for (_, _, change) in &outcome.applied {
        *counts.entry(*change).or_default() += 1;
    }
    let word = |change: Change| if change == Change::Foreign { "of others" } else { done(change) };
    let counts: Vec<String> =
        counts.into_iter().map(|(change, count)| format!("{count} {}", word(change))).collect();
    let dry = if settings.dry_run.is_some() { " (dry run)" } else { "" };
    stderr::line(format_args!(
        "deployed in {:.1} s{dry}: {}",
        began.elapsed().as_secs_f64(),
        counts.join(", ")
    ));
    Ok(outcome)
}

/// Runs `remove`.
///
/// # Errors
/// When something could not be removed.
pub(super) async fn remove(args: &RemoveArgs, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let settings = Settings { force: args.force, ..args.change.settings(&args.cluster) };
    let clients = session::connect(&args.cluster.options(PROGRAM)).await?;
    // Each of many lists would be tried for long.
    session::reach(&clients.reads).await?;
    let mut observer = observer(&settings);
    let removal =
        install::remove(&clients.changes, components(&args.components), &settings, observer.as_mut(), token)
            .await;
    drop(observer);
    let removal = removal?;
    let dry = if settings.dry_run.is_some() { " (dry run)" } else { "" };
    let (deleted, kept) = (removal.deleted.len(), removal.kept.len());
    stderr::line(format_args!(
        "removed in {:.1} s{dry}: {deleted} deleted, {kept} kept",
        began.elapsed().as_secs_f64()
    ));
    print_value(args.output.format, &removal_value(&removal))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `setup`.
///
/// # Errors
/// When the installation failed, or was not begun because of what the check found.
pub(super) async fn setup(args: SetupArgs, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let before = examine(&args.cluster).await?;
    stderr::print(validate::print::render(&before, validate::print::Format::Text)?);
    if before.count(Severity::Error) > 0 && !args.force {
        bail!("nothing was installed because of these errors; correct them, or install anyway with --force");
    }
    let (clients, options) = resolve(&args.cluster, &args.install).await?;
    let parts = args.install.parts(&options, None, &Component::ALL)?;
    require_image(&clients, &options, &args.install, &Component::ALL).await?;
    let settings = Settings { wait: true, wait_timeout: args.timeout, ..Settings::default() };
    install(&clients.changes, &parts, &settings, token).await?;
    let after = examine(&args.cluster).await?;
    print(&validate::print::render(&after, validate::print::Format::Text)?)?;
    tell_first_pod(&options.scheduler, &Component::ALL);
    Ok(ExitCode::from(after.verdict().code()))
}

async fn examine(cluster: &ClusterArgs) -> anyhow::Result<validate::Validation> {
    let checks = validate::Selection::default().checks()?;
    let evidence = validate::cli::gather(&cluster.options(PROGRAM), &checks).await?;
    Ok(validate::examine(&evidence, &checks))
}

/// Progress on standard error: a changing line on a terminal, else one line for each step.
fn observer(settings: &Settings) -> Box<dyn Observer> {
    let dry = settings.dry_run.is_some();
    if std::io::stderr().is_terminal() {
        Box::new(Terminal::new(dry))
    } else {
        Box::new(Lines::new(dry, to_stderr()))
    }
}

/// Prints a result for programs; the text for people is the progress on standard error.
fn print_value(format: Format, value: &Value) -> anyhow::Result<()> {
    if format != Format::Text {
        print(&format.write(value, String::new)?)?;
    }
    Ok(())
}

fn outcome_value(outcome: &Outcome) -> Value {
    let applied = outcome.applied.iter().map(|(component, object, change)| {
        titled(*component, object, Some(("change", &format!("{change:?}").to_lowercase())))
    });
    json!({
        "applied": applied.collect::<Vec<_>>(),
        "pruned": plain(&outcome.pruned),
        "kept": with_texts(&outcome.kept, "reason"),
        "warnings": with_texts(&outcome.warnings, "warning"),
        "findings": with_texts(&outcome.findings, "finding"),
    })
}

fn removal_value(removal: &Removal) -> Value {
    json!({ "deleted": plain(&removal.deleted), "kept": with_texts(&removal.kept, "reason") })
}

fn plain(list: &[(Component, Object)]) -> Vec<Value> {
    list.iter().map(|(component, object)| titled(*component, object, None)).collect()
}

fn with_texts(list: &[(Component, Object, String)], name: &str) -> Vec<Value> {
    list.iter().map(|(component, object, text)| titled(*component, object, Some((name, text)))).collect()
}

fn titled(component: Component, object: &Object, more: Option<(&str, &str)>) -> Value {
    let mut value =
        json!({ "component": component.name(), "kind": object.kind().kind, "name": object.name() });
    for (name, text) in object.namespace().map(|namespace| ("namespace", namespace)).into_iter().chain(more) {
        value[name] = text.into();
    }
    value
}
