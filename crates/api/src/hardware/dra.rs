//! The DRA driver of a DeviceConfig: what offers the devices to resource claims, through KMM's `dra`.
//!
//! In and out: values. Never: a default, or our device plugin, which does not answer KMM's probe of DRA drivers.

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, Volume, VolumeMount};
use k8s_openapi::api::resource::v1::{DeviceClassConfiguration, DeviceSelector};
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use super::{InitContainer, PullPolicy};
use crate::null::null_as_default;

/// A vendor's DRA driver, which offers the devices to resource claims. KMM runs it where the driver is loaded, and
/// makes its DeviceClasses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(
    feature = "schema",
    schemars(extend("required" = ["driverName", "image"], "x-kubernetes-validations" = schema::dra_rules()))
)]
pub struct Dra {
    /// Name of the DRA driver, such as `acc.vendor.example`: `spec.driver` of its ResourceSlices. By it, it is known
    /// which pods use the devices.
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 63)))]
    pub driver_name: String,
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
    /// Environment variables. KMM adds `NODE_NAME`, `POD_UID`, `CDI_ROOT`, `HEALTHCHECK_PORT` and the kubelet's
    /// folders.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::env"))]
    pub env: Vec<EnvVar>,
    /// A container that has to end well each time before the DRA driver starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_container: Option<InitContainer>,
    /// CPU and memory of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::resources"))]
    pub resources: Option<ResourceRequirements>,
    /// Service account in this namespace of its pods; it needs rights on ResourceSlices and ResourceClaims. Default:
    /// one that the operator makes, without rights.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 253)))]
    pub service_account_name: Option<String>,
    /// Whether its pods have the token of their service account. Default: KMM's, which is that they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
    /// Volumes of its pods. `/var/lib/kubelet/plugins`, `/var/lib/kubelet/plugins_registry` and `/var/run/cdi` come by
    /// themselves.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::volumes"))]
    pub volumes: Vec<Volume>,
    /// Where they are in its container.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::volume_mounts"))]
    pub volume_mounts: Vec<VolumeMount>,
    /// DeviceClasses, by which claims ask for the devices. KMM makes them, and deletes them with the Module.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::device_classes"))]
    pub device_classes: Vec<DeviceClass>,
}

/// A DeviceClass that KMM makes. The object is not in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClass {
    /// Its name.
    pub name: String,
    /// Conditions that a device has to meet.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub selectors: Vec<DeviceSelector>,
    /// Configuration for the driver, for each claim of the class.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub config: Vec<DeviceClassConfiguration>,
}
