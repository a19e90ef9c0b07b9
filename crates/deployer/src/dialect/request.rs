//! What a command line of the peer asks for.
//!
//! In: the values of flags, the environment, the files that flags name. Out: [`Request`]. Never: a cluster.
//!
//! Values are checked in the peer's order, so that of several mistakes the same one is told.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::pflag::{Flag, Parsed};
use super::table::{Verb, global, own};
use crate::cli::params;
use crate::detect::Given;
use crate::images::{Images, Pullspec, USE_SHA};
use crate::options::{Options, Pull, Scc, Scheduler, SchedulerOptions, Updater, UpdaterOptions};

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// What to install; the platform is still open.
    pub options: Options,
    /// What the user says about the cluster.
    pub given: Given,
    /// As many replicas as there are control plane nodes.
    pub replicas_of_control_plane: bool,
    /// Wait until it runs, or is gone.
    pub wait: bool,
    /// How often to look, and how long each thing may take.
    pub pace: (Duration, Duration),
    /// What to log about ourselves.
    pub verbosity: i64,
    /// How that reads.
    pub style: Style,
    /// The cluster.
    pub cluster: runtime::client::Options,
    /// What was read of files, for the log: a message and bytes.
    pub read: Vec<(&'static str, usize)>,
    /// Details of single commands.
    pub output: Output,
}

/// How the log reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Sentences, as the peer's README shows them.
    Classic,
    /// Keys and values, as the peer's later releases print them.
    Structured,
}

/// Details of single commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
    /// `detect`: about the control plane.
    pub control_plane: bool,
    /// `images`: names only.
    pub raw: bool,
    /// `version`: which part of it.
    pub full: bool,
    /// `version`: the commit only.
    pub hash: bool,
}

impl Request {
    /// What the flags of a command ask for.
    ///
    /// # Errors
    /// The first value that is not allowed, or file that cannot be used, in one line.
    pub fn new(
        verb: Verb,
        parsed: &Parsed,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let given = |flag: &Flag| parsed.text(flag).filter(|text| !text.is_empty());
        let style = match parsed.text_or_default(&global::LOG_STYLE) {
            "classic" => Style::Classic,
            "structured" => Style::Structured,
            other => bail!("--log-style: {other:?} is not allowed; it must be classic or structured"),
        };
        let scc = match parsed.text_or_default(&global::SCC) {
            "v1" => Scc::V1,
            "v2" => Scc::V2,
            other => bail!("SCC version {other:?} is invalid"),
        };
        let platform = platform(parsed.text_or_default(&global::PLATFORM))?;
        let mut options = Options::peers();
        let mut read = Vec::new();
        files(parsed, &mut options, &mut read)?;
        updater(parsed, &mut options.updater)?;
        options.updater.scc = scc;
        scheduler(parsed, &mut options.scheduler)?;
        let replicas = parsed.int(&global::REPLICAS);
        options.scheduler.replicas = i32::try_from(replicas).context("replicas: too many")?;
        if parsed.bool(&global::PULL_IF_NOT_PRESENT) {
            options.pull = Pull::IfNotPresent;
        }
        let sha = variable(USE_SHA).is_some() || parsed.text(&own::SHA).is_some() && parsed.bool(&own::SHA);
        options.images = Images::new(if sha { Pullspec::Digest } else { Pullspec::Tag }, variable);
        let pace = |flag: &Flag| {
            parsed.duration(flag).with_context(|| format!("--{}: it must not be negative", flag.name))
        };
        Ok(Self {
            verb,
            options,
            given: platform,
            replicas_of_control_plane: replicas < 0,
            wait: parsed.bool(&own::WAIT),
            pace: (pace(&global::WAIT_INTERVAL)?, pace(&global::WAIT_TIMEOUT)?),
            verbosity: parsed.int(&global::VERBOSE),
            style,
            cluster: runtime::client::Options {
                kubeconfig: given(&global::KUBECONFIG).map(PathBuf::from),
                context: given(&global::CONTEXT).map(str::to_owned),
                user_agent: crate::cli::user_agent(),
            },
            read,
            output: Output {
                json: parsed.bool(&own::JSON),
                control_plane: parsed.bool(&own::CONTROL_PLANE),
                raw: parsed.bool(&own::RAW),
                full: parsed.bool(&own::FULL),
                hash: parsed.bool(&own::HASH),
            },
        })
    }
}

/// `kind:version`, where empty pieces do not count. The peer takes kinds and versions it does not know for none.
fn platform(text: &str) -> anyhow::Result<Given> {
    let pieces: Vec<&str> = text.split(':').filter(|piece| !piece.is_empty()).collect();
    match pieces[..] {
        [] if text.is_empty() => Ok(Given::default()),
        [kind] => Ok(kind.parse()?),
        [kind, version] => Ok(Given { platform: Some(kind.parse()?), version: Some(version.parse()?) }),
        _ => bail!("unsupported platform spec: {text:?}"),
    }
}

