//! What the commands `e2e` and `test` have in common.
//!
//! In: flags; the specs to run on a cluster. Out: progress on standard error; the result on standard output and in a
//! file; an exit code. Never: two clusters of which one waits for the other.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::goduration::GoDuration;
use futures::future::join_all;
use kube::Client;
use runtime::client::{ClusterArgs, Connection};
use runtime::output::{Format, OutputArgs, one_line};
use runtime::stderr;
use runtime::stdout::print;
use tokio_util::sync::CancellationToken;

use crate::cluster::Settings;
use crate::compat;
use crate::facts::Facts;
use crate::installation::{self, either};
use crate::pods::Images;
use crate::report::{self, Case, Counts, Document, junit};
use crate::runner::{Plan, Progress, Runner};
use crate::spec::Spec;
use crate::waits::Wait;

/// The time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Exit code when specs failed.
const FAILED: u8 = 2;
/// The shortest wait that is worth a line.
const LONG_WAIT: Duration = Duration::from_secs(5);
/// The most waits that are told at a time.
const MOST_WAITS: usize = 4;

/// Flags of all commands that test clusters.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonArgs {
    /// The scheduler under test [default: that of the NUMAResourcesScheduler object, else topo-aware-scheduler]
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Option<String>,
    /// Longest wait for one condition
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = GoDuration::positive)]
    pub patience: Duration,
    /// Most specs at a time; specs meet on no node, and one that changes the cluster runs alone
    #[arg(long, value_name = "COUNT", default_value = "4",
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub parallel: u8,
    /// The image of the pods
    #[arg(long, value_name = "IMAGE", env = "THOLEPIN_IMAGE",
        default_value = concat!("tholepin:", env!("CARGO_PKG_VERSION")))]
    pub image: String,
    /// Another image for pods that only wait; its entry point must not end
    #[arg(long, value_name = "IMAGE", env = "E2E_NROP_URL_PAUSE_IMAGE")]
    pub pause_image: Option<String>,
    /// How nodes get the images: Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY", default_value = "IfNotPresent",
        value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: String,
    /// Write the results as JUnit XML
    #[arg(long, value_name = "FILE", visible_alias = "report-file")]
    pub junit: Option<PathBuf>,
    /// Kubeconfig [default: KUBECONFIG, then ~/.kube/config, then the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; several clusters are tested at the same time
    #[arg(long, value_name = "NAME")]
    pub context: Vec<String>,
    /// Longest time of one request, such as 30s [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = GoDuration::positive)]
    pub request_timeout: Option<Duration>,
    /// Say what is waited for from the first moment, not only after 5 s
    #[arg(long, short, visible_alias = "debug")]
    pub verbose: bool,
    /// The format of the result.
    #[command(flatten)]
    pub output: OutputArgs<Format>,
}

/// What is done on each cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Mode {
    /// The stack is made first where there is none, with exporters for nodes of this role.
    pub(super) setup: Option<String>,
    /// How far the specs are executed.
    pub(super) execution: Execution,
    /// What a setup has made is removed at the end.
    pub(super) teardown: bool,
}

/// How far specs are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Execution {
    /// They are run.
    #[default]
    Full,
    /// It is said which would be skipped.
    DryRun,
    /// They are left out.
    None,
}

/// A cluster that was tested.
pub(super) struct Tested {
    /// The name of the cluster, where one was given.
    pub(super) context: Option<String>,
    /// The specs.
    pub(super) specs: Vec<Spec>,
    /// How they ended.
    pub(super) cases: Vec<Case>,
    verdicts: Vec<String>,
    seconds: f64,
}

/// Lines on standard error.
struct Lines {
    /// What each line begins with: the cluster, where there are several.
    prefix: String,
    /// The shortest wait that is worth a line.
    wait: Duration,
}

impl CommonArgs {
    /// How the suite behaves.
    pub(super) fn settings(&self) -> Settings {
        let images = Images {
            tholepin: self.image.clone(),
            pause: self.pause_image.clone().or_else(compat::pause_image),
            pull_policy: self.image_pull_policy.clone(),
        };
        Settings {
            patience: self.patience,
            rollout: self.patience,
            images,
            target_node: None,
            other_image: None,
            access: ClusterArgs::default(),
        }
    }

    /// Runs on each cluster the specs that `choose` has for it, as the mode says.
    ///
    /// # Errors
    /// When a cluster cannot be tested at all, in one line.
    pub(super) async fn test(
        &self,
        plan: &Plan,
        choose: impl Fn(&Facts) -> Vec<Spec>,
        mode: &Mode,
        token: &CancellationToken,
    ) -> anyhow::Result<Vec<Tested>> {
        let contexts: Vec<Option<&str>> = match &*self.context {
            [] => vec![None],
            contexts => contexts.iter().map(|context| Some(&**context)).collect(),
        };
        let choose = &choose;
        let tests = contexts.into_iter().map(|context| async move {
            let tested = self.one(context, plan.clone(), choose, mode, token).await;
            // With several clusters an error has to say which.
            match context.filter(|_| self.context.len() > 1) {
                Some(context) => tested.with_context(|| format!("context {context}")),
                None => tested,
            }
        });
        join_all(tests).await.into_iter().collect()
    }

