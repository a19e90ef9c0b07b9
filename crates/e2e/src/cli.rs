//! `tholepin e2e`.
//!
//! In: flags. Out: progress on standard error; the result on standard output and in files; an exit code. Never: a
//! failure of the whole suite for one missing capability.

mod common;
mod quick;

pub use common::CommonArgs;
use common::{Execution, Mode};
pub use quick::{QuickArgs, run as run_quick};

use std::process::ExitCode;
use std::time::Duration;

use api::goduration::GoDuration;
use clap::builder::{FalseyValueParser, NonEmptyStringValueParser};
use regex_lite::Regex;
use runtime::output::Format;
use runtime::stderr;
use runtime::stdout::print;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cluster::Settings;
use crate::label_filter::LabelFilter;
use crate::machines::WORKER;
use crate::report::{Case, Ending};
use crate::runner::{Devices, Plan};
use crate::selection::Selection;
use crate::spec::{LAST_TIER, Spec};
use crate::{catalogue, compat};

/// Test NUMA-aware scheduling on a cluster, end to end: exporters, scheduler, operator and kubelets together.
///
/// Runs against any stack. A spec whose needs the cluster does not meet is skipped, and names them. Everything that is
/// created or changed is taken back at the end, after Ctrl-C, or by the next run. Exit codes: 0 all chosen specs passed
/// or were skipped, 2 a spec failed, was not tried, or the cluster is not as before, 1 nothing could be tested.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin e2e --list\n  tholepin e2e --tier-up-to 1\n  \
    tholepin e2e --label-filter 'feature:tmpol && !devices' --junit e2e.xml\n  \
    tholepin e2e --focus 4757 --keep-going=false\n  \
    tholepin e2e --setup --teardown --tier-up-to 0\n  tholepin e2e --scheduler-name default-scheduler -o json")]
pub struct Args {
    /// Print the chosen specs, a line each, and do nothing
    #[arg(long)]
    list: bool,
    /// Look at the cluster and say which of the chosen specs would be skipped, and why
    #[arg(long, conflicts_with = "list", env = "DRY_RUN", value_parser = FalseyValueParser::new())]
    dry_run: bool,
    /// Make the stack first where the operator's objects are missing, and leave it, the suite's namespace and devices
    #[arg(long, env = "SETUP", value_parser = FalseyValueParser::new())]
    setup: bool,
    /// Remove at the end what --setup has made, now or before
    #[arg(long, env = "TEARDOWN", value_parser = FalseyValueParser::new())]
    teardown: bool,
    /// Run no spec: only --setup, or only --teardown
    #[arg(long)]
    no_run_tests: bool,
    /// The role of the nodes that exporters are for, with --setup
    #[arg(long, value_name = "ROLE", env = "E2E_NODE_ROLE", default_value = WORKER,
        value_parser = NonEmptyStringValueParser::new())]
    node_role: String,
    /// Run only specs whose line matches (regular expression; several: any of them)
    #[arg(long, value_name = "REGEX", value_parser = regex, env = "E2E_SERIAL_FOCUS")]
    focus: Vec<Regex>,
    /// Leave out specs whose line matches
    #[arg(long, value_name = "REGEX", value_parser = regex, env = "E2E_SERIAL_SKIP")]
    skip: Vec<Regex>,
    /// Run only specs whose labels match, in Ginkgo's language: 'tier0 || (feature: containsAny {tmpol, config} &&
    /// !slow)'
    #[arg(long, value_name = "QUERY", value_parser = filter)]
    label_filter: Option<LabelFilter>,
    /// Run only specs up to this tier: 0 for every build, 3 for now and then
    #[arg(long, value_name = "TIER", value_parser = clap::value_parser!(u8).range(0..=i64::from(LAST_TIER)),
        env = "E2E_SERIAL_TIER_UPTO")]
    tier_up_to: Option<u8>,
    /// Go on after a failure
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    keep_going: bool,
    /// The node that is preferred where one is chosen
    #[arg(long, value_name = "NAME", env = "E2E_NROP_TARGET_NODE")]
    target_node: Option<String>,
    /// Another reference of an image with the stack's programs, to which specs change exporters and schedulers
    #[arg(long, value_name = "IMAGE", env = "THOLEPIN_OTHER_IMAGE", value_parser = NonEmptyStringValueParser::new())]
    other_image: Option<String>,
    /// Longest wait for a MachineConfigPool whose machines get another configuration; a spec of that kind may take two
    /// rollouts longer
    #[arg(long, value_name = "DURATION", default_value = "60m", value_parser = GoDuration::positive,
        env = "E2E_NROP_MCP_UPDATE_TIMEOUT")]
    rollout_timeout: Duration,
    /// Longest time of one spec
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = GoDuration::positive)]
    spec_timeout: Duration,
    /// The root directory of the kubelets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_root: String,
    /// Leave the suite's namespace and devices
    #[arg(long)]
    keep_devices: bool,
    /// Accepted for scripts: the output has no colours
    #[arg(long, hide = true)]
    no_color: bool,
    /// What all tests have.
    #[command(flatten)]
    common: CommonArgs,
}