fn files(
    parsed: &Parsed,
    options: &mut Options,
    read: &mut Vec<(&'static str, usize)>,
) -> anyhow::Result<()> {
    let mut file = |flag: &Flag, what: &'static str, take: &mut dyn FnMut(&Path) -> anyhow::Result<()>| {
        let Some(path) = parsed.text(flag).filter(|path| !path.is_empty()) else { return Ok(()) };
        take(Path::new(path)).with_context(|| format!("--{} {path}", flag.name))?;
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        read.push((what, usize::try_from(bytes).unwrap_or(usize::MAX)));
        anyhow::Ok(())
    };
    file(&global::RTE_CONFIG, "RTE config: read", &mut |path| {
        options.updater.config = params::verbatim(path)?;
        Ok(())
    })?;
    file(&global::SCORING, "Scheduler Scoring Strategy config: read", &mut |path| {
        options.scheduler.scoring = Some(params::scoring(path)?);
        Ok(())
    })?;
    file(&global::CACHE_PARAMS, "Scheduler Cache Parameters config: read", &mut |path| {
        params::cache(path, &mut options.scheduler.cache)
    })
}

fn updater(parsed: &Parsed, options: &mut UpdaterOptions) -> anyhow::Result<()> {
    let kind = match parsed.text_or_default(&global::UPDATER) {
        "RTE" => Updater::Rte,
        "NFD" => Updater::Nfd,
        "THOLEPIN" => Updater::Tholepin,
        other => bail!("{other:?} is invalid updater type"),
    };
    if kind == Updater::Tholepin {
        // Its own defaults; the peer's are for programs that poll.
        let ours = UpdaterOptions::default();
        (options.sync_period, options.verbosity) = (ours.sync_period, ours.verbosity);
    }
    options.kind = kind;
    if kind != Updater::Tholepin || parsed.text(&global::SYNC_PERIOD).is_some() {
        options.sync_period = parsed.duration(&global::SYNC_PERIOD).filter(|period| !period.is_zero());
    }
    if kind != Updater::Tholepin || parsed.text(&global::UPDATER_VERBOSE).is_some() {
        options.verbosity = verbosity(parsed, &global::UPDATER_VERBOSE)?;
    }
    options.fingerprint = parsed.bool(&global::FINGERPRINT);
    options.notify = parsed.bool(&global::NOTIFY);
    options.cri_hooks = parsed.bool(&global::CRI_HOOKS);
    options.custom_selinux_policy = parsed.bool(&global::SELINUX_POLICY);
    Ok(())
}

fn scheduler(parsed: &Parsed, options: &mut SchedulerOptions) -> anyhow::Result<()> {
    options.kind = match parsed.text_or_default(&global::SCHEDULER) {
        "PLUGIN" => Scheduler::Plugin,
        "THOLEPIN" => Scheduler::Tholepin,
        other => bail!("--sched-type: {other:?} is not allowed; it must be PLUGIN or THOLEPIN"),
    };
    let ours = options.kind == Scheduler::Tholepin;
    options.control_plane_affinity = parsed.bool(&global::CONTROL_PLANE_AFFINITY);
    options.profile_name = parsed.text(&global::PROFILE).filter(|name| !name.is_empty()).map(str::to_owned);
    // Whole seconds; below one there is no resync.
    options.resync_seconds = parsed
        .duration(&global::RESYNC_PERIOD)
        .map_or(0, |period| i64::try_from(period.as_secs()).unwrap_or(i64::MAX));
    // Its default names a namespace that OpenShift does not have; the scheduler's own is meant.
    if let Some(text) = parsed.text(&global::LEASE) {
        let default =
            |given: Option<String>, default: &str| Some(given.unwrap_or_else(|| default.to_owned()));
        let lease = params::lease(text)?;
        options.lease.namespace = default(lease.namespace, params::LEASE_NAMESPACE);
        options.lease.name = default(lease.name, params::LEASE_NAME);
    }
    options.verbosity = match parsed.text(&global::SCHEDULER_VERBOSE) {
        None if ours => SchedulerOptions::default().verbosity,
        _ => verbosity(parsed, &global::SCHEDULER_VERBOSE)?,
    };
    Ok(())
}

fn verbosity(parsed: &Parsed, flag: &Flag) -> anyhow::Result<i32> {
    let value = parsed.int(flag);
    i32::try_from(value).ok().with_context(|| format!("--{}: {value} is too much", flag.name))
}
