//! The environment that the process runs in, detected once at the start.
//!
//! In: flags and variables ([`EnvironmentOptions`]), the service account's files, an API server. Out: an
//! [`Environment`]. Never: a guess about the cluster; what it does not state is an error. Only our own image has a
//! built-in name, which is used and logged where our pod cannot be read.

use anyhow::{Context as _, bail};
use deployer::cli::kubelet::KubeletLayoutFlags;
use deployer::detect::{self, ClusterInfo, PlatformSpec};
use deployer::images::{Images, Pullspec};
use deployer::options::{Distribution, Kubelet, Options};
use deployer::platform::Platform;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use runtime::client;
use tracing::{info, warn};

use crate::cluster_state::{Environment, Image};
use crate::numaresourcesscheduler::{EMBEDDED_DIGESTS, trust};

/// The file with a pod's namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The default namespace, the Go operator's.
pub const NAMESPACE: &str = "numaresources-operator";

/// Options of the environment, from flags and variables. The comments of the first fields are the help of the
/// flags.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct EnvironmentOptions {
    /// Namespace of the operator and of its operands [default: the pod's, else numaresources-operator]
    #[arg(long, value_name = "NAME", env = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of the operator's own pod, whose image exporters and schedulers get
    #[arg(long, value_name = "NAME", env = "PODNAME")]
    pub pod: Option<String>,
    /// Platform instead of the detected one: kubernetes, openshift or hypershift, with its version after a colon
    #[arg(short = 'P', long, value_name = "KIND[:VERSION]", env = "THOLEPIN_PLATFORM")]
    pub platform: Option<PlatformSpec>,
    /// Image of the exporters [default: the operator's own]
    #[arg(long, value_name = "IMAGE", env = "THOLEPIN_EXPORTER_IMAGE")]
    pub exporter_image: Option<String>,
    /// Copy the conditions of MachineConfigPools to the status of the NUMAResourcesOperator
    #[arg(long, env = "THOLEPIN_FORWARD_POOL_CONDITIONS")]
    pub forward_pool_conditions: bool,
    /// Port of API servers in network policies; can be repeated, or joined by commas [default: 6443 and 443]
    #[arg(
        long = "api-server-port",
        value_name = "PORT",
        env = "THOLEPIN_API_SERVER_PORT",
        value_delimiter = ','
    )]
    pub api_server_ports: Vec<u16>,
    /// The kubelets of node groups that state none
    #[command(flatten)]
    pub kubelets: KubeletLayoutFlags,
    /// Address range of API servers and of their Service in network policies; can be repeated, or joined by commas
    /// [default: any address]
    #[arg(
        long = "api-server-cidr",
        value_name = "CIDR",
        env = "THOLEPIN_API_SERVER_CIDR",
        value_delimiter = ',',
        value_parser = deployer::cli::cidr
    )]
    pub api_server_cidrs: Vec<String>,
    /// Mount the kubelet's whole root directory into our exporters, with its key and the volumes of all pods, so that
    /// the kubelet's state files show them changes
    #[arg(long, env = "THOLEPIN_KUBELET_ROOT_MOUNT")]
    pub kubelet_root_mount: bool,
    /// The name of our own image where our pod cannot be read.
    #[arg(skip)]
    pub built_in_image: String,
    /// Whether `spec.imageSpec` of a NUMAResourcesOperator is allowed.
    #[arg(skip)]
    pub exporter_image_free: bool,
    /// `SCHEDULER_IMAGE_VALIDATION`.
    #[arg(skip)]
    pub scheduler_validation: Option<String>,
    /// `SCHEDULER_IMAGE_DIGESTS`.
    #[arg(skip)]
    pub scheduler_digests: Option<String>,
}

impl EnvironmentOptions {
    /// The same options with those that environment variables state; flags overwrite these.
    #[must_use]
    pub fn with_variables(self, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let text =
            |flag: Option<String>, name| flag.or_else(|| variable(name)).filter(|text| !text.is_empty());
        Self {
            namespace: text(self.namespace, "NAMESPACE"),
            pod: text(self.pod, "PODNAME"),
            built_in_image: Images::new(Pullspec::Tag, variable).tholepin,
            exporter_image_free: variable("EXPORTER_IMAGE_RESTRICTION").as_deref() == Some("false"),
            scheduler_validation: variable("SCHEDULER_IMAGE_VALIDATION"),
            scheduler_digests: variable("SCHEDULER_IMAGE_DIGESTS"),
            ..self
        }
    }

    /// The configured namespace, else the service account's, else the Go operator's.
    #[must_use]
    pub fn namespace(&self) -> String {
        let file = || std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
        let named = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        self.namespace.clone().or_else(|| named(file())).unwrap_or_else(|| NAMESPACE.to_owned())
    }

    /// The kubelets that flags state.
    fn kubelet(&self, platform: Platform) -> anyhow::Result<Option<Kubelet>> {
        let stated = self.kubelets.kubelet(platform);
        let openshift = KubeletLayoutFlags {
            kubelet_profile: Some(Distribution::OpenShift),
            ..KubeletLayoutFlags::default()
        };
        if stated.is_some() && platform.is_openshift() && self.kubelets != openshift {
            bail!(
                "--kubelet-profile and other flags about kubelets are for Kubernetes; on {platform} pools state them"
            );
        }
        Ok(stated)
    }

