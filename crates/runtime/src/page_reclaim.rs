//! Gives back memory that start-up needed and nothing uses any more: pages of program code, and free heap.
//!
//! In: the mappings of the running process. Out: fewer resident pages. Never: I/O, or a page dropped whose content is
//! not also in its file.
//!
//! # Why
//! A process that watches one object uses little of its program. But parsing the command line, reading configuration
//! files, TLS and the first requests have run through most of the code. The kernel maps 16 pages for each one touched,
//! and all of them stay resident until the machine is short of memory: 8 MiB in the exporter, of which 0.3 MiB are
//! ever used again. Unmapping them brings the resident size down to the working set.
//!
//! # What this costs
//! The file's pages stay in the kernel's page cache, shared by all processes of this program. A page that is needed
//! again costs a minor fault. The peak (`VmHWM`) is not lowered.
//!
//! The heap belongs to the allocator. glibc keeps free memory between live values, for example after one list replaced
//! another; [`trim_heap`] asks it to give those pages back. Other allocators are left alone.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::{Advice, madvise};
use tokio::sync::Notify;

use crate::ready::Readiness;

/// Pause between readiness and the first round, so that the work right after start-up is included.
const SETTLE: Duration = Duration::from_secs(2);
/// Pause between rounds. Later work (a configuration read again, an error, a scrape) needs memory too. A round costs
/// about 0.3 ms of CPU time, faults for the pages still in use included.
const INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a [`ReclaimTrigger`], so that one round serves all the work done together.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The kernel's list of mappings with their resident sizes.
const SMAPS: &str = "/proc/self/smaps";

/// A part of the address space whose content is the same as in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    bytes: usize,
    resident_kib: u64,
}

/// Asks for a round of [`run`] soon, after rare work that ran through much of the program.
#[derive(Clone, Debug, Default)]
pub struct ReclaimTrigger(Arc<Notify>);

impl ReclaimTrigger {
    /// Signals that the rare work is over.
    pub fn notify(&self) {
        self.0.notify_one();
    }
}

/// Reclaims pages and heap from the moment the process is ready: every ten seconds, and shortly after `trigger` fires.
pub async fn run(readiness: Readiness, trigger: ReclaimTrigger) -> Infallible {
    readiness.opened().await;
    tokio::time::sleep(SETTLE).await;
    loop {
        if let Err(error) = discard_clean_pages() {
            tracing::debug!(%error, "clean pages of the program stay resident");
        }
        trim_heap();
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = trigger.0.notified() => tokio::time::sleep(DEBOUNCE).await,
        }
    }
}

/// Unmaps every resident page of the program and its libraries that equals its file. The next access maps a page again.
/// Returns how many KiB were resident.
///
/// # Errors
/// When `/proc/self/smaps` cannot be read.
pub fn discard_clean_pages() -> io::Result<u64> {
    let mut kib = 0;
    for mapping in clean_mappings(&fs::read_to_string(SMAPS)?) {
        if discard(mapping).is_ok() {
            kib += mapping.resident_kib;
        }
    }
    Ok(kib)
}

/// Asks glibc to give free pages of the heap back to the kernel. The cost grows with the number of free pieces.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a function of C; see below")]
pub fn trim_heap() {
    // SAFETY: takes a number, may be called at any time from any thread, and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// Does nothing: only glibc's allocator has such a function.
#[cfg(not(target_env = "gnu"))]
pub fn trim_heap() {}

#[expect(unsafe_code, reason = "madvise takes an address; see below")]
fn discard(mapping: Mapping) -> rustix::io::Result<()> {
    let start = std::ptr::without_provenance_mut(mapping.start);
    // SAFETY: the mapping is of a file, not writable, and no page of it is a private copy, in memory or swapped out. So
    // all its content is the file's, and reading it after this gives what reading it before would have given. Nothing
    // in this process makes such a mapping writable or removes it: libraries are not unloaded.
    unsafe { madvise(start, mapping.bytes, Advice::LinuxDontNeed) }
}

/// The read-only mappings of files of which no page was ever written.
fn clean_mappings(smaps: &str) -> Vec<Mapping> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(header) = Header::parse(line) {
            candidate = header.is_fixed_file().then_some(Mapping {
                start: header.start,
                bytes: header.bytes,
                resident_kib: 0,
            });
        } else if let (Some(mapping), Some(kib)) = (&mut candidate, kib_of(line, "Rss:")) {
            mapping.resident_kib = kib;
        } else if kib_of(line, "Anonymous:").is_some_and(|copied| copied > 0) {
            candidate = None;
        } else if let Some(swapped) = kib_of(line, "Swap:") {
            // The last of the fields that matter: `Anonymous` does not count a copied page that was swapped out.
            found.extend(candidate.take().filter(|mapping| swapped == 0 && mapping.resident_kib > 0));
        }
    }
    found
}

