//! Unix sockets in folders that other programs watch.
//!
//! In: a path. Out: a listener, and whether the socket at that path is still ours. Never: removal of anything but a
//! socket: another file at the path stays, and is an error.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use crate::pause::Pause;
use crate::watch::Subscription;

/// The longest path of a unix socket on Linux, without the closing zero byte.
pub const MAX_PATH: usize = 107;

/// How long a server may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(1);

/// Time between checks of a socket without an event: folders can be mounted over without one.
pub(crate) const RECHECK: Duration = Duration::from_secs(10);

/// Why the socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is too long, not absolute, or not text.
    #[error("{0:?} cannot be a unix socket: allowed are absolute paths of at most {MAX_PATH} bytes of UTF-8")]
    Path(PathBuf),
    /// The socket cannot be created.
    #[error("{path}: {source}")]
    Make {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Identifies a socket at a path. File systems reuse the inode number of a removed file, so its time counts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// A socket of ours; removed when dropped, unless another file is at its path by then.
#[derive(Debug)]
pub(crate) struct Own {
    path: PathBuf,
    identity: Option<Identity>,
}

impl Identity {
    /// The identity of the file at the path; `None` without a file.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(Self { inode: found.ino(), seconds: found.mtime(), nanoseconds: found.mtime_nsec() })
    }
}

/// Whether a server accepts connections at the path.
pub(crate) async fn is_served(path: &Path) -> bool {
    // A server that never accepts lets some clients wait; when that queue is full, connecting would wait too.
    tokio::time::timeout(ANSWER, UnixStream::connect(path)).await.is_ok_and(|found| found.is_ok())
}

impl Own {
    /// Listens at the path as soon as no other server does: two that took the path from each other would never stop.
    /// `clash` is called each time another server is found.
    pub(crate) async fn alone(
        path: &Path,
        events: &mut Subscription,
        pause: &mut Pause,
        clash: impl Fn(),
    ) -> Result<(UnixListener, Self), Error> {
        while is_served(path).await {
            clash();
            events.changed(pause.next()).await;
        }
        Self::bind(path)
    }

    /// Listens at the path, in place of a socket left by an earlier process.
    pub(crate) fn bind(path: &Path) -> Result<(UnixListener, Self), Error> {
        let text = path.to_str().filter(|text| text.starts_with('/') && text.len() <= MAX_PATH);
        if text.is_none() {
            return Err(Error::Path(path.to_owned()));
        }
        let failed = |source| Error::Make { path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let reason = "something that is not a socket is in its place";
                return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, reason)));
            }
            Ok(_) => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            },
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        Ok((listener, Self { path: path.to_owned(), identity: Identity::of(path) }))
    }

    /// Waits until the file at the path is no longer ours.
    pub(crate) async fn gone(&self, events: &mut Subscription) {
        while self.is_there() {
            events.changed(RECHECK).await;
        }
    }

    /// Whether the file at the path is ours.
    pub(crate) fn is_there(&self) -> bool {
        self.identity.is_some() && Identity::of(&self.path) == self.identity
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.is_there() {
            // A removal by another process in between is fine.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_sockets_make_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let (first, earlier) = Own::bind(&path).unwrap();
        std::mem::forget(earlier);
        drop(first);
        let (listener, own) = Own::bind(&path).unwrap();
        assert!(own.is_there() && is_served(&path).await);
        drop(listener);
        assert!(!is_served(&path).await);
        drop(own);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        let error = Own::bind(&path).unwrap_err().to_string();
        assert!(error.ends_with("x.sock: something that is not a socket is in its place"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_socket_of_another_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let (_first, own) = Own::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        assert!(!own.is_there());
        drop(own);
        assert!(path.exists());
    }
}
