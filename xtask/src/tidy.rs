//! `cargo xtask tidy`: rules of CONTRIBUTING.md that a program can check.
//!
//! In: the files of this repository, and its history where there is one. Out: every violation, with file and line.
//! Never: an opinion on style that rustfmt or clippy have already, and a change of a file.

mod links;
mod width;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::tree::root;
use crate::{bundle, chart, codegen, manifests};

/// Columns of a line of Rust, texts in literals not counted.
const WIDTH: usize = 120;

/// Lines of a file of Rust.
const LENGTH: usize = 650;

/// Columns of the first line of a commit message.
const SUBJECT: usize = 72;

/// The last commit before subjects were held to a length.
const SUBJECTS_SINCE: &str = "c645143e3843949857483bd116cb8b6b4c82e6f1";

/// Words that comments do without: each has a noun that says more.
const UNWANTED: [&str; 3] = ["somebody", "nobody", "whoever"];

/// Fails with all violations, generated files that are stale among them.
pub(crate) fn run() -> anyhow::Result<()> {
    let found = violations(&root())?;
    for violation in &found {
        println!("{violation}");
    }
    codegen::run(true)?;
    manifests::check()?;
    bundle::check()?;
    chart::check()?;
    if !found.is_empty() {
        bail!("{} violations of CONTRIBUTING.md", found.len());
    }
    Ok(())
}

/// All violations below `root`, in the order of paths.
fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let files = files(root)?;
    let mut found = Vec::new();
    for (path, text) in &files {
        if path.ends_with(".rs") {
            rust(path, text, &mut found);
        }
    }
    links::check(root, &files, &mut found);
    equal(&files, &mut found);
    subjects(root, &mut found)?;
    Ok(found)
}

/// Width, length and words of a file of Rust.
fn rust(path: &str, text: &str, found: &mut Vec<String>) {
    let wide = width::columns(text).into_iter().enumerate().filter(|(_, columns)| *columns > WIDTH);
    found.extend(wide.map(|(line, columns)| format!("{path}:{}: {columns} columns", line + 1)));
    let lines = text.lines().count();
    if lines > LENGTH {
        found.push(format!("{path}: {lines} lines, more than {LENGTH}"));
    }
    for (line, text) in text.lines().enumerate() {
        if is_shipped(path) && text.contains("eprint") {
            found.push(format!("{path}:{}: runtime::stderr bounds messages and never panics", line + 1));
        }
        let Some((_, comment)) = text.split_once("//") else { continue };
        let comment = comment.to_lowercase();
        let mut words = comment.split(|c: char| !c.is_alphanumeric());
        if let Some(word) = words.find(|word| UNWANTED.contains(word)) {
            found.push(format!("{path}:{}: \"{word}\" in a comment; name who it is", line + 1));
        }
    }
}

/// Whether a file is part of the program.
fn is_shipped(path: &str) -> bool {
    let developers = ["crates/testkit/", "crates/fakes/"].iter().any(|crate_| path.starts_with(crate_));
    path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests") && !developers
}

/// Files of `deploy` and `bundle` with the same content: one of them is a copy that can go stale.
fn equal(files: &BTreeMap<String, String>, found: &mut Vec<String>) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, text) in files {
        if !["deploy/", "bundle/"].iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        if let Some(other) = first.insert(text, path) {
            found.push(format!("{path}: has the bytes of {other}"));
        }
    }
}

/// First lines of commit messages. Nothing to say where there is no history.
fn subjects(root: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    let range = format!("{SUBJECTS_SINCE}..HEAD");
    let mut git = Command::new("git");
    git.args(["log", "--no-merges", "--format=%h %s", &range, "--"]).current_dir(root);
    let Ok(output) = git.output() else { return Ok(()) };
    if !output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8(output.stdout).context("git log printed something that is not UTF-8")?;
    for line in text.lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        let columns = subject.chars().count();
        if columns > SUBJECT {
            found.push(format!("commit {commit}: a subject of {columns} columns, more than {SUBJECT}"));
        }
    }
    Ok(())
}

/// Texts of all files that are written by hand or committed, by path with `/`. Not those that code generators write in
/// Rust.
fn files(root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "gen"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if ["rs", "md", "yaml", "Dockerfile"].iter().any(|end| name.ends_with(end)) {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                files.insert(below, text);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let found = violations(&root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let check = |path: &str, text: &str, wanted: &[&str]| {
            let mut found = Vec::new();
            rust(path, text, &mut found);
            assert_eq!(found, wanted);
        };
        let wide = format!("// {}", "x".repeat(WIDTH));
        check("a.rs", &wide, &["a.rs:1: 123 columns"]);
        check("a.rs", &"\n".repeat(LENGTH + 1), &["a.rs: 651 lines, more than 650"]);
        let [word, ..] = UNWANTED;
        let wanted = format!("a.rs:2: \"{word}\" in a comment; name who it is");
        check("a.rs", &format!("let x = 1;\n/// Read by {word}."), &[&wanted]);
        check("a.rs", &format!("let {word} = 1; // fine"), &[]);
        let shipped = "crates/sim/src/cli.rs";
        let wanted = format!("{shipped}:1: runtime::stderr bounds messages and never panics");
        check(shipped, "eprintln!();", &[&wanted]);
        check("crates/sim/tests/it.rs", "eprintln!();", &[]);
        let file = |path: &str| (path.to_owned(), "same".to_owned());
        let mut found = Vec::new();
        equal(&["deploy/a", "deploy/b", "docs/c"].map(file).into(), &mut found);
        assert_eq!(found, ["deploy/b: has the bytes of deploy/a"]);
    }
}
