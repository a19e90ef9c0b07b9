//! What long runs write into the documentation.
//!
//! In: a page, text. Out: the page with the text, with commit and date. Never: a change outside of the marks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The end of what a run writes.
const END: &str = "<!-- end -->";
/// Columns of a line.
const WIDTH: usize = 118;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Commit and date.
pub(crate) fn when() -> String {
    let git =
        Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root()).output().unwrap();
    assert!(git.status.success(), "git rev-parse: {}", git.status);
    let commit = String::from_utf8(git.stdout).unwrap();
    format!("{}, {}", commit.trim(), jiff::Zoned::now().date())
}

/// Writes a page anew.
pub(crate) fn write(page: &str, text: &str) {
    fs::write(root().join(page), text).unwrap();
}

/// Writes text between the marks of a long version in a page.
pub(crate) fn write_between(page: &str, name: &str, text: &str) {
    let whole = fs::read_to_string(root().join(page)).unwrap();
    write(page, &with(&whole, name, text));
}

fn with(page: &str, name: &str, text: &str) -> String {
    let begin = format!("<!-- written by `cargo xtask nightly {name}` -->\n");
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    format!("{before}{begin}\n{}\n\n{END}{after}", text.trim())
}

/// Breaks text into lines.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[test]
fn text_replaces_what_is_between_the_marks() {
    let page = "a\n<!-- written by `cargo xtask nightly x` -->\n\nold\n\n<!-- end -->\nb\n";
    assert_eq!(with(page, "x", "new\n"), page.replace("old", "new"));
    let text = wrapped(&"word ".repeat(60));
    assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() == 3, "{text}");
}
