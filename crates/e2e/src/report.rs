//! What a run found.
//!
//! In: how each spec ended. Out: lines for people, JUnit, a document for programs. Never: a count that leaves out a
//! spec.

pub mod junit;

use std::time::Duration;

use runtime::output::one_line;
use serde::Serialize;

/// How a spec ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "ending")]
pub enum Ending {
    /// All checks held.
    Passed,
    /// The cluster lacks a capability, which is named; or the spec cannot be tried at all.
    Skipped {
        /// The capability.
        reason: String,
    },
    /// The run ended before or while it was tried.
    NotTried {
        /// The reason.
        reason: String,
    },
    /// A check did not hold: the reason in a line, and what was found beside it.
    Failed {
        /// One line.
        reason: String,
        /// Events, reports and logs.
        diagnosis: String,
    },
}

/// A spec that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// The spec's id.
    pub id: String,
    /// Its claim.
    pub title: String,
    /// The feature, which is the class of the case in JUnit.
    pub feature: String,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
    /// Its time, the clean-up included.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
}

/// How many specs ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// All checks held.
    pub passed: usize,
    /// A capability is missing.
    pub skipped: usize,
    /// A check did not hold.
    pub failed: usize,
    /// The run ended before.
    pub not_tried: usize,
}

/// The whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Document<'a> {
    /// The cluster, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<&'a str>,
    /// How many ended in each way.
    pub counts: Counts,
    /// What was wrong with the run as a whole.
    pub verdicts: &'a [String],
    /// The time of the whole run.
    pub seconds: f64,
    /// Each spec.
    pub specs: &'a [Case],
}

fn seconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((took.as_secs_f64() * 1000.0).round() / 1000.0)
}

impl Counts {
    /// Counts cases.
    #[must_use]
    pub fn of(cases: &[Case]) -> Self {
        cases.iter().fold(Self::default(), |mut counts, case| {
            match case.ending {
                Ending::Passed => counts.passed += 1,
                Ending::Skipped { .. } => counts.skipped += 1,
                Ending::Failed { .. } => counts.failed += 1,
                Ending::NotTried { .. } => counts.not_tried += 1,
            }
            counts
        })
    }
}

/// One line about a spec.
#[must_use]
pub fn line(case: &Case) -> String {
    let Case { id, title, feature, ending, took } = case;
    let (word, reason) = match ending {
        Ending::Passed => ("passed ", String::new()),
        Ending::Skipped { reason } => ("skipped", format!(": needs {}", one_line(reason))),
        Ending::Failed { reason, .. } => ("FAILED ", format!(": {}", one_line(reason))),
        Ending::NotTried { reason } => ("ended  ", format!(": {}", one_line(reason))),
    };
    format!("{word} {:>6.1} s  [{feature}] {id} {title}{reason}", took.as_secs_f64())
}

/// The last lines: what failed, with its diagnosis, what was wrong as a whole, and the counts.
#[must_use]
pub fn summary(document: &Document<'_>) -> String {
    let mut text = document.context.map(|context| format!("\ncontext {context}\n")).unwrap_or_default();
    for case in document.specs {
        if let Ending::Failed { reason, diagnosis } = &case.ending {
            text.push_str(&format!("\n[{}] {} {}\n  {reason}\n", case.feature, case.id, case.title));
            diagnosis.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    }
    for verdict in document.verdicts {
        text.push_str(&format!("\nthe run as a whole: {verdict}\n"));
    }
    let Counts { passed, skipped, failed, not_tried } = document.counts;
    let not_tried = if not_tried > 0 { format!(", {not_tried} not tried") } else { String::new() };
    text.push_str(&format!(
        "\n{} specs: {passed} passed, {skipped} skipped, {failed} failed{not_tried}, in {:.0} s\n",
        document.specs.len(),
        document.seconds
    ));
    text
}
