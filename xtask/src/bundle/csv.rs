//! The ClusterServiceVersion: what OLM installs, and what it tells people about it.
//!
//! In: the operator's options. Out: the document. Never: a rule or a pod of its own: both are those of the
//! plain manifests.

use std::collections::BTreeMap;

use anyhow::Context as _;
use deployer::manifests::controller;
use deployer::platform::Platform;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use operator::manifests::{NAME, OPERATOR, Options, definitions, namespace, samples};
use operator::rbac;
use serde::Serialize;
use serde_json::{Value, json};

use super::descriptors::{self, Owned};

/// The package's name.
pub(crate) const PACKAGE: &str = "tholepin-operator";
/// The version of program, bundle and catalog entry.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest Kubernetes whose API server understands the definitions' rules (`optionalOldSelf` takes
/// ratcheting, on since 1.30).
const MIN_KUBE_VERSION: &str = "1.30.0";
const DISPLAY_NAME: &str = "tholepin NUMA Resources Operator";
const SUMMARY: &str = "NUMA-aware scheduling: pods are placed where the kubelet can really align them.";
const DESCRIPTION: &str = "\
Kubelets with the Topology Manager reject pods whose CPUs, memory and devices they cannot align to NUMA nodes, and the \
default scheduler, which sees only totals of nodes, sends them such pods. This operator installs what avoids that, and keeps it as it was \
asked for:

* a *NUMAResourcesOperator* brings an exporter to the nodes of each node group, which publishes what each NUMA node has left;
* a *NUMAResourcesScheduler* brings a scheduler that reads it and places pods where they will be admitted.

It has the API of the Go NUMA Resources Operator, and takes over what that has installed.

Pods are scheduled by it when they say `schedulerName: topo-aware-scheduler`. Nodes need a kubelet with a Topology Manager policy such as \
`single-numa-node`, and the static CPU and memory managers.

Kubelets elsewhere than kubeadm has them, or with certificates of their own, are described in `spec.kubelet` of the NUMAResourcesOperator. \
Each flag of the operator has a variable `THOLEPIN_...` for `spec.config.env` of the Subscription; without a check of kubelets' certificates \
it is `THOLEPIN_KUBELET_INSECURE=true`.
";
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
    pub(crate) keywords: Vec<&'static str>,
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

/// The name of this version.
pub(crate) fn name() -> String {
    format!("{PACKAGE}.v{VERSION}")
}

/// The document.
pub(crate) fn service_version(options: &Options) -> anyhow::Result<ServiceVersion> {
    let mode = |kind, supported| InstallMode { kind, supported };
    let spec = Spec {
        display_name: DISPLAY_NAME,
        description: DESCRIPTION,
        version: VERSION,
        min_kube_version: MIN_KUBE_VERSION,
        maturity: "alpha",
        provider: Provider { name: "tholepin" },
        keywords: vec!["NUMA", "topology", "scheduler", "RTE", "performance"],
        icon: vec![Icon { base64data: base64(ICON.as_bytes()), mediatype: "image/svg+xml" }],
        install_modes: vec![
            mode("OwnNamespace", true),
            mode("SingleNamespace", true),
            mode("MultiNamespace", false),
            // OLM would turn the rules for the operator's namespace into rules for the whole cluster.
            mode("AllNamespaces", false),
        ],
        customresourcedefinitions: Definitions { owned: owned() },
        install: install(options)?,
        related_images: related_images(options),
    };
    Ok(ServiceVersion {
        api_version: "operators.coreos.com/v1alpha1",
        kind: "ClusterServiceVersion",
        metadata: metadata(options)?,
        spec,
    })
}

fn owned() -> Vec<Owned> {
    let versions = |definition: &CustomResourceDefinition| {
        definition
            .spec
            .versions
            .iter()
            .map(|version| descriptors::owned(definition, version))
            .collect::<Vec<_>>()
    };
    definitions().iter().flat_map(versions).collect()
}

/// All that runs: exporters and schedulers have the operator's image unless another is asked for.
pub(crate) fn related_images(options: &Options) -> Vec<RelatedImage> {
    vec![RelatedImage { name: "operator", image: options.common.images.tholepin.clone() }]
}

fn install(options: &Options) -> anyhow::Result<Install> {
    let rules = rbac::everywhere();
    let deployment = controller::deployment(options, &OPERATOR);
    let permissions = |rules| vec![Permissions { service_account_name: NAME, rules }];
    let deployed = DeploymentEntry {
        name: NAME.to_owned(),
        label: deployment.metadata.labels.unwrap_or_default(),
        spec: deployment.spec.context("the Deployment has no spec")?,
    };
    Ok(Install {
        strategy: "deployment",
        spec: Strategy {
            cluster_permissions: permissions(rules.cluster),
            deployments: vec![deployed],
            permissions: permissions(rules.namespaced),
        },
    })
}

fn metadata(options: &Options) -> anyhow::Result<ObjectMeta> {
    let words = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut annotations = words(&[
        // There is one version, so upgrades are not proven yet.
        ("capabilities", "Basic Install"),
        ("categories", "OpenShift Optional"),
        ("containerImage", &options.common.images.tholepin),
        ("description", SUMMARY),
        // Any version of ours that came before may go straight to this one.
        ("olm.skipRange", &format!("<{VERSION}")),
        ("operatorframework.io/cluster-monitoring", "true"),
        ("operatorframework.io/suggested-namespace", &options.namespace),
        ("support", "tholepin"),
    ]);
    let template = serde_json::to_string(&namespace_template(options)?)?;
    annotations.insert("operatorframework.io/suggested-namespace-template".to_owned(), template);
    annotations.insert("alm-examples".to_owned(), examples()?);
    for (feature, has) in FEATURES {
        annotations.insert(format!("features.operators.openshift.io/{feature}"), has.to_string());
    }
    let labels = words(&[
        ("operatorframework.io/arch.amd64", "supported"),
        ("operatorframework.io/arch.arm64", "supported"),
        ("operatorframework.io/os.linux", "supported"),
    ]);
    Ok(ObjectMeta {
        name: Some(name()),
        // OLM replaces it; its tools want one.
        namespace: Some("placeholder".to_owned()),
        annotations: Some(annotations),
        labels: Some(labels),
        ..ObjectMeta::default()
    })
}

/// What OpenShift's console asks about. The program's cryptography is no validated module, so it makes no claim
/// about FIPS.
const FEATURES: [(&str, bool); 10] = [
    ("cnf", true),
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

fn namespace_template(options: &Options) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(namespace(options)).context("the namespace")?;
    value["apiVersion"] = json!("v1");
    value["kind"] = json!("Namespace");
    Ok(value)
}

/// OpenShift's samples, in each version that is served.
fn examples() -> anyhow::Result<String> {
    let mut examples = Vec::new();
    for object in samples::objects(Platform::OpenShift) {
        for version in [api::numaresources::VERSION, api::numaresources::OLD_VERSION] {
            let mut body = object.body().clone();
            body["apiVersion"] = format!("{}/{version}", api::numaresources::GROUP).into();
            if let Some(fields) = body.as_object_mut() {
                fields.remove("status");
            }
            examples.push(body);
        }
    }
    Ok(serde_json::to_string_pretty(&examples)?)
}

/// Bytes as Kubernetes writes them in JSON: standard base64.
fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
