//! What was said about nodes, for the next pod of the same class: by filters and scores, and of victims.
//!
//! In: verdicts about a node, with its revision. Out: the verdict about the same node in the same revision. Never: one
//! that depends on other nodes, other pods or the time; those are not asked for here.
//!
//! Pods of a class differ in nothing that filters look at. A bound pod changes one node, so the next pod of the class
//! costs one verdict, and one look at each other node. Size: [`MAX_CLASSES`] x nodes at most;
//! 112 bytes each for filters and scores.

use crate::queue::Class;

/// The most classes that are remembered, the last used.
const MAX_CLASSES: usize = 8;

/// The verdicts of the classes that were tried last. `K`: what verdicts rest on beside the node and the class. `V`: a
/// verdict.
#[derive(Debug)]
pub(super) struct EquivalenceCache<K, V> {
    /// The last used first.
    tables: Vec<Table<K, V>>,
    max_classes: usize,
}

/// The verdicts of a class by slot.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    class: Class,
    key: K,
    entries: Vec<Option<Entry<V>>>,
}

#[derive(Debug)]
struct Entry<V> {
    revision: u64,
    created_s: u64,
    verdict: V,
}

impl<K, V> Default for EquivalenceCache<K, V> {
    fn default() -> Self {
        Self { tables: Vec::new(), max_classes: MAX_CLASSES }
    }
}

impl<K: PartialEq, V> EquivalenceCache<K, V> {
    /// A cache that remembers nothing, to compare with.
    #[cfg(test)]
    pub(super) fn disabled() -> Self {
        Self { tables: Vec::new(), max_classes: 0 }
    }

    /// The table of a class; an empty one if it is new, or rests on something else by now.
    pub(super) fn table(&mut self, class: Class, key: K) -> Option<&mut Table<K, V>> {
        let known = self.tables.iter().position(|table| table.class == class);
        let known = known.map(|at| self.tables.remove(at)).filter(|table| table.key == key);
        let table = known.unwrap_or_else(|| Table { class, key, entries: Vec::new() });
        self.tables.insert(0, table);
        self.tables.truncate(self.max_classes);
        self.tables.first_mut()
    }
}

impl<K, V> Table<K, V> {
    /// The verdict about a node in this revision. `created_s`: when the pod was created, which counts where the node's
    /// kubelet may see pods in another order than that of their bindings (`has_order`).
    pub(super) fn get(&self, slot: usize, revision: u64, (created_s, has_order): (u64, bool)) -> Option<&V> {
        let entry = self.entries.get(slot)?.as_ref()?;
        let holds = entry.revision == revision && (!has_order || entry.created_s == created_s);
        holds.then_some(&entry.verdict)
    }

    /// Remembers a verdict.
    pub(super) fn put(&mut self, slot: usize, revision: u64, created_s: u64, verdict: V) {
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, || None);
        }
        self.entries[slot] = Some(Entry { revision, created_s, verdict });
    }
}
