//! The tools by name, and their shared parts.
//!
//! In: a name, a command line, a token for cancellation. Out: an exit code. Never: the work of a tool.

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

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A Go tool in whose place this program can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Prints version, branch and commit of a source tree.
    BuildHelper,
    /// Prints status files about fingerprints.
    Cat,
    /// Prints the topology manager settings of kubelets.
    CatKubeletConfMap,
    /// Runs a command with another root.
    Chroot,
    /// Replaces variables in text.
    EnvSubst,
    /// Collects the data for a support case.
    Gather,
    /// Prints the digests of the scheduler's images.
    GetDigests,
    /// Prints the platform of a cluster.
    LsPlatform,
    /// Prints the topics of features.
    LsTopics,
    /// Prints Jobs that run a script on each node of the exporters.
    MakeJobForEachDs,
    /// Prints a label filter for topics.
    MkGinkgoLabelFilter,
    /// Checks a cluster.
    NroValidate,
    /// Compares fingerprints of scheduler and exporters.
    PfpSyncChk,
    /// Prints environment variables.
    PrintEnv,
    /// Prints the log of the leading scheduler.
    SchedLogs,
    /// Checks sign-offs of commits.
    VerifyCommit,
    /// Prints attributes of reports as they change.
    WatchNrtAttr,
}

/// All names and their tools, by name.
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

/// The call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name under which the tool was called.
    pub program: String,
    /// The arguments after the name.
    pub arguments: Vec<String>,
}

/// The flag of all tools that access a cluster.
pub const KUBECONFIG: [Flag; 1] = [Flag {
    name: "kubeconfig",
    kind: Kind::Text,
    default: "",
    help: "kubeconfig file; default: KUBECONFIG, ~/.kube/config, then the pod's service account",
}];

impl Tool {
    /// The tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, tool)| *tool)
    }

    /// Runs the tool to its end, or until `stop` is cancelled; the exit code is then 1.
    ///
    /// # Errors
    /// As the tool; the exit code for errors is [`Tool::failure`].
    pub async fn run(self, call: Call, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        if self == Self::Gather {
            // Handles cancellation itself: it records what is missing.
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
            // 1 means another platform, or wrong arguments.
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
    /// Parses the flags. Other arguments are an error unless `rest` allows them.
    ///
    /// # Errors
    /// The exit code, after help or an error message was printed.
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

/// Connects to the cluster of `-kubeconfig`, or of the usual places.
///
/// # Errors
/// When no usable configuration is found.
pub async fn connect(tool: &str, flags: &Parsed) -> anyhow::Result<Connection> {
    let options = Options {
        kubeconfig: flags.text("kubeconfig").filter(|path| !path.is_empty()).map(PathBuf::from),
        user_agent: format!("tholepin-{tool}/{}", env!("CARGO_PKG_VERSION")),
        ..Options::default()
    };
    Ok(Connection::open(&options).await?)
}

/// As [`connect`], with a client for short calls.
///
/// # Errors
/// As [`connect`].
pub async fn client(tool: &str, flags: &Parsed) -> anyhow::Result<Client> {
    Ok(connect(tool, flags).await?.client_with_timeout(REQUEST_TIMEOUT)?)
}

/// Prints a line on standard error, with the time in the format of Go's `log` package, in UTC.
pub fn log(text: &str) {
    eprintln!("{} {text}", Timestamp::now().strftime("%Y/%m/%d %H:%M:%S"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted_by_key(|(name, _)| *name));
        for (name, tool) in NAMES {
            assert_eq!(Tool::named(name), Some(tool));
        }
        assert_eq!(Tool::named("tholepin"), None);
    }

    #[test]
    fn unused_arguments_are_refused() {
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
