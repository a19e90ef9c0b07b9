//! Objects that a controller desires.
//!
//! In: objects, and the user's object that asks for them. Out: the same objects with mark, owner reference and policy.
//! Never: a look at what is observed.

use serde_json::{Value, json};

use crate::ownership::MANAGED_BY_LABEL;
use crate::{Object, ObjectKey};

/// What a controller desires.
#[derive(Clone, Debug, PartialEq)]
pub enum Desired {
    /// No user asks for anything: what is ours goes.
    Nothing,
    /// The request is invalid or paused: everything stays as it is.
    Keep,
    /// These objects, and no others of ours.
    Objects(Vec<DesiredObject>),
}

/// An object that is desired.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    /// The complete object.
    pub object: Object,
    /// How it is treated.
    pub treatment: Treatment,
}

/// How a desired object is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It is created and kept exactly as desired; one of others is refused.
    Own,
    /// As [`Self::Own`], but one of others is used if it serves our purpose, else changed; it is never deleted.
    Share,
    /// It waits for something: whether it exists or not, it stays as it is.
    Hold,
}

/// The user's object that owns what is made for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Owner {
    /// The owner that is this object.
    #[must_use]
    pub fn of<K: kube::Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }

    /// An owner reference to it; the garbage collector deletes what it owns with it.
    #[must_use]
    pub fn reference(&self) -> Value {
        let Self { api_version, kind, name, uid } = self;
        json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid })
    }

    /// The same as its controller.
    #[must_use]
    pub fn controller_reference(&self) -> Value {
        let mut reference = self.reference();
        reference["controller"] = true.into();
        reference["blockOwnerDeletion"] = true.into();
        reference
    }
}

impl DesiredObject {
    /// An object marked as `manager`'s, and controlled by its owner.
    #[must_use]
    pub fn owned(object: Object, manager: &str, owner: &Owner) -> Self {
        let references = json!([owner.controller_reference()]);
        let object = object.labelled(MANAGED_BY_LABEL, manager).with_metadata("ownerReferences", references);
        Self { object, treatment: Treatment::Own }
    }

    /// An object marked as `manager`'s that outlives its owner.
    #[must_use]
    pub fn shared(object: Object, manager: &str) -> Self {
        Self { object: object.labelled(MANAGED_BY_LABEL, manager), treatment: Treatment::Share }
    }

    /// The same, held if `held`.
    #[must_use]
    pub fn held(self, held: bool) -> Self {
        Self { treatment: if held { Treatment::Hold } else { self.treatment }, ..self }
    }

    /// The object's key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        self.object.key().clone()
    }
}
