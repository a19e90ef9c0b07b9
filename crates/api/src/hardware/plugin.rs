//! The device plugin of a DeviceConfig: tholepin's with a configuration, or a vendor's.
//!
//! In and out: values. Never: a default, or an interpretation of the configuration, which is up to the device plugin.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, Volume, VolumeMount};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::PullPolicy;
#[cfg(feature = "schema")]
use super::schema;
use crate::null::null_as_default;

/// What makes the devices known to the kubelet: our device plugin with `config`, or a vendor's with `image`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = schema::plugin_rules())))]
pub struct DevicePlugin {
    /// Its image, with its tag or digest. Default, with `config`: the operator's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 512)))]
    pub image: Option<String>,
    /// When it is pulled. Default: `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// The configuration of our device plugin, as in its file: the resources it offers, and where their devices are
    /// found.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::plugin_config"))]
    pub config: Option<Map<String, Value>>,
    /// Command of a vendor's plugin. Default: that of its image.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub command: Vec<String>,
    /// Arguments of the command; with `config`, more arguments for our device plugin.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub args: Vec<String>,
    /// Environment variables. `NODE_NAME` comes by itself.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::env"))]
    pub env: Vec<EnvVar>,
    /// A container that has to end well each time before the device plugin starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_container: Option<InitContainer>,
    /// CPU and memory of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::resources"))]
    pub resources: Option<ResourceRequirements>,
    /// Names of the extended resources that a vendor's plugin offers, such as `vendor.example/acc`: by them it is known
    /// which pods use the devices, so `image` without `config` needs them or `driverNames`, unless
    /// `upgradePolicy.podsUsingDevices` is `Ignore`. With `config` they are known.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::resource_names"))]
    pub resource_names: Vec<String>,
    /// Names of the drivers by which a vendor's plugin gives devices to resource claims (DRA), such as
    /// `acc.vendor.example`: by them it is known which pods with claims use the devices. With `config` that of `--dra`
    /// in `args` is known.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::driver_names"))]
    pub driver_names: Vec<String>,
    /// Service account in this namespace of its pods. Default: one that the operator makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 253)))]
    pub service_account_name: Option<String>,
    /// Whether its pods have the token of their service account. Default: KMM's, which is that they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
    /// Volumes of its pods. `/var/lib/kubelet/device-plugins` and, as `cdi`, `/var/run/cdi` come by themselves unless
    /// something is mounted there; with `config`, so does the node's `/dev`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::volumes"))]
    pub volumes: Vec<Volume>,
    /// Where they are in its container.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::volume_mounts"))]
    pub volume_mounts: Vec<VolumeMount>,
}

/// A container that has to end well each time before the device plugin starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["image"])))]
pub struct InitContainer {
    /// Its image, with its tag or digest.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 512)))]
    pub image: String,
    /// When it is pulled. Default: `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Its command. Default: that of its image.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub args: Vec<String>,
    /// Environment variables. `NODE_NAME` comes by itself.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::env"))]
    pub env: Vec<EnvVar>,
    /// Its CPU and memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::resources"))]
    pub resources: Option<ResourceRequirements>,
    /// Where the pod's volumes are in it.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::volume_mounts"))]
    pub volume_mounts: Vec<VolumeMount>,
}
