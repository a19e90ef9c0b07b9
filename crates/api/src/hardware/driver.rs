//! The driver of a DeviceConfig: images by kernel, their build and signature, arguments of modprobe. Fields that a KMM
//! Module has too are passed on unchanged.
//!
//! In and out: values. Never: a default; those are KMM's or in [`super::Spec`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::schema;
use crate::null::null_as_default;

/// The image for some kernels. Exactly one of `literal` and `regexp` says which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = schema::mapping_rules())))]
pub struct KernelMapping {
    /// Version of the kernel, in full, as `uname -r` says it; a `+` at its end is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 64)))]
    pub literal: Option<String>,
    /// Regular expression (RE2) that is looked for in the kernel's version; `^` and `$` bind it to its ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 256, "x-kubernetes-validations" = schema::regexp_rules()))
    )]
    pub regexp: Option<String>,
    /// The image, with its tag or digest. `${KERNEL_FULL_VERSION}`, `${KERNEL_XYZ}`, `${KERNEL_X}`, `${KERNEL_Y}`,
    /// `${KERNEL_Z}`, `${MOD_NAME}` and `${MOD_NAMESPACE}` in it are filled in. Default:
    /// `<driverImage>:<driverVersion>-${KERNEL_FULL_VERSION}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 512, "x-kubernetes-validations" = schema::template_rules()))
    )]
    pub image: Option<String>,
    /// How to build this image; what is given here counts before `spec.build`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// How to sign its modules; what is given here counts before `spec.sign`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign: Option<Sign>,
    /// How to speak to the registry of this image.
    #[serde(rename = "registryTLS", skip_serializing_if = "Option::is_none")]
    pub registry_tls: Option<RegistryTls>,
    /// Modules of the kernel's own tree that have to be unloaded before, instead of `spec.inTreeModulesToRemove`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::kernel_modules"))]
    pub in_tree_modules_to_remove: Vec<String>,
}

/// How the module is loaded and unloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Modprobe {
    /// Parameters of the module, as `name=value`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub parameters: Vec<String>,
    /// Arguments of modprobe that stand before the module's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
    /// All arguments of modprobe, the module's name included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_args: Option<RawArgs>,
    /// Folder in the image with `lib/modules/<kernel version>`. Default: `/opt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 256, "x-kubernetes-validations" = schema::folder_rules("dirName")))
    )]
    pub dir_name: Option<String>,
    /// Folder in the image with firmware for the devices, which is copied to the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 256, "x-kubernetes-validations" = schema::folder_rules("firmwarePath")))
    )]
    pub firmware_path: Option<String>,
    /// The module and those of the same image that it stands on, the topmost first; it begins with `spec.moduleName`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::loading_order"))]
    pub modules_loading_order: Vec<String>,
}

/// Arguments of modprobe that stand before the module's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Args {
    /// When it is loaded.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub load: Vec<String>,
    /// When it is unloaded.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub unload: Vec<String>,
}

/// All arguments of modprobe, the module's name included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = schema::raw_args_rules())))]
pub struct RawArgs {
    /// When it is loaded.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub load: Vec<String>,
    /// When it is unloaded.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::words"))]
    pub unload: Vec<String>,
}

/// How to speak to a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryTls {
    /// `true`: plain HTTP.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// `true`: its certificate is not checked.
    #[serde(rename = "insecureSkipTLSVerify", skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_tls_verify: bool,
}

/// How to build an image in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["dockerfileConfigMap"])))]
pub struct Build {
    /// ConfigMap in this namespace with the container file in its key `dockerfile`.
    pub dockerfile_config_map: NameRef,
    /// Arguments of the build. The kernel's version and the module's name come by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 64)))]
    pub build_args: Vec<BuildArg>,
    /// Secrets in this namespace, which the build sees below `/run/secrets`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(extend("maxItems" = 16)))]
    pub secrets: Vec<NameRef>,
    /// How to speak to the registry of the image it builds on.
    #[serde(rename = "baseImageRegistryTLS", skip_serializing_if = "Option::is_none")]
    pub base_image_registry_tls: Option<RegistryTls>,
    /// Labels of the nodes that builds may run on. Default: those of this object's nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::labels"))]
    pub selector: BTreeMap<String, String>,
}

/// An argument of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name", "value"])))]
pub struct BuildArg {
    /// Its name.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 256)))]
    pub name: String,
    /// Its value.
    #[cfg_attr(feature = "schema", schemars(extend("maxLength" = 4096)))]
    pub value: String,
}

/// How to sign the modules of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(
    feature = "schema",
    schemars(extend("required" = ["certSecret", "keySecret"], "x-kubernetes-validations" = schema::sign_rules()))
)]
pub struct Sign {
    /// Secret in this namespace with the private key in its key `key`.
    pub key_secret: NameRef,
    /// Secret in this namespace with the certificate in its key `cert`. The nodes' firmware has to know it.
    pub cert_secret: NameRef,
    /// The image with the modules to sign, with its tag or digest and the variables of `kernelMappings[].image`. With
    /// `build` it is what was built, and this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(extend("maxLength" = 512, "x-kubernetes-validations" = schema::template_rules()))
    )]
    pub unsigned_image: Option<String>,
    /// How to speak to the registry of that image.
    #[serde(rename = "unsignedImageRegistryTLS", skip_serializing_if = "Option::is_none")]
    pub unsigned_image_registry_tls: Option<RegistryTls>,
    /// The files to sign: paths or shell patterns below `modprobe.dirName`, such as
    /// `/opt/lib/modules/${KERNEL_FULL_VERSION}/acc.ko`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::files"))]
    pub files_to_sign: Vec<String>,
}

/// The name of an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
pub struct NameRef {
    /// Its name.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1, "maxLength" = 253)))]
    pub name: String,
}
