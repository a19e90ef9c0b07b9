//! Which sources these are, and of when.
//!
//! In: the repository and `SOURCE_DATE_EPOCH`. Out: a commit and a time in seconds since 1970; never the
//! clock's, or no two builds would be equal.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::build::output;

/// Set by a rebuild of a package: the time that everything in it shall have.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The sources' state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    /// The commit, with `-dirty` behind it when files differ from it; `None` outside of a repository.
    pub(crate) commit: Option<String>,
    /// Seconds since 1970: `SOURCE_DATE_EPOCH`, or when the commit was made, or 0.
    pub(crate) time: u64,
}

impl Revision {
    /// That of the repository at `root`.
    pub(crate) fn of(root: &Path) -> anyhow::Result<Self> {
        let git = |args: &[&str]| output(Command::new("git").arg("-C").arg(root).args(args)).ok();
        let head = git(&["log", "-1", "--format=%H %ct"]);
        let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
        let epoch = std::env::var(EPOCH).ok();
        Self::from(head.as_deref(), changes.is_some_and(|changes| !changes.is_empty()), epoch.as_deref())
    }

    fn from(head: Option<&str>, dirty: bool, epoch: Option<&str>) -> anyhow::Result<Self> {
        let (commit, committed) = head.and_then(|head| head.trim().split_once(' ')).unzip();
        let (name, time) = match epoch {
            Some(epoch) => (EPOCH, epoch),
            None => ("the commit's time", committed.unwrap_or("0")),
        };
        let time = time.parse().with_context(|| format!("{name}: {time:?} is not a number of seconds"))?;
        let mark = if dirty { "-dirty" } else { "" };
        Ok(Self { commit: commit.map(|commit| format!("{commit}{mark}")), time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_told_and_never_now() {
        let check = |head: Option<&str>, dirty, epoch: Option<&str>, wanted: Option<(Option<&str>, u64)>| {
            let got = Revision::from(head, dirty, epoch).ok();
            let wanted = wanted.map(|(commit, time)| Revision { commit: commit.map(str::to_owned), time });
            assert_eq!(got, wanted, "{head:?} {epoch:?}");
        };
        check(Some("c0ffee 1700000000\n"), false, None, Some((Some("c0ffee"), 1_700_000_000)));
        check(Some("c0ffee 1700000000\n"), true, Some("7"), Some((Some("c0ffee-dirty"), 7)));
        check(None, false, None, Some((None, 0)));
        check(None, false, Some("yesterday"), None);
        check(None, false, Some("-1"), None);
    }
}
