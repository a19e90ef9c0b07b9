//! The files of a must-gather.
//!
//! In: a folder. Out: for each node of which there are both, the exporter's file and the scheduler's. Never: a link followed, or a choice between several
//! folders of one kind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the scheduler's files are, in any namespace's folder.
const SCHEDULER: &str = "pfpstatus/scheduler";
/// Where the exporters' are.
const EXPORTERS: &str = "pfpstatus/resource-topology-exporters";

/// Folders and files of a must-gather.
const MAX_ENTRIES: usize = 1_000_000;
/// Levels of folders.
const MAX_DEPTH: usize = 32;

/// Files about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The files' name, which is the node's with `_` for each dot.
    pub node: String,
    /// The exporter's.
    pub exporter: PathBuf,
    /// The scheduler's.
    pub scheduler: PathBuf,
}

/// Why there are no files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is nothing to check.
    Nothing(String),
    /// The folder cannot be read.
    Unreadable(String),
}

/// Finds them. The second value says which nodes are left out.
///
/// # Errors
/// When there are none, it is not clear which they are, or the folder cannot be read.
pub fn pairs(folder: &Path) -> Result<(Vec<Pair>, Vec<String>), Error> {
    let mut folders = BTreeMap::from([(SCHEDULER, Vec::new()), (EXPORTERS, Vec::new())]);
    let mut left = MAX_ENTRIES;
    walk(folder, MAX_DEPTH, &mut left, &mut folders).map_err(Error::Unreadable)?;
    let one = |kind: &str| match folders.get(kind).map_or(&[][..], Vec::as_slice) {
        [one] => files(one).map_err(Error::Unreadable),
        [] => Err(Error::Nothing(format!("no folder {kind} in {}", folder.display()))),
        _ => Err(Error::Nothing(format!("several folders {kind} in {}", folder.display()))),
    };
    let (schedulers, mut exporters) = (one(SCHEDULER)?, one(EXPORTERS)?);
    let (mut pairs, mut notes) = (Vec::new(), Vec::new());
    for (node, scheduler) in schedulers {
        match exporters.remove(&node) {
            Some(exporter) => pairs.push(Pair { node, exporter, scheduler }),
            None => notes.push(format!("node {node}: no file of its exporter, it is not checked")),
        }
    }
    let more =
        exporters.keys().map(|node| format!("node {node}: no file of the scheduler, it is not checked"));
    notes.extend(more);
    Ok((pairs, notes))
}

fn told(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

fn walk(
    folder: &Path,
    depth: usize,
    left: &mut usize,
    found: &mut BTreeMap<&'static str, Vec<PathBuf>>,
) -> Result<(), String> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .map_err(told(folder))?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        *left = left.checked_sub(1).ok_or_else(|| format!("more than {MAX_ENTRIES} files"))?;
        // Of a link this says that it is one.
        if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        for (kind, paths) in found.iter_mut() {
            if path.ends_with(kind) {
                paths.push(path.clone());
            }
        }
        if depth > 0 {
            walk(&path, depth - 1, left, found)?;
        }
    }
    Ok(())
}

/// Files by name. Those that a writer has left behind half written are none.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(told(folder))? {
        let entry = entry.map_err(told(folder))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        match entry.file_name().into_string() {
            Ok(name) if is_file && !name.starts_with("__") => {
                files.insert(name, entry.path());
            }
            _ => {}
        }
    }
    Ok(files)
}
