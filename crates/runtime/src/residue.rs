//! What starting leaves behind in memory: code and constants that were needed once, and room for values that are gone.
//!
//! In: the mappings of the running process. Out: fewer resident pages. Never: a page with content that somebody may read again,
//! so nothing can be lost; I/O.
//!
//! # What this does, and what it does not
//! A process that watches one object needs little of its program. But the command line, the configuration files, TLS and
//! the first requests have run through most of it, the kernel maps 16 pages for each one touched, and they all stay resident
//! until the machine is short of memory: 8 MiB in the exporter, of which 0.3 MiB are ever used again. Unmapping them makes
//! the resident size what the process works with. The file's pages stay in the kernel's page cache, where all processes of
//! this program share them and the kernel may drop them, as before; a page that is needed again costs a minor fault. So the
//! machine gets back what it could have taken anyway, only sooner, and before anybody counts what the pod uses. The peak
//! (`VmHWM`) is not lowered.
//!
//! The heap is the allocator's matter. glibc's keeps what lies free between values that live, as after a list was read that replaced another: it is
//! asked to give those pages back too. Other allocators are left alone.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::{Advice, madvise};
use tokio::sync::Notify;

use crate::ready::Readiness;

/// When memory that starting took is given back: after what follows the start, and then again and again, because rare things
/// (reading a configuration anew, an error, somebody who asks for metrics) take some too. Once costs about 0.3 ms of CPU time,
/// fetching back what is used included.
const SETTLED: Duration = Duration::from_secs(2);
const TIDY: Duration = Duration::from_secs(10);

/// What is done together leaves its residue together.
const CALM: Duration = Duration::from_millis(100);

/// Where the kernel lists the mappings and what of them is resident.
const SMAPS: &str = "/proc/self/smaps";

/// Part of the address space that could be read again from its file as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    bytes: usize,
    resident_kib: u64,
}

/// Something was done that happens now and then and takes more of the program than what happens all the time.
#[derive(Clone, Debug, Default)]
pub struct Rare(Arc<Notify>);

impl Rare {
    /// It is over.
    pub fn done(&self) {
        self.0.notify_one();
    }
}

/// Keeps resident what is used, not what was used once; for ever, once the process is ready. Tidies soon after something rare, and now and then.
///
/// # Errors
/// Never.
pub async fn tidy(readiness: Readiness, rare: Rare) -> Result<Infallible, Infallible> {
    readiness.opened().await;
    tokio::time::sleep(SETTLED).await;
    loop {
        if let Err(error) = unmap() {
            tracing::debug!(%error, "the program's pages stay resident");
        }
        trim();
        tokio::select! {
            () = tokio::time::sleep(TIDY) => {}
            () = rare.0.notified() => tokio::time::sleep(CALM).await,
        }
    }
}

/// Unmaps every resident page of the program and its libraries that is as it is in its file; those that are used come back
/// by themselves. Returns how many KiB were resident.
///
/// # Errors
/// When the kernel does not list the mappings.
pub fn unmap() -> io::Result<u64> {
    let mut kib = 0;
    for mapping in unchanged(&fs::read_to_string(SMAPS)?) {
        if discard(mapping).is_ok() {
            kib += mapping.resident_kib;
        }
    }
    Ok(kib)
}

/// Has the allocator give free pages of the heap back to the kernel. Costs a look at each free piece of the heap.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a function of C; see below")]
pub fn trim() {
    // SAFETY: takes a number, may be called at any time from any thread, and touches no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// There is no such wish to other allocators.
#[cfg(not(target_env = "gnu"))]
pub fn trim() {}

#[expect(unsafe_code, reason = "madvise takes an address; see below")]
fn discard(mapping: Mapping) -> rustix::io::Result<()> {
    let start = std::ptr::without_provenance_mut(mapping.start);
    // SAFETY: the mapping is of a file, not writable, and no page of it is a private copy, in memory or swapped out. So all its content is the
    // file's, and reading it after this gives what reading it before would have given. Nothing in this process makes such a
    // mapping writable or removes it: libraries are not unloaded.
    unsafe { madvise(start, mapping.bytes, Advice::LinuxDontNeed) }
}

/// The mappings of files that cannot be written to and of which nothing was ever written.
fn unchanged(smaps: &str) -> Vec<Mapping> {
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
            // The last of the fields that matter. A copied page that was swapped out is no longer counted above.
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

    /// Readable or executable content of a file, and nothing that somebody else could be changing: not writable, not shared.
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

    /// A mapping's lines as the kernel writes them, the fields that do not matter left out.
    fn lines(range: &str, permissions: &str, path: &str, rss: u64, (copied, swapped): (u64, u64)) -> String {
        format!(
            "{range} {permissions} 00001000 fe:00 131 {path}\nSize: 64 kB\nRss: {rss} kB\nReferenced: 4 kB\n\
             Anonymous: {copied} kB\nSwap: {swapped} kB\nVmFlags: rd ex mr mw me\n"
        )
    }

    #[test]
    fn only_what_is_as_in_its_file_is_unmapped() {
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
            assert_eq!(unchanged(&text), expected, "{text}");
        }
    }

    #[test]
    fn mappings_are_not_confused() {
        let text = lines("1000-2000", "r-xp", "/a", 4, (4, 0))
            + &lines("2000-3000", "r-xp", "/b", 4, (0, 0))
            + &lines("3000-4000", "rw-p", "/c", 4, (0, 0));
        assert_eq!(unchanged(&text), [Mapping { start: 0x2000, bytes: 0x1000, resident_kib: 4 }]);
    }

    #[test]
    fn garbage_is_no_mapping() {
        for text in [
            "",
            "nonsense",
            "Rss: 4 kB\nAnonymous: 0 kB\nSwap: 0 kB\n",
            "2000-1000 r-xp 0 0 0 /a\nRss: 4 kB\nAnonymous: 0 kB\nSwap: 0 kB",
        ] {
            assert_eq!(unchanged(text), [], "{text}");
        }
    }

    #[test]
    fn this_process_becomes_smaller_and_goes_on() {
        let resident = || {
            let maps = unchanged(&fs::read_to_string(SMAPS).unwrap());
            maps.iter().map(|mapping| mapping.resident_kib).sum::<u64>()
        };
        // Other tests run beside this one and fetch pages back; they cannot always be faster.
        let shrank = (0..100).any(|_| {
            let before = resident();
            unmap().unwrap() > 0 && resident() < before
        });
        assert!(shrank);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn free_room_between_values_is_given_back() {
        const COUNT: usize = 32 << 10;
        let anonymous = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            status.lines().find_map(|line| kib_of(line, "RssAnon:")).unwrap()
        };
        let mut values: Vec<Vec<u8>> = (0..COUNT).map(|_| vec![1; 1 << 10]).collect();
        let full = anonymous();
        // The last ones of each run stay, so that nothing can simply end earlier.
        let mut number = 0;
        values.retain(|_| {
            number += 1;
            number % 64 == 0
        });
        trim();
        let left = anonymous();
        assert_eq!(values.len(), COUNT / 64);
        // Of 32 MiB, while other tests come and go.
        assert!(left + (16 << 10) < full, "{full} KiB before, {left} KiB after");
    }
}
