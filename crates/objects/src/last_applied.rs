//! What a controller applied last, so that it does not repeat a write in vain.
//!
//! In: objects as they were desired, and as they were after the write. Out: whether another write could change
//! anything, and whether a difference is damage. Never: a decision that needs this to survive a restart.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use crate::desired::DesiredObject;
use crate::equality::content;
use crate::ownership::uid;
use crate::{Object, ObjectKey};

/// The last writes of one controller. Memory grows with the number of desired objects.
#[derive(Clone, Debug, Default)]
pub struct LastApplied {
    /// Digests of desired objects, from when they were last observed as desired.
    stated: BTreeMap<ObjectKey, u64>,
    /// Objects that differ from the desired ones even right after a write.
    settled: BTreeMap<ObjectKey, Settled>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settled {
    uid: String,
    desired: u64,
    observed: u64,
}

impl LastApplied {
    /// Notes that an object is as desired, as far as it can be.
    pub fn done(&mut self, desired: &DesiredObject) {
        self.stated.insert(desired.key(), digest(desired.object.body()));
    }

    /// Whether the object once was as desired now, so that a difference is damage.
    #[must_use]
    pub fn was(&self, desired: &DesiredObject) -> bool {
        self.stated.get(desired.object.key()) == Some(&digest(desired.object.body()))
    }

    /// Notes that the API server, or a webhook, turns the desired object into `observed`.
    pub fn settle(&mut self, object: &Object, observed: &Value) {
        self.settled.insert(object.key().clone(), Settled::new(object, observed));
    }

    /// Whether a write of the desired object would give the observed one.
    #[must_use]
    pub fn is_settled(&self, object: &Object, observed: &Value) -> bool {
        self.settled.get(object.key()).is_some_and(|settled| *settled == Settled::new(object, observed))
    }

    /// Forgets objects that are no longer desired.
    pub fn retain(&mut self, desired: impl Fn(&ObjectKey) -> bool) {
        self.stated.retain(|key, _| desired(key));
        self.settled.retain(|key, _| desired(key));
    }
}

impl Settled {
    fn new(object: &Object, observed: &Value) -> Self {
        Self {
            uid: uid(observed).to_owned(),
            desired: digest(object.body()),
            observed: digest(&content(observed)),
        }
    }
}

/// A digest of JSON, whose maps are sorted by key.
fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ObjectKind;

    fn map(data: &Value) -> DesiredObject {
        let body = json!({ "metadata": { "name": "x" }, "data": data });
        let kind = ObjectKind::new("", "v1", "ConfigMap", "configmaps");
        DesiredObject::shared(Object::from_value(kind, body).unwrap(), "us")
    }

    #[test]
    fn an_object_is_settled_until_something_changes() {
        let (one, other) = (map(&json!({ "a": "1" })), map(&json!({ "a": "2" })));
        let live = |uid: &str, version: &str, data: &str| {
            let metadata = json!({ "uid": uid, "resourceVersion": version, "managedFields": [version] });
            json!({ "metadata": metadata, "data": data, "status": version })
        };
        let mut last = LastApplied::default();
        assert!(!last.is_settled(&one.object, &live("u", "1", "x")));
        last.settle(&one.object, &live("u", "1", "x"));
        assert!(last.is_settled(&one.object, &live("u", "2", "x")));
        assert!(!last.is_settled(&one.object, &live("v", "1", "x")), "another object");
        assert!(!last.is_settled(&one.object, &live("u", "1", "y")), "other content");
        assert!(!last.is_settled(&other.object, &live("u", "1", "x")), "other wishes");
        assert!(!last.was(&one));
        last.done(&one);
        assert!(last.was(&one) && !last.was(&other));
        last.retain(|_| false);
        assert!(!last.was(&one) && !last.is_settled(&one.object, &live("u", "1", "x")));
    }
}
