//! Reports that something changed in a directory: inotify that survives the replacement of the directories it watches.
//!
//! In: directories, each with a tag and the file names that matter in it. Out: the tags of the directories in which
//! something changed since the last call, and how often. Never: the change itself; callers read the files again, so a
//! merged, repeated or lost event costs one look and nothing else.
//!
//! A directory that does not exist (yet, or any more) is awaited by watching its nearest existing parent. So the
//! watcher may start before the kubelet, and survives that the kubelet's directories are removed, renamed or mounted
//! over. An overflow of the kernel's queue counts as a change in every directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use futures::{FutureExt as _, StreamExt as _};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use rustix::io::Errno;

mod hub;

pub use hub::{Hub, Subscription};

/// Everything that can make a file in a directory new, changed or gone, and the directory itself gone.
/// Writers that rename a finished temporary file over the old one (the kubelet's checkpoints) show up as `MOVED_TO`.
const MASK: WatchMask = WatchMask::CREATE
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::DELETE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR);

/// Everything that can make a file new, changed or gone. The number of its links is one of its attributes.
const FILE_MASK: WatchMask =
    WatchMask::CLOSE_WRITE.union(WatchMask::ATTRIB).union(WatchMask::DELETE_SELF).union(WatchMask::MOVE_SELF);

/// The watched inode is gone, elsewhere, or no longer watched.
const LOST: EventMask =
    EventMask::DELETE_SELF.union(EventMask::MOVE_SELF).union(EventMask::UNMOUNT).union(EventMask::IGNORED);

/// Bytes that one read takes from the kernel's queue.
const BUFFER_BYTES: usize = 4096;

/// How many events are taken from the kernel's queue before they are reported: bounds the work of one call while
/// another process writes without end.
const MAX_BATCH: usize = 4096;

/// How often something changed, by tag. The kernel merges equal neighbours among its events, but never renames, so the
/// number of renames is exact; after an overflow of the queue every count is `u32::MAX`.
pub type Counts<T> = BTreeMap<T, u32>;

