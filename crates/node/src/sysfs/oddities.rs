//! Oddities of a sysfs that do not keep it from being read.
//!
//! In: an oddity and its text. Out: one line in the log for each kind, however often it is met. Never: a second line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of oddities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Oddity {
    /// There is no list of online CPUs.
    NoOnlineCpus,
    /// A zone has no list of its CPUs.
    NoCpuList,
    /// A zone has another number of distances than there are zones.
    Distances,
    /// Zones without CPUs have ids that no kubelet can name.
    Remote,
    /// A zone has more sizes of hugepages than any kernel.
    PageSizes,
}

/// The oddities met so far, with the text about the first of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Oddities(Arc<Mutex<BTreeMap<Oddity, String>>>);

impl Oddities {
    /// Logs the first oddity of its kind.
    pub(super) fn note(&self, kind: Oddity, text: impl FnOnce() -> String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(kind).or_insert_with(|| {
            let text = text();
            tracing::warn!("{text}");
            text
        });
    }

    /// The texts, for tests.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