    /// The environment, from the answers of the cluster and the image of our own pod.
    ///
    /// # Errors
    /// When platform or version are not known, or the list of trusted images cannot be read.
    pub fn resolve(&self, cluster: &ClusterInfo, own: Option<Image>) -> anyhow::Result<Environment> {
        let platform = *cluster.platform.get().context("cannot find out the platform")?;
        let version = cluster.version.get().context("cannot find out the version of the platform")?.clone();
        let own = own.unwrap_or_else(|| Image { name: self.built_in_image.clone(), ..Image::default() });
        let (validation, digests) = (self.scheduler_validation.as_deref(), self.scheduler_digests.as_deref());
        let (trusted_schedulers, warnings) = trust(EMBEDDED_DIGESTS, validation, digests, &own)?;
        warnings.iter().for_each(|warning| warn!("{warning}"));
        let exporter_image = self.exporter_image.as_ref().filter(|name| !name.is_empty());
        let image = Image { name: exporter_image.unwrap_or(&own.name).clone(), ..own.clone() };
        let ports = Some(self.api_server_ports.clone()).filter(|ports| !ports.is_empty());
        Ok(Environment {
            platform,
            version: Some(version),
            namespace: self.namespace(),
            image,
            exporter_image_restricted: !self.exporter_image_free,
            trusted_schedulers,
            forward_pool_conditions: self.forward_pool_conditions,
            api_server_ports: ports.unwrap_or_else(|| Options::default().api_server_ports),
            kubelet: self.kubelet(platform)?,
            api_server_cidrs: self.api_server_cidrs.clone(),
            kubelet_root_mount: self.kubelet_root_mount,
            only_own_scheduler: false,
            own,
        })
    }
}

/// Detects what the options do not state.
///
/// # Errors
/// When the cluster does not state its platform or version.
pub async fn detect(client: &Client, options: &EnvironmentOptions) -> anyhow::Result<Environment> {
    let cluster = detect::cluster(client, &options.platform.clone().unwrap_or_default()).await;
    let own = match &options.pod {
        Some(pod) => own_image(client, &options.namespace(), pod).await,
        None => None,
    };
    let mut environment = options.resolve(&cluster, own)?;
    environment.only_own_scheduler = !may_grant_other_schedulers(client).await;
    info!(
        platform = %environment.platform,
        version = environment.version.as_ref().map(ToString::to_string),
        namespace = environment.namespace,
        image = environment.own.name,
        exporters = environment.image.name,
        "detected the environment"
    );
    Ok(environment)
}

/// Whether our account holds the rights that other schedulers need, by one that ours does not need. Where the API
/// server does not say, it counts as held: a role that cannot be granted is an error later.
async fn may_grant_other_schedulers(client: &Client) -> bool {
    let attributes = ResourceAttributes {
        resource: Some("persistentvolumes".to_owned()),
        verb: Some("update".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await;
    answer.map_or(true, |answer| answer.status.is_none_or(|status| status.allowed))
}

/// The image of the first container of our own pod.
async fn own_image(client: &Client, namespace: &str, pod: &str) -> Option<Image> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    match pods.get(pod).await {
        Ok(found) => image_of(found),
        Err(error) => {
            let error = client::brief(&error);
            warn!(namespace, pod, error, "cannot read our own pod; using the built-in name of our image");
            None
        }
    }
}

fn image_of(pod: Pod) -> Option<Image> {
    let container = pod.spec?.containers.into_iter().next()?;
    let name = container.image.filter(|name| !name.is_empty())?;
    Some(Image { name, pull_policy: container.image_pull_policy.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use deployer::platform::Platform;
    use serde_json::json;

    use super::*;

    fn options(variables: &[(&str, &str)]) -> EnvironmentOptions {
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        EnvironmentOptions::default()
            .with_variables(&|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    fn image(name: &str, pull_policy: &str) -> Image {
        Image { name: name.to_owned(), pull_policy: pull_policy.to_owned() }
    }

    fn cluster() -> ClusterInfo {
        ClusterInfo {
            platform: detect::Detection::Given(Platform::Kubernetes),
            version: detect::Detection::Given("v1.36.0".parse().unwrap()),
        }
    }

    /// U015, E25.
    #[test]
    fn the_exporters_image_is_the_users_else_our_own_else_the_built_in() {
        let check = |user: Option<&str>, own: Option<Image>, built_in: &str, wanted: Image| {
            let options = EnvironmentOptions {
                exporter_image: user.map(str::to_owned),
                built_in_image: built_in.to_owned(),
                ..EnvironmentOptions::default()
            };
            assert_eq!(options.resolve(&cluster(), own).unwrap().image, wanted);
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
    fn variables_loosen_rules_only_with_false() {
        for (value, free) in [("false", true), ("False", false), ("0", false), ("", false)] {
            let options =
                options(&[("EXPORTER_IMAGE_RESTRICTION", value), ("SCHEDULER_IMAGE_VALIDATION", value)]);
            let environment = options.resolve(&cluster(), None).unwrap();
            let loose = (!environment.exporter_image_restricted, environment.trusted_schedulers.is_none());
            assert_eq!(loose, (free, free), "{value}");
        }
        let strict = options(&[]).resolve(&cluster(), None).unwrap();
        assert!(strict.trusted_schedulers.is_some() && strict.exporter_image_restricted);
    }

    #[test]
    fn the_namespace_is_configured_or_the_go_operators() {
        assert_eq!(options(&[("NAMESPACE", "numa")]).namespace(), "numa");
        // No test runs in a pod.
        assert_eq!(options(&[("NAMESPACE", "")]).namespace(), NAMESPACE);
    }

    #[test]
    fn an_unknown_platform_is_an_error() {
        let unknown = ClusterInfo {
            platform: detect::Detection::Detected(Err(detect::Error::NoOperands)),
            version: detect::Detection::Detected(Err(detect::Error::NoOperands)),
        };
        let error = EnvironmentOptions::default().resolve(&unknown, None).unwrap_err();
        let wanted = format!("cannot find out the platform: {}", detect::Error::NoOperands);
        assert_eq!(format!("{error:#}"), wanted);
    }
}
