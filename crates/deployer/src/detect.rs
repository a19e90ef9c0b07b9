//! What kind of cluster it is, of which version, asked of the cluster itself.
//!
//! In: a client, and what the user says. Out: [`Cluster`], in which every answer is there or says why not. Never: a guess: a
//! question that was not answered is an error, and whoever asks decides whether it matters.
//!
//! The rules are those of the Go `deployer`: ClusterVersions make it OpenShift, an external control plane makes it HyperShift,
//! and OpenShift's version is that of its API server's operator.

mod error;
#[cfg(test)]
mod tests;
mod text;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use runtime::client::is_not_found;

use crate::platform::{Platform, Version};
use objects::ObjectKind;

pub use error::Error;

/// The label of control plane nodes; its value does not matter.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// What the user says about the cluster; it is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The platform.
    pub platform: Option<Platform>,
    /// Its version.
    pub version: Option<Version>,
}

/// An answer of the user's or the cluster's.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// What the user said.
    pub given: Option<T>,
    /// What the cluster said; it was not asked if the user said something.
    pub detected: Option<Result<T, Error>>,
}

/// What is known about a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its platform.
    pub platform: Answer<Platform>,
    /// Its version: Kubernetes' own, or OpenShift's.
    pub version: Answer<Version>,
}

impl<T> Answer<T> {
    /// The answer that counts.
    ///
    /// # Errors
    /// When the user said nothing and the cluster's answer was an error.
    pub fn get(&self) -> Result<&T, Error> {
        match (&self.given, &self.detected) {
            (Some(given), _) => Ok(given),
            (None, Some(detected)) => detected.as_ref().map_err(Clone::clone),
            (None, None) => Err(Error::NotAsked),
        }
    }

    fn given(given: T) -> Self {
        Self { given: Some(given), detected: None }
    }

    fn detected(detected: Result<T, Error>) -> Self {
        Self { given: None, detected: Some(detected) }
    }
}

/// Finds out what the user did not say. What cannot be found out is an error in its place.
pub async fn cluster(client: &Client, given: &Given) -> Cluster {
    let platform = match given.platform {
        Some(platform) => Answer::given(platform),
        None => Answer::detected(platform(client).await),
    };
    let version = match &given.version {
        Some(version) => Answer::given(version.clone()),
        // Of a platform that is not known at least the Kubernetes version is.
        None => Answer::detected(version(client, platform.get().ok().copied()).await),
    };
    Cluster { platform, version }
}

/// The kind of cluster.
///
/// # Errors
/// When the API server does not answer or refuses to say.
pub async fn platform(client: &Client) -> Result<Platform, Error> {
    let versions = of(client, "ClusterVersion", "clusterversions");
    match versions.list(&ListParams::default().limit(1)).await {
        Ok(list) if list.items.is_empty() => return Ok(Platform::Kubernetes),
        Ok(_) => {}
        // The kind is not served: no OpenShift.
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

/// The version of a cluster of this kind; of an unknown kind, Kubernetes'.
///
/// # Errors
/// When the API server does not answer, refuses to say, or says what is no version.
pub async fn version(client: &Client, platform: Option<Platform>) -> Result<Version, Error> {
    match platform {
        Some(Platform::OpenShift | Platform::HyperShift) => openshift_version(client).await,
        Some(Platform::Kubernetes) | None => kubernetes_version(client).await,
    }
}

/// The API server's own version, on any platform.
///
/// # Errors
/// As [`version`].
pub async fn kubernetes_version(client: &Client) -> Result<Version, Error> {
    let info = client.apiserver_version().await;
    let info = info.map_err(|error| Error::call("reading the API server's version", &error))?;
    info.git_version.parse().map_err(Error::Version)
}

/// OpenShift's version: that of the operand `openshift-apiserver`, else of the first there is.
///
/// The Go `deployer` always takes the first; they differ while an upgrade is under way.
async fn openshift_version(client: &Client) -> Result<Version, Error> {
    let operator = of(client, "ClusterOperator", "clusteroperators").get("openshift-apiserver").await;
    let operator =
        operator.map_err(|error| Error::call("reading ClusterOperator openshift-apiserver", &error))?;
    let operands = operator.data["status"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let named = operands.iter().find(|operand| operand["name"] == "openshift-apiserver");
    let operand = named.or(operands.first()).ok_or(Error::NoOperands)?;
    operand["version"].as_str().unwrap_or_default().parse().map_err(Error::Version)
}

/// How many nodes have the role of a control plane, whatever the value of its label.
///
/// # Errors
/// When the API server does not answer or refuses to say.
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
