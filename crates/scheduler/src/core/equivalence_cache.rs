//! What filters and scores said about nodes, for the next pod of the same class.
//!
//! In: verdicts about a node, with its revision. Out: the verdict about the same node in the same revision. Never: one
//! that depends on other nodes, other pods or the time; those are not asked for here.
//!
//! Pods of a class differ in nothing that filters look at. A bound pod changes one node, so the next pod of the class
//! costs one verdict, and one look at each other node. Size: [`MAX_CLASSES`] x nodes x 112 bytes at most.

use super::search::Reasons;
use crate::cycle::RawScore;
use crate::plugins::image_locality::Wanted;
use crate::queue::Class;

/// The most classes that are remembered, the last used.
const MAX_CLASSES: usize = 8;

/// A verdict about a node: its scores, or the reasons against it.
pub(super) type Verdict = Result<RawScore, Reasons>;

/// The verdicts of the classes that were tried last.
#[derive(Debug)]
pub(super) struct EquivalenceCache {
    /// The last used first.
    tables: Vec<Table>,
    max_classes: usize,
}

/// The verdicts of a class by slot.
#[derive(Debug)]
pub(super) struct Table {
    class: Class,
    /// The images on all nodes that the scores rest on.
    images: Wanted,
    entries: Vec<Option<Entry>>,
}

#[derive(Debug)]
struct Entry {
    revision: u64,
    created_s: u64,
    verdict: Verdict,
}

impl Default for EquivalenceCache {
    fn default() -> Self {
        Self { tables: Vec::new(), max_classes: MAX_CLASSES }
    }
}

impl EquivalenceCache {
    /// A cache that remembers nothing, to compare with.
    #[cfg(test)]
    pub(super) fn disabled() -> Self {
        Self { tables: Vec::new(), max_classes: 0 }
    }

    /// The table of a class; an empty one if it is new, or the scores rest on other images by now.
    pub(super) fn table(&mut self, class: Class, images: &Wanted) -> Option<&mut Table> {
        let known = self.tables.iter().position(|table| table.class == class);
        let mut table = match known {
            Some(at) => self.tables.remove(at),
            None => Table { class, images: images.clone(), entries: Vec::new() },
        };
        if table.images != *images {
            table = Table { class, images: images.clone(), entries: Vec::new() };
        }
        self.tables.insert(0, table);
        self.tables.truncate(self.max_classes);
        self.tables.first_mut()
    }
}

impl Table {
    /// The verdict about a node in this revision. `created_s`: when the pod was created, which counts where the node's
    /// kubelet may see pods in another order than that of their bindings (`has_order`).
    pub(super) fn get(
        &self,
        slot: usize,
        revision: u64,
        (created_s, has_order): (u64, bool),
    ) -> Option<&Verdict> {
        let entry = self.entries.get(slot)?.as_ref()?;
        let holds = entry.revision == revision && (!has_order || entry.created_s == created_s);
        holds.then_some(&entry.verdict)
    }

    /// Remembers a verdict.
    pub(super) fn put(&mut self, slot: usize, revision: u64, created_s: u64, verdict: Verdict) {
        if self.entries.len() <= slot {
            self.entries.resize_with(slot + 1, || None);
        }
        self.entries[slot] = Some(Entry { revision, created_s, verdict });
    }
}
