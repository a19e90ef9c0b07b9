//! Unix sockets we make in folders that others look into.
//!
//! In: a path. Out: a listener, and whether the socket at that path is still the one we made. Never: something else removed
//! than a socket: a file that stands in the way stays, and is an error.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

use crate::pause::Pause;
use crate::watch::{Watcher, changed};

/// The longest path a unix socket address can hold on Linux, without the closing zero byte.
pub const MAX_PATH: usize = 107;

/// How long somebody may take to take a connection.
const ANSWER: Duration = Duration::from_secs(1);

/// Between looks at a socket without an event: folders can be mounted over without one.
pub(crate) const RECHECK: Duration = Duration::from_secs(10);

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path is too long, not absolute, or not text.
    #[error("{0:?} cannot be a unix socket: allowed are absolute paths of at most {MAX_PATH} bytes of UTF-8")]
    Path(PathBuf),
    /// It cannot be made.
    #[error("{path}: {source}")]
    Make {
        /// Where.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Which socket is at a path. File systems give the number of a removed inode to the next file, so its time counts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// A socket we made; removed when dropped, unless something else is there by then.
#[derive(Debug)]
pub(crate) struct Own {
    path: PathBuf,
    identity: Option<Identity>,
}

impl Identity {
    /// What is at the path now; nothing when nothing is.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(Self { inode: found.ino(), seconds: found.mtime(), nanoseconds: found.mtime_nsec() })
    }
}

/// Whether somebody takes connections at the path.
pub(crate) async fn is_served(path: &Path) -> bool {
    // One that listens and never takes a connection lets a few wait; when those are full, connecting would wait too.
    tokio::time::timeout(ANSWER, UnixStream::connect(path)).await.is_ok_and(|found| found.is_ok())
}

impl Own {
    /// Listens at the path as soon as nobody else does: two that took it from each other would do so without end. Each time somebody
    /// does, `clash` hears of it.
    pub(crate) async fn alone(
        path: &Path,
        watcher: &mut Option<Watcher<()>>,
        pause: &mut Pause,
        clash: impl Fn(),
    ) -> Result<(UnixListener, Self), Error> {
        while is_served(path).await {
            clash();
            changed(watcher, pause.next()).await;
        }
        Self::bind(path)
    }

    /// Listens at the path, in place of the socket that an earlier life left there.
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

    /// Waits until what is at the path is no longer what we made.
    pub(crate) async fn gone(&self, watcher: &mut Option<Watcher<()>>) {
        while self.is_there() {
            changed(watcher, RECHECK).await;
        }
    }

    /// Whether what is at the path is what we made.
    pub(crate) fn is_there(&self) -> bool {
        self.identity.is_some() && Identity::of(&self.path) == self.identity
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.is_there() {
            // Gone between the look and now is as good.
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
    async fn a_socket_of_somebody_else_stays() {
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
