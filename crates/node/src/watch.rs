//! Tells when something happened in a directory: inotify that outlives the directories it looks at.
//!
//! In: directories, each with a tag and the file names that matter in it. Out: the tags of the directories where
//! something happened since the last look, and how often. Never: what happened; readers look for themselves, so a merged,
//! repeated or lost event costs nothing but a look.
//!
//! A directory that does not exist (yet, or any more) is waited for by watching its nearest existing parent, so the
//! watcher may start before the kubelet and survives that the kubelet's directories are removed, renamed or mounted
//! over. An overflow of the kernel's queue counts as an event everywhere.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Everything that can make a file in a directory new, changed or gone, and the directory itself gone.
/// Writers that rename a finished temporary file over the old one (the kubelet's checkpoints) show up as `MOVED_TO`.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The watched inode is gone, elsewhere, or no longer watched.
const LOST: ReadFlags =
    ReadFlags::DELETE_SELF.union(ReadFlags::MOVE_SELF).union(ReadFlags::UNMOUNT).union(ReadFlags::IGNORED);

/// How many times the kernel's queue is read before the events so far are handed out: bounds the work of one call
/// when somebody writes without end.
const READS_PER_LOOK: usize = 64;

/// Between looks when there are no events at all.
const BLIND: Duration = Duration::from_secs(1);

/// How often something happened, by tag. The kernel merges equal neighbours among its events, but never renames, so the
/// number of renames is exact; after an overflow of its queue every count is `u32::MAX`.
pub type Counts<T> = BTreeMap<T, u32>;

/// Which file names of a directory matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// All of them.
    All,
    /// All that do not begin with a dot, as temporary files do.
    Visible,
    /// Exactly this one.
    Is(String),
    /// Exactly this one, and a change of its times or mode counts too, as `touch` makes it.
    Touched(String),
    /// Those that end so.
    EndWith(&'static str),
    /// Those that begin so, when they come and go; what is written into them is no news.
    Listed(String),
    /// All that do not begin with a dot, but this one.
    Other(&'static str),
}

/// A directory to look at.
#[derive(Clone, Debug)]
pub struct Target<T> {
    /// The directory. It need not exist.
    pub dir: PathBuf,
    /// Which of its files matter.
    pub names: Names,
    /// What to report when one of them changed.
    pub tag: T,
}

/// Watches directories; see the module's description.
#[derive(Debug)]
pub struct Watcher<T> {
    fd: AsyncFd<OwnedFd>,
    targets: Vec<(Target<T>, Attachment)>,
}

/// What the kernel watches on behalf of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attachment {
    /// The watch descriptor; `None` when not even `/` could be watched.
    wd: Option<i32>,
    /// Whether it is the target itself and not the nearest existing parent.
    itself: bool,
}

/// One event, copied out of the kernel's buffer.
struct Seen {
    wd: i32,
    flags: ReadFlags,
    name: Option<String>,
}

impl Names {
    fn matches(&self, name: &str, flags: ReadFlags) -> bool {
        match self {
            Self::Touched(wanted) => name == wanted,
            _ if flags.contains(ReadFlags::ATTRIB) => false,
            Self::All => true,
            Self::Visible => !name.starts_with('.'),
            Self::Is(wanted) => name == wanted,
            Self::EndWith(end) => name.ends_with(end),
            Self::Listed(begin) => name.starts_with(begin) && !flags.contains(ReadFlags::CLOSE_WRITE),
            Self::Other(one) => !name.starts_with('.') && name != *one,
        }
    }
}

