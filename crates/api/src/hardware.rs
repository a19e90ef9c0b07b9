//! DeviceConfig (`hardware.tholepin.dev`): the kernel driver of nodes with special hardware, and its device plugin.
//!
//! In: objects of users. Out: typed values, defaults ([`Spec::mappings`], [`Spec::kernel_module`]), and problems
//! ([`check()`], with the feature `validate`). Never: a decision about nodes or clusters.
//!
//! The doc comments of fields are the descriptions in the CRD ([`crate::crd`]) and in the API reference, for users.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use crate::kind::kind;
use crate::null::null_as_default;

#[cfg(feature = "manifests")]
pub mod account;
#[cfg(feature = "validate")]
mod check;
#[cfg(feature = "validate")]
pub mod convert;
mod defaults;
mod dra;
mod driver;
#[cfg(feature = "validate")]
mod kernel;
pub mod keys;
#[cfg(feature = "manifests")]
mod name;
#[cfg(any(feature = "schema", feature = "validate"))]
#[cfg_attr(not(feature = "full"), allow(dead_code, reason = "each feature uses a part of it"))]
mod patterns;
mod plugin;
#[cfg(feature = "manifests")]
pub mod policy;
#[cfg(any(feature = "manifests", feature = "schema", feature = "validate"))]
#[cfg_attr(not(feature = "full"), allow(dead_code, reason = "each feature uses a part of it"))]
mod rules;
#[cfg(feature = "schema")]
mod schema;
mod status;

#[cfg(feature = "validate")]
pub use check::{Problem, check};
pub use dra::{DeviceClass, Dra};
pub use driver::{Args, Build, BuildArg, KernelMapping, Modprobe, NameRef, RawArgs, RegistryTls, Sign};
#[cfg(feature = "validate")]
pub use kernel::{KernelError, first_match};
#[cfg(feature = "manifests")]
pub use name::{claim, loader_account, module_name, plugin_account, plugin_config_map};
pub use plugin::{DevicePlugin, InitContainer};
pub use status::{Conflict, ModuleRef, NodeCounts, NodeProblem, Phase, Status};

/// The API group.
pub const GROUP: &str = "hardware.tholepin.dev";
/// The version.
pub const VERSION: &str = "v1alpha1";
/// Group and version, as objects carry them.
pub const API_VERSION: &str = "hardware.tholepin.dev/v1alpha1";
/// The kind.
pub const KIND: &str = "DeviceConfig";
/// The resource name in URLs and RBAC rules.
pub const PLURAL: &str = "deviceconfigs";
/// The short name.
pub const SHORT_NAME: &str = "devcfg";
/// Default directory of modules in an image.
pub const DIR_NAME: &str = "/opt";
/// Default time after which evicted pods that still run are a problem, in seconds.
pub const EVICTION_TIMEOUT_SECONDS: u64 = 600;
/// Directory of the configuration in the container of tholepin's device plugin.
pub const PLUGIN_CONFIG: &str = "/etc/tholepin/device-plugin";
/// The version of the device plugin's configuration.
pub const PLUGIN_CONFIG_VERSION: &str = "v1alpha1";
/// The volume that every device plugin gets.
pub const CDI_VOLUME: &str = "cdi";
/// The regular expression of the default kernel mapping: every kernel.
pub const ANY_KERNEL: &str = "^.+$";
/// KMM's limit for the name and the namespace of a Module together, in characters.
pub const MAX_NAMES: usize = 41;
/// The limit for the name of a namespace with DeviceConfigs, in characters. It leaves room for a Module's name of a
/// letter, `-` and a hash of eight hexadecimal digits.
pub const MAX_NAMESPACE: usize = MAX_NAMES - 10;

