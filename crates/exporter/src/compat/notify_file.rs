//! Creates the file that others touch to cause a scan.
//!
//! In: its path. Out: the file, empty, ready to be watched. Never: a file with content of others.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("notify file {path}: {source}")]
    Io {
        /// The file or its directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is taken by something that must not be lost.
    #[error("notify file {path} is {is}; it must be an empty regular file, or not exist yet")]
    Taken {
        /// The file.
        path: PathBuf,
        /// What is at the path.
        is: &'static str,
    },
}

/// Creates the file, as RTE does. Its directories are created with mode 0750. An existing file must be regular and
/// empty; symbolic links are followed.
///
/// # Errors
/// See [`Error`]; RTE's start fails with it too.
pub fn prepare(path: &Path) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    };
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(dir).map_err(failed(dir))?;
    }
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(Error::Taken { path: path.to_owned(), is: "not a file" });
        }
        Ok(found) if found.len() > 0 => return Err(Error::Taken { path: path.to_owned(), is: "not empty" }),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(path)(error)),
    }
    // Not truncated: content written between the check and now stays.
    let opened: Result<File, _> = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_are_made_and_used_again() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run/rte/notify");
        for _ in 0..2 {
            prepare(&path).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        }
        let dir = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(dir.permissions().mode() & 0o027, 0, "no more than 0750");
    }

    #[test]
    fn what_others_put_there_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let (full, link, dir) = (root.path().join("full"), root.path().join("link"), root.path().join("dir"));
        std::fs::write(&full, "precious").unwrap();
        std::os::unix::fs::symlink(&full, &link).unwrap();
        std::fs::create_dir(&dir).unwrap();
        for (path, wanted) in [(&full, "not empty"), (&link, "not empty"), (&dir, "not a file")] {
            let error = prepare(path).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let error = prepare(&full.join("below")).unwrap_err().to_string();
        assert!(error.starts_with("notify file "), "{error}");
        assert_eq!(std::fs::read_to_string(&full).unwrap(), "precious");
    }
}
