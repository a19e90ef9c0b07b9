//! `pfpsyncchk`: whether scheduler and exporters counted the same pods, by their status files.
//!
//! In: a file of an exporter and one of the scheduler, or a must-gather with such files for each node. Out: for each
//! fingerprint on which they disagreed, the pods that only one of them counted. Never: access to a cluster, or an end
//! at the first node that cannot be checked.
//!
//! Exit codes: 0 checked, with or without differences, or nothing to check in the must-gather; 1 wrong arguments; 2 a
//! file cannot be read, is empty, or contradicts itself. (The Go tool exits with 2 for wrong flags too.) Nodes and pods
//! are sorted by name, fingerprints by time.

mod compare;
mod gathered;
mod record;

pub use compare::{Difference, Outcome, compare};
pub use gathered::{Pair, pairs};
pub use record::{Record, parse};

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use runtime::goflag::{Flag, FlagSet, Kind};
use runtime::stderr;

use crate::call::{self, Call};

const FLAGS: [Flag; 4] = [
    Flag {
        name: "must-gather",
        kind: Kind::Text,
        default: "",
        help: "folder of a must-gather; overrides -from-rte and -from-scheduler",
    },
    Flag { name: "from-rte", kind: Kind::Text, default: "", help: "status file of an exporter" },
    Flag { name: "from-scheduler", kind: Kind::Text, default: "", help: "status file of the scheduler" },
    Flag { name: "full-help", kind: Kind::Bool, default: "false", help: "explain how it works and exit" },
];

const FULL_HELP: &str = "\
pfpsyncchk shows whether scheduler and exporters agree about the pods of each node.

An exporter signs the pods it counts with a fingerprint. The scheduler compares it with a fingerprint of the pods it
knows. While they differ, the scheduler does not trust the report, and logs \"invalid topology data\". A passing difference
is normal: one of them saw a pod sooner. A lasting difference means that they do not count the same pods.

If PFP_STATUS_DUMP names a folder, exporters and schedulers write the last ten fingerprints of each node into a file
with the node's name, with _ for each dot. A must-gather contains these files:

  pfpsyncchk -must-gather FOLDER
  pfpsyncchk -from-rte FILE -from-scheduler FILE

For each fingerprint that the scheduler expected and did not compute (of several records the newest), the newest record
of the exporter with that fingerprint is looked up. The pods that only one of the two contains are listed.

Exit codes: 0 checked, with or without differences, or nothing to check in the must-gather; 1 wrong arguments; 2 a file
cannot be read, is empty, or contradicts itself.
";

const STARS: &str =
    "******************************************************************************************\n";

/// Runs the tool.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(call: &Call) -> anyhow::Result<ExitCode> {
    let set = FlagSet { program: &call.program, flags: &[&FLAGS] };
    let flags = match set.parse(call.arguments.iter().cloned()) {
        Ok(flags) => flags,
        Err(outcome) => {
            stderr::print(outcome.text());
            return Ok(ExitCode::from(u8::from(outcome.code() != 0)));
        }
    };
    if flags.bool("full-help") == Some(true) {
        call::print(FULL_HELP)?;
        return Ok(ExitCode::SUCCESS);
    }
    let given = |name| flags.text(name).filter(|path| !path.is_empty()).map(Path::new);
    let report = match (given("must-gather"), given("from-rte"), given("from-scheduler")) {
        _ if !flags.rest.is_empty() => Err(format!("unexpected argument: {}", flags.rest.join(" "))),
        (Some(folder), _, _) => Ok(gathered(folder)),
        (None, Some(exporter), Some(scheduler)) => {
            let mut report = Report::default();
            report.pair("", exporter, scheduler);
            Ok(report)
        }
        _ => Err("either -must-gather or both -from-rte and -from-scheduler are needed".to_owned()),
    };
    match report {
        Ok(report) => {
            report.notes.iter().for_each(stderr::line);
            call::print(&report.text)?;
            Ok(ExitCode::from(if report.failed { 2 } else { 0 }))
        }
        Err(error) => {
            stderr::print(format_args!("{error}\n{}", set.usage()));
            Ok(ExitCode::from(1))
        }
    }
}

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The differences, for people.
    pub text: String,
    /// Further notes, one line each.
    pub notes: Vec<String>,
    /// Whether any file could not be checked.
    pub failed: bool,
}

impl Report {
    fn pair(&mut self, node: &str, exporter: &Path, scheduler: &Path) {
        let of = if node.is_empty() { String::new() } else { format!("node {node}: ") };
        let outcome = record::read(exporter)
            .and_then(|exporter| record::read(scheduler).map(|scheduler| (exporter, scheduler)))
            .and_then(|(exporter, scheduler)| compare(&exporter, &scheduler));
        match outcome {
            Ok(Outcome { differences, notes }) => {
                self.notes.extend(notes.into_iter().map(|note| format!("{of}{note}")));
                self.text.extend(differences.iter().map(Difference::to_string));
                if !differences.is_empty() {
                    self.text.push('\n');
                }
            }
            Err(error) => {
                self.notes.push(format!("{of}{error}"));
                self.failed = true;
            }
        }
    }
}

/// Checks every node for which a must-gather has both files.
#[must_use]
pub fn gathered(folder: &Path) -> Report {
    let mut report = Report::default();
    match pairs(folder) {
        Ok((pairs, notes)) => {
            report.notes = notes;
            for Pair { node, exporter, scheduler } in pairs {
                // Writing to a string cannot fail.
                let _ = write!(report.text, "{STARS}Processing node:  {node}\n{STARS}");
                report.pair(&node, &exporter, &scheduler);
            }
        }
        Err(gathered::Error::Nothing(reason)) => report.notes.push(format!("nothing to check: {reason}")),
        Err(gathered::Error::Unreadable(reason)) => {
            report.notes.push(reason);
            report.failed = true;
        }
    }
    report
}

#[cfg(test)]
mod tests;
