//! `cargo xtask nightly`: the long versions of tests that are short in `cargo xtask test`.
//!
//! In: nothing. Out: an error if a test fails; all of them run first. What each variable does is in docs/rig.md.

use anyhow::bail;

/// A variable of the environment, its value, and the tests that read it.
struct Long {
    variable: &'static str,
    value: &'static str,
    filter: &'static str,
}

/// Integration tests of all packages, by a part of their names.
const LONG: &[Long] = &[
    Long { variable: "SEQUENCES", value: "500", filter: "sequences::" },
    Long { variable: "HISTORIES", value: "40", filter: "histories::" },
    Long { variable: "INTERRUPTIONS", value: "200", filter: "install::" },
    Long { variable: "PODS", value: "100", filter: "whole::" },
    Long { variable: "KILLS", value: "20", filter: "kills::" },
    Long { variable: "KILLS", value: "all", filter: "killed::" },
    Long { variable: "FIVE_MINUTES", value: "1", filter: "alignment::" },
];

/// Runs all of them.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for Long { variable, value, filter } in LONG {
        println!("{variable}={value}, tests {filter}");
        let args = ["--test", "it", filter].map(Into::into);
        if super::run_with(&args, &[(variable, value)]).is_err() {
            failed.push(format!("{variable}={value} {filter}"));
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
