//! Relative links of Markdown.
//!
//! In: texts by path. Out: links whose file, or whose heading in a Markdown file, is not there. Never: a request to
//! another machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Adds the dead links of all Markdown files.
pub(super) fn check(root: &Path, files: &BTreeMap<String, String>, found: &mut Vec<String>) {
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in links(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { resolved(path, file) };
            let is_there = files.contains_key(&file) || root.join(&file).exists();
            let has_heading = || files.get(&file).is_none_or(|text| headings(text).contains(heading));
            if !is_there {
                found.push(format!("{path}:{line}: no {file}"));
            } else if !heading.is_empty() && !has_heading() {
                found.push(format!("{path}:{line}: {file} has no heading #{heading}"));
            }
        }
    }
}

/// Targets of links to files, with their lines. Code is left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        for (index, part) in line.split('`').enumerate() {
            if index % 2 == 1 {
                continue;
            }
            // A label may have code in it, so only its end is looked for.
            for (at, _) in part.match_indices("](") {
                let target = part[at + 2..].split([')', ' ']).next().unwrap_or_default();
                if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                    links.push((number, target));
                }
            }
        }
    }
    links
}

/// Lines outside of blocks of code, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// Names of headings as web views of repositories make them: lower case, spaces as dashes, punctuation left out.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let name = |title: &str| -> String {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(name).collect()
}

/// The path of `target` seen from the file `from`.
fn resolved(from: &str, target: &str) -> String {
    let mut path = Path::new(from).parent().map(PathBuf::from).unwrap_or_default();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = BTreeMap::from([
            file(
                "a.md",
                "# One `two`, three\n[x](docs/b.md) [`y`](docs/none.md)\n[z](#one-two-three) [z](#two)",
            ),
            file(
                "docs/b.md",
                "[x](../a.md#one-two-three)\n```\n[x](gone)\n```\n`[x](gone)` [w](https://h/x)",
            ),
        ]);
        let mut found = Vec::new();
        check(Path::new("/no/such/folder"), &files, &mut found);
        assert_eq!(found, ["a.md:2: no docs/none.md", "a.md:3: a.md has no heading #two"]);
    }
}
