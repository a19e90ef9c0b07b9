//! A short account of a ledger's state, for logs, metrics and tests.

use super::{Ledger, Stage};

/// What a ledger knows, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Possible worlds; 0: nothing is known.
    pub worlds: usize,
    /// Pods bound but not known to be admitted.
    pub pending: usize,
    /// Pods that may be released any moment.
    pub leaving: usize,
    /// Whether the newest report describes a pod set that is not understood.
    pub unexplained: bool,
    /// Reports that contradicted every possible world.
    pub corrections: u64,
}

impl Ledger {
    /// The state in numbers.
    #[must_use]
    pub fn summary(&self) -> LedgerSummary {
        LedgerSummary {
            worlds: self.worlds.len(),
            pending: self.indices(Stage::Pending).count(),
            leaving: self.indices(Stage::Leaving).count(),
            unexplained: self.unexplained.is_some(),
            corrections: self.corrections,
        }
    }
}
