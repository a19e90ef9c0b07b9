//! ModuleImagesConfig: which images of a Module have been found. It is called as the Module.
//!
//! In: what KMM wrote. Out: values. Never: written by us.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::null::null_as_default;

/// The kind.
pub const KIND: &str = "ModuleImagesConfig";
/// The resource name.
pub const PLURAL: &str = "moduleimagesconfigs";

/// The image is there.
pub const EXISTS: &str = "Exists";
/// It is not, and nothing will make it.
pub const DOES_NOT_EXIST: &str = "DoesNotExist";
/// It is being built.
pub const NEEDS_BUILDING: &str = "NeedsBuilding";
/// It is being signed.
pub const NEEDS_SIGNING: &str = "NeedsSigning";

/// Images of a Module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleImagesConfig {
    /// Standard object metadata; namespace and name are the Module's.
    pub metadata: ObjectMeta,
    /// Images that are needed.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
    /// Images that were looked for.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Status,
}

/// Images that are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// One by one.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub images: Vec<Image>,
}

/// An image that is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// The image.
    pub image: String,
    /// The kernel it is for.
    pub kernel_version: String,
}

/// Images that were looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// One by one. An image that is not here is still looked for, perhaps for ever.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub images_states: Vec<ImageState>,
}

/// An image that was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageState {
    /// The image.
    pub image: String,
    /// [`EXISTS`], [`DOES_NOT_EXIST`], [`NEEDS_BUILDING`] or [`NEEDS_SIGNING`].
    pub status: String,
}

impl ModuleImagesConfig {
    /// What is known of an image; None: it is still looked for.
    #[must_use]
    pub fn state(&self, image: &str) -> Option<&str> {
        let states = &self.status.images_states;
        states.iter().find(|state| state.image == image).map(|state| state.status.as_str())
    }
}
