//! Objects in the cluster that are ours, or bear a name that is.
//!
//! In: objects as the API server has them. Out: the same by kind, namespace and name. Never: an object nobody here asks for.

use std::collections::BTreeMap;

use deployer::object::{Object, Sort};
use serde_json::Value;

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub sort: Sort,
    /// Its namespace; none for what belongs to the cluster.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Objects by key, as they are on the API server, `managedFields` and status included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live(BTreeMap<Key, Value>);

impl Key {
    /// Of an object.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        Self {
            sort: object.sort().clone(),
            namespace: object.namespace().map(str::to_owned),
            name: object.name().to_owned(),
        }
    }
}

impl Live {
    /// Notes that an object is like this.
    pub fn insert(&mut self, key: Key, body: Value) {
        self.0.insert(key, body);
    }

    /// Notes that it is no longer there.
    pub fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// An object as it is.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.0.get(key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.0.iter()
    }
}
