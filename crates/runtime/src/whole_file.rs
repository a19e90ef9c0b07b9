//! A file that is only ever replaced as a whole.
//!
//! In: its path, what it is about, and what it should say. Out: the file, mode 0600; whether that worked. Never: half a file under its name, an error
//! that is logged again while it is the same, or a file of somebody else touched (what a crash left behind included: it has
//! another random name).

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use tempfile::Builder;
use tracing::{info, warn};

/// What names of temporary files begin with; the peers' readers skip them.
pub const TEMPORARY: &str = "__";

/// One file.
#[derive(Debug)]
pub struct Target {
    dir: PathBuf,
    path: PathBuf,
    temporary: OsString,
}

/// What kept the last write from succeeding, of one file or of several that fail together.
#[derive(Debug)]
pub struct Trouble {
    what: &'static str,
    last: Option<(Step, ErrorKind)>,
}

/// Where a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Rename,
}

/// What is worth saying about a write.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// It fails now, or fails in another way.
    Fails,
    /// It works again.
    Works,
}

impl Target {
    /// Nothing when the path has no file name.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let mut temporary = OsString::from(TEMPORARY);
        temporary.push(path.file_name()?);
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Self { dir: dir.to_owned(), path: path.to_owned(), temporary })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something is there.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Makes the file say this; whether it does now. News about failures go to the log, with what the file is about.
    pub fn replace(&self, text: &str, trouble: &mut Trouble) -> bool {
        let result = self.try_replace(text);
        let news = trouble.take(result.as_ref().map(drop).map_err(|(step, error)| (*step, error.kind())));
        match (&result, news) {
            (Err((step, error)), Some(_)) => {
                warn!(path = %self.path.display(), ?step, %error, "cannot write down {}", trouble.what);
            }
            (Ok(()), Some(_)) => {
                info!(path = %self.path.display(), "{} are written down again", trouble.what);
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
        // On any way out from here the temporary file is removed.
        file.write_all(text.as_bytes()).map_err(|error| (Step::Write, error))?;
        file.persist(&self.path).map(drop).map_err(|error| (Step::Rename, error.error))
    }
}

impl Trouble {
    /// None yet. `what` the file is about, in the plural.
    #[must_use]
    pub fn none(what: &'static str) -> Self {
        Self { what, last: None }
    }

    fn take(&mut self, result: Result<(), (Step, ErrorKind)>) -> Option<News> {
        let before = std::mem::replace(&mut self.last, result.err());
        match self.last {
            now if now == before => None,
            Some(_) => Some(News::Fails),
            None => Some(News::Works),
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
        let (target, mut trouble) = (Target::of(&path).unwrap(), Trouble::none("tests"));
        assert!(!target.exists());
        assert!(target.replace("one", &mut trouble));
        let reader = fs::File::open(&path).unwrap();
        assert!(target.exists() && target.replace("two", &mut trouble));
        // Who has the old file open still reads the old file.
        assert_eq!(io::read_to_string(reader).unwrap(), "one");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_to_string(&left_over).unwrap(), "half of");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_fails_leaves_everything_as_it_was_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let (target, mut trouble) = (Target::of(&missing.join("pods")).unwrap(), Trouble::none("tests"));
        assert!(!target.replace("one", &mut trouble));
        assert_eq!(trouble.last, Some((Step::Create, ErrorKind::NotFound)));
        fs::create_dir(&missing).unwrap();
        fs::create_dir(target.path()).unwrap();
        assert!(!target.replace("one", &mut trouble));
        assert_eq!(trouble.last, Some((Step::Rename, ErrorKind::IsADirectory)));
        assert_eq!(fs::read_dir(&missing).unwrap().count(), 1, "the temporary file is gone");
        fs::remove_dir(target.path()).unwrap();
        assert!(target.replace("one", &mut trouble));
        assert_eq!(trouble.last, None);
    }

    #[test]
    fn only_news_is_told() {
        let full = Err((Step::Write, ErrorKind::StorageFull));
        let read_only = Err((Step::Create, ErrorKind::ReadOnlyFilesystem));
        let mut trouble = Trouble::none("tests");
        let told: Vec<_> = [Ok(()), full, full, read_only, read_only, full, Ok(()), Ok(())]
            .map(|now| trouble.take(now))
            .into();
        let (fails, works) = (Some(News::Fails), Some(News::Works));
        assert_eq!(told, [None, fails, None, Some(News::Fails), None, Some(News::Fails), works, None]);
    }

    #[test]
    fn paths_without_a_file_name_are_no_targets() {
        for (path, is_target) in
            [("/", false), ("..", false), ("", false), ("pods", true), ("/run/pods", true)]
        {
            assert_eq!(Target::of(Path::new(path)).is_some(), is_target, "{path}");
        }
    }
}
