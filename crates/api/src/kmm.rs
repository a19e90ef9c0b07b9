//! KMM (Kernel Module Management, `kmm.sigs.x-k8s.io`): as much of its objects as we write and read, and the names it puts on nodes.
//!
//! In: objects as KMM writes them. Out: typed values. Never: a field that we neither write nor read, a default of KMM's, a rule of its webhook.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, Toleration, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::hardware::{Args, Build, NameRef, PullPolicy, RawArgs, RegistryTls, Sign};
use crate::kind::kind;
use crate::null::null_as_default;

pub mod image;
pub mod keys;
pub mod node;

pub use image::ModuleImagesConfig;
pub use node::NodeModulesConfig;

/// The API group.
pub const GROUP: &str = "kmm.sigs.x-k8s.io";
/// The version these types are of.
pub const VERSION: &str = "v1beta1";
/// Group and version, as objects carry them.
pub const API_VERSION: &str = "kmm.sigs.x-k8s.io/v1beta1";
/// The kind of modules.
pub const MODULE: &str = "Module";
/// Their resource name.
pub const MODULES: &str = "modules";

/// A kernel module, the images it comes in, the nodes it is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ModuleSpec,
    /// What is there.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "ModuleStatus::is_empty")]
    pub status: ModuleStatus,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleSpec {
    /// Labels of its nodes.
    pub selector: BTreeMap<String, String>,
    /// Taints it lives with.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub tolerations: Vec<Toleration>,
    /// Secret for pulling and pushing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_repo_secret: Option<NameRef>,
    /// What loads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_loader: Option<ModuleLoader>,
    /// What offers its devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DevicePlugin>,
}

/// What loads a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleLoader {
    /// Account of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The images.
    pub container: ModuleContainer,
}

/// The images of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleContainer {
    /// Which image is for which kernel.
    pub kernel_mappings: Vec<KernelMapping>,
    /// How it is loaded.
    pub modprobe: Modprobe,
    /// The image of mappings without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_image: Option<String>,
    /// When images are pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// The version; with it nodes have to be labelled ([`keys::version_module`]). It cannot be added or removed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How to speak to the registry.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<RegistryTls>,
    /// How images are built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// How they are signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// Modules that go first.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub in_tree_modules_to_remove: Vec<String>,
}

/// The image for some kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelMapping {
    /// A kernel's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub literal: Option<String>,
    /// A regular expression of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<String>,
    /// The image, with variables.
    pub container_image: String,
    /// How it is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// How it is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// How to speak to its registry.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<RegistryTls>,
    /// Modules that go first.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub in_tree_modules_to_remove: Vec<String>,
}

/// How a module is loaded and unloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Modprobe {
    /// Its name, unless `raw_args` have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// Its parameters.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub parameters: Vec<String>,
    /// Folder in the image; KMM's default is `/opt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir_name: Option<String>,
    /// Arguments before the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
    /// All arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_args: Option<RawArgs>,
    /// Folder in the image with firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_path: Option<String>,
    /// The module and those it stands on.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub modules_loading_order: Vec<String>,
}

/// What offers a module's devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePlugin {
    /// Account of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Its container.
    pub container: PluginContainer,
    /// A container that runs before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_container: Option<PluginContainer>,
    /// Volumes of its pods.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub volumes: Vec<Volume>,
    /// Whether its pods have the account's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
}

/// The container of a device plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginContainer {
    /// Its image.
    pub image: String,
    /// When it is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Its command.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub command: Vec<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub args: Vec<String>,
    /// Its variables.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub env: Vec<EnvVar>,
    /// CPU and memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where volumes are.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub volume_mounts: Vec<VolumeMount>,
}

/// What is there, in numbers. A number that is 0 is left out, so nothing tells whether KMM has looked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleStatus {
    /// Of the module itself.
    #[serde(deserialize_with = "null_as_default")]
    pub module_loader: Counts,
    /// Of the pods of its device plugin.
    #[serde(deserialize_with = "null_as_default")]
    pub device_plugin: Counts,
}

/// Nodes, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Selected, and with taints that are tolerated.
    pub nodes_matching_selector_number: i32,
    /// That should have it: 0 until an image has been found.
    pub desired_number: i32,
    /// That have it.
    pub available_number: i32,
}

impl ModuleStatus {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A kind of KMM for kube's dynamic API, in the `version` that the cluster serves.
#[cfg(feature = "kube")]
#[must_use]
pub fn resource(kind: &str, plural: &str, version: &str) -> kube::core::ApiResource {
    let kind = kube::core::GroupVersionKind::gvk(GROUP, version, kind);
    kube::core::ApiResource::from_gvk_with_plural(&kind, plural)
}

kind!(Module, NamespaceResourceScope, GROUP, VERSION, API_VERSION, MODULE, MODULES);
kind!(NodeModulesConfig, ClusterResourceScope, GROUP, VERSION, API_VERSION, node::KIND, node::PLURAL);
kind!(ModuleImagesConfig, NamespaceResourceScope, GROUP, VERSION, API_VERSION, image::KIND, image::PLURAL);

#[cfg(test)]
mod tests;
