//! Errors of detection.

use runtime::client::brief;

use crate::platform;

/// A question about the cluster without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A call to the API server failed.
    #[error("{doing}: {error}")]
    Call {
        /// The call.
        doing: &'static str,
        /// The API server's answer.
        error: String,
    },
    /// The operator of OpenShift's API server lists no operands.
    #[error("ClusterOperator openshift-apiserver: status.versions is empty")]
    NoOperands,
    /// The version is malformed.
    #[error(transparent)]
    Version(platform::Error),
    /// Neither the user nor the cluster was asked.
    #[error("not asked")]
    NotAsked,
}

impl Error {
    pub(super) fn call(doing: &'static str, error: &kube::Error) -> Self {
        Self::Call { doing, error: brief(error) }
    }
}
