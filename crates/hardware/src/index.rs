//! Sorted values by key.
//!
//! In: pairs of key and value. Out: the values of a key, sorted. Never: a key without values.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// Values by key. Two indexes with the same pairs are equal, whatever their history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index<K, V>(BTreeMap<K, BTreeSet<V>>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: Ord> Index<K, V> {
    /// Adds a pair.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.entry(key).or_default().insert(value);
    }

    /// Removes a pair, if it is there.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
    {
        let Some(values) = self.0.get_mut(key) else { return };
        values.remove(value);
        if values.is_empty() {
            self.0.remove(key);
        }
    }

    /// Removes a key and returns its values.
    pub(crate) fn take(&mut self, key: &K) -> BTreeSet<V> {
        self.0.remove(key).unwrap_or_default()
    }

    /// The values of a key, sorted.
    pub(crate) fn of<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = &V> + use<'_, K, V, Q>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).into_iter().flatten()
    }

    /// All keys, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}
