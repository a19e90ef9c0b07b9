//! The meaning of a command line of the Go deployer.
//!
//! In: values of flags, the environment, files that flags name. Out: [`Request`]. Never: a cluster.
//!
//! Values are checked in the peer's order, so that of several mistakes the same one is reported.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::pflag::Parsed;
use super::table::Verb;
use crate::detect::PlatformSpec;
use crate::images::{Images, Pullspec, USE_SHA};
use crate::install::Settings;
use crate::manifests::plugin;
use crate::options::{
    Options, PullPolicy, SccVersion, Scheduler, SchedulerOptions, Updater, UpdaterOptions, files,
};
use crate::session::PROGRAM;
use runtime::client::ClusterArgs;

/// A command with all of its settings.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command.
    pub(super) verb: Verb,
    /// The options of an installation; the platform is still open.
    pub options: Options,
    /// The platform as the user states it.
    pub given: PlatformSpec,
    /// One replica for each control plane node.
    pub replicas_of_control_plane: bool,
    /// Settings of a deployment or removal.
    pub settings: Settings,
    /// The verbosity of the program's own log.
    pub verbosity: i64,
    /// The style of the log.
    pub style: LogStyle,
    /// The cluster.
    pub cluster: runtime::client::Options,
    /// Files that were read, for the log: a message and the size in bytes.
    pub read: Vec<(&'static str, usize)>,
    /// The flags, of which single commands read those about their output.
    pub(super) parsed: Parsed,
}

/// The style of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStyle {
    /// Sentences, as the peer's README shows them.
    Classic,
    /// Keys and values, as the peer's later releases print them.
    Structured,
}

impl Request {
    /// Reads the flags of a command.
    ///
    /// # Errors
    /// The first value that is not allowed or file that cannot be read, in one line.
    pub(super) fn new(
        verb: Verb,
        parsed: Parsed,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let given = |flag: &str| parsed.text(flag).filter(|text| !text.is_empty());
        let style = match parsed.text_or_default("log-style") {
            "classic" => LogStyle::Classic,
            "structured" => LogStyle::Structured,
            other => bail!("--log-style: {other:?} is not allowed; it must be classic or structured"),
        };
        let scc = match parsed.text_or_default("updater-scc") {
            "v1" => SccVersion::V1,
            "v2" => SccVersion::V2,
            other => bail!("SCC version {other:?} is invalid"),
        };
        let platform = platform(parsed.text_or_default("platform"))?;
        let mut options = Options::peers();
        let mut read = Vec::new();
        config_files(&parsed, &mut options, &mut read)?;
        updater(&parsed, &mut options.updater)?;
        options.updater.scc = scc;
        scheduler(&parsed, &mut options.scheduler)?;
        let replicas = parsed.int("replicas");
        options.scheduler.replicas = i32::try_from(replicas).context("replicas: too many")?;
        if parsed.bool("pull-if-not-present") {
            options.pull = PullPolicy::IfNotPresent;
        }
        let sha = variable(USE_SHA).is_some() || parsed.bool("sha");
        options.images = Images::new(if sha { Pullspec::Digest } else { Pullspec::Tag }, variable);
        let cluster = ClusterArgs {
            kubeconfig: given("kubeconfig").map(PathBuf::from),
            context: given("context").map(str::to_owned),
            request_timeout: None,
        };
        let limit =
            |flag: &str| parsed.duration(flag).with_context(|| format!("--{flag}: it must not be negative"));
        Ok(Self {
            verb,
            options,
            given: platform,
            replicas_of_control_plane: replicas < 0,
            settings: Settings {
                wait: parsed.bool("wait"),
                wait_interval: limit("wait-interval")?,
                wait_timeout: limit("wait-timeout")?,
                ..Settings::default()
            },
            verbosity: parsed.int("verbose"),
            style,
            cluster: cluster.options(PROGRAM),
            read,
            parsed,
        })
    }
}

/// `kind:version`, ignoring empty pieces. The peer ignores unknown kinds and versions.
fn platform(text: &str) -> anyhow::Result<PlatformSpec> {
    let pieces: Vec<&str> = text.split(':').filter(|piece| !piece.is_empty()).collect();
    match pieces[..] {
        [] if text.is_empty() => Ok(PlatformSpec::default()),
        [kind] => Ok(kind.parse()?),
        [kind, version] => {
            Ok(PlatformSpec { platform: Some(kind.parse()?), version: Some(version.parse()?) })
        }
        _ => bail!("unsupported platform spec: {text:?}"),
    }
}

