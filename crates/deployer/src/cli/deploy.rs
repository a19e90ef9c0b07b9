//! `tholepin deploy`, `remove` and `setup`.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use api::goduration::GoDuration;
use runtime::stdout::print;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::act::{self, Clients};
use super::choices::Choices;
use super::output::{Account, Format, formatted};
use super::render::variable;
use super::{ClusterArgs, Which, components};
use crate::install::progress::{Change, Tell};
use crate::install::{self, DryRun, Outcome, Removal, Settings};
use crate::manifests;
use crate::part::{Component, Part};
use crate::tell::live::Live;
use crate::tell::plain::Plain;
use crate::tell::to_stderr;
use crate::validate;
use crate::validate::finding::Severity;
use objects::Object;

/// Installs our exporter and scheduler (or the peers'), or brings an installation up to date.
///
/// The same again changes nothing; what was interrupted is completed by the next call. Objects of others are never changed unless
/// --adopt says so.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin deploy --wait\n  tholepin deploy --diff\n  tholepin deploy topology-updater --kubelet-profile k3s --wait\n  \
    tholepin deploy --updater-type rte --sched-type plugin --replicas auto --wait --timeout 5m\n  \
    tholepin deploy --dry-run=server -o json\n\n\
    Exit codes: 0 done, 1 failed, 2 wrong command line. With --diff: 0 no differences, 1 differences, 2 failed."
)]
pub struct Args {
    /// What to install: api, topology-updater, scheduler-plugin [default: all]
    #[arg(value_name = "COMPONENT", hide_possible_values = true)]
    pub components: Vec<Which>,
    #[command(flatten)]
    doing: Doing,
    /// Print what would change as a diff, and change nothing
    #[arg(long, conflicts_with_all = ["dry_run", "atomic", "output"])]
    pub diff: bool,
    /// On failure or Ctrl-C restore what was there before; waits
    #[arg(long)]
    pub atomic: bool,
    /// Take over objects that others made under a name that we need
    #[arg(long)]
    pub adopt: bool,
    #[command(flatten)]
    account: Account,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    choices: Choices,
}

