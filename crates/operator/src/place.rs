//! Where and as what the process runs: found out once, at the start.
//!
//! In: flags and variables ([`Told`]), the service account's files, an API server. Out: a [`Place`]. Never: a guess about the cluster:
//! what it does not say is an error. (What our own image is called is a guess where our pod cannot be asked; it is logged.)

use std::path::Path;

use api::numaresources::keys;
use deployer::detect::{self, ClusterInfo, PlatformSpec};
use deployer::images::{Images, Pullspec};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use runtime::client;
use tracing::{info, warn};

use crate::numaresourcesscheduler::{EMBEDDED_DIGESTS, TrustError, trust};
use crate::world::{Image, Place};

/// Where a pod's namespace is written.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The namespace where nobody says which; the Go operator's.
pub const NAMESPACE: &str = "numaresources-operator";

/// What flags and variables say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// The kind of cluster and its version; what is not here is asked.
    pub given: PlatformSpec,
    /// The operator's namespace.
    pub namespace: Option<String>,
    /// The pod we run in.
    pub pod: Option<String>,
    /// The exporters' image.
    pub exporter_image: Option<String>,
    /// What our image is called where our pod cannot be asked.
    pub built_in_image: String,
    /// Whether `spec.imageSpec` of a NUMAResourcesOperator is obeyed.
    pub exporter_image_free: bool,
    /// What `SCHEDULER_IMAGE_VALIDATION` says of other images of a scheduler.
    pub scheduler_validation: Option<String>,
    /// What `SCHEDULER_IMAGE_DIGESTS` says of them.
    pub scheduler_digests: Option<String>,
    /// Whether conditions of MachineConfigPools are copied to the status.
    pub forward_pool_conditions: bool,
    /// The ports behind which API servers are; empty: the usual.
    pub api_server_ports: Vec<u16>,
}

/// Why the place is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kind of cluster.
    #[error("cannot find out the platform: {0}")]
    Platform(detect::Error),
    /// Its version.
    #[error("cannot find out the version of the platform: {0}")]
    Version(detect::Error),
    /// Which schedulers are trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl Told {
    /// What the environment says; flags overwrite it.
    #[must_use]
    pub fn by_environment(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| variable(name).filter(|text| !text.is_empty());
        Self {
            namespace: text("NAMESPACE"),
            pod: text("PODNAME"),
            built_in_image: Images::new(Pullspec::Tag, variable).tholepin,
            exporter_image_free: variable("EXPORTER_IMAGE_RESTRICTION").as_deref() == Some("false"),
            scheduler_validation: variable("SCHEDULER_IMAGE_VALIDATION"),
            scheduler_digests: variable("SCHEDULER_IMAGE_DIGESTS"),
            ..Self::default()
        }
    }

    /// The namespace: what we were told, else the service account's, else the Go operator's.
    #[must_use]
    pub fn namespace(&self) -> String {
        let file = || std::fs::read_to_string(Path::new(NAMESPACE_FILE)).unwrap_or_default();
        let named = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        self.namespace.clone().or_else(|| named(file())).unwrap_or_else(|| NAMESPACE.to_owned())
    }

    /// The place, from what the cluster has said.
    ///
    /// # Errors
    /// When it did not say enough.
    pub fn place(&self, cluster: &ClusterInfo, own: Option<Image>) -> Result<Place, Error> {
        let platform = *cluster.platform.get().map_err(Error::Platform)?;
        let version = cluster.version.get().map_err(Error::Version)?.clone();
        let own = own.unwrap_or_else(|| Image { name: self.built_in_image.clone(), ..Image::default() });
        let ports = &self.api_server_ports;
        let (validation, digests) = (self.scheduler_validation.as_deref(), self.scheduler_digests.as_deref());
        let (trusted_schedulers, warnings) = trust(EMBEDDED_DIGESTS, validation, digests, &own)?;
        warnings.iter().for_each(|warning| warn!("{warning}"));
        Ok(Place {
            platform,
            version: Some(version),
            namespace: self.namespace(),
            image: exporters(self.exporter_image.as_deref(), &own),
            exporter_image_restricted: !self.exporter_image_free,
            trusted_schedulers,
            forward_pool_conditions: self.forward_pool_conditions,
            api_server_ports: if ports.is_empty() { usual_ports() } else { ports.clone() },
            own,
        })
    }
}

/// Asks the cluster what we were not told.
///
/// # Errors
/// When it does not say what kind of cluster it is.
pub async fn find(client: &Client, told: &Told) -> Result<Place, Error> {
    let cluster = detect::cluster(client, &told.given).await;
    let own = match &told.pod {
        Some(pod) => own(client, &told.namespace(), pod).await,
        None => None,
    };
    let place = told.place(&cluster, own)?;
    info!(
        platform = %place.platform,
        version = place.version.as_ref().map(ToString::to_string),
        namespace = place.namespace,
        image = place.own.name,
        exporters = place.image.name,
        "found out where we run"
    );
    Ok(place)
}

