//! docs/hardware-requirements.md against the tree: what it names is there, and no requirement is left out.
//!
//! In: the page. Out: nothing. Never: a look at what the files say.

use std::collections::BTreeSet;
use std::process::Command;

use crate::tree::root;

/// The page.
const PAGE: &str = "docs/hardware-requirements.md";
/// How many requirements the guide has.
const REQUIREMENTS: usize = 32;

/// What is between backquotes and looks like a path of the tree: its first part is a folder or file of the root.
fn paths(text: &str) -> BTreeSet<&str> {
    let tops: Vec<String> = std::fs::read_dir(root())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .collect();
    let quoted = text.split('`').skip(1).step_by(2);
    let known = |word: &&str| tops.iter().any(|top| word.split('/').next() == Some(top));
    quoted.filter(|word| !word.contains(' ')).filter(known).collect()
}

#[test]
fn what_the_register_names_is_there() {
    let text = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let paths = paths(&text);
    assert!(paths.len() > REQUIREMENTS, "{paths:?}");
    let absent: Vec<_> = paths.into_iter().filter(|path| !root().join(path).exists()).collect();
    assert_eq!(absent, Vec::<&str>::new(), "{PAGE} names what is not there");
}

/// A row for each, with the file that meets it and what holds it.
#[test]
fn each_requirement_has_a_row() {
    let text = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| G"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let numbers: Vec<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    let wanted: Vec<String> = (1..=REQUIREMENTS).map(|number| format!("G{number}")).collect();
    assert_eq!(numbers, wanted);
    for row in rows {
        assert_eq!(row.len(), 5, "{row:?}");
        assert!(row[3..].iter().all(|cell| cell.starts_with('`') || cell.starts_with('*')), "{row:?}");
        assert!(!paths(row[3]).is_empty(), "{row:?}");
    }
}

/// The page of weaknesses names tests that are there: what is between backquotes in the second column.
#[test]
fn what_holds_a_finding_is_there() {
    const FINDINGS: &str = "docs/findings.md";
    let text = std::fs::read_to_string(root().join(FINDINGS)).unwrap();
    let mended = text.split("## Left").next().unwrap();
    let rows = mended.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| weakness"));
    let cells = rows.map(|line| line.split(" | ").nth(1).unwrap_or_default());
    let named: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 60, "{named:?}");
    let sources = Command::new("git").args(["grep", "-h", "fn ", "--", "*.rs"]).current_dir(root()).output();
    let sources = String::from_utf8(sources.unwrap().stdout).unwrap();
    let absent: Vec<_> = named.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert_eq!(absent, [""; 0], "{FINDINGS} names tests that are not there");
}
