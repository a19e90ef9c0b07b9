//! A file that is always replaced as a whole: a temporary file beside it, then a rename.
//!
//! In: a path, the subject of the file, new contents. Out: the file with mode 0600; whether the write succeeded. Never:
//! half a file under its name, the same error logged twice in a row, or another file touched. A temporary file that a
//! crash left behind has another random name and stays.
//!
//! ```
//! use runtime::atomic_file::{AtomicFile, FailureLog};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let file = AtomicFile::new(&dir.path().join("status.json")).expect("the path ends in a file name");
//! let mut failures = FailureLog::new("status reports");
//! assert!(file.replace("{}", &mut failures));
//! assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "{}");
//! ```

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use tempfile::Builder;
use tracing::{info, warn};

/// The beginning of the names of temporary files; the peers' readers skip such files.
pub const TEMPORARY_PREFIX: &str = "__";

/// A file to be replaced as a whole.
#[derive(Debug)]
pub struct AtomicFile {
    dir: PathBuf,
    path: PathBuf,
    temporary: OsString,
}

/// The last failure of one file, or of several that fail together: logs a failure when it begins or changes, and its
/// end.
#[derive(Debug)]
pub struct FailureLog {
    subject: &'static str,
    last: Option<(Step, ErrorKind)>,
}

/// The step at which a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Rename,
}

/// A change worth a line in the log.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// Writes fail now, or fail in another way.
    Failing,
    /// Writes succeed again.
    Recovered,
}

impl AtomicFile {
    /// `None` when the path has no file name.
    #[must_use]
    pub fn new(path: &Path) -> Option<Self> {
        let mut temporary = OsString::from(TEMPORARY_PREFIX);
        temporary.push(path.file_name()?);
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Self { dir: dir.to_owned(), path: path.to_owned(), temporary })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether anything exists at the path.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Replaces the contents of the file with `text` and returns whether that succeeded. `failures` logs what changed
    /// since the last write.
    pub fn replace(&self, text: &str, failures: &mut FailureLog) -> bool {
        let result = self.try_replace(text);
        let change =
            failures.update(result.as_ref().map(drop).map_err(|(step, error)| (*step, error.kind())));
        match (&result, change) {
            (Err((step, error)), Some(_)) => {
                warn!(path = %self.path.display(), ?step, %error, "cannot write {}", failures.subject);
            }
            (Ok(()), Some(_)) => {
                info!(path = %self.path.display(), "{} are written again", failures.subject);
            }
            (_, None) => {}
        }
        result.is_ok()
    }

    fn try_replace(&self, text: &str) -> Result<(), (Step, io::Error)> {
        let mut file = Builder::new()
            .prefix(&self.temporary)
            .tempfile_in(&self.dir)
            .map_err(|error| (Step::Create, error))?;
        // Every return from here on removes the temporary file.
        file.write_all(text.as_bytes()).map_err(|error| (Step::Write, error))?;
        file.persist(&self.path).map(drop).map_err(|error| (Step::Rename, error.error))
    }
}

impl FailureLog {
    /// A log without failures. `subject` is what the file holds, in the plural, for log messages.
    #[must_use]
    pub fn new(subject: &'static str) -> Self {
        Self { subject, last: None }
    }

    fn update(&mut self, result: Result<(), (Step, ErrorKind)>) -> Option<Change> {
        let before = std::mem::replace(&mut self.last, result.err());
        match self.last {
            now if now == before => None,
            Some(_) => Some(Change::Failing),
            None => Some(Change::Recovered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pods");
        let left_over = dir.path().join("__podsAbCdEf");
        fs::write(&left_over, "half of").unwrap();
        let (file, mut failures) = (AtomicFile::new(&path).unwrap(), FailureLog::new("tests"));
        assert!(!file.exists());
        assert!(file.replace("one", &mut failures));
        let reader = fs::File::open(&path).unwrap();
        assert!(file.exists() && file.replace("two", &mut failures));
        // A reader that has the old file open still reads the old file.
        assert_eq!(io::read_to_string(reader).unwrap(), "one");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&left_over).unwrap(), "half of");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_failed_write_changes_nothing_and_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let (file, mut failures) =
            (AtomicFile::new(&missing.join("pods")).unwrap(), FailureLog::new("tests"));
        assert!(!file.replace("one", &mut failures));
        assert_eq!(failures.last, Some((Step::Create, ErrorKind::NotFound)));
        fs::create_dir(&missing).unwrap();
        fs::create_dir(file.path()).unwrap();
        assert!(!file.replace("one", &mut failures));
        assert_eq!(failures.last, Some((Step::Rename, ErrorKind::IsADirectory)));
        assert_eq!(fs::read_dir(&missing).unwrap().count(), 1, "the temporary file is gone");
        fs::remove_dir(file.path()).unwrap();
        assert!(file.replace("one", &mut failures));
        assert_eq!(failures.last, None);
    }

    #[test]
    fn only_changes_are_logged() {
        let full = Err((Step::Write, ErrorKind::StorageFull));
        let read_only = Err((Step::Create, ErrorKind::ReadOnlyFilesystem));
        let mut failures = FailureLog::new("tests");
        let logged: Vec<_> = [Ok(()), full, full, read_only, read_only, full, Ok(()), Ok(())]
            .map(|result| failures.update(result))
            .into();
        let failing = || Some(Change::Failing);
        assert_eq!(
            logged,
            [None, failing(), None, failing(), None, failing(), Some(Change::Recovered), None]
        );
    }

    #[test]
    fn paths_without_a_file_name_are_refused() {
        for (path, is_file) in [("/", false), ("..", false), ("", false), ("pods", true), ("/run/pods", true)]
        {
            assert_eq!(AtomicFile::new(Path::new(path)).is_some(), is_file, "{path}");
        }
    }
}
