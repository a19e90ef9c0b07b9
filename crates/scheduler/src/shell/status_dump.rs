//! Status files: the pods taken to be behind each node's fingerprint, for comparison with the exporter's.
//!
//! In: the core, once a second. Out: for each node with a report, a file with its last ten statuses, in the format of
//! the exporters, which `pfpsyncchk` reads. Never: a wait; a look at an unchanged node, or at a node more often than
//! every ten seconds; two equal statuses in a row; the content of files in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use runtime::atomic_file::{AtomicFile, FailureLog};
use runtime::ring_log::RingLog;
use tokio::sync::mpsc;
use topology::fingerprint::status::{Status, file_name};

use crate::core::Core;

/// Groups of nodes that are collected in turn, one group a second, so that no collection takes long.
const SHARDS: usize = 10;
/// Most nodes with a file, as in the peers.
const MAX_NODES: usize = 5_000;
/// Most batches that wait for a slow disk.
const MAX_QUEUED_BATCHES: usize = 4;
/// The content of the files, in log messages.
const PODS: &str = "the pods behind the fingerprints";

/// The result of one collection.
#[derive(Debug)]
pub(super) struct Batch {
    at: Timestamp,
    changed: Vec<Status>,
    gone: Vec<Arc<str>>,
}

/// Collects changed statuses from the core.
#[derive(Debug)]
pub(super) struct Dumper {
    batches: mpsc::Sender<Batch>,
    /// Revision of each node's ledger at its last collection.
    seen: BTreeMap<Arc<str>, u64>,
    shard: usize,
}

/// Writes collected statuses into a directory.
#[derive(Debug)]
pub(super) struct Writer {
    dir: PathBuf,
    batches: mpsc::Receiver<Batch>,
}

/// A dumper and a writer connected to it; `None` without a directory.
pub(super) fn channel(dir: Option<&Path>) -> Option<(Dumper, Writer)> {
    let dir = dir.filter(|dir| !dir.as_os_str().is_empty())?;
    if !dir.is_dir() {
        tracing::warn!(path = %dir.display(), "no status dumps: not a directory");
        return None;
    }
    tracing::info!(path = %dir.display(), "writing {PODS}");
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_BATCHES);
    let dumper = Dumper { batches: sender, seen: BTreeMap::new(), shard: 0 };
    Some((dumper, Writer { dir: dir.to_owned(), batches: receiver }))
}

impl Dumper {
    /// Collects the changed statuses of the next group of nodes.
    pub(super) fn collect(&mut self, core: &Core, at: Timestamp) {
        // A full queue drops nothing: the changes are still there at the next collection.
        let Ok(place) = self.batches.try_reserve() else { return };
        self.shard = (self.shard + 1) % SHARDS;
        let mut changed = Vec::new();
        for node in core.nodes().filter(|node| shard(&node.name) == self.shard) {
            let revision = node.ledger.revision();
            let before = self.seen.get(&node.name);
            if before == Some(&revision) || (before.is_none() && self.seen.len() >= MAX_NODES) {
                continue;
            }
            if let Some(status) = core.status(node) {
                self.seen.insert(Arc::clone(&node.name), revision);
                changed.push(status);
            }
        }
        let gone = if self.shard == 0 { forget(&mut self.seen, core) } else { Vec::new() };
        if !(changed.is_empty() && gone.is_empty()) {
            place.send(Batch { at, changed, gone });
        }
    }
}

/// The group of a node; the same for its whole life.
fn shard(node: &str) -> usize {
    node.bytes().map(usize::from).sum::<usize>() % SHARDS
}

/// Removes and returns nodes that no longer exist.
fn forget(seen: &mut BTreeMap<Arc<str>, u64>, core: &Core) -> Vec<Arc<str>> {
    let there: BTreeSet<&str> = core.nodes().map(|node| node.name.as_ref()).collect();
    let gone: Vec<Arc<str>> = seen.keys().filter(|name| !there.contains(name.as_ref())).cloned().collect();
    for name in &gone {
        seen.remove(name);
    }
    gone
}

impl Writer {
    /// Writes batches until the dumper is gone, on blocking threads: a disk that hangs stops this task and nothing
    /// else.
    pub(super) async fn run(mut self) -> Result<(), Infallible> {
        let mut failures = FailureLog::new(PODS);
        while let Some(batches) = self.batches.recv().await {
            let dir = self.dir.clone();
            let work = tokio::task::spawn_blocking(move || {
                write(&dir, &batches, &mut failures);
                failures
            });
            // Joining fails only after a panic or at the end of the runtime.
            let Ok(back) = work.await else { return Ok(()) };
            failures = back;
        }
        Ok(())
    }
}

/// Appends statuses to the files, and deletes the files of nodes that are gone.
fn write(dir: &Path, batches: &Batch, failures: &mut FailureLog) {
    for node in &batches.gone {
        let _ = fs::remove_file(dir.join(file_name(node)));
    }
    for status in &batches.changed {
        let Some(target) = AtomicFile::new(&dir.join(file_name(status.node()))) else { continue };
        let text = fs::read_to_string(target.path());
        let mut ring = text.map_or_else(|_| RingLog::default(), |text| RingLog::parse(&text));
        let json = status.to_json();
        if ring.ends_with(&json) {
            continue;
        }
        ring.push(&json, batches.at);
        if !target.replace(&ring.to_json(), failures) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(node: &str, pods: &[&str]) -> Status {
        let mut status = Status::new(node);
        pods.iter().for_each(|pod| status.add("default", pod));
        status.sign();
        status
    }

    #[test]
    fn files_hold_the_last_ten_statuses_without_repetition() {
        let dir = tempfile::tempdir().unwrap();
        let mut failures = FailureLog::new(PODS);
        let mut put = |pods: &[&str], second: i64| {
            let at = Timestamp::from_second(second).unwrap();
            write(
                dir.path(),
                &Batch { at, changed: vec![status("a.b", pods)], gone: Vec::new() },
                &mut failures,
            );
            let text = fs::read_to_string(dir.path().join("a_b")).unwrap();
            serde_json::from_str::<Vec<serde_json::Value>>(&text).unwrap()
        };
        assert_eq!(put(&["x"], 1).len(), 1);
        let two = put(&["x", "y"], 2);
        assert_eq!(put(&["x", "y"], 3), two, "nothing new");
        assert_eq!(
            (&two[0]["pods"][0]["Name"], &two[1]["recordTime"]),
            (&"x".into(), &"1970-01-01T00:00:02Z".into())
        );
        for second in 4..20 {
            put(if second % 2 == 0 { &["x"] } else { &["y"] }, second);
        }
        assert_eq!(put(&["z"], 20).len(), 10);
        fs::write(dir.path().join("a_b"), "half of").unwrap();
        assert_eq!(put(&["z"], 21).len(), 1);
        let gone = Batch { at: Timestamp::UNIX_EPOCH, changed: Vec::new(), gone: vec!["a.b".into()] };
        write(dir.path(), &gone, &mut failures);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_directory_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(channel(Some(dir.path())).is_some());
        for none in [None, Some(Path::new("")), Some(dir.path().join("missing").as_path())] {
            assert!(channel(none).is_none(), "{none:?}");
        }
    }
}
