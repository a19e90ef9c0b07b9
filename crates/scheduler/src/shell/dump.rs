//! What is believed of nodes' pods, written down for people who ask why scheduler and exporter do not agree.
//!
//! In: the core, once a second. Out: for each node that has a report a file with its last ten statuses, as the exporters write theirs
//! and the peers' `pfpsyncchk` reads them. Never: a wait, nor a look at the pods of a node of which nothing has changed; a node more
//! often than every ten seconds; a status that says what the last one said; memory for what the files hold.

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

/// A look is at one in so many nodes, so that each has its turn every ten seconds and none of them takes long.
const TURNS: usize = 10;
/// Most nodes that are written about; the peers' number.
const MOST: usize = 5_000;
/// Looks that may wait for a slow disk.
const WAITING: usize = 4;
/// What the files are about.
const PODS: &str = "the pods behind the fingerprints";

/// What one look has found.
#[derive(Debug)]
pub(super) struct Found {
    at: Timestamp,
    news: Vec<Status>,
    gone: Vec<Arc<str>>,
}

/// Looks for what is new.
#[derive(Debug)]
pub(super) struct Dumper {
    found: mpsc::Sender<Found>,
    /// The ledger's revision at the last look at each node.
    seen: BTreeMap<Arc<str>, u64>,
    turn: usize,
}

/// Writes what was found into a directory.
#[derive(Debug)]
pub(super) struct Writer {
    dir: PathBuf,
    found: mpsc::Receiver<Found>,
}

/// Both, if there is a directory to write into.
pub(super) fn pair(dir: Option<&Path>) -> Option<(Dumper, Writer)> {
    let dir = dir.filter(|dir| !dir.as_os_str().is_empty())?;
    if !dir.is_dir() {
        tracing::warn!(path = %dir.display(), "no status dumps: not a directory");
        return None;
    }
    tracing::info!(path = %dir.display(), "writing down {PODS}");
    let (sender, receiver) = mpsc::channel(WAITING);
    let dumper = Dumper { found: sender, seen: BTreeMap::new(), turn: 0 };
    Some((dumper, Writer { dir: dir.to_owned(), found: receiver }))
}

impl Dumper {
    /// Looks at the nodes whose turn it is.
    pub(super) fn look(&mut self, core: &Core, at: Timestamp) {
        // Without room for what is found the next look finds it.
        let Ok(place) = self.found.try_reserve() else { return };
        self.turn = (self.turn + 1) % TURNS;
        let mut news = Vec::new();
        for node in core.nodes().filter(|node| turn(&node.name) == self.turn) {
            let revision = node.ledger.revision();
            let before = self.seen.get(&node.name);
            if before == Some(&revision) || (before.is_none() && self.seen.len() >= MOST) {
                continue;
            }
            if let Some(status) = core.status(node) {
                self.seen.insert(Arc::clone(&node.name), revision);
                news.push(status);
            }
        }
        let gone = if self.turn == 0 { forget(&mut self.seen, core) } else { Vec::new() };
        if !(news.is_empty() && gone.is_empty()) {
            place.send(Found { at, news, gone });
        }
    }
}

/// When it is a node's turn; the same for its whole life.
fn turn(node: &str) -> usize {
    node.bytes().map(usize::from).sum::<usize>() % TURNS
}

/// Takes out nodes that do not exist any more.
fn forget(seen: &mut BTreeMap<Arc<str>, u64>, core: &Core) -> Vec<Arc<str>> {
    let there: BTreeSet<&str> = core.nodes().map(|node| node.name.as_ref()).collect();
    let gone: Vec<Arc<str>> = seen.keys().filter(|name| !there.contains(name.as_ref())).cloned().collect();
    for name in &gone {
        seen.remove(name);
    }
    gone
}

impl Writer {
    /// Writes until nothing more can come, on threads of their own: a disk that hangs stops this task and nothing else.
    pub(super) async fn run(mut self) -> Result<(), Infallible> {
        let mut trouble = FailureLog::new(PODS);
        while let Some(found) = self.found.recv().await {
            let dir = self.dir.clone();
            let work = tokio::task::spawn_blocking(move || {
                write(&dir, &found, &mut trouble);
                trouble
            });
            // It can only fail by a panic or at the runtime's end.
            let Ok(back) = work.await else { return Ok(()) };
            trouble = back;
        }
        Ok(())
    }
}

/// Adds to the files, of which those of nodes that are gone go.
fn write(dir: &Path, found: &Found, trouble: &mut FailureLog) {
    for node in &found.gone {
        let _ = fs::remove_file(dir.join(file_name(node)));
    }
    for status in &found.news {
        let Some(target) = AtomicFile::new(&dir.join(file_name(status.node()))) else { continue };
        let text = fs::read_to_string(target.path());
        let mut ring = text.map_or_else(|_| RingLog::default(), |text| RingLog::parse(&text));
        let json = status.to_json();
        if ring.ends_with(&json) {
            continue;
        }
        ring.push(&json, found.at);
        if !target.replace(&ring.to_json(), trouble) {
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
    fn files_have_the_last_ten_and_none_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut trouble = FailureLog::new(PODS);
        let mut put = |pods: &[&str], second: i64| {
            let at = Timestamp::from_second(second).unwrap();
            write(dir.path(), &Found { at, news: vec![status("a.b", pods)], gone: Vec::new() }, &mut trouble);
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
        let gone = Found { at: Timestamp::UNIX_EPOCH, news: Vec::new(), gone: vec!["a.b".into()] };
        write(dir.path(), &gone, &mut trouble);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_directory_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(pair(Some(dir.path())).is_some());
        for none in [None, Some(Path::new("")), Some(dir.path().join("missing").as_path())] {
            assert!(pair(none).is_none(), "{none:?}");
        }
    }
}
