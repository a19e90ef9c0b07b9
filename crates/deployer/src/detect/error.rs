//! Why a question about the cluster has no answer.

use runtime::client::brief;

use crate::platform;

/// Why a question about the cluster has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The API server did not answer, or not with what was asked for.
    #[error("{doing}: {error}")]
    Call {
        /// What was being done.
        doing: &'static str,
        /// Its answer.
        error: String,
    },
    /// OpenShift's API server has an operator that operates nothing.
    #[error("ClusterOperator openshift-apiserver: status.versions is empty")]
    NoOperands,
    /// What should be a version is none.
    #[error(transparent)]
    Version(platform::Error),
    /// Nobody said anything.
    #[error("nobody asked")]
    NotAsked,
}

impl Error {
    pub(super) fn call(doing: &'static str, error: &kube::Error) -> Self {
        Self::Call { doing, error: brief(error) }
    }
}
