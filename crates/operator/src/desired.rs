//! What a controller wants to be there.
//!
//! In: objects from the controllers. Out: the same, marked as ours and owned by the object that asked for them. Never: a look at what is
//! there.

use objects::Object;
use serde_json::json;

use objects::ObjectKey;

/// The label that tells what the operator made.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value, and the name under which fields are managed.
pub const MANAGER: &str = "tholepin-operator";

/// Whose wish it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Exporters and their API.
    NumaResourcesOperator,
    /// The scheduler.
    NumaResourcesScheduler,
    /// The exporters' configuration.
    KubeletConfig,
}

/// What a controller wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Desired {
    /// Nobody asks for anything: what is ours goes.
    Nothing,
    /// What is asked for makes no sense, or must not be touched: everything stays as it is.
    Keep,
    /// These objects, and of ours no others.
    Objects(Vec<Wanted>),
}

/// An object that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// As it should be, complete.
    pub object: Object,
    /// How it is treated.
    pub treatment: Treatment,
}

/// How an object is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It is made and kept exactly like this; one that others made is refused.
    Own,
    /// As [`Self::Own`], but one that others made is used as long as it is good enough, else made so; it is never deleted.
    Share,
    /// It has to wait for something: whether it is there or not, it stays as it is.
    Hold,
}

/// Who asked: the object that others are owned by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its unique id.
    pub uid: String,
}

impl Controller {
    /// All, in the order in which they are asked.
    pub const ALL: [Self; 3] =
        [Self::KubeletConfig, Self::NumaResourcesOperator, Self::NumaResourcesScheduler];

    /// Its name in logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NumaResourcesOperator => "numaresourcesoperator",
            Self::NumaResourcesScheduler => "numaresourcesscheduler",
            Self::KubeletConfig => "kubeletconfig",
        }
    }
}

impl Wanted {
    /// An object of ours, marked, and owned by whoever asked for it, so that it goes with him.
    #[must_use]
    pub fn owned(object: Object, owner: &Owner) -> Self {
        let reference = json!([{
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        let object = object.labelled(MANAGED_BY, MANAGER).with_metadata("ownerReferences", reference);
        Self { object, treatment: Treatment::Own }
    }

    /// An object that stays when whoever asked for it goes.
    #[must_use]
    pub fn shared(object: Object) -> Self {
        Self { object: object.labelled(MANAGED_BY, MANAGER), treatment: Treatment::Share }
    }

    /// The same, not to be touched for now.
    #[must_use]
    pub fn held(self, held: bool) -> Self {
        Self { treatment: if held { Treatment::Hold } else { self.treatment }, ..self }
    }

    /// Which object.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        self.object.key().clone()
    }
}
