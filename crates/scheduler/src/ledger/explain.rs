//! A summary of a ledger's state, for logs, metrics and tests.

use topology::fingerprint::Fingerprint;

use super::row::Row;
use super::{Ledger, PodId, Stage};

/// The state of a ledger in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSummary {
    /// Number of possible worlds; 0: no report was understood yet.
    pub worlds: usize,
    /// Number of pods bound and not known to be admitted.
    pub pending: usize,
    /// Number of pods that may be released at any moment.
    pub leaving: usize,
    /// Whether the newest report describes an unknown pod set.
    pub unexplained: bool,
    /// Whether no report confirms the ledger: the newest is not understood, cannot be read, or is gone.
    pub unconfirmed: bool,
    /// Number of admitted pods that hold something in zones and are in no report yet.
    pub unreported: usize,
    /// Number of reports understood so far.
    pub reports: u64,
    /// Number of reports that contradicted every possible world.
    pub corrections: u64,
    /// Number of pods of which it is not certain what they hold.
    pub in_doubt: usize,
    /// How many predictions reports by ids have confirmed, and how many not.
    pub predictions: Predictions,
}

/// Pods whose zones a report by ids has told for the first time, by what the ledger had predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predictions {
    /// They are as in one of the possible worlds.
    pub right: u64,
    /// They are as in none.
    pub wrong: u64,
}

impl Ledger {
    /// Summarises the state in numbers.
    #[must_use]
    pub fn summary(&self) -> LedgerSummary {
        LedgerSummary {
            worlds: self.worlds.len(),
            pending: self.indices(|stage| stage == Stage::Pending).count(),
            leaving: self.indices(Stage::is_leaving).count(),
            unexplained: self.unexplained.is_some() || self.goes_by_amounts || self.partial_reports > 0,
            unconfirmed: self.unexplained.is_some() || self.report_lost,
            unreported: self.unreported(),
            reports: self.reports,
            corrections: self.drifts.number,
            in_doubt: self.in_doubt(),
            predictions: self.predictions,
        }
    }

    /// Admitted pods that the next report will show. One that no report showed which was understood since its admission
    /// is not among them: the exporter may leave it out. Cost: rows x worlds; the report's zones if there may be one.
    fn unreported(&self) -> usize {
        let Some(report) = self.topology.as_ref().filter(|_| self.is_modelled()) else { return 0 };
        let is_new =
            |row: &Row| row.stage == Stage::Admitted && !row.described && row.reports_before == self.reports;
        let mut new = self.rows.iter().enumerate().filter(|(_, row)| is_new(row)).peekable();
        if new.peek().is_none() {
            return 0;
        }
        let free = report.available();
        new.filter(|(at, row)| self.counts(report, &free, row) && self.holds_something(*at)).count()
    }

    /// Pods that do not hold the same, exactly known, in every world. Cost: rows x worlds.
    fn in_doubt(&self) -> usize {
        self.indices(|stage| stage != Stage::Released).filter(|at| !self.is_certain(*at)).count()
    }

    /// Number of times that a report was understood.
    #[must_use]
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// Number of reports that contradicted every possible world.
    pub(crate) fn corrections(&self) -> u64 {
        self.drifts.number
    }

    /// What reports by ids have said of predictions.
    pub(crate) fn predictions(&self) -> Predictions {
        self.predictions
    }

    /// A number that differs after any change of [`Self::fingerprinted`].
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The newest report's fingerprint, and the pods taken to be behind it: those it was understood to describe, or,
    /// while it is unexplained, all present pods of the kind it counts. `None`: there is no report.
    #[must_use]
    pub fn fingerprinted(&self) -> Option<(Option<Fingerprint>, Vec<PodId>)> {
        let report = self.unexplained.as_ref().or(self.topology.as_ref()).filter(|_| !self.report_lost)?;
        let understood = self.unexplained.is_none() && self.is_modelled();
        let free = report.available();
        let is_described = |row: &&Row| {
            row.stage != Stage::Released
                && if understood { row.described } else { self.counts(report, &free, row) }
        };
        let pods = self.rows.iter().filter(is_described).map(|row| row.id).collect();
        Some((report.fingerprint.map(|(fingerprint, _)| fingerprint), pods))
    }
}