/// Which file names of a directory matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// All names.
    All,
    /// All names that do not begin with a dot, as those of temporary files do.
    Visible,
    /// Exactly this name.
    Is(String),
    /// Exactly this name. A change of the file's times or mode counts too, as `touch` makes it.
    Touched(String),
    /// Names with this suffix.
    EndWith(&'static str),
    /// Names with this prefix, when files of that name come and go; writes into them are ignored.
    Listed(String),
    /// All names that do not begin with a dot, except this one.
    Other(&'static str),
    /// Names that contain this text, when they are created.
    Created(&'static str),
    /// The target is a file: its content, and the number of its links. So the replacement of a file shows that a
    /// container has mounted by itself, whose directory has no events.
    Itself,
}

/// A directory to watch.
#[derive(Clone, Debug)]
pub struct Target<T> {
    /// The directory, or a file with [`Names::Itself`]. It need not exist.
    pub dir: PathBuf,
    /// Which of its files matter.
    pub names: Names,
    /// What to report when one of them changed.
    pub tag: T,
}

/// Watches directories; see the module's description.
#[derive(Debug)]
pub struct Watcher<T> {
    events: EventStream<Vec<u8>>,
    targets: Vec<(Target<T>, Attachment)>,
}

/// What the kernel watches on behalf of a target.
#[derive(Clone, Debug, Default)]
struct Attachment {
    /// The kernel's watch; `None` when not even `/` could be watched.
    watch: Option<WatchDescriptor>,
    /// Whether the target itself is watched, and not its nearest existing parent.
    is_target: bool,
}

impl Attachment {
    /// The number of the kernel's watch. Comparing [`WatchDescriptor`]s would cost a system call.
    fn id(&self) -> Option<i32> {
        self.watch.as_ref().map(WatchDescriptor::get_watch_descriptor_id)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.id() == other.id() && self.is_target == other.is_target
    }
}

impl Names {
    fn matches(&self, name: &str, mask: EventMask) -> bool {
        match self {
            Self::Touched(wanted) => name == wanted,
            Self::Created(part) => name.contains(part) && mask.contains(EventMask::CREATE),
            _ if mask.contains(EventMask::ATTRIB) => false,
            Self::Itself => false,
            Self::All => true,
            Self::Visible => !name.starts_with('.'),
            Self::Is(wanted) => name == wanted,
            Self::EndWith(end) => name.ends_with(end),
            Self::Listed(begin) => name.starts_with(begin) && !mask.contains(EventMask::CLOSE_WRITE),
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
        let events = Inotify::init()?.into_event_stream(vec![0; BUFFER_BYTES])?;
        let targets = targets.into_iter().map(|target| (target, Attachment::default())).collect();
        let mut watcher = Self { events, targets };
        watcher.recheck()?;
        Ok(watcher)
    }

    /// Watches another directory.
    ///
    /// # Errors
    /// When the kernel refuses to watch. Then it is none of the directories.
    pub fn add(&mut self, target: Target<T>) -> io::Result<()> {
        let attachment = attach(&mut self.events.watches(), &target)?;
        self.targets.push((target, attachment));
        Ok(())
    }

    /// Watches the directories with this tag no longer.
    pub fn remove(&mut self, tag: T) {
        let targets = std::mem::take(&mut self.targets).into_iter();
        let (gone, kept): (Vec<_>, Vec<_>) = targets.partition(|(target, _)| target.tag == tag);
        self.targets = kept;
        gone.into_iter().for_each(|(_, attachment)| self.release(attachment.watch));
    }

    /// Waits until something changed and returns where. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the kernel refuses to read or to watch.
    pub async fn changed(&mut self) -> io::Result<Counts<T>> {
        loop {
            let first = self.events.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
            let mut batch = vec![first?];
            // Without an await from here on: the batch would be lost with the future.
            while batch.len() < MAX_BATCH {
                match self.events.next().now_or_never().flatten() {
                    Some(event) => batch.push(event?),
                    None => break,
                }
            }
            let tags = self.dispatch(&batch)?;
            if !tags.is_empty() {
                return Ok(tags);
            }
        }
    }

    /// Checks whether every directory is still the one that is watched, and returns the tags of those that were not.
    /// Finds replacements that give no event (a parent renamed or mounted over). Meant for a slow timer.
    ///
    /// # Errors
    /// When the kernel refuses to watch.
    pub fn recheck(&mut self) -> io::Result<Counts<T>> {
        let mut tags = Counts::new();
        let mut watches = self.events.watches();
        for index in 0..self.targets.len() {
            let (target, before) = &self.targets[index];
            let now = attach(&mut watches, target)?;
            if now.is_same(before) {
                continue;
            }
            if before.is_target || now.is_target {
                count(&mut tags, target.tag, 1);
            }
            let before = std::mem::replace(&mut self.targets[index].1, now);
            self.release(before.watch);
        }
        Ok(tags)
    }

    /// Finds the targets of the events, and attaches again where a directory came or went.
    fn dispatch(&mut self, events: &[EventOwned]) -> io::Result<Counts<T>> {
        let mut tags = Counts::new();
        let mut moved = false;
        for event in events {
            if event.mask.contains(EventMask::Q_OVERFLOW) {
                for (target, _) in &self.targets {
                    count(&mut tags, target.tag, u32::MAX);
                }
                moved = true;
                continue;
            }
            let id = Some(event.wd.get_watch_descriptor_id());
            let name = event.name.as_ref().map(|name| name.to_string_lossy());
            for (target, attachment) in &mut self.targets {
                if attachment.id() != id {
                    continue;
                }
                if event.mask.intersects(LOST) {
                    // Without its watch the directory is new to `recheck`, even if the inode is the same.
                    attachment.watch = None;
                    moved = true;
                } else if !attachment.is_target {
                    moved = true;
                } else if name
                    .as_deref()
                    .map_or(target.names == Names::Itself, |name| target.names.matches(name, event.mask))
                {
                    count(&mut tags, target.tag, 1);
                }
            }
            if event.mask.contains(EventMask::MOVE_SELF) {
                self.release(Some(event.wd.clone()));
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
    fn release(&self, watch: Option<WatchDescriptor>) {
        let Some(watch) = watch else { return };
        let id = Some(watch.get_watch_descriptor_id());
        if !self.targets.iter().any(|(_, attachment)| attachment.id() == id) {
            // Fails when the kernel has dropped the watch by itself, which is the same outcome.
            let _ = self.events.watches().remove(watch);
        }
    }
}

fn count<T: Ord>(counts: &mut Counts<T>, tag: T, times: u32) {
    let sum = counts.entry(tag).or_default();
    *sum = sum.saturating_add(times);
}

/// Watches the target, or its nearest parent that exists.
fn attach<T>(watches: &mut Watches, target: &Target<T>) -> io::Result<Attachment> {
    let mut previous: Option<Attachment> = None;
    loop {
        let now = attach_nearest(watches, target)?;
        // A directory created between the failed try on it and the watch on its parent gives no event: look again
        // until two looks agree.
        if now.is_target || previous.is_some_and(|previous| previous.is_same(&now)) {
            return Ok(now);
        }
        previous = Some(now);
    }
}

fn attach_nearest<T>(watches: &mut Watches, target: &Target<T>) -> io::Result<Attachment> {
    for (depth, path) in target.dir.ancestors().enumerate() {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let mask = if depth == 0 && target.names == Names::Itself { FILE_MASK } else { MASK };
        match watches.add(path, mask) {
            Ok(watch) => return Ok(Attachment { watch: Some(watch), is_target: depth == 0 }),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
                _ => return Err(io::Error::new(error.kind(), format!("watch {}: {error}", path.display()))),
            },
        }
    }
    Ok(Attachment::default())
}

#[cfg(test)]
mod tests;
