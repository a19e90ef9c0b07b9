//! `tholepin e2e`.
//!
//! In: flags. Out: progress on standard error; the result on standard output and in files; an exit code. Never: a
//! failure of the whole suite for one missing capability.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api::goduration::GoDuration;
use regex_lite::Regex;
use runtime::client::{Connection, Options};
use runtime::output::{Format, OutputArgs};
use runtime::stderr;
use runtime::stdout::print;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::catalogue;
use crate::cluster::Settings;
use crate::label_filter::LabelFilter;
use crate::pods::Images;
use crate::report::{self, Case, Counts, Document, junit};
use crate::runner::{Plan, Progress, Runner};
use crate::selection::Selection;
use crate::spec::{LAST_TIER, Spec};

/// The time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Exit code when specs failed.
const FAILED: u8 = 2;

/// Test NUMA-aware scheduling on a cluster, end to end: exporters, scheduler, operator and kubelets together.
///
/// Runs against any stack. A spec whose needs the cluster does not meet is skipped, and names them. Everything that is
/// created or changed is taken back at the end, after Ctrl-C, or by the next run. Exit codes: 0 all chosen specs passed
/// or were skipped, 2 a spec failed or the cluster is not as before, 1 nothing could be tested.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  tholepin e2e --list\n  tholepin e2e --tier-up-to 1\n  \
    tholepin e2e --label-filter 'feature:tmpol && !devices' --junit e2e.xml\n  \
    tholepin e2e --focus 4757 --keep-going=false\n  tholepin e2e --scheduler-name default-scheduler -o json")]
pub struct Args {
    /// Print the chosen specs, a line each, and do nothing
    #[arg(long)]
    list: bool,
    /// Look at the cluster and say which of the chosen specs would be skipped, and why
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,
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
    /// The scheduler under test [default: that of the NUMAResourcesScheduler object, else topo-aware-scheduler]
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// The node that is preferred where one is chosen
    #[arg(long, value_name = "NAME", env = "E2E_NROP_TARGET_NODE")]
    target_node: Option<String>,
    /// Longest wait for one condition
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = GoDuration::positive)]
    patience: Duration,
    /// Longest time of one spec
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = GoDuration::positive)]
    spec_timeout: Duration,
    /// The image of the suite's pods and device plugins
    #[arg(long, value_name = "IMAGE", env = "THOLEPIN_IMAGE",
        default_value = concat!("tholepin:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Another image for pods that only wait; its entry point must not end
    #[arg(long, value_name = "IMAGE", env = "E2E_NROP_URL_PAUSE_IMAGE")]
    pause_image: Option<String>,
    /// How nodes get the images: Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent",
        value_parser = ["Always", "IfNotPresent", "Never"])]
    image_pull_policy: String,
    /// The root directory of the kubelets
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_root: String,
    /// Leave the suite's namespace and devices
    #[arg(long)]
    keep_devices: bool,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE", visible_alias = "report-file")]
    junit: Option<PathBuf>,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The format of the result.
    #[command(flatten)]
    output: OutputArgs<Format>,
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

/// Lines on standard error.
struct Lines;

impl Progress for Lines {
    fn step(&self, text: &str) {
        stderr::line(text);
    }

    fn begins(&self, spec: &Spec, number: usize, of: usize) {
        stderr::line(format_args!("{number}/{of} {}", spec.line()));
    }

    fn ended(&self, case: &Case) {
        stderr::line(report::line(case));
    }
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

    fn plan(&self) -> Plan {
        let images = Images {
            tholepin: self.image.clone(),
            pause: self.pause_image.clone(),
            pull_policy: self.image_pull_policy.clone(),
        };
        Plan {
            settings: Settings { patience: self.patience, images, target_node: self.target_node.clone() },
            scheduler: self.scheduler_name.clone(),
            limit: self.spec_timeout,
            keep_going: self.keep_going,
            keep_devices: self.keep_devices,
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
    if args.list {
        print(&list(&specs, args.output.format, |_| None)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        kubeconfig: args.kubeconfig.clone(),
        context: args.context.clone(),
        user_agent: format!("tholepin-e2e/{}", env!("CARGO_PKG_VERSION")),
    };
    let connection = Connection::open(&options).await?;
    let clients = (connection.watch_client()?, connection.client_with_timeout(REQUEST_TIMEOUT)?);
    let runner = Runner::prepare(clients, args.plan(), token, &Lines).await?;
    if args.dry_run {
        let text = list(&specs, args.output.format, |spec| runner.skips(spec));
        runner.run(&[], &Lines).await?;
        print(&text?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (cases, verdicts) = runner.run(&specs, &Lines).await?;
    if let Some(file) = &args.junit {
        fs::write(file, junit::write("tholepin e2e", &cases)).with_context(|| file.display().to_string())?;
    }
    let document = Document { counts: Counts::of(&cases), verdicts: &verdicts, specs: &cases };
    print(&args.output.format.write(&document, || report::summary(&document))?)?;
    let is_good = document.counts.failed == 0 && verdicts.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn list(specs: &[Spec], format: Format, skips: impl Fn(&Spec) -> Option<String>) -> anyhow::Result<String> {
    let listed = specs.iter().map(|spec| Listed {
        id: &spec.id,
        title: &spec.title,
        feature: spec.feature,
        labels: spec.all_labels(),
        skipped: skips(spec),
    });
    let listed: Vec<Listed<'_>> = listed.collect();
    let line = |spec: &Listed<'_>| {
        let skipped =
            spec.skipped.as_ref().map(|reason| format!("  (skipped: {reason})")).unwrap_or_default();
        format!("[{}] {} {}  {}{skipped}\n", spec.feature, spec.id, spec.title, spec.labels.join(" "))
    };
    Ok(format.write(&listed, || listed.iter().map(line).collect())?)
}
