//! The program with all defects, each behind a switch.
//!
//! In: the sources of the repository, the defects. Out: a program, built in the user's cache; a source that did not
//! change is not written, so that cargo builds what did. Never: a change of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::page::root;
use super::table::{DEFECTS, Defect, IS_ON, LAGGING};

/// The file in a container that names the defect that is on.
pub(super) const SWITCH: &str = "/etc/tholepin-defect";

/// The place of a defect in the text of its file. Panics unless there is exactly one.
pub(super) fn place(defect: &Defect, text: &str) -> Range<usize> {
    let Defect { name, file, find, .. } = defect;
    let mut places = text.match_indices(find).map(|(at, found)| at..at + found.len());
    let place = places.next();
    assert!(place.is_some(), "{name}: {file} has no {find:?}");
    assert_eq!(places.next(), None, "{name}: {file} has {find:?} twice");
    place.unwrap()
}

/// The defects by file.
pub(super) fn by_file() -> BTreeMap<&'static str, Vec<&'static Defect>> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for defect in DEFECTS.iter().chain([&LAGGING]) {
        files.entry(defect.file).or_default().push(defect);
    }
    files
}

/// A file with its defects. The last place comes first, so that the others stay where they are.
pub(super) fn with_defects(text: &str, defects: &[&Defect]) -> String {
    let mut places: Vec<_> = defects.iter().map(|defect| (place(defect, text), defect)).collect();
    places.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let overlap = places.windows(2).find(|pair| pair[1].0.end > pair[0].0.start);
    assert!(overlap.is_none(), "two defects have one place: {overlap:?}");
    let mut text = text.to_owned();
    for (place, defect) in places {
        let is_on = format!("crate::defect({:?})", defect.name);
        text.replace_range(place, &defect.replace.replace(IS_ON, &is_on));
    }
    text
}

/// The end of a crate's root. A program reads the switch once.
fn switch() -> String {
    format!(
        "\npub(crate) fn defect(name: &str) -> bool {{\n    \
         static ON: std::sync::OnceLock<String> = std::sync::OnceLock::new();\n    \
         let read = || std::fs::read_to_string({SWITCH:?}).unwrap_or_default();\n    \
         ON.get_or_init(read).trim() == name\n}}\n"
    )
}

/// The crate of a file, as `crates/exporter`.
fn crate_of(file: &str) -> &str {
    file.split_once("/src/").unwrap().0
}

/// Builds the program, if its sources have changed, and returns its path.
pub(super) fn build() -> PathBuf {
    let home = testkit::env::cache_root().unwrap().join("defects");
    let sources = home.join("sources");
    copy(&sources);
    let target = home.join("target");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--package", "tholepin"]).current_dir(&sources);
    let status = cargo.env("CARGO_TARGET_DIR", &target).status().unwrap();
    assert!(status.success(), "the program with the defects: {status}");
    target.join("debug/tholepin")
}

/// Copies the sources, with the defects.
fn copy(to: &Path) {
    let root = root();
    let files = by_file();
    let crates: BTreeSet<String> =
        files.keys().map(|file| format!("{}/src/lib.rs", crate_of(file))).collect();
    let mut kept = BTreeSet::new();
    for name in tracked(&root) {
        let Ok(mut bytes) = fs::read(root.join(&name)) else { continue };
        if let Some(defects) = files.get(&*name) {
            bytes = with_defects(&String::from_utf8(bytes).unwrap(), defects).into_bytes();
        }
        if crates.contains(&name) {
            bytes.extend(switch().into_bytes());
        }
        let path = to.join(&name);
        if fs::read(&path).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
        }
        kept.insert(path);
    }
    remove_others(to, &kept);
}

/// The files that git knows, as they are now.
fn tracked(root: &Path) -> Vec<String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "git ls-files: {}", output.status);
    let names = String::from_utf8(output.stdout).unwrap();
    names.split_terminator('\0').map(str::to_owned).collect()
}

/// Removes files of earlier sources: an old module or test would be built too.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            remove_others(&path, kept);
        } else if !kept.contains(&path) {
            fs::remove_file(path).unwrap();
        }
    }
}
