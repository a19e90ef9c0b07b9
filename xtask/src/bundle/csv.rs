//! The ClusterServiceVersion: what OLM installs, and what it tells people about it.
//!
//! In: a package, the operator's options. Out: the document. Never: a rule or a pod of its own: both are those of the
//! plain manifests.

use std::collections::BTreeMap;

use anyhow::Context as _;
use deployer::manifests::controller::Options;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::Object;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::descriptors::{self, Owned};
use super::package::Package;

/// The version of program, bundle and catalog entry.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest Kubernetes whose API server understands the definitions' rules (`optionalOldSelf` takes
/// ratcheting, on since 1.30).
const MIN_KUBE_VERSION: &str = "1.30.0";
/// Two tholepins and an oar.
const ICON: &str = "\
<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 64 64\">\
<rect width=\"64\" height=\"64\" rx=\"12\" fill=\"#1d3557\"/>\
<path d=\"M8 46h48v6H8z\" fill=\"#f1faee\"/>\
<path d=\"M20 14h6v32h-6zM38 14h6v32h-6z\" fill=\"#e9c46a\"/>\
<path d=\"M4 26l56 10v4L4 30z\" fill=\"#a8dadc\"/></svg>";

/// `operators.coreos.com/v1alpha1`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceVersion {
    api_version: &'static str,
    kind: &'static str,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Spec,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) display_name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) version: &'static str,
    pub(crate) min_kube_version: &'static str,
    pub(crate) maturity: &'static str,
    pub(crate) provider: Provider,
    pub(crate) keywords: &'static [&'static str],
    pub(crate) icon: Vec<Icon>,
    pub(crate) install_modes: Vec<InstallMode>,
    pub(crate) customresourcedefinitions: Definitions,
    pub(crate) install: Install,
    pub(crate) related_images: Vec<RelatedImage>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Provider {
    name: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Icon {
    pub(crate) base64data: String,
    pub(crate) mediatype: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct InstallMode {
    #[serde(rename = "type")]
    kind: &'static str,
    supported: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Definitions {
    pub(crate) owned: Vec<Owned>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Install {
    strategy: &'static str,
    pub(crate) spec: Strategy,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Strategy {
    pub(crate) cluster_permissions: Vec<Permissions>,
    pub(crate) deployments: Vec<DeploymentEntry>,
    pub(crate) permissions: Vec<Permissions>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Permissions {
    service_account_name: &'static str,
    pub(crate) rules: Vec<PolicyRule>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeploymentEntry {
    name: String,
    label: BTreeMap<String, String>,
    pub(crate) spec: DeploymentSpec,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RelatedImage {
    pub(crate) name: &'static str,
    pub(crate) image: String,
}

/// The name of this version of a package.
pub(crate) fn name(package: &Package) -> String {
    format!("{}.v{VERSION}", package.name)
}

/// The document.
pub(crate) fn service_version(package: &Package, options: &Options) -> anyhow::Result<ServiceVersion> {
    let objects = (package.objects)(options);
    let mode = |kind| InstallMode { kind, supported: package.install_modes.contains(&kind) };
    let spec = Spec {
        display_name: package.about.name,
        description: package.about.description,
        version: VERSION,
        min_kube_version: MIN_KUBE_VERSION,
        maturity: "alpha",
        provider: Provider { name: "tholepin" },
        keywords: package.about.keywords,
        icon: vec![Icon { base64data: base64(ICON.as_bytes()), mediatype: "image/svg+xml" }],
        install_modes: ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
            .map(mode)
            .into(),
        customresourcedefinitions: Definitions { owned: owned(&objects)? },
        install: install(package, &objects)?,
        related_images: related_images(options),
    };
    Ok(ServiceVersion {
        api_version: "operators.coreos.com/v1alpha1",
        kind: "ClusterServiceVersion",
        metadata: metadata(package, options, &objects)?,
        spec,
    })
}

/// The objects of a kind.
fn of_kind<T: DeserializeOwned>(objects: &[Object], kind: &str) -> anyhow::Result<Vec<T>> {
    let is = |object: &&Object| object.kind().kind == kind;
    let read = |object: &Object| T::deserialize(object.body()).with_context(|| format!("reading {object}"));
    objects.iter().filter(is).map(read).collect()
}

fn owned(objects: &[Object]) -> anyhow::Result<Vec<Owned>> {
    let definitions: Vec<CustomResourceDefinition> = of_kind(objects, "CustomResourceDefinition")?;
    let versions = |definition: &CustomResourceDefinition| {
        definition
            .spec
            .versions
            .iter()
            .map(|version| descriptors::owned(definition, version))
            .collect::<Vec<_>>()
    };
    Ok(definitions.iter().flat_map(versions).collect())
}

/// All that runs: operands have the operator's image unless another is asked for.
pub(crate) fn related_images(options: &Options) -> Vec<RelatedImage> {
    vec![RelatedImage { name: "operator", image: options.common.images.tholepin.clone() }]
}

fn install(package: &Package, objects: &[Object]) -> anyhow::Result<Install> {
    let rules = (package.rules)();
    let account = package.program.name;
    let permissions = |rules| vec![Permissions { service_account_name: account, rules }];
    let deployed = of_kind(objects, "Deployment")?.into_iter().map(|deployment: Deployment| {
        Ok(DeploymentEntry {
            name: account.to_owned(),
            label: deployment.metadata.labels.unwrap_or_default(),
            spec: deployment.spec.context("the Deployment has no spec")?,
        })
    });
    Ok(Install {
        strategy: "deployment",
        spec: Strategy {
            cluster_permissions: permissions(rules.cluster),
            deployments: deployed.collect::<anyhow::Result<_>>()?,
            permissions: permissions(rules.namespaced),
        },
    })
}

fn metadata(package: &Package, options: &Options, objects: &[Object]) -> anyhow::Result<ObjectMeta> {
    let words = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut annotations = words(&[
        // There is one version, so upgrades are not proven yet.
        ("capabilities", "Basic Install"),
        ("categories", "OpenShift Optional"),
        ("containerImage", &options.common.images.tholepin),
        ("description", package.about.summary),
        // Any version of ours that came before may go straight to this one.
        ("olm.skipRange", &format!("<{VERSION}")),
        ("operatorframework.io/cluster-monitoring", "true"),
        ("operatorframework.io/suggested-namespace", &options.namespace),
        ("support", "tholepin"),
    ]);
    for template in of_kind::<Value>(objects, "Namespace")? {
        let key = "operatorframework.io/suggested-namespace-template".to_owned();
        annotations.insert(key, serde_json::to_string(&template)?);
    }
    let mut examples = (package.examples)();
    for example in examples.iter_mut().filter_map(Value::as_object_mut) {
        example.remove("status");
    }
    annotations.insert("alm-examples".to_owned(), serde_json::to_string_pretty(&examples)?);
    for (feature, has) in FEATURES.into_iter().chain([("cnf", package.about.cnf)]) {
        annotations.insert(format!("features.operators.openshift.io/{feature}"), has.to_string());
    }
    let labels = words(&[
        ("operatorframework.io/arch.amd64", "supported"),
        ("operatorframework.io/arch.arm64", "supported"),
        ("operatorframework.io/os.linux", "supported"),
    ]);
    Ok(ObjectMeta {
        name: Some(name(package)),
        // OLM replaces it; its tools want one.
        namespace: Some("placeholder".to_owned()),
        annotations: Some(annotations),
        labels: Some(labels),
        ..ObjectMeta::default()
    })
}

/// What OpenShift's console asks about. The program's cryptography is no validated module, so it makes no claim
/// about FIPS.
const FEATURES: [(&str, bool); 9] = [
    ("cni", false),
    ("csi", false),
    ("disconnected", true),
    ("fips-compliant", false),
    ("proxy-aware", false),
    ("tls-profiles", true),
    ("token-auth-aws", false),
    ("token-auth-azure", false),
    ("token-auth-gcp", false),
];

/// Bytes as Kubernetes writes them in JSON: standard base64.
fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
