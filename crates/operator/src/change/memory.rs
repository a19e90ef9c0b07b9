//! What a controller remembers of objects that it has seen to, so that it does not do the same again in vain.
//!
//! In: objects as they were wanted and as they were afterwards. Out: whether nothing more can be done, and whether a difference is news or
//! damage. Never: a decision that a restart could not do without.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use objects::equality::content;
use serde_json::Value;

use crate::desired::Wanted;
use objects::ObjectKey;

/// Of one controller.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// How objects were wanted when they were last as wanted.
    stated: BTreeMap<ObjectKey, u64>,
    /// Objects that differ from what is wanted although that is what was written.
    settled: BTreeMap<ObjectKey, Settled>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settled {
    uid: String,
    wanted: u64,
    live: u64,
}

impl Memory {
    /// Notes that an object is as wanted, as far as it can be.
    pub fn done(&mut self, wanted: &Wanted) {
        self.stated.insert(wanted.key(), digest(wanted.object.body()));
    }

    /// Whether it was once like this, so that a difference now is damage.
    #[must_use]
    pub fn was(&self, wanted: &Wanted) -> bool {
        self.stated.get(&wanted.key()) == Some(&digest(wanted.object.body()))
    }

    /// Notes that an object is like `live` right after it was written as wanted: the API server, or who changes what is sent to it,
    /// makes that of it.
    pub fn settle(&mut self, wanted: &Wanted, live: &Value) {
        self.settled.insert(wanted.key(), Settled::of(wanted, live));
    }

    /// Whether writing it as wanted would make it what it is.
    #[must_use]
    pub fn is_settled(&self, wanted: &Wanted, live: &Value) -> bool {
        self.settled.get(&wanted.key()).is_some_and(|settled| *settled == Settled::of(wanted, live))
    }

    /// Forgets what is no longer wanted.
    pub fn retain(&mut self, wanted: impl Fn(&ObjectKey) -> bool) {
        self.stated.retain(|key, _| wanted(key));
        self.settled.retain(|key, _| wanted(key));
    }
}

impl Settled {
    fn of(wanted: &Wanted, live: &Value) -> Self {
        Self {
            uid: live["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            wanted: digest(wanted.object.body()),
            live: digest(&content(live)),
        }
    }
}

/// Of JSON, whose objects are sorted by key.
fn digest(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use objects::{Object, ObjectKind};
    use serde_json::json;

    use super::*;

    fn map(data: &Value) -> Wanted {
        let body = json!({ "metadata": { "name": "x" }, "data": data });
        Wanted::shared(
            Object::from_value(ObjectKind::new("", "v1", "ConfigMap", "configmaps"), body).unwrap(),
        )
    }

    #[test]
    fn it_is_settled_until_something_changes() {
        let (one, other) = (map(&json!({ "a": "1" })), map(&json!({ "a": "2" })));
        let live = |uid: &str, version: &str, data: &str| json!({ "metadata": { "uid": uid, "resourceVersion": version, "managedFields": [version] }, "data": data, "status": version });
        let mut memory = Memory::default();
        assert!(!memory.is_settled(&one, &live("u", "1", "x")));
        memory.settle(&one, &live("u", "1", "x"));
        assert!(memory.is_settled(&one, &live("u", "2", "x")));
        assert!(!memory.is_settled(&one, &live("v", "1", "x")), "another object");
        assert!(!memory.is_settled(&one, &live("u", "1", "y")), "other content");
        assert!(!memory.is_settled(&other, &live("u", "1", "x")), "other wishes");
        assert!(!memory.was(&one));
        memory.done(&one);
        assert!(memory.was(&one) && !memory.was(&other));
        memory.retain(|_| false);
        assert!(!memory.was(&one) && !memory.is_settled(&one, &live("u", "1", "x")));
    }
}
