//! The tools by name, and what all of them do alike.
//!
//! In: a name, a command line, a token that stops. Out: an exit code. Never: the work of a tool.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use runtime::client::{Connection, Options};
use runtime::goflag::{Flag, FlagSet, Kind, Parsed};
pub use runtime::stdout::print;
use tokio_util::sync::CancellationToken;

use crate::{
    buildhelper, commit, container_tools, digests, envsubst, job, kubeletconf, mustgather, nrtattr,
    pfpsyncchk, platform, schedlogs, topics,
};

/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that we stand in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Tells version, branch and commit of a source tree.
    BuildHelper,
    /// Shows what programs have written down about fingerprints.
    Cat,
    /// Tells what kubelets are configured to do.
    CatKubeletConfMap,
    /// Runs a command with another root.
    Chroot,
    /// Replaces variables in text.
    EnvSubst,
    /// Collects what a support case needs.
    Gather,
    /// Tells digests of the scheduler's images.
    GetDigests,
    /// Tells what kind of cluster it is.
    LsPlatform,
    /// Tells the topics of features.
    LsTopics,
    /// Makes jobs that run a script on every node of the exporters.
    MakeJobForEachDs,
    /// Makes a label filter of topics.
    MkGinkgoLabelFilter,
    /// Checks a cluster.
    NroValidate,
    /// Compares fingerprints of scheduler and exporters.
    PfpSyncChk,
    /// Tells variables of the environment.
    PrintEnv,
    /// Shows what the scheduler says.
    SchedLogs,
    /// Checks sign-offs.
    VerifyCommit,
    /// Tells attributes of reports as they change.
    WatchNrtAttr,
}

/// Every name, and whether it is one under which people call it; the others are for images.
pub const NAMES: [(&str, Tool); 17] = [
    ("buildhelper", Tool::BuildHelper),
    ("cat", Tool::Cat),
    ("catkubeletconfmap", Tool::CatKubeletConfMap),
    ("chroot", Tool::Chroot),
    ("envsubst", Tool::EnvSubst),
    ("gather", Tool::Gather),
    ("getdigests", Tool::GetDigests),
    ("lsplatform", Tool::LsPlatform),
    ("lstopics", Tool::LsTopics),
    ("make-job-foreach-ds", Tool::MakeJobForEachDs),
    ("mkginkgolabelfilter", Tool::MkGinkgoLabelFilter),
    ("nrovalidate", Tool::NroValidate),
    ("pfpsyncchk", Tool::PfpSyncChk),
    ("printenv", Tool::PrintEnv),
    ("schedlogs", Tool::SchedLogs),
    ("verify-commit", Tool::VerifyCommit),
    ("watchnrtattr", Tool::WatchNrtAttr),
];

/// How a tool was called.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its own name, as it was called.
    pub program: String,
    /// What follows.
    pub arguments: Vec<String>,
}

/// The flag that every tool takes that asks a cluster.
pub const KUBECONFIG: [Flag; 1] = [Flag {
    name: "kubeconfig",
    kind: Kind::Text,
    default: "",
    help: "kubeconfig; without it KUBECONFIG, ~/.kube/config, then the pod's service account",
}];

