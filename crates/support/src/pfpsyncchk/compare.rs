//! The comparison of an exporter's and a scheduler's records. Pure.
//!
//! In: the records of an exporter and of a scheduler about one node. Out: the fingerprints on which they disagree,
//! oldest first. Never: a record of the scheduler in which both agreed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use super::record::{Pod, Record};

/// A fingerprint that the scheduler expected and did not compute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The exporter's fingerprint.
    pub expected: String,
    /// The scheduler's fingerprint.
    pub computed: String,
    /// Whether the exporter has a record of its fingerprint.
    pub found: bool,
    /// Time of the scheduler's record.
    pub scheduler_time: Option<Timestamp>,
    /// Time of the exporter's record.
    pub exporter_time: Option<Timestamp>,
    /// Pods that only the exporter counted.
    pub exporter_only: Vec<Pod>,
    /// Pods that only the scheduler counted.
    pub scheduler_only: Vec<Pod>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The fingerprints on which they disagree.
    pub differences: Vec<Difference>,
    /// Further notes.
    pub notes: Vec<String>,
}

/// Compares the records of one node.
///
/// # Errors
/// When there is nothing to compare, or the records name the same pods for different fingerprints, which no program
/// does.
pub fn compare(exporter: &[Record], scheduler: &[Record]) -> Result<Outcome, String> {
    if exporter.is_empty() || scheduler.is_empty() {
        return Err(format!(
            "no records to compare: {} of the exporter, {} of the scheduler",
            exporter.len(),
            scheduler.len()
        ));
    }
    let (exporter, scheduler) = (newest(exporter), newest(scheduler));
    let mut outcome = Outcome::default();
    if scheduler.is_empty() {
        outcome.notes.push("the scheduler always agreed with the exporter".to_owned());
        return Ok(outcome);
    }
    for (&fingerprint, record) in &scheduler {
        let difference = Difference {
            expected: fingerprint.to_owned(),
            computed: record.fingerprint_computed.clone(),
            scheduler_time: record.record_time,
            ..Difference::default()
        };
        let Some(found) = exporter.get(fingerprint) else {
            outcome.notes.push(format!("the exporter has no record of fingerprint {fingerprint}"));
            outcome.differences.push(difference);
            continue;
        };
        let [theirs, ours] = [found, record].map(|record| record.pods.iter().collect::<BTreeSet<_>>());
        let only = |one: &BTreeSet<&Pod>, other: &BTreeSet<&Pod>| -> Vec<Pod> {
            one.difference(other).copied().cloned().collect()
        };
        let difference = Difference {
            found: true,
            exporter_time: found.record_time,
            exporter_only: only(&theirs, &ours),
            scheduler_only: only(&ours, &theirs),
            ..difference
        };
        if difference.exporter_only.is_empty() && difference.scheduler_only.is_empty() {
            outcome.notes.push(format!("the pods of fingerprint {fingerprint} are the same on both sides"));
        } else {
            outcome.differences.push(difference);
        }
    }
    if outcome.differences.is_empty() {
        return Err("the scheduler's fingerprints differ from the exporter's, and the pods do not".to_owned());
    }
    outcome.differences.sort_by(|a, b| (a.scheduler_time, &a.expected).cmp(&(b.scheduler_time, &b.expected)));
    Ok(outcome)
}

/// Records in which the two disagreed, by the exporter's fingerprint: of several the newest, at equal times the last.
fn newest(records: &[Record]) -> BTreeMap<&str, &Record> {
    let mut newest: BTreeMap<&str, &Record> = BTreeMap::new();
    for record in records {
        let Record { fingerprint_expected: expected, fingerprint_computed: computed, .. } = record;
        if !expected.is_empty() && expected == computed {
            continue;
        }
        let key = if expected.is_empty() { computed } else { expected };
        let older = newest.get(key.as_str()).is_some_and(|known| record.record_time < known.record_time);
        if !older {
            newest.insert(key, record);
        }
    }
    newest
}

/// The Go tool's block, to the byte.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Expected PFP: {}", self.expected)?;
        writeln!(f, "Computed PFP: {}", self.computed)?;
        writeln!(f, "Found on RTE: {}", self.found)?;
        writeln!(f, "Last write from scheduler: {}", time(self.scheduler_time))?;
        writeln!(f, "Last write from RTE: {}", time(self.exporter_time))?;
        for (title, pods) in [("RTE", &self.exporter_only), ("scheduler", &self.scheduler_only)] {
            let gap = if title == "RTE" { "\n" } else { "" };
            writeln!(f, "{gap}Pods found on {title} only:")?;
            for pod in pods {
                writeln!(f, " - {}/{}", pod.namespace, pod.name)?;
            }
        }
        writeln!(f, "\n________________________________")
    }
}

/// A time as Go prints it; an unknown time is Go's zero time.
fn time(time: Option<Timestamp>) -> String {
    let Some(time) = time else { return "0001-01-01 00:00:00 +0000 UTC".to_owned() };
    let fraction = match time.subsec_nanosecond() {
        0 => String::new(),
        nanos => format!(".{:09}", nanos.unsigned_abs()).trim_end_matches('0').to_owned(),
    };
    format!("{}{fraction} +0000 UTC", time.strftime("%Y-%m-%d %H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_gos() {
        for (text, wanted) in [
            ("2025-09-29T06:20:23.606545132Z", "2025-09-29 06:20:23.606545132 +0000 UTC"),
            ("2025-09-29T06:20:23.5Z", "2025-09-29 06:20:23.5 +0000 UTC"),
            ("2025-09-29T08:20:23+02:00", "2025-09-29 06:20:23 +0000 UTC"),
        ] {
            assert_eq!(time(text.parse().ok()), wanted);
        }
        assert_eq!(time(None), "0001-01-01 00:00:00 +0000 UTC");
    }
}
