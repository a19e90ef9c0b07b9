//! The controllers, and the objects that they desire.
//!
//! In: objects from the controllers. Out: the same objects marked as the operator's. Never: a look at what is observed.

use k8s_openapi::api::core::v1::Container;
use objects::Object;
pub use objects::desired::{Desired, DesiredObject, Owner, Treatment};
use strum::IntoStaticStr;

use crate::cluster_state::Image;

/// The label that marks what the operator made.
pub const MANAGED_BY: &str = objects::ownership::MANAGED_BY_LABEL;
/// The value of the mark, and the operator's field manager.
pub const MANAGER: &str = "tholepin-operator";

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Controller {
    /// The exporters' configuration.
    KubeletConfig,
    /// Exporters and their API.
    NumaResourcesOperator,
    /// The scheduler.
    NumaResourcesScheduler,
}

impl Controller {
    /// All controllers, in the order in which they start.
    pub const ALL: [Self; 3] =
        [Self::KubeletConfig, Self::NumaResourcesOperator, Self::NumaResourcesScheduler];

    /// The controller's name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An object of the operator's, controlled by the user's object that asks for it.
#[must_use]
pub fn owned(object: Object, owner: &Owner) -> DesiredObject {
    DesiredObject::owned(object, MANAGER, owner)
}

/// An object of the operator's that outlives the user's object.
#[must_use]
pub fn shared(object: Object) -> DesiredObject {
    DesiredObject::shared(object, MANAGER)
}

/// A container of an image, with the settings that all operands have.
#[must_use]
pub fn container(name: &str, image: &Image) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.name.clone()),
        image_pull_policy: Some(image.pull_policy.clone()).filter(|policy| !policy.is_empty()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}
