//! The newest known state of the objects that a process cares about.
//!
//! In: objects from watches and from answers to writes, in any order. Out: the newest state of each, by key. Never: an
//! object that nothing here asked for.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::ObjectKey;

/// Objects by key as the API server has them, with `managedFields` and status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedObjects {
    objects: BTreeMap<ObjectKey, Value>,
    /// The resource versions of deletions: an answer to a write may arrive after the news that its object was deleted.
    deleted: BTreeMap<ObjectKey, u128>,
}

/// Deletions that are remembered. An answer is late by seconds at most.
const DELETIONS: usize = 256;

impl ObservedObjects {
    /// Sets the state of an object, whatever was known.
    pub fn insert(&mut self, key: ObjectKey, body: Value) {
        self.objects.insert(key, body);
    }

    /// Removes an object, whatever was known.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Takes in the state of an object, unless a newer one is known. Returns whether it was news.
    ///
    /// Watches lag behind the answers to our own writes; without this check a write would look undone, and would be
    /// repeated.
    pub fn observe(&mut self, key: ObjectKey, body: Value) -> bool {
        let news = match self.objects.get(&key) {
            Some(known) => compare(known, &body) == Ordering::Less,
            None => self
                .deleted
                .get(&key)
                .zip(version(&body))
                .is_none_or(|(&deleted, version)| version >= deleted),
        };
        if news {
            self.deleted.remove(&key);
            self.objects.insert(key, body);
        }
        news
    }

    /// Takes in the deletion of an object whose last state was `body`, unless a newer state is known. Returns whether
    /// it was news.
    pub fn observe_deletion(&mut self, key: &ObjectKey, body: &Value) -> bool {
        let known = self.objects.get(key).map(|known| compare(known, body));
        if known == Some(Ordering::Greater) {
            return false;
        }
        self.objects.remove(key);
        if let Some(version) = version(body) {
            self.deleted.insert(key.clone(), version);
            if self.deleted.len() > DELETIONS
                && let Some(oldest) = self.deleted.iter().min_by_key(|(_, version)| **version)
            {
                let oldest = oldest.0.clone();
                self.deleted.remove(&oldest);
            }
        }
        known.is_some()
    }

    /// The state of an object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key)
    }

    /// All objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.objects.iter()
    }
}

/// The order in which the API server gave out two resource versions. `Less` when that cannot be told: then the later
/// news counts.
///
/// Resource versions are growing decimal numbers; since Kubernetes 1.35 that is part of the API.
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

fn compare(known: &Value, new: &Value) -> Ordering {
    let version = |body: &Value| body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    compare_versions(&version(known), &version(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ObjectKind;

    fn body(uid: &str, version: &str) -> Value {
        json!({ "metadata": { "uid": uid, "resourceVersion": version } })
    }

    fn key() -> ObjectKey {
        ObjectKey {
            kind: ObjectKind::new("", "v1", "ConfigMap", "configmaps"),
            namespace: None,
            name: "x".to_owned(),
        }
    }

    #[test]
    fn the_newest_state_counts() {
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
            let mut observed = ObservedObjects::default();
            if let Some((uid, version)) = known {
                observed.insert(key(), body(uid, version));
            }
            assert_eq!(observed.observe(key(), body(new.0, new.1)), want, "{known:?} {new:?}");
            let newest = if want { Some(new) } else { known };
            assert_eq!(observed.get(&key()), newest.map(|(uid, version)| body(uid, version)).as_ref());
        }
    }

    #[test]
    fn a_deletion_does_not_remove_the_successor() {
        // what is known, what is said to be gone -> whether that is news
        let table = [
            (("a", "5"), ("a", "6"), true),
            (("a", "5"), ("a", "5"), true),
            (("a", "7"), ("a", "6"), false),
            (("b", "9"), ("a", "6"), false),
            (("b", "5"), ("a", "6"), true),
        ];
        for (known, gone, want) in table {
            let mut observed = ObservedObjects::default();
            observed.insert(key(), body(known.0, known.1));
            assert_eq!(observed.observe_deletion(&key(), &body(gone.0, gone.1)), want, "{known:?} {gone:?}");
            assert_eq!(observed.get(&key()).is_none(), want);
        }
        assert!(!ObservedObjects::default().observe_deletion(&key(), &body("a", "1")));
    }

    #[test]
    fn late_answers_do_not_resurrect_deleted_objects() {
        for known in [true, false] {
            let mut observed = ObservedObjects::default();
            if known {
                observed.insert(key(), body("a", "5"));
            }
            // Deleted at 7; the answer to a write before that, which made it 6, comes only now.
            assert_eq!(observed.observe_deletion(&key(), &body("a", "7")), known);
            assert!(!observed.observe(key(), body("a", "6")));
            assert_eq!(observed.get(&key()), None);
            assert!(observed.observe(key(), body("b", "8")));
        }
        // Of objects that lost their mark a watch says that they are gone, with the version that they have now.
        let mut observed = ObservedObjects::default();
        observed.observe_deletion(&key(), &body("a", "7"));
        assert!(observed.observe(key(), body("a", "7")));
    }

    #[test]
    fn remembered_deletions_are_bounded() {
        let mut observed = ObservedObjects::default();
        let of = |number: usize| ObjectKey { name: format!("x{number}"), ..key() };
        for number in 0..2 * DELETIONS {
            observed.observe_deletion(&of(number), &body("a", &(number + 2).to_string()));
        }
        assert_eq!(observed.deleted.len(), DELETIONS);
        assert!(
            observed.observe(of(0), body("a", "1"))
                && !observed.observe(of(2 * DELETIONS - 1), body("a", "1"))
        );
    }
}