/// Special hardware of some nodes: the driver they load, from an image that holds it for each kernel, and the device
/// plugin that offers what the driver found to pods. A node is claimed by one DeviceConfig at most. Write access
/// to DeviceConfigs decides what runs in the kernel of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(
    feature = "schema",
    schemars(extend("required" = ["spec"], "x-kubernetes-validations" = schema::name_rules()))
)]
pub struct DeviceConfig {
    /// Standard object metadata.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
    /// The observed state, written by the operator.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Status,
}

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(
    feature = "schema",
    schemars(extend("required" = ["driverImage", "driverVersion"], "x-kubernetes-validations" = schema::spec_rules()))
)]
pub struct Spec {
    /// Repository of the driver's images, without tag and digest, such as `registry.example/drivers/acc`. There is one
    /// image for each kernel; its tag is `<driverVersion>-<kernel version>`, unless a kernel mapping names another
    /// image.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 200, "x-kubernetes-validations" = schema::driver_image_rules()))
    )]
    pub driver_image: String,
    /// Version of the driver: the first part of the tag. A new version is brought to nodes one after the other, as
    /// `upgradePolicy` says.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 63, "x-kubernetes-validations" = schema::driver_version_rules()))
    )]
    pub driver_version: String,
    /// The nodes that have the hardware: those with all of these labels. Exactly one of `nodeSelector` and `allNodes`
    /// is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::node_selector"))]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// `true`: all nodes have the hardware.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all_nodes: bool,
    /// Name of the kernel module. Default: the last part of `driverImage` with `_` for `-` and `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 55, "x-kubernetes-validations" = schema::kernel_module_rules()))
    )]
    pub module_name: Option<String>,
    /// Which image is for which kernel: the first entry that matches counts, and nodes whose kernel matches none are
    /// left alone and counted as unsupported. Default: one entry for each kernel, with the image
    /// `<driverImage>:<driverVersion>-${KERNEL_FULL_VERSION}`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 64)))]
    pub kernel_mappings: Vec<KernelMapping>,
    /// How the module is loaded and unloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modprobe: Option<Modprobe>,
    /// Modules of the kernel's own tree that have to be unloaded before, because they drive the same hardware.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::kernel_modules"))]
    pub in_tree_modules_to_remove: Vec<String>,
    /// When the driver's images are pulled. Default: `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Secret in this namespace for pulling the images, and for pushing what is built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<NameRef>,
    /// A number whose change makes KMM look again for all images, and build those that are not there. It needs a KMM
    /// whose Modules have the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "int32")))]
    pub image_rebuild_trigger_generation: Option<i32>,
    /// How to speak to the registry of the driver's images.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<RegistryTls>,
    /// How to build an image in the cluster that is not there. Images that were built before are safer: no compiler, no
    /// source and no right to push have to be in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// How to sign the modules of an image, for nodes with Secure Boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// Taints of nodes that get the driver all the same. A cordon is a taint, `node.kubernetes.io/unschedulable`: a
    /// driver that does not tolerate it is unloaded while a node is cordoned.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::tolerations"))]
    pub tolerations: Vec<Toleration>,
    /// Service account in this namespace of the pods that load the driver. Default: one that the operator makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 253)))]
    pub service_account_name: Option<String>,
    /// What makes the devices known to the kubelet, on nodes where the driver is loaded. Default: nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DevicePlugin>,
    /// The DRA driver that offers the devices to resource claims, instead of `devicePlugin`. It needs Kubernetes 1.34,
    /// and a KMM whose Modules have the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dra: Option<Dra>,
    /// How a new version of the driver reaches the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade_policy: Option<UpgradePolicy>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PullPolicy {
    /// Each time, so that a tag may be moved.
    Always,
    /// When the node has none.
    IfNotPresent,
    /// Never: the node has it.
    Never,
}

/// How a new version of the driver reaches the nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct UpgradePolicy {
    /// How many nodes may be without a working driver at a time because of the upgrade: a number of at least 1, or a
    /// percentage of the nodes, rounded down and at least one node. Default: `1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::max_unavailable"))]
    pub max_unavailable: Option<IntOrString>,
    /// What happens on a node whose pods use the devices. Default: `Wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_using_devices: Option<PodsUsingDevices>,
    /// `true`: no node gets another version until this is taken away. Nodes that have no driver yet get theirs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// With `Evict`: after how many seconds pods that are still there are told of as a problem. Nothing is deleted by
    /// force. Default: 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 86_400, "format" = "int32")))]
    pub eviction_timeout_seconds: Option<i32>,
}

/// What happens on a node whose pods use the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PodsUsingDevices {
    /// The node keeps its version until they are gone.
    #[default]
    Wait,
    /// They are evicted, which respects disruption budgets.
    Evict,
    /// The driver is replaced under them.
    Ignore,
}

kind!(DeviceConfig, NamespaceResourceScope, GROUP, VERSION, API_VERSION, KIND, PLURAL);

#[cfg(test)]
mod tests;
