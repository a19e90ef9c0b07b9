//! KMM (Kernel Module Management, `kmm.sigs.x-k8s.io/v1beta1`): the parts of its objects that tholepin reads or writes.
//!
//! In: objects of KMM. Out: typed values. Never: an unused field, a default of KMM, or a rule of its webhook.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, Toleration, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::hardware::{Args, Build, DeviceClass, NameRef, PullPolicy, RawArgs, RegistryTls, Sign};
use crate::kind::kind;
use crate::null::null_as_default;

pub mod image;
pub mod keys;
pub mod node;

pub use image::ModuleImagesConfig;
pub use node::NodeModulesConfig;

/// The API group.
pub const GROUP: &str = "kmm.sigs.x-k8s.io";
/// The version of these types.
pub const VERSION: &str = "v1beta1";
/// Group and version, as objects carry them.
pub const API_VERSION: &str = "kmm.sigs.x-k8s.io/v1beta1";
/// The kind of Modules.
pub const MODULE: &str = "Module";
/// The resource name of Modules in URLs and RBAC rules.
pub const MODULES: &str = "modules";

/// A kernel module with its images and nodes. The object is in the namespace of its DeviceConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: ModuleSpec,
    /// The observed state.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "ModuleStatus::is_empty")]
    pub status: ModuleStatus,
}

/// The desired state of a Module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleSpec {
    /// Labels that select the nodes.
    pub selector: BTreeMap<String, String>,
    /// Tolerations of KMM's pods.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub tolerations: Vec<Toleration>,
    /// Secret for pulling and pushing images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_repo_secret: Option<NameRef>,
    /// A number whose change makes KMM look again for all images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_rebuild_trigger_generation: Option<i32>,
    /// The loader of the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_loader: Option<ModuleLoader>,
    /// The device plugin of the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DevicePlugin>,
    /// The DRA driver of the module; not beside a device plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dra: Option<Dra>,
}

/// The loader of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleLoader {
    /// Service account of its pods.
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
    /// In-tree modules to unload first.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub in_tree_modules_to_remove: Vec<String>,
}

/// The image for matching kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KernelMapping {
    /// The whole version of a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub literal: Option<String>,
    /// A regular expression for versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<String>,
    /// The image, in which KMM replaces variables.
    pub container_image: String,
    /// The build of the image, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The signature of the image's modules, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// TLS of the image's registry.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<RegistryTls>,
    /// In-tree modules to unload first.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub in_tree_modules_to_remove: Vec<String>,
}

/// The arguments of modprobe for a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Modprobe {
    /// Name of the module, unless `raw_args` contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// Parameters of the module.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub parameters: Vec<String>,
    /// Directory of the modules in the image; KMM's default is `/opt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir_name: Option<String>,
    /// Arguments before the module's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
    /// All arguments, in place of the other fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_args: Option<RawArgs>,
    /// Directory of firmware in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware_path: Option<String>,
    /// The module and its dependencies, the module first.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub modules_loading_order: Vec<String>,
}

/// The device plugin of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DevicePlugin {
    /// Service account of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The container of the device plugin.
    pub container: PluginContainer,
    /// A container that runs before the device plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_container: Option<PluginContainer>,
    /// Volumes of its pods.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub volumes: Vec<Volume>,
    /// Whether its pods mount the service account's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
}

/// The DRA driver of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dra {
    /// The name, by which resource claims know it.
    pub driver_name: String,
    /// Its pods, described as those of a device plugin.
    #[serde(flatten)]
    pub pods: DevicePlugin,
    /// DeviceClasses that KMM makes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub device_classes: Vec<DeviceClass>,
}

/// The container of a device plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginContainer {
    /// The image.
    pub image: String,
    /// Pull policy of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// The command; empty means that of the image.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub command: Vec<String>,
    /// The arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub env: Vec<EnvVar>,
    /// Requests and limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Mounts of the volumes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub volume_mounts: Vec<VolumeMount>,
}

/// The observed state, in numbers. KMM leaves out a 0, so an empty status may also mean that KMM has not looked yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModuleStatus {
    /// Nodes with the module.
    #[serde(deserialize_with = "null_as_default")]
    pub module_loader: Counts,
    /// Pods of the device plugin.
    #[serde(deserialize_with = "null_as_default")]
    pub device_plugin: Counts,
}

/// Counts of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Selected nodes whose taints are tolerated.
    pub nodes_matching_selector_number: i32,
    /// Nodes that should have it; 0 until KMM has found an image.
    pub desired_number: i32,
    /// Nodes that have it.
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
