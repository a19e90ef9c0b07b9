//! A short account of a ledger's state, for logs, metrics and tests.

use topology::fingerprint::Fingerprint;

use super::{Ledger, PodId, Stage};

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

    /// Another number after anything that has changed [`Self::fingerprinted`].
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The newest report's fingerprint, and the pods that are taken to be behind it: those it was understood to be about, while it is
    /// not understood all that are there and of the kind it counts. `None`: there is no report.
    #[must_use]
    pub fn fingerprinted(&self) -> Option<(Option<Fingerprint>, Vec<PodId>)> {
        let report = self.unexplained.as_ref().or(self.topology.as_ref()).filter(|_| !self.lost)?;
        let understood = self.unexplained.is_none() && report.rules.policy.enforces();
        let free = report.available();
        let is_behind = |row: &&super::Row| {
            row.stage != Stage::Released
                && if understood { row.described } else { self.counts(report, &free, row) }
        };
        let pods = self.rows.iter().filter(is_behind).map(|row| row.id).collect();
        Some((report.fingerprint.map(|(fingerprint, _)| fingerprint), pods))
    }
}
