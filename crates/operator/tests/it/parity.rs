//! docs/parity-operator.md against the tests: each line is held by one that bears its number, or says why there is
//! none.
//!
//! A number counts where it stands in a test: `N044` as the name of a row of a table, `n044` in the name of a function.
//! A comment belongs to the function or constant that follows. A helper belongs to the tests of its file that use it.

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

/// A number belongs to what follows it, and counts only by a test.
#[test]
fn numbers_belong_to_tests() {
    let text = "\
/// N001
#[test]
fn first() {
    // N002
    helper();
}

/// N003
fn helper() {}

/// N004
const ROWS: [&str; 1] = [\"N005\"];

/// N006
#[tokio::test]
async fn second() {
    let _ = ROWS;
}

/// N007
fn nobody() {}
";
    let items = Item::all(text, 0);
    for (id, wanted) in [
        ("N001", &["first"][..]),
        ("N002", &["first"]),
        ("N003", &["first"]),
        ("N004", &["second"]),
        ("N005", &["second"]),
        ("N006", &["second"]),
        ("N007", &[]),
    ] {
        let bearers = items.iter().filter(|item| item.lines.iter().any(|line| bears(line, id)));
        let tests: Vec<&str> = bearers.flat_map(|item| tests_with(item.name, &items)).collect();
        assert_eq!(tests, wanted, "{id}");
    }
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
        let inline = || text.find("#[cfg(test)]\nmod tests {").map(|from| (from, 4));
        let from = if place.contains("tests") { Some((0, 0)) } else { inline() };
        let Some((from, indent)) = from.filter(|_| !place.ends_with("it/parity.rs")) else { continue };
        let items = Item::all(&text[from..], indent);
        for item in &items {
            for id in wanted.iter().filter(|id| item.lines.iter().any(|line| bears(line, id))) {
                let tests = tests_with(item.name, &items).into_iter().map(|test| format!("`{place}` {test}"));
                held.entry(id.clone()).or_default().extend(tests);
            }
        }
    }
    held.into_iter().map(|(id, tests)| (id, tests.into_iter().take(2).collect())).collect()
}

/// A function, constant or static of a file, with the comments and attributes before it.
struct Item<'t> {
    name: &'t str,
    lines: Vec<&'t str>,
    is_test: bool,
}

impl<'t> Item<'t> {
    /// The items of a module that is indented by so many columns; the functions of its `impl` blocks are items too.
    fn all(text: &'t str, indent: usize) -> Vec<Self> {
        let mut items: Vec<Self> = Vec::new();
        let mut before = Vec::new();
        for line in text.lines() {
            let column = line.len() - line.trim_start().len();
            let outer = column <= indent + 4;
            if let Some(name) = name(line.trim_start(), column == indent).filter(|_| outer) {
                let is_test = before.iter().any(|line: &&str| {
                    ["#[test]", "#[tokio::test"].iter().any(|mark| line.trim_start().starts_with(mark))
                });
                let lines = std::mem::take(&mut before).into_iter().chain([line]).collect();
                items.push(Self { name, lines, is_test });
            } else if outer && ["///", "#["].iter().any(|mark| line.trim_start().starts_with(mark)) {
                before.push(line);
            } else if let Some(item) = items.last_mut() {
                item.lines.append(&mut before);
                item.lines.push(line);
            } else {
                before.clear();
            }
        }
        items
    }

    fn mentions(&self, name: &str) -> bool {
        self.lines.iter().any(|line| stands(line, name))
    }
}

/// The name of the item that a line begins; constants begin at the module's own column only.
fn name(line: &str, outermost: bool) -> Option<&str> {
    if !line.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let mut kind = words.next()?;
    while ["pub", "crate", "super", "async"].contains(&kind) {
        kind = words.next()?;
    }
    let name = words.next()?;
    match (kind, name) {
        ("const", "fn") => words.next(),
        ("fn", _) => Some(name),
        ("const" | "static", _) => outermost.then_some(name),
        _ => None,
    }
}

/// The tests that use an item, by themselves or by others of the file; a test uses itself.
fn tests_with<'t>(name: &'t str, items: &[Item<'t>]) -> BTreeSet<&'t str> {
    let mut used = BTreeSet::from([name]);
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        for item in items.iter().filter(|item| item.mentions(name)) {
            if used.insert(item.name) {
                open.push(item.name);
            }
        }
    }
    items.iter().filter(|item| item.is_test && used.contains(item.name)).map(|item| item.name).collect()
}

/// Whether a line of code bears a number: as it is, or in lower case without its dash in the name of a function.
fn bears(line: &str, id: &str) -> bool {
    let lower = id.to_lowercase().replace('-', "");
    let part = |c: char| c.is_ascii_alphanumeric();
    stands_apart(line, id, part) || (line.contains("fn ") && stands_apart(line, &lower, part))
}

/// Whether a line has a word.
fn stands(line: &str, word: &str) -> bool {
    stands_apart(line, word, |c| c.is_ascii_alphanumeric() || c == '_')
}

fn stands_apart(line: &str, word: &str, part: impl Fn(char) -> bool) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(&part) && !after.is_some_and(&part)
    })
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