/// Removes all that deploy made, and nothing else: objects are found by their label, so it needs no flags of deploy's.
///
/// Definitions of which somebody still has objects and namespaces with objects of others in them stay, unless --force.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tholepin remove --wait\n  tholepin remove scheduler-plugin --dry-run=client"
)]
pub struct RemoveArgs {
    /// What to remove: api, topology-updater, scheduler-plugin [default: all]
    #[arg(value_name = "COMPONENT", hide_possible_values = true)]
    pub components: Vec<Which>,
    #[command(flatten)]
    doing: Doing,
    /// Remove also what others still use
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    account: Account,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Checks the cluster; if nothing is wrong with it, installs, waits, and checks again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin setup\n  tholepin setup --force --timeout 5m\n\n\
    Exit codes: 0 done and nothing found, 1 failed or something found, 2 something could not be checked.")]
pub struct SetupArgs {
    /// Install whatever the check finds
    #[arg(long)]
    pub force: bool,
    /// How long each thing may take to run
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    choices: Choices,
}

#[derive(Clone, Debug, clap::Args)]
struct Doing {
    /// Wait until everything runs (deploy) or is gone (remove)
    #[arg(short = 'W', long)]
    wait: bool,
    /// How long each thing that is waited for may take
    #[arg(short = 'T', long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
    /// Longest time between two looks at what is waited for
    #[arg(short = 'E', long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    interval: Duration,
    /// Change nothing: client (only reads), server (has the API server check every change)
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    dry_run: Option<Dry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Dry {
    Client,
    Server,
}

impl Doing {
    fn settings(&self) -> Settings {
        Settings {
            wait: self.wait,
            wait_interval: self.interval,
            wait_timeout: self.timeout,
            dry_run: self.dry_run.map(|dry| match dry {
                Dry::Client => DryRun::Client,
                Dry::Server => DryRun::Server,
            }),
            ..Settings::default()
        }
    }
}

/// Runs `deploy`.
///
/// # Errors
/// When it failed, in one line.
pub async fn run(args: Args, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let settings = Settings { atomic: args.atomic, adopt: args.adopt, ..args.doing.settings() };
    let components = components(&args.components);
    if args.diff {
        return Ok(diff(&args, &settings, &components, token).await.unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }));
    }
    let (Clients { work, .. }, parts) = prepare(&args.cluster, &args.choices, &components).await?;
    let outcome = install(&work, &parts, &settings, token).await?;
    if args.account.output != Format::Text {
        print(&formatted(args.account.output, &outcome_value(&outcome), String::new)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn diff(
    args: &Args,
    settings: &Settings,
    components: &[Component],
    token: &CancellationToken,
) -> anyhow::Result<ExitCode> {
    let (Clients { work, .. }, parts) = prepare(&args.cluster, &args.choices, components).await?;
    let differences = install::diff(&work, &parts, settings, token).await?;
    let text: String = differences.iter().map(|difference| difference.text.as_str()).collect();
    print(&text)?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Clients of the cluster, and what it shall have.
async fn prepare(
    cluster: &ClusterArgs,
    choices: &Choices,
    components: &[Component],
) -> anyhow::Result<(Clients, Vec<Part>)> {
    let options = choices.options(&variable)?;
    let clients = act::connect(&cluster.options()).await?;
    let given = choices.platform.clone().unwrap_or_default();
    let options = act::resolve(&clients.ask, &given, choices.needs_cluster(), options).await?;
    let parts = manifests::parts(&options, components)?;
    Ok((clients, parts))
}

async fn install(
    client: &kube::Client,
    parts: &[Part],
    settings: &Settings,
    token: &CancellationToken,
) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let mut tell = teller(settings);
    let outcome = install::deploy(client, parts, settings, tell.as_mut(), token).await;
    // The live line goes before anything else is printed.
    drop(tell);
    let outcome = outcome?;
    let count = |change: Change| outcome.applied.iter().filter(|(_, _, is)| *is == change).count();
    let counts = [
        (Change::Created, "created"),
        (Change::Configured, "configured"),
        (Change::Recreated, "recreated"),
        (Change::Adopted, "adopted"),
        (Change::Unchanged, "unchanged"),
        (Change::Foreign, "of others"),
    ];
    let counts: Vec<String> = counts
        .into_iter()
        .map(|(change, word)| (count(change), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let dry = if settings.dry_run.is_some() { " (dry run)" } else { "" };
    eprintln!("deployed in {:.1} s{dry}: {}", began.elapsed().as_secs_f64(), counts.join(", "));
    Ok(outcome)
}

/// Runs `remove`.
///
/// # Errors
/// When something could not be removed.
pub async fn remove(args: &RemoveArgs, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let settings = Settings { force: args.force, ..args.doing.settings() };
    let Clients { work, .. } = act::connect(&args.cluster.options()).await?;
    let mut tell = teller(&settings);
    let removal =
        install::remove(&work, &components(&args.components), &settings, tell.as_mut(), token).await;
    drop(tell);
    let removal = removal?;
    let dry = if settings.dry_run.is_some() { " (dry run)" } else { "" };
    let (deleted, kept) = (removal.deleted.len(), removal.kept.len());
    eprintln!("removed in {:.1} s{dry}: {deleted} deleted, {kept} kept", began.elapsed().as_secs_f64());
    if args.account.output != Format::Text {
        print(&formatted(args.account.output, &removal_value(&removal), String::new)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `setup`.
///
/// # Errors
/// When the installation failed, or was not begun because of what the check found.
pub async fn setup(args: SetupArgs, token: &CancellationToken) -> anyhow::Result<ExitCode> {
    let before = examine(&args.cluster).await?;
    eprint!("{}", validate::print::render(&before, validate::print::Output::Text)?);
    if before.count(Severity::Error) > 0 && !args.force {
        bail!(
            "nothing was installed because of these errors; correct them, or install all the same with --force"
        );
    }
    let (Clients { work, .. }, parts) = prepare(&args.cluster, &args.choices, &Component::ALL).await?;
    let settings = Settings { wait: true, wait_timeout: args.timeout, ..Settings::default() };
    install(&work, &parts, &settings, token).await?;
    let after = examine(&args.cluster).await?;
    print(&validate::print::render(&after, validate::print::Output::Text)?)?;
    Ok(ExitCode::from(after.verdict().code()))
}

async fn examine(cluster: &ClusterArgs) -> anyhow::Result<validate::Report> {
    let checks = validate::Selection::default().checks()?;
    let evidence = validate::cli::gather(&cluster.options(), &checks).await?;
    Ok(validate::examine(&evidence, &checks))
}

/// On a terminal a line that changes, else line by line.
fn teller(settings: &Settings) -> Box<dyn Tell> {
    let dry = settings.dry_run.is_some();
    if std::io::stderr().is_terminal() {
        Box::new(Live::new(dry))
    } else {
        Box::new(Plain::new(dry, to_stderr()))
    }
}

fn outcome_value(outcome: &Outcome) -> Value {
    let applied = outcome.applied.iter().map(|(component, object, change)| {
        let mut value = titled(*component, object);
        value["change"] = format!("{change:?}").to_lowercase().into();
        value
    });
    json!({
        "applied": applied.collect::<Vec<_>>(),
        "pruned": outcome.pruned.iter().map(|(component, object)| titled(*component, object)).collect::<Vec<_>>(),
        "kept": with_texts(&outcome.kept, "reason"),
        "warnings": with_texts(&outcome.warnings, "warning"),
        "findings": with_texts(&outcome.findings, "finding"),
    })
}

fn removal_value(removal: &Removal) -> Value {
    json!({
        "deleted": removal.deleted.iter().map(|(component, object)| titled(*component, object)).collect::<Vec<_>>(),
        "kept": with_texts(&removal.kept, "reason"),
    })
}

fn with_texts(list: &[(Component, Object, String)], name: &str) -> Vec<Value> {
    list.iter()
        .map(|(component, object, text)| {
            let mut value = titled(*component, object);
            value[name] = text.clone().into();
            value
        })
        .collect()
}

fn titled(component: Component, object: &Object) -> Value {
    let mut value =
        json!({ "component": component.name(), "kind": object.kind().kind, "name": object.name() });
    if let Some(namespace) = object.namespace() {
        value["namespace"] = namespace.into();
    }
    value
}

/// Go's text form; not negative.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = GoDuration::parse(text).map_err(|error| error.to_string())?;
    duration.to_std().ok_or_else(|| "it must not be negative".to_owned())
}
