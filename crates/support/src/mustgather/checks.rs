//! The results of our own checks, next to the data behind them.
//!
//! In: the cluster, and the folder. Out: `validate.txt`, `validate.json`, `pfpsyncchk.txt`. Never: a check that is not
//! in `validate` or `pfpsyncchk`.

use std::collections::BTreeSet;
use std::path::Path;

use deployer::validate::evidence::Area;
use deployer::validate::print::{self, Format};
use deployer::validate::{check, examine, source};
use runtime::stderr;

use super::Gatherer;
use crate::pfpsyncchk;

/// Writes the report of `validate`.
pub(super) async fn validate(gatherer: &Gatherer) {
    let checks = check::all();
    let areas: BTreeSet<Area> = checks.iter().flat_map(|check| check.needs.iter().copied()).collect();
    let evidence = match source::gather(&gatherer.connection, &areas).await {
        Ok(evidence) => evidence,
        Err(error) => return gatherer.folder.report_missing(&format!("validate: {error}")),
    };
    let report = examine(&evidence, &checks);
    for (file, output) in [("validate.txt", Format::Text), ("validate.json", Format::Json)] {
        match print::render(&report, output) {
            Ok(text) => gatherer.folder.write(file, text.as_bytes()),
            Err(error) => gatherer.folder.report_missing(&format!("{file}: {error:#}")),
        }
    }
    gatherer.folder.progress(&format!("validate: {}", print::summary(&report)));
}

/// Writes the report of `pfpsyncchk` about the records in the folder.
pub(super) fn fingerprints(folder: &Path) {
    let report = pfpsyncchk::gathered(folder);
    let notes: String = report.notes.iter().map(|note| format!("{note}\n")).collect();
    if let Err(error) =
        super::folder::write(&folder.join("pfpsyncchk.txt"), (notes + &report.text).as_bytes())
    {
        stderr::line(format_args!("pfpsyncchk.txt: {error}"));
    }
}
