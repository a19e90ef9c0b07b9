//! The tools by name.
//!
//! In: a name, a call, a token for cancellation. Out: an exit code. Never: the work of a tool.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use crate::call::Call;
use crate::{
    buildhelper, commit, container_tools, digests, envsubst, job, kubeletconf, mustgather, nrtattr,
    pfpsyncchk, platform, schedlogs, topics,
};

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
                Ok(deployer::validate::compat::nrovalidate::run(&call.program, call.arguments.clone()).await)
            }
            Self::PfpSyncChk => pfpsyncchk::run(call),
            Self::PrintEnv => container_tools::printenv(call),
            Self::SchedLogs => schedlogs::run(call).await,
            Self::VerifyCommit => commit::run(call),
            Self::WatchNrtAttr => nrtattr::run(call).await,
        }
    }
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
}
