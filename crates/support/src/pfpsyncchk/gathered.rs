//! The status files in a must-gather.
//!
//! In: a folder. Out: for each node with both files, the exporter's and the scheduler's. Never: a followed link, or a
//! choice among several folders of one kind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of the scheduler's files, in the folder of any namespace.
const SCHEDULER: &str = "pfpstatus/scheduler";
/// Folder of the exporters' files.
const EXPORTERS: &str = "pfpstatus/resource-topology-exporters";

/// Most folders and files in a must-gather.
const MAX_ENTRIES: usize = 1_000_000;
/// Most levels of folders.
const MAX_DEPTH: usize = 32;

/// The files about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Name of the files: the node's, with `_` for each dot.
    pub node: String,
    /// The exporter's file.
    pub exporter: PathBuf,
    /// The scheduler's file.
    pub scheduler: PathBuf,
}

/// The reason why no files were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is nothing to check.
    Nothing(String),
    /// The folder cannot be read.
    Unreadable(String),
}

/// Finds the files. The second value has a note for each node that is left out.
///
/// # Errors
/// When there are no files or several folders of them, or the folder cannot be read.
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
            None => notes.push(format!("node {node}: not checked, no file of its exporter")),
        }
    }
    let more = exporters.keys().map(|node| format!("node {node}: not checked, no file of the scheduler"));
    notes.extend(more);
    Ok((pairs, notes))
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
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
        .map_err(failed(folder))?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for path in entries {
        *left = left.checked_sub(1).ok_or_else(|| format!("more than {MAX_ENTRIES} files"))?;
        // Does not follow links.
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

/// The files of a folder by name, without incomplete ones that a writer has left behind.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
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