/// A spec in a list.
#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    title: &'a str,
    feature: &'a str,
    labels: Vec<String>,
    /// Why it would not be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

fn filter(text: &str) -> Result<LabelFilter, String> {
    LabelFilter::parse(text).map_err(|error| error.to_string())
}

impl Args {
    fn selection(&self) -> Selection {
        Selection {
            focus: self.focus.clone(),
            skip: self.skip.clone(),
            filter: self.label_filter.clone(),
            tier_up_to: self.tier_up_to,
        }
    }

    fn mode(&self) -> anyhow::Result<Mode> {
        let execution = match (self.dry_run, self.no_run_tests || compat::runs_no_tests()) {
            (true, _) => Execution::DryRun,
            (false, true) => Execution::None,
            (false, false) => Execution::Full,
        };
        let changes = self.setup || self.teardown;
        anyhow::ensure!(!self.dry_run || !changes, "--dry-run goes without --setup and --teardown");
        anyhow::ensure!(
            execution != Execution::None || changes,
            "--no-run-tests needs --setup or --teardown"
        );
        let setup = self.setup.then(|| self.node_role.clone());
        Ok(Mode { setup, execution, teardown: self.teardown })
    }

    fn plan(&self) -> Plan {
        let is_set_up = self.setup && !self.teardown;
        let is_kept = is_set_up || self.keep_devices || compat::keeps_devices();
        let devices = if is_kept { Devices::Kept } else { Devices::Removed };
        Plan {
            settings: Settings {
                target_node: self.target_node.clone(),
                other_image: self.other_image.clone(),
                rollout: self.rollout_timeout,
                ..self.common.settings()
            },
            scheduler: self.common.scheduler_name.clone(),
            limit: self.spec_timeout,
            parallel: usize::from(self.common.parallel),
            keep_going: self.keep_going,
            devices,
            kubelet_root: self.kubelet_root.clone(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When nothing can be tested, in one line, or a result cannot be written.
pub async fn run(args: Args, token: CancellationToken) -> anyhow::Result<ExitCode> {
    let selection = args.selection();
    let specs: Vec<Spec> = catalogue::all().into_iter().filter(|spec| selection.has(spec)).collect();
    anyhow::ensure!(!specs.is_empty(), "no spec is chosen; `tholepin e2e --list` prints all");
    let format = args.common.output.format;
    if args.list {
        print(&list(&specs, format, |_| None)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    compat::unused().for_each(stderr::line);
    let tested = args.common.test(&args.plan(), |_| specs.clone(), &args.mode()?, &token).await?;
    if !args.dry_run {
        return args.common.write(&tested);
    }
    for tested in tested {
        let heading = tested.context.filter(|_| args.common.context.len() > 1);
        let heading = heading.map(|context| format!("context {context}\n")).unwrap_or_default();
        print(&format!("{heading}{}", list(&tested.specs, format, |at| skipped(tested.cases.get(at)?))?))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn skipped(case: &Case) -> Option<String> {
    match &case.ending {
        Ending::Skipped { reason } => Some(reason.clone()),
        _ => None,
    }
}

fn list(specs: &[Spec], format: Format, skips: impl Fn(usize) -> Option<String>) -> anyhow::Result<String> {
    let listed = specs.iter().enumerate().map(|(at, spec)| Listed {
        id: &spec.id,
        title: &spec.title,
        feature: spec.feature,
        labels: spec.all_labels(),
        skipped: skips(at),
    });
    let listed: Vec<Listed<'_>> = listed.collect();
    let line = |spec: &Listed<'_>| {
        let skipped =
            spec.skipped.as_ref().map(|reason| format!("  (skipped: {reason})")).unwrap_or_default();
        format!("[{}] {} {}  {}{skipped}\n", spec.feature, spec.id, spec.title, spec.labels.join(" "))
    };
    Ok(format.write(&listed, || listed.iter().map(line).collect())?)
}
