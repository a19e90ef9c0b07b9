//! Reads small text files, with a size limit and with the file's name in every error.
//!
//! In: paths. Out: texts and names. Never: a wait for the writer of a pipe, or a read without end.

use std::ffi::OsString;
use std::fs::{DirEntry, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// No file of sysfs or of the kubelet's configuration comes near this size; a larger one is another kind of file.
const MAX_BYTES: u64 = 1 << 20;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("cannot read {path}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file exceeds the limit.
    #[error("{path} has more than {limit_bytes} bytes, which is not a file of this kind")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// A pipe, a device or a directory.
    #[error("{path} is not a regular file")]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// The file is not UTF-8 text.
    #[error("{path} is not UTF-8 text")]
    NotText {
        /// The file.
        path: PathBuf,
    },
}

impl FileError {
    /// Whether the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Reads the whole file as text. NUL bytes at its end, which some kernels and recorders leave, are no part of it.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    let mut text = read_up_to(path, MAX_BYTES)?;
    text.truncate(text.trim_end_matches('\0').len());
    Ok(text)
}

/// Reads the whole file as text, if it does not exceed the limit.
pub(crate) fn read_up_to(path: &Path, limit_bytes: u64) -> Result<String, FileError> {
    let error = |source| FileError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    open(path)?.take(limit_bytes + 1).read_to_end(&mut bytes).map_err(error)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(FileError::TooLarge { path: path.to_owned(), limit_bytes });
    }
    String::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
}

/// Opens a regular file. Not blocking, because opening a pipe waits for its writer.
fn open(path: &Path) -> Result<File, FileError> {
    let error = |source| FileError::Read { path: path.to_owned(), source };
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(error)?;
    let is_file = file.metadata().map_err(error)?.is_file();
    if is_file { Ok(file) } else { Err(FileError::NotRegular { path: path.to_owned() }) }
}

/// Reads the whole file as text, or `None` when it does not exist.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, FileError> {
    match read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names in a directory, sorted; `None` when it does not exist. Names that are not UTF-8 are left out: no wanted file
/// has one.
pub(crate) fn list_if_there(path: &Path) -> Result<Option<Vec<String>>, FileError> {
    let error = |source| FileError::Read { path: path.to_owned(), source };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(error(source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry.map_err(error)?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(Some(names))
}

/// The type of a directory's entry, without following symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A file, a symbolic link, or another type.
    Other,
}

impl From<std::fs::FileType> for Kind {
    fn from(kind: std::fs::FileType) -> Self {
        if kind.is_dir() { Self::Directory } else { Self::Other }
    }
}

/// The type of the entry at a path, without following a symbolic link.
pub(crate) fn kind(path: &Path) -> Result<Kind, FileError> {
    let found = std::fs::symlink_metadata(path);
    found
        .map(|found| found.file_type().into())
        .map_err(|source| FileError::Read { path: path.to_owned(), source })
}

/// All entries of a directory, in the order of the names' bytes.
pub(crate) fn entries(path: &Path) -> Result<Vec<(OsString, Kind)>, FileError> {
    let read = || {
        let entry =
            |entry: io::Result<DirEntry>| entry.and_then(|e| Ok((e.file_name(), e.file_type()?.into())));
        std::fs::read_dir(path)?.map(entry).collect::<io::Result<Vec<_>>>()
    };
    let mut found = read().map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}
