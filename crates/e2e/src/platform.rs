//! The platforms that specs tell apart.
//!
//! In: the kinds of an API server, one object of it. Out: a [`Platform`]. Never: a guess from names of nodes.

use std::collections::BTreeSet;
use std::fmt;

use kube::Client;

use crate::undo::Target;

/// The kind that only OpenShift has.
const CLUSTER_VERSIONS: &str = "clusterversions.config.openshift.io";

/// A platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Any other Kubernetes.
    #[default]
    Kubernetes,
    /// OpenShift with its own control plane.
    OpenShift,
    /// OpenShift with a hosted control plane.
    HyperShift,
}

impl Platform {
    /// Whether the platform has OpenShift's kinds.
    #[must_use]
    pub fn is_openshift(self) -> bool {
        self != Self::Kubernetes
    }

    /// The platform of a cluster with these kinds.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn of(client: &Client, kinds: &BTreeSet<String>) -> anyhow::Result<Self> {
        if !kinds.contains(CLUSTER_VERSIONS) {
            return Ok(Self::Kubernetes);
        }
        let found = config("Infrastructure", "infrastructures").api(client).get_opt("cluster").await?;
        let topology = found.map(|found| found.data["status"]["controlPlaneTopology"].clone());
        Ok(if topology.is_some_and(|topology| topology == "External") {
            Self::HyperShift
        } else {
            Self::OpenShift
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variants have the names of the platforms.
        write!(f, "{self:?}")
    }
}

/// The object `cluster` of a kind of OpenShift's configuration.
#[must_use]
pub fn config(kind: &str, plural: &str) -> Target {
    Target::new(("config.openshift.io/v1", kind, plural), "", "cluster")
}