/// The first line about a mapping: `start-end permissions offset device inode path`.
struct Header<'a> {
    start: usize,
    bytes: usize,
    permissions: &'a str,
    path: &'a str,
}

impl<'a> Header<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let [start, end] = [start, end].map(|word| usize::from_str_radix(word, 16).ok());
        let (start, permissions) = (start?, words.next()?);
        let path = words.nth(3).unwrap_or_default();
        Some(Self { start, bytes: end?.checked_sub(start)?, permissions, path })
    }

    /// Whether this is readable or executable content of a file that nothing can change: not writable, not shared.
    fn is_fixed_file(&self) -> bool {
        self.path.starts_with('/') && matches!(self.permissions, "r--p" | "r-xp")
    }
}

fn kib_of(line: &str, field: &str) -> Option<u64> {
    line.strip_prefix(field)?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping's lines as the kernel writes them, without the fields that do not matter.
    fn lines(range: &str, permissions: &str, path: &str, rss: u64, (copied, swapped): (u64, u64)) -> String {
        format!(
            "{range} {permissions} 00001000 fe:00 131 {path}\nSize: 64 kB\nRss: {rss} kB\nReferenced: 4 kB\n\
             Anonymous: {copied} kB\nSwap: {swapped} kB\nVmFlags: rd ex mr mw me\n"
        )
    }

    #[test]
    fn only_pages_equal_to_their_file_are_unmapped() {
        let table = [
            ("r-xp", "/bin/program", 64, (0, 0), true),
            ("r--p", "/bin/program", 64, (0, 0), true),
            // Relocated at the start, then made read-only: the file does not have this content.
            ("r--p", "/bin/program", 64, (4, 0), false),
            // The same, and swapped out since; or a part of it.
            ("r--p", "/bin/program", 60, (0, 4), false),
            ("r--p", "/bin/program", 64, (4, 4), false),
            ("rw-p", "/bin/program", 64, (0, 0), false),
            ("r--s", "/some/file", 64, (0, 0), false),
            ("---p", "/lib/gap", 64, (0, 0), false),
            ("r-xp", "[vdso]", 4, (0, 0), false),
            ("r--p", "", 4, (0, 0), false),
            ("r-xp", "/bin/program", 0, (0, 0), false),
        ];
        for (permissions, path, rss, anonymous, wanted) in table {
            let text = lines("1000-11000", permissions, path, rss, anonymous);
            let mapping = Mapping { start: 0x1000, bytes: 0x10000, resident_kib: rss };
            let expected: &[Mapping] = if wanted { &[mapping] } else { &[] };
            assert_eq!(clean_mappings(&text), expected, "{text}");
        }
    }

    #[test]
    fn each_mapping_is_judged_by_its_own_lines() {
        let text = lines("1000-2000", "r-xp", "/a", 4, (4, 0))
            + &lines("2000-3000", "r-xp", "/b", 4, (0, 0))
            + &lines("3000-4000", "rw-p", "/c", 4, (0, 0));
        assert_eq!(clean_mappings(&text), [Mapping { start: 0x2000, bytes: 0x1000, resident_kib: 4 }]);
    }

    #[test]
    fn malformed_lines_yield_no_mapping() {
        for text in [
            "",
            "nonsense",
            "Rss: 4 kB\nAnonymous: 0 kB\nSwap: 0 kB\n",
            "2000-1000 r-xp 0 0 0 /a\nRss: 4 kB\nAnonymous: 0 kB\nSwap: 0 kB",
        ] {
            assert_eq!(clean_mappings(text), [], "{text}");
        }
    }

    #[test]
    fn discarding_shrinks_the_running_process() {
        let resident = || {
            let maps = clean_mappings(&fs::read_to_string(SMAPS).unwrap());
            maps.iter().map(|mapping| mapping.resident_kib).sum::<u64>()
        };
        // Other tests run beside this one and fault pages in again; 100 tries suffice.
        let shrank = (0..100).any(|_| {
            let before = resident();
            discard_clean_pages().unwrap() > 0 && resident() < before
        });
        assert!(shrank);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn trimming_returns_free_heap_between_live_values() {
        const COUNT: usize = 32 << 10;
        let anonymous = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            status.lines().find_map(|line| kib_of(line, "RssAnon:")).unwrap()
        };
        let mut values: Vec<Vec<u8>> = (0..COUNT).map(|_| vec![1; 1 << 10]).collect();
        let full = anonymous();
        // The last value of each run stays, so that the heap cannot simply end earlier.
        let mut number = 0;
        values.retain(|_| {
            number += 1;
            number % 64 == 0
        });
        trim_heap();
        let left = anonymous();
        assert_eq!(values.len(), COUNT / 64);
        // Of 32 MiB, while other tests come and go.
        assert!(left + (16 << 10) < full, "{full} KiB before, {left} KiB after");
    }
}
