//! Namespaces: which mounts and which network something runs with.
//!
//! In: work to do, or a change to make to the mounts. Out: the work, done by a thread that sees those mounts and that
//! network; programs it starts see them too. The thread ends with the work, so the caller's own view never
//! changes, and a namespace goes when no process holds it and none runs in it.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context as _;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Bytes of a thread's stack; only what is used is real. Futures of tests that do much at once are large
/// without optimization.
const STACK: usize = 32 << 20;

/// A mount and a network namespace; the default is the caller's own.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    mounts: Option<Arc<OwnedFd>>,
    network: Option<Arc<OwnedFd>>,
}

impl Namespaces {
    /// The same network with a copy of the mounts, changed by `change`. Nothing outside sees the changes;
    /// a process that copies the mounts again sees later ones, as on a real node.
    ///
    /// # Errors
    /// When the kernel does not allow it (not root), or with the error of `change`.
    pub fn with_mounts(&self, change: impl FnOnce() -> anyhow::Result<()> + Send) -> anyhow::Result<Self> {
        let mounts = self.run(|| {
            unshare(UnshareFlags::NEWNS).context("making a mount namespace")?;
            set_propagation("/", MountPropagationFlags::PRIVATE)?;
            change()?;
            set_propagation("/", MountPropagationFlags::SHARED)?;
            own("mnt")
        })??;
        Ok(Self { mounts: Some(Arc::new(mounts)), network: self.network.clone() })
    }

    /// The same mounts with a network that has nothing but an idle loopback device.
    ///
    /// # Errors
    /// When the kernel does not allow it (not root).
    pub fn with_network(&self) -> anyhow::Result<Self> {
        let network = self.run(|| {
            unshare(UnshareFlags::NEWNET).context("making a network namespace")?;
            own("net")
        })??;
        Ok(Self { mounts: self.mounts.clone(), network: Some(Arc::new(network)) })
    }

    /// These mounts with the network of `other`.
    #[must_use]
    pub fn with_network_of(&self, other: &Self) -> Self {
        Self { mounts: self.mounts.clone(), network: other.network.clone() }
    }

    /// Does `work` in these namespaces, on a thread of its own.
    ///
    /// # Errors
    /// When they cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        // Known by the caller's name, for panics, and with room for a whole test.
        let name = std::thread::current().name().unwrap_or("elsewhere").to_owned();
        let thread = std::thread::Builder::new().name(name).stack_size(STACK);
        std::thread::scope(|scope| {
            let there = thread.spawn_scoped(scope, || {
                self.enter()?;
                Ok(work())
            });
            there?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread, for the rest of its life.
    pub(crate) fn enter(&self) -> anyhow::Result<()> {
        if let Some(network) = &self.network {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .context("entering a network namespace")?;
        }
        if let Some(mounts) = &self.mounts {
            enter_mounts(mounts.as_fd())?;
        }
        Ok(())
    }

    /// Whether the calling thread is in this network.
    pub(crate) fn has_callers_network(&self) -> anyhow::Result<bool> {
        let Some(network) = &self.network else { return Ok(true) };
        Ok(rustix::fs::fstat(network)?.st_ino == rustix::fs::fstat(own("net")?)?.st_ino)
    }

    /// The network namespace, if it is not the caller's own.
    pub(crate) fn network(&self) -> Option<BorrowedFd<'_>> {
        self.network.as_ref().map(|network| network.as_fd())
    }
}

/// Moves the calling thread into a mount namespace, at its root.
pub(crate) fn enter_mounts(mounts: BorrowedFd<'_>) -> anyhow::Result<()> {
    // A thread that shares its working directory with others may not move.
    unshare(UnshareFlags::FS)?;
    move_into_link_name_space(mounts, Some(LinkNameSpaceType::Mount)).context("entering a mount namespace")
}

/// Gives the calling thread namespaces of its own.
#[expect(unsafe_code, reason = "the function's one danger is a flag that is refused here")]
pub(crate) fn unshare(flags: UnshareFlags) -> std::io::Result<()> {
    if flags.contains(UnshareFlags::FILES) {
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    // SAFETY: only `FILES` makes file descriptors of one thread unknown to another, and it is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    Ok(())
}

/// Sets how mounts below `path` and those of other namespaces follow each other.
pub(crate) fn set_propagation(path: &str, how: MountPropagationFlags) -> anyhow::Result<()> {
    mount_change(path, how | MountPropagationFlags::REC)
        .with_context(|| format!("setting the propagation of mounts below {path}"))
}

/// A namespace of the calling thread, held.
fn own(kind: &str) -> anyhow::Result<OwnedFd> {
    let path = format!("/proc/thread-self/ns/{kind}");
    Ok(File::open(&path).with_context(|| format!("opening {path}"))?.into())
}
