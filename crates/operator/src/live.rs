//! Objects in the cluster that are ours, or bear a name that is.
//!
//! In: objects as the API server has them, from watches and from answers, in whatever order they come. Out: the newest of each by kind,
//! namespace and name. Never: an object nobody here asks for.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

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
pub struct Live {
    objects: BTreeMap<Key, Value>,
    /// The versions at which objects went: the answer to a write may come after the news that somebody has deleted what was written.
    gone: BTreeMap<Key, u128>,
}

/// Of so many objects that have gone, the last ones, the versions are known. An answer is late by seconds at most.
const GONE: usize = 256;

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

/// As people name it: `DaemonSet numa/exporter`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.sort.kind, self.name),
            None => write!(f, "{} {}", self.sort.kind, self.name),
        }
    }
}

impl Live {
    /// Notes that an object is like this, whatever was known.
    pub fn insert(&mut self, key: Key, body: Value) {
        self.objects.insert(key, body);
    }

    /// Notes that it is no longer there, whatever was known.
    pub fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }

    /// Notes that an object is like this, unless something newer is known. Whether that was news.
    ///
    /// Watches lag behind the answers to our own writes; without this a write would be undone in our eyes, and done again.
    pub fn observe(&mut self, key: Key, body: Value) -> bool {
        let news = match self.objects.get(&key) {
            Some(known) => age(known, &body) == Ordering::Less,
            None => self.gone.get(&key).zip(version(&body)).is_none_or(|(&gone, version)| version >= gone),
        };
        if news {
            self.gone.remove(&key);
            self.objects.insert(key, body);
        }
        news
    }

    /// Notes that an object is gone whose last state was this, unless something newer is known. Whether that was news.
    pub fn forget(&mut self, key: &Key, body: &Value) -> bool {
        let known = self.objects.get(key).map(|known| age(known, body));
        if known == Some(Ordering::Greater) {
            return false;
        }
        self.objects.remove(key);
        if let Some(version) = version(body) {
            self.gone.insert(key.clone(), version);
            if self.gone.len() > GONE
                && let Some(oldest) = self.gone.iter().min_by_key(|(_, version)| **version)
            {
                let oldest = oldest.0.clone();
                self.gone.remove(&oldest);
            }
        }
        known.is_some()
    }

    /// An object as it is.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.objects.iter()
    }
}

/// Which of two resource versions the API server gave out first. `Less`, if that cannot be told: what comes later counts.
///
/// Since Kubernetes 1.35 it is part of the API that they are decimal numbers that grow; they always were.
#[must_use]
pub fn compare_versions(known: &str, new: &str) -> Ordering {
    let number = |text: &str| text.parse::<u128>().ok();
    match (number(known), number(new)) {
        (Some(known), Some(new)) => known.cmp(&new),
        _ if known == new => Ordering::Equal,
        _ => Ordering::Less,
    }
}

fn version(body: &Value) -> Option<u128> {
    body["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn age(known: &Value, new: &Value) -> Ordering {
    let version = |body: &Value| body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    compare_versions(&version(known), &version(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(uid: &str, version: &str) -> Value {
        json!({ "metadata": { "uid": uid, "resourceVersion": version } })
    }

    fn key() -> Key {
        Key { sort: Sort::new("", "v1", "ConfigMap", "configmaps"), namespace: None, name: "x".to_owned() }
    }

    #[test]
    fn the_newest_counts() {
        // what is known, what comes -> whether that is news
        let table = [
            (None, ("a", "1"), true),
            (Some(("a", "9")), ("a", "10"), true),
            (Some(("a", "10")), ("a", "10"), false),
            (Some(("a", "10")), ("a", "9"), false),
            (Some(("b", "10")), ("a", "9"), false),
            (Some(("a", "")), ("a", ""), false),
            (Some(("a", "x")), ("a", "y"), true),
        ];
        for (known, new, want) in table {
            let mut live = Live::default();
            if let Some((uid, version)) = known {
                live.insert(key(), body(uid, version));
            }
            assert_eq!(live.observe(key(), body(new.0, new.1)), want, "{known:?} {new:?}");
            let newest = if want { Some(new) } else { known };
            assert_eq!(live.get(&key()), newest.map(|(uid, version)| body(uid, version)).as_ref());
        }
    }

    #[test]
    fn the_end_of_an_object_is_not_the_end_of_its_successor() {
        // what is known, what is said to be gone -> whether that is news
        let table = [
            (("a", "5"), ("a", "6"), true),
            (("a", "5"), ("a", "5"), true),
            (("a", "7"), ("a", "6"), false),
            (("b", "9"), ("a", "6"), false),
            (("b", "5"), ("a", "6"), true),
        ];
        for (known, gone, want) in table {
            let mut live = Live::default();
            live.insert(key(), body(known.0, known.1));
            assert_eq!(live.forget(&key(), &body(gone.0, gone.1)), want, "{known:?} {gone:?}");
            assert_eq!(live.get(&key()).is_none(), want);
        }
        assert!(!Live::default().forget(&key(), &body("a", "1")));
    }

    #[test]
    fn what_is_late_does_not_bring_back_what_is_gone() {
        for known in [true, false] {
            let mut live = Live::default();
            if known {
                live.insert(key(), body("a", "5"));
            }
            // Deleted at 7; the answer to a write before that, which made it 6, comes only now.
            assert_eq!(live.forget(&key(), &body("a", "7")), known);
            assert!(!live.observe(key(), body("a", "6")));
            assert_eq!(live.get(&key()), None);
            assert!(live.observe(key(), body("b", "8")));
        }
        // Of objects that lost their mark a watch says that they are gone, with the version that they have now.
        let mut live = Live::default();
        live.forget(&key(), &body("a", "7"));
        assert!(live.observe(key(), body("a", "7")));
    }

    #[test]
    fn what_is_gone_is_not_remembered_for_ever() {
        let mut live = Live::default();
        let of = |number: usize| Key { name: format!("x{number}"), ..key() };
        for number in 0..2 * GONE {
            live.forget(&of(number), &body("a", &(number + 2).to_string()));
        }
        assert_eq!(live.gone.len(), GONE);
        assert!(live.observe(of(0), body("a", "1")) && !live.observe(of(2 * GONE - 1), body("a", "1")));
    }
}