    async fn one(
        &self,
        context: Option<&str>,
        mut plan: Plan,
        choose: impl Fn(&Facts) -> Vec<Spec>,
        mode: &Mode,
        token: &CancellationToken,
    ) -> anyhow::Result<Tested> {
        let began = Instant::now();
        let context = context.map(str::to_owned);
        let cluster = ClusterArgs {
            kubeconfig: self.kubeconfig.clone(),
            context: context.clone(),
            request_timeout: self.request_timeout,
        };
        let connection = Connection::open(&cluster.options("e2e")).await?;
        let clients = (connection.watch_client()?, connection.client_with_timeout(REQUEST_TIMEOUT)?);
        let lines = self.lines(context.as_deref());
        plan.settings.access = cluster;
        let settings = plan.settings.clone();
        let tested = async {
            if let Some(role) = &mode.setup {
                installation::make(clients.clone(), (&settings, role), token, &lines).await?;
            }
            Box::pin(tested(clients.clone(), (plan, mode), choose, token, &lines)).await
        };
        let tested = tested.await;
        // Also after an interruption or a setup that has failed.
        let removed = match mode.teardown {
            true => installation::remove(clients, &settings, &lines).await,
            false => Ok(()),
        };
        let (specs, cases, verdicts) = match (tested, removed) {
            (Ok(tested), removed) => removed.map(|()| tested)?,
            (Err(error), removed) => return Err(either(error, removed)),
        };
        Ok(Tested { context, specs, cases, verdicts, seconds: began.elapsed().as_secs_f64() })
    }

    /// Progress of a cluster; its name is told where there are several.
    fn lines(&self, context: Option<&str>) -> Lines {
        let context = context.filter(|_| self.context.len() > 1);
        Lines {
            prefix: context.map(|context| format!("{context}: ")).unwrap_or_default(),
            wait: if self.verbose { Duration::ZERO } else { LONG_WAIT },
        }
    }

    /// Writes the results. A document, or a list of them where there are several clusters.
    ///
    /// # Errors
    /// When a file or standard output cannot be written.
    pub(super) fn write(&self, tested: &[Tested]) -> anyhow::Result<ExitCode> {
        if let Some(file) = &self.junit {
            let suites: Vec<_> = tested.iter().map(|tested| (tested.suite(), &*tested.cases)).collect();
            fs::write(file, junit::write(&suites)).with_context(|| file.display().to_string())?;
        }
        let documents: Vec<Document<'_>> = tested.iter().map(Tested::document).collect();
        let summaries = || documents.iter().map(report::summary).collect();
        print(&match &*documents {
            [document] => self.output.format.write(document, summaries)?,
            documents => self.output.format.write(&documents, summaries)?,
        })?;
        let is_good = tested.iter().all(Tested::is_good);
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
    }
}

impl Tested {
    /// The name in JUnit.
    fn suite(&self) -> String {
        let name = self.context.as_ref().map(|context| format!(" {context}")).unwrap_or_default();
        format!("tholepin e2e{name}")
    }

    fn is_good(&self) -> bool {
        let counts = Counts::of(&self.cases);
        counts.failed + counts.not_tried == 0 && self.verdicts.is_empty()
    }

    fn document(&self) -> Document<'_> {
        Document {
            context: self.context.as_deref(),
            counts: Counts::of(&self.cases),
            verdicts: &self.verdicts,
            seconds: self.seconds,
            specs: &self.cases,
        }
    }
}

/// The specs of a cluster, how they ended, and what is wrong as a whole.
async fn tested(
    clients: (Client, Client),
    (plan, mode): (Plan, &Mode),
    choose: impl Fn(&Facts) -> Vec<Spec>,
    token: &CancellationToken,
    lines: &Lines,
) -> anyhow::Result<(Vec<Spec>, Vec<Case>, Vec<String>)> {
    // Nothing is looked at by a mere teardown, whose cluster may be broken.
    if mode.execution == Execution::None && mode.setup.is_none() {
        return Ok(<_>::default());
    }
    let runner = Runner::prepare(clients, plan, token.clone(), lines).await?;
    let specs = if mode.execution == Execution::None { Vec::new() } else { choose(runner.facts()) };
    let (cases, verdicts) = if mode.execution == Execution::DryRun {
        let cases = specs.iter().map(|spec| runner.foreseen(spec)).collect();
        runner.run(&[], lines).await.map(|(_, verdicts)| (cases, verdicts))?
    } else {
        runner.run(&specs, lines).await?
    };
    Ok((specs, cases, verdicts))
}

impl Lines {
    fn line(&self, text: impl std::fmt::Display) {
        stderr::line(format_args!("{}{text}", self.prefix));
    }
}

impl Progress for Lines {
    fn step(&self, text: &str) {
        self.line(text);
    }

    fn begins(&self, spec: &Spec, number: usize, of: usize) {
        self.line(format_args!("{number}/{of} {}", spec.line()));
    }

    fn waits(&self, waits: &[Wait]) {
        for Wait { what, since, last } in waits.iter().take(MOST_WAITS) {
            let took = since.elapsed();
            if took >= self.wait {
                self.line(format_args!("  waiting for {} s: {what}: {}", took.as_secs(), one_line(last)));
            }
        }
    }

    fn ended(&self, case: &Case) {
        self.line(report::line(case));
    }
}
