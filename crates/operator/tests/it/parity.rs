//! docs/parity-operator.md against the tests: each line is held by one that bears its number, or says why there is
//! none.
//!
//! A number counts where it stands in a test: `N044` as the name of a row of a table, `n044` in the name of a function.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What must have a line: letter, how many, digits.
const LINES: [(&str, u32, usize); 6] =
    [("N", 61, 3), ("K", 11, 3), ("S", 31, 3), ("A", 20, 3), ("U", 35, 3), ("B-", 36, 2)];
/// How a reason begins.
const REASON: &str = "none: ";

#[test]
fn each_line_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = root.join("docs/parity-operator.md");
    let text = fs::read_to_string(&page).unwrap();
    let held = held(&root.join("crates"));
    let told: String = text.lines().map(|line| told(line, &held) + "\n").collect();
    let update = std::env::var_os("UPDATE_DOCS").is_some();
    if update {
        fs::write(&page, &told).unwrap();
    }
    let ids: BTreeSet<&str> = told.lines().filter_map(id).collect();
    let missing: Vec<String> = wanted().into_iter().filter(|id| !ids.contains(id.as_str())).collect();
    assert_eq!(missing, [""; 0], "lines that the page lacks");
    let open: Vec<&str> = told.lines().filter(|line| id(line).is_some() && by(line).is_empty()).collect();
    assert_eq!(open, [""; 0], "no test bears the number, and no reason is given");
    assert!(update || text == told, "docs/parity-operator.md is stale: run with UPDATE_DOCS=1");
}

fn wanted() -> Vec<String> {
    let numbers = |(letter, count, digits): (&'static str, u32, usize)| {
        (1..=count).map(move |number| format!("{letter}{number:0digits$}"))
    };
    LINES.into_iter().flat_map(numbers).collect()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_start_matches('|').split('|').map(str::trim).collect()
}

/// The number of a line of the tables.
fn id(line: &str) -> Option<&str> {
    let cells = cells(line);
    let known = |id: &&str| wanted().iter().any(|wanted| wanted == id);
    (line.starts_with('|') && cells.len() >= 3).then(|| cells[0]).filter(known)
}

/// What it says it is held by.
fn by(line: &str) -> &str {
    cells(line)[2]
}

/// The line with the tests that hold it, or with the reason it gave.
fn told(line: &str, held: &BTreeMap<String, BTreeSet<String>>) -> String {
    let Some(id) = id(line) else { return line.to_owned() };
    let tests = held.get(id).map(|tests| tests.iter().cloned().collect::<Vec<_>>().join(", "));
    let reason = Some(by(line).to_owned()).filter(|by| by.starts_with(REASON));
    format!("| {id} | {} | {} |", cells(line)[1], tests.or(reason).unwrap_or_default())
}

/// Tests by the numbers they bear; of many the first two, which are enough to find one's way.
fn held(crates: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut held: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let wanted = wanted();
    for file in sources(crates) {
        let place = file.strip_prefix(crates).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let inline = || text.find("#[cfg(test)]\nmod tests {");
        let from = if place.contains("tests") { Some(0) } else { inline() };
        let Some(from) = from.filter(|_| !place.ends_with("it/parity.rs")) else { continue };
        let mut function = String::new();
        for line in text[from..].lines() {
            if let Some((_, name)) = line.split_once("fn ").filter(|(before, _)| before.trim().is_empty()) {
                function = name.split(['(', '<']).next().unwrap_or_default().to_owned();
            }
            for id in wanted.iter().filter(|id| bears(line, id)) {
                held.entry(id.clone()).or_default().insert(format!("`{place}` {function}").trim().to_owned());
            }
        }
    }
    held.into_iter().map(|(id, tests)| (id, tests.into_iter().take(2).collect())).collect()
}

/// Whether a line of code bears a number: as it is, or in lower case without its dash in the name of a function.
fn bears(line: &str, id: &str) -> bool {
    let lower = id.to_lowercase().replace('-', "");
    let stands = |needle: &str| {
        line.match_indices(needle).any(|(at, _)| {
            let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            !part(line[..at].chars().next_back()) && !part(line[at + needle.len()..].chars().next())
        })
    };
    stands(id) || (line.contains("fn ") && stands(&lower))
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}