impl<T: Copy + Ord> Watcher<T> {
    /// Starts watching. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the kernel has no inotify instance or watch left for this user (`fs.inotify.max_user_*`).
    pub fn new(targets: Vec<Target<T>>) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let targets = targets.into_iter().map(|target| (target, Attachment::default())).collect();
        let mut watcher = Self { fd: register(fd)?, targets };
        watcher.recheck()?;
        Ok(watcher)
    }

    /// Waits until something happened and returns where. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the kernel refuses to read or to watch.
    pub async fn changed(&mut self) -> io::Result<Counts<T>> {
        loop {
            let mut ready = self.fd.readable().await?;
            let (seen, drained) = read_events(ready.get_inner())?;
            if drained {
                ready.clear_ready();
            }
            drop(ready);
            let tags = self.sort_out(&seen)?;
            if !tags.is_empty() {
                return Ok(tags);
            }
        }
    }

    /// Looks whether every directory is still the one that is watched, for replacements that give no event (a parent
    /// renamed or mounted over), and returns the tags of those that were not. Meant for a slow timer.
    ///
    /// # Errors
    /// When the kernel refuses to watch.
    pub fn recheck(&mut self) -> io::Result<Counts<T>> {
        let mut tags = Counts::new();
        for index in 0..self.targets.len() {
            let before = self.targets[index].1;
            let now = attach(self.fd.get_ref(), &self.targets[index].0.dir)?;
            self.targets[index].1 = now;
            if now != before {
                if before.itself || now.itself {
                    count(&mut tags, self.targets[index].0.tag, 1);
                }
                self.release(before.wd);
            }
        }
        Ok(tags)
    }

    /// Which targets the events belong to; re-attaches where a directory came or went.
    fn sort_out(&mut self, seen: &[Seen]) -> io::Result<Counts<T>> {
        let mut tags = Counts::new();
        let mut moved = false;
        for event in seen {
            if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                for (target, _) in &self.targets {
                    count(&mut tags, target.tag, u32::MAX);
                }
                moved = true;
                continue;
            }
            for (target, attachment) in &mut self.targets {
                if attachment.wd != Some(event.wd) {
                    continue;
                }
                if event.flags.intersects(LOST) {
                    // Forgetting the descriptor makes the directory "new" for `recheck`, even if the inode is the same.
                    *attachment = Attachment { wd: None, itself: attachment.itself };
                    moved = true;
                } else if !attachment.itself {
                    moved = true;
                } else if event.name.as_deref().is_some_and(|name| target.names.matches(name, event.flags)) {
                    count(&mut tags, target.tag, 1);
                }
            }
            if event.flags.contains(ReadFlags::MOVE_SELF) {
                self.release(Some(event.wd));
            }
        }
        if moved {
            for (tag, times) in self.recheck()? {
                count(&mut tags, tag, times);
            }
        }
        Ok(tags)
    }

    /// Stops the kernel's watch unless another target still uses it.
    fn release(&self, wd: Option<i32>) {
        if let Some(wd) = wd
            && !self.targets.iter().any(|(_, attachment)| attachment.wd == Some(wd))
        {
            // Fails when the kernel dropped the watch by itself, which is what is wanted.
            let _ = inotify::remove_watch(self.fd.get_ref(), wd);
        }
    }
}

fn count<T: Ord>(counts: &mut Counts<T>, tag: T, times: u32) {
    let sum = counts.entry(tag).or_default();
    *sum = sum.saturating_add(times);
}

/// Waits for an event, but no longer than `patience`; what it says is for the caller to look up. A watcher that is not there, because the
/// kernel has none left (`fs.inotify.max_user_instances`), or that breaks and is given up here, makes this a look each second.
pub async fn changed<T: Copy + Ord>(watcher: &mut Option<Watcher<T>>, patience: Duration) {
    let Some(watching) = watcher else { return tokio::time::sleep(patience.min(BLIND)).await };
    let seen = match tokio::time::timeout(patience, watching.changed()).await {
        Ok(changes) => changes,
        Err(_) => watching.recheck(),
    };
    if seen.is_err() {
        *watcher = None;
    }
}

/// Hands the descriptor to tokio's reactor.
fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // `AsyncFd::new` would need no `unsafe`, but is deprecated because it takes any `AsRawFd`.
    #[expect(unsafe_code, reason = "the only constructor of AsyncFd that is not deprecated")]
    // SAFETY: an `OwnedFd` owns one open descriptor and returns that same one until it is dropped.
    let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(registered?)
}

/// Watches `dir`, or its nearest parent that exists.
fn attach(fd: &OwnedFd, dir: &Path) -> io::Result<Attachment> {
    let mut previous = None;
    loop {
        let now = attach_nearest(fd, dir)?;
        // A directory created between the failed try on it and the watch on its parent gives no event: look again
        // until two looks agree.
        if now.itself || previous == Some(now) {
            return Ok(now);
        }
        previous = Some(now);
    }
}

fn attach_nearest(fd: &OwnedFd, dir: &Path) -> io::Result<Attachment> {
    for (depth, path) in dir.ancestors().enumerate() {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match inotify::add_watch(fd, path, MASK) {
            Ok(wd) => return Ok(Attachment { wd: Some(wd), itself: depth == 0 }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
            Err(errno) => {
                return Err(io::Error::new(
                    io::Error::from(errno).kind(),
                    format!("watch {}: {errno}", path.display()),
                ));
            }
        }
    }
    Ok(Attachment::default())
}

/// Reads what is queued; the flag says whether the queue is empty now.
fn read_events(fd: &OwnedFd) -> io::Result<(Vec<Seen>, bool)> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let mut seen = Vec::new();
    let mut reads = 0;
    loop {
        if reader.is_buffer_empty() {
            reads += 1;
            if reads > READS_PER_LOOK {
                return Ok((seen, false));
            }
        }
        match reader.next() {
            Ok(event) => seen.push(Seen {
                wd: event.wd(),
                flags: event.events(),
                name: event.file_name().map(|name| name.to_string_lossy().into_owned()),
            }),
            Err(Errno::WOULDBLOCK) => return Ok((seen, true)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests;
