//! ModuleImagesConfig: the state of a Module's images. It has the name of the Module.
//!
//! In: objects of KMM. Out: typed values. Never: a write by tholepin.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::null::null_as_default;

/// The kind.
pub const KIND: &str = "ModuleImagesConfig";
/// The resource name.
pub const PLURAL: &str = "moduleimagesconfigs";

/// State: the image exists.
pub const EXISTS: &str = "Exists";
/// State: the image does not exist, and KMM will not build it.
pub const DOES_NOT_EXIST: &str = "DoesNotExist";
/// State: KMM builds the image.
pub const NEEDS_BUILDING: &str = "NeedsBuilding";
/// State: KMM signs the image.
pub const NEEDS_SIGNING: &str = "NeedsSigning";

/// Images of a Module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleImagesConfig {
    /// Standard object metadata; namespace and name are the Module's.
    pub metadata: ObjectMeta,
    /// The required images.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
    /// The states of images.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Status,
}

/// The required images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The images.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub images: Vec<Image>,
}

/// A required image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// The image.
    pub image: String,
    /// The kernel it is for.
    pub kernel_version: String,
}

/// The states of images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The states. KMM still looks for images that are absent here, perhaps for ever.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub images_states: Vec<ImageState>,
}

/// The state of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageState {
    /// The image.
    pub image: String,
    /// [`EXISTS`], [`DOES_NOT_EXIST`], [`NEEDS_BUILDING`] or [`NEEDS_SIGNING`].
    pub status: String,
}

impl ModuleImagesConfig {
    /// The state of an image; `None` while KMM still looks for it.
    #[must_use]
    pub fn state(&self, image: &str) -> Option<&str> {
        let states = &self.status.images_states;
        states.iter().find(|state| state.image == image).map(|state| state.status.as_str())
    }
}