/// The image of the first container of our own pod.
async fn own(client: &Client, namespace: &str, pod: &str) -> Option<Image> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.get(pod).await {
        Ok(found) => image_of(found),
        Err(error) => {
            let error = client::brief(&error);
            warn!(namespace, pod, error, "cannot read our own pod; taking our image's built-in name");
            None
        }
    }
}

fn image_of(pod: Pod) -> Option<Image> {
    let container = pod.spec?.containers.into_iter().next()?;
    let name = container.image.filter(|name| !name.is_empty())?;
    Some(Image { name, pull_policy: container.image_pull_policy.unwrap_or_default() })
}

/// The exporters' image: the one we were told, else our own. It is pulled as ours is.
fn exporters(told: Option<&str>, own: &Image) -> Image {
    let name = told.filter(|name| !name.is_empty()).unwrap_or(&own.name);
    Image { name: name.to_owned(), pull_policy: own.pull_policy.clone() }
}

/// As network policies of the deployer have them.
fn usual_ports() -> Vec<u16> {
    deployer::options::Options::default().api_server_ports
}

/// The leader's lease, in the operator's namespace.
#[must_use]
pub fn lease(namespace: &str, identity: String) -> runtime::lease::Config {
    runtime::lease::Config::new(namespace, keys::OPERATOR_LEASE, identity)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use deployer::platform::Platform;
    use serde_json::json;

    use super::*;

    fn told(variables: &[(&str, &str)]) -> Told {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        Told::by_environment(&|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    fn image(name: &str, pull_policy: &str) -> Image {
        Image { name: name.to_owned(), pull_policy: pull_policy.to_owned() }
    }

    fn cluster() -> ClusterInfo {
        ClusterInfo {
            platform: detect::Detection { given: Some(Platform::Kubernetes), detected: None },
            version: detect::Detection { given: "v1.36.0".parse().ok(), detected: None },
        }
    }

    /// U015, E25.
    #[test]
    fn the_exporters_image_is_the_users_else_our_own_else_the_built_in() {
        let check = |user: Option<&str>, own: Option<Image>, built_in: &str, wanted: Image| {
            let told = Told {
                exporter_image: user.map(str::to_owned),
                built_in_image: built_in.to_owned(),
                ..Told::default()
            };
            assert_eq!(told.place(&cluster(), own).unwrap().image, wanted);
        };
        let own = || Some(image("own:1", "Always"));
        check(Some("user:1"), own(), "built-in:1", image("user:1", "Always"));
        check(Some("user:1"), None, "built-in:1", image("user:1", ""));
        check(Some(""), own(), "built-in:1", image("own:1", "Always"));
        check(None, own(), "built-in:1", image("own:1", "Always"));
        check(None, None, "built-in:1", image("built-in:1", ""));
        check(None, None, "", image("", ""));
    }

    #[test]
    fn our_image_is_that_of_the_first_container() {
        let of = |pod: serde_json::Value| image_of(serde_json::from_value(pod).unwrap());
        let containers =
            json!([{ "name": "a", "image": "own:1", "imagePullPolicy": "Never" }, { "name": "b" }]);
        assert_eq!(of(json!({ "spec": { "containers": containers } })), Some(image("own:1", "Never")));
        assert_eq!(of(json!({ "spec": { "containers": [{ "name": "a" }] } })), None);
        assert_eq!(of(json!({})), None);
    }

    /// A020 in part; the exporters' switch.
    #[test]
    fn variables_loosen_rules_by_one_word_only() {
        for (value, free) in [("false", true), ("False", false), ("0", false), ("", false)] {
            let told = told(&[("EXPORTER_IMAGE_RESTRICTION", value), ("SCHEDULER_IMAGE_VALIDATION", value)]);
            let place = told.place(&cluster(), None).unwrap();
            let loose = (!place.exporter_image_restricted, place.trusted_schedulers.is_none());
            assert_eq!(loose, (free, free), "{value}");
        }
        let strict = told(&[]).place(&cluster(), None).unwrap();
        assert!(strict.trusted_schedulers.is_some() && strict.exporter_image_restricted);
    }

    #[test]
    fn the_namespace_is_told_or_the_peers() {
        assert_eq!(told(&[("NAMESPACE", "numa")]).namespace(), "numa");
        // No test runs in a pod.
        assert_eq!(told(&[("NAMESPACE", "")]).namespace(), NAMESPACE);
    }

    #[test]
    fn what_the_cluster_does_not_say_is_an_error() {
        let cluster = ClusterInfo {
            platform: detect::Detection { given: None, detected: None },
            version: detect::Detection { given: None, detected: None },
        };
        let error = Told::default().place(&cluster, None).unwrap_err();
        assert_eq!(error.to_string(), "cannot find out the platform: not asked");
    }
}
