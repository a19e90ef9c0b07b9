//! Detecting the platform and version of a cluster.
//!
//! In: a client, the user's statement. Out: [`ClusterInfo`], with an answer or an error for each question. Never: a
//! guess; the caller decides whether a missing answer matters.
//!
//! The rules are the Go `deployer`'s. A cluster with ClusterVersions is OpenShift, with an external control plane
//! HyperShift. The version of OpenShift is that of the operator of its API server.

#[cfg(test)]
mod tests;
mod text;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use runtime::client::{brief, is_not_found};

use crate::manifests::pod::CONTROL_PLANE;
use crate::platform::{self, Platform, Version};
use objects::ObjectKind;

/// The user's statement about a cluster; it takes precedence over detection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformSpec {
    /// The platform.
    pub platform: Option<Platform>,
    /// Its version.
    pub version: Option<Version>,
}

/// The answer to one question.
#[derive(Clone, Debug)]
pub enum Detection<T> {
    /// The user's answer; the cluster was not asked.
    Given(T),
    /// The cluster's answer.
    Detected(Result<T, Error>),
}

/// Platform and version of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterInfo {
    /// The platform.
    pub platform: Detection<Platform>,
    /// The version of Kubernetes, or of OpenShift on OpenShift.
    pub version: Detection<Version>,
}

impl<T> Detection<T> {
    /// The user's answer, else the cluster's.
    ///
    /// # Errors
    /// When the user gave no answer and the cluster's is an error.
    pub fn get(&self) -> Result<&T, Error> {
        match self {
            Self::Given(given) => Ok(given),
            Self::Detected(detected) => detected.as_ref().map_err(Clone::clone),
        }
    }
}

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
}

impl Error {
    fn call(doing: &'static str, error: &kube::Error) -> Self {
        Self::Call { doing, error: brief(error) }
    }
}

/// Detects what `given` leaves open. A failed question is an error in its place.
pub async fn cluster(client: &Client, given: &PlatformSpec) -> ClusterInfo {
    let platform = match given.platform {
        Some(platform) => Detection::Given(platform),
        None => Detection::Detected(platform(client).await),
    };
    let version = match &given.version {
        Some(version) => Detection::Given(version.clone()),
        // With an unknown platform the version is that of Kubernetes.
        None => Detection::Detected(version(client, platform.get().ok().copied()).await),
    };
    ClusterInfo { platform, version }
}

/// Detects the platform.
///
/// # Errors
/// When the API server does not answer or forbids the request.
pub async fn platform(client: &Client) -> Result<Platform, Error> {
    let versions = of(client, "ClusterVersion", "clusterversions");
    match versions.list(&ListParams::default().limit(1)).await {
        Ok(list) if list.items.is_empty() => return Ok(Platform::Kubernetes),
        Ok(_) => {}
        // A cluster that does not serve the kind is not OpenShift.
        Err(error) if is_not_found(&error) => return Ok(Platform::Kubernetes),
        Err(error) => return Err(Error::call("listing ClusterVersions", &error)),
    }
    let infrastructure = of(client, "Infrastructure", "infrastructures").get("cluster").await;
    let infrastructure =
        infrastructure.map_err(|error| Error::call("reading Infrastructure cluster", &error))?;
    match infrastructure.data["status"]["controlPlaneTopology"].as_str() {
        Some("External") => Ok(Platform::HyperShift),
        _ => Ok(Platform::OpenShift),
    }
}

/// Detects the version of a platform; of an unknown platform that of Kubernetes.
///
/// # Errors
/// When the API server does not answer, forbids the request, or returns a malformed version.
pub async fn version(client: &Client, platform: Option<Platform>) -> Result<Version, Error> {
    match platform {
        Some(Platform::OpenShift | Platform::HyperShift) => openshift_version(client).await,
        Some(Platform::Kubernetes) | None => kubernetes_version(client).await,
    }
}

/// The Kubernetes version of the API server, on any platform.
///
/// # Errors
/// As [`version`].
pub async fn kubernetes_version(client: &Client) -> Result<Version, Error> {
    let info = client.apiserver_version().await;
    let info = info.map_err(|error| Error::call("reading the API server's version", &error))?;
    info.git_version.parse().map_err(Error::Version)
}

/// OpenShift's version: that of the operand `openshift-apiserver`, else of the first operand.
///
/// The Go `deployer` always takes the first; versions differ during an upgrade.
async fn openshift_version(client: &Client) -> Result<Version, Error> {
    let operator = of(client, "ClusterOperator", "clusteroperators").get("openshift-apiserver").await;
    let operator =
        operator.map_err(|error| Error::call("reading ClusterOperator openshift-apiserver", &error))?;
    let operands = operator.data["status"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let named = operands.iter().find(|operand| operand["name"] == "openshift-apiserver");
    let operand = named.or(operands.first()).ok_or(Error::NoOperands)?;
    operand["version"].as_str().unwrap_or_default().parse().map_err(Error::Version)
}

/// The number of nodes with the label [`CONTROL_PLANE`], with any value.
///
/// # Errors
/// When the API server does not answer or forbids the request.
pub async fn control_plane_nodes(client: &Client) -> Result<usize, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut params = ListParams::default().labels(CONTROL_PLANE).limit(500);
    let mut count = 0;
    loop {
        let page = nodes.list_metadata(&params).await;
        let page = page.map_err(|error| Error::call("listing control plane nodes", &error))?;
        count += page.items.iter().filter(|node| node.labels().contains_key(CONTROL_PLANE)).count();
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params.continue_token = Some(token),
            _ => return Ok(count),
        }
    }
}

fn of(client: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ObjectKind::new("config.openshift.io", "v1", kind, plural).resource())
}