fn config_files(
    parsed: &Parsed,
    options: &mut Options,
    read: &mut Vec<(&'static str, usize)>,
) -> anyhow::Result<()> {
    let mut file = |flag: &str, what: &'static str, take: &mut dyn FnMut(&Path) -> anyhow::Result<()>| {
        let Some(path) = parsed.text(flag).filter(|path| !path.is_empty()) else { return Ok(()) };
        take(Path::new(path)).with_context(|| format!("--{flag} {path}"))?;
        let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        read.push((what, usize::try_from(bytes).unwrap_or(usize::MAX)));
        anyhow::Ok(())
    };
    file("rte-config-file", "RTE config: read", &mut |path| {
        options.updater.config = files::verbatim(path)?;
        Ok(())
    })?;
    file("sched-scoring-strat-config-file", "Scheduler Scoring Strategy config: read", &mut |path| {
        options.scheduler.scoring = Some(files::scoring(path)?);
        Ok(())
    })?;
    file("sched-cache-params-config-file", "Scheduler Cache Parameters config: read", &mut |path| {
        files::cache(path, &mut options.scheduler.cache)
    })
}

fn updater(parsed: &Parsed, options: &mut UpdaterOptions) -> anyhow::Result<()> {
    let kind = match parsed.text_or_default("updater-type") {
        "RTE" => Updater::Rte,
        "NFD" => Updater::Nfd,
        "THOLEPIN" => Updater::Tholepin,
        other => bail!("{other:?} is invalid updater type"),
    };
    if kind == Updater::Tholepin {
        // Our exporter keeps its own defaults; the peer's are for programs that poll.
        let ours = UpdaterOptions::default();
        (options.sync_period, options.verbosity) = (ours.sync_period, ours.verbosity);
    }
    options.kind = kind;
    if kind != Updater::Tholepin || parsed.text("updater-sync-period").is_some() {
        options.sync_period = parsed.duration("updater-sync-period").filter(|period| !period.is_zero());
    }
    if kind != Updater::Tholepin || parsed.text("updater-verbose").is_some() {
        options.verbosity = verbosity(parsed, "updater-verbose")?;
    }
    options.fingerprint = parsed.bool("updater-pfp-enable");
    options.notify = parsed.bool("updater-notif-enable");
    options.cri_hooks = parsed.bool("updater-cri-hooks-enable");
    options.custom_selinux_policy = parsed.bool("updater-custom-selinux-policy");
    Ok(())
}

fn scheduler(parsed: &Parsed, options: &mut SchedulerOptions) -> anyhow::Result<()> {
    options.kind = match parsed.text_or_default("sched-type") {
        "PLUGIN" => Scheduler::Plugin,
        "THOLEPIN" => Scheduler::Tholepin,
        other => bail!("--sched-type: {other:?} is not allowed; it must be PLUGIN or THOLEPIN"),
    };
    let ours = options.kind == Scheduler::Tholepin;
    options.control_plane_affinity = parsed.bool("sched-ctrlplane-affinity");
    options.profile_name =
        parsed.text("sched-profile-name").filter(|name| !name.is_empty()).map(str::to_owned);
    // Whole seconds; below one there is no resync.
    options.resync_seconds = parsed
        .duration("sched-resync-period")
        .map_or(0, |period| i64::try_from(period.as_secs()).unwrap_or(i64::MAX));
    // The flag's default is ignored: it names a namespace that does not exist on OpenShift.
    if let Some(text) = parsed.text("sched-leader-elect-resource") {
        let default =
            |given: Option<String>, default: &str| Some(given.unwrap_or_else(|| default.to_owned()));
        let lease = files::lease(text)?;
        options.lease.namespace = default(lease.namespace, plugin::NAMESPACE);
        options.lease.name = default(lease.name, plugin::LEASE);
    }
    options.verbosity = match parsed.text("sched-verbose") {
        None if ours => SchedulerOptions::default().verbosity,
        _ => verbosity(parsed, "sched-verbose")?,
    };
    Ok(())
}

fn verbosity(parsed: &Parsed, flag: &str) -> anyhow::Result<i32> {
    let value = parsed.int(flag);
    i32::try_from(value).ok().with_context(|| format!("--{flag}: {value} is too much"))
}
