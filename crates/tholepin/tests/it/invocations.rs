//! What each command line ends with: exit code, output and first line, without a cluster.
//!
//! `UPDATE=1 cargo test -p tholepin --test it -- invocations` writes the table anew; read the difference before you
//! believe it.

use std::fmt::Write as _;
use std::path::Path;

use super::{Installed, run_in};

/// A line each: exit code, output (E: standard error, O: standard output), words, first line.
const TABLE: &str = "tests/golden/invocations.txt";
/// The fewest lines that the table has.
const FEWEST: usize = 220;
/// The longest first line.
const LONGEST: usize = 400;
/// The longest line of a command that finds no cluster.
const LONGEST_WITHOUT_CLUSTER: usize = 200;
/// Words of Rust and of libraries, which mean nothing to people.
const FOREIGN: [&str; 10] = [
    "os error",
    "invalid digit",
    "float literal",
    "..=",
    "panicked",
    "RUST_BACKTRACE",
    "serde",
    "Err(",
    "Some(",
    "called `",
];

#[test]
fn each_ends_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE);
    let table = std::fs::read_to_string(&path).unwrap();
    let installed = Installed::under("tholepin");
    let mut found = String::new();
    for line in table.lines() {
        let words = line.split('|').nth(2).unwrap().trim();
        let (code, stdout, stderr) = run_in(&installed.program, words, &[("HOME", "/nowhere")]);
        let (output, text) = if stderr.is_empty() { ('O', stdout) } else { ('E', stderr) };
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim_end();
        let foreign = FOREIGN.iter().find(|foreign| text.contains(**foreign) && output == 'E');
        assert_eq!(foreign, None, "{words}: {text}");
        let longest = if first.contains("no cluster") { LONGEST_WITHOUT_CLUSTER } else { LONGEST };
        let is_list = first.contains("; known are ");
        assert!(first.chars().count() <= longest || is_list, "{words}: {first}");
        let shown: String = first.chars().take(LONGEST).collect();
        writeln!(found, "{code} | {output} | {words} | {shown}").unwrap();
    }
    assert!(table.lines().count() >= FEWEST);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    for (is, wanted) in found.lines().zip(table.lines()) {
        assert_eq!(is, wanted);
    }
}