impl Tool {
    /// The tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool)
    }

    /// Runs it until it ends or `stop` is cancelled; then its exit code is 1.
    ///
    /// # Errors
    /// Whatever keeps it from its work; the exit code for that is [`Tool::failure`].
    pub async fn run(self, call: Call, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        if self == Self::Gather {
            // It tells what it could not finish.
            return mustgather::gather(&call, stop).await;
        }
        tokio::select! {
            ended = self.work(&call) => ended,
            () = stop.cancelled() => Ok(ExitCode::FAILURE),
        }
    }

    /// The exit code for an error.
    #[must_use]
    pub fn failure(self) -> ExitCode {
        match self {
            // 1 says that it is another platform.
            Self::LsPlatform | Self::PfpSyncChk => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    async fn work(self, call: &Call) -> anyhow::Result<ExitCode> {
        match self {
            Self::BuildHelper => buildhelper::run(call).await,
            Self::Cat => container_tools::cat(call),
            Self::CatKubeletConfMap => kubeletconf::run(call).await,
            Self::Chroot => container_tools::chroot(call),
            Self::EnvSubst => envsubst::run(call),
            Self::Gather => Ok(ExitCode::FAILURE),
            Self::GetDigests => digests::run(call).await,
            Self::LsPlatform => platform::run(call).await,
            Self::LsTopics => topics::list(call),
            Self::MakeJobForEachDs => job::run(call).await,
            Self::MkGinkgoLabelFilter => topics::filter(call),
            Self::NroValidate => {
                deployer::validate::dialect::nro::run(&call.program, call.arguments.clone()).await
            }
            Self::PfpSyncChk => pfpsyncchk::run(call),
            Self::PrintEnv => container_tools::printenv(call),
            Self::SchedLogs => schedlogs::run(call).await,
            Self::VerifyCommit => commit::run(call),
            Self::WatchNrtAttr => nrtattr::run(call).await,
        }
    }
}

impl Call {
    /// Reads the flags. What is no flag is an error unless `rest` allows it.
    ///
    /// # Errors
    /// The exit code, when help was asked for (it has been printed) or something is wrong (it has been told).
    pub fn flags(&self, flags: &[&[Flag]], rest: bool) -> Result<Parsed, ExitCode> {
        let set = FlagSet { program: &self.program, flags };
        match set.parse(self.arguments.iter().cloned()) {
            Ok(parsed) if rest || parsed.rest.is_empty() => Ok(parsed),
            Ok(parsed) => {
                eprint!("unexpected argument: {}\n{}", parsed.rest.join(" "), set.usage());
                Err(ExitCode::from(2))
            }
            Err(outcome) => {
                eprint!("{}", outcome.text());
                Err(ExitCode::from(outcome.code()))
            }
        }
    }
}

/// A connection to the cluster that `-kubeconfig` names, or that is found without it.
///
/// # Errors
/// When none is found, or it is not usable.
pub async fn connect(tool: &str, flags: &Parsed) -> anyhow::Result<Connection> {
    let options = Options {
        kubeconfig: flags.text("kubeconfig").filter(|path| !path.is_empty()).map(PathBuf::from),
        user_agent: format!("tholepin-{tool}/{}", env!("CARGO_PKG_VERSION")),
        ..Options::default()
    };
    Ok(Connection::open(&options).await?)
}

/// As [`connect`], with a client for calls that answer soon.
///
/// # Errors
/// As [`connect`].
pub async fn client(tool: &str, flags: &Parsed) -> anyhow::Result<Client> {
    Ok(connect(tool, flags).await?.client_with_timeout(PATIENCE)?)
}

/// Tells something on standard error, with the time as Go's `log` package puts it there (in UTC).
pub fn log(text: &str) {
    eprintln!("{} {text}", Timestamp::now().strftime("%Y/%m/%d %H:%M:%S"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_found() {
        assert!(NAMES.is_sorted_by_key(|(name, _)| *name));
        for (name, tool) in NAMES {
            assert_eq!(Tool::named(name), Some(tool));
        }
        assert_eq!(Tool::named("tholepin"), None);
    }

    #[test]
    fn arguments_that_nobody_reads_are_refused() {
        let call = |words: &[&str]| Call {
            program: "x".to_owned(),
            arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        assert!(call(&["-kubeconfig", "k"]).flags(&[&KUBECONFIG], false).is_ok());
        assert!(call(&["--kubeconfig=k", "more"]).flags(&[&KUBECONFIG], true).is_ok());
        for words in [&["more"][..], &["-what"], &["-h"]] {
            assert!(call(words).flags(&[&KUBECONFIG], false).is_err(), "{words:?}");
        }
    }
}
