//! Which files are read, and from where.
//!
//! In: the configuration root or `--config`. Out: what they say, in a [`Config`]. Never: a file outside of RTE's directories, even
//! behind a symbolic link.
//!
//! Below the root (an argument, else `/etc/rte`): `daemon/config.yaml`, then each file of `daemon/config.yaml.d/` in lexical order,
//! then `extra/config.yaml`. Without the argument the file of `--config` comes last, which is where RTE looks by default; when that
//! flag is given, `extra/config.yaml` is not read. None of them has to be there.

use std::path::{Path, PathBuf};

use super::config::Config;
use crate::dialect::extra::{Extra, Reader};
use crate::dialect::surroundings::clean;
use crate::dialect::{Note, Problem, Surroundings};

/// Where the daemon's files are without an argument.
const ROOT: &str = "/etc/rte";

/// Which files there are to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Locations {
    daemon: PathBuf,
    extra: Vec<PathBuf>,
}

impl Locations {
    /// Those for a root (the argument) and `--config` as it was given, or its default.
    ///
    /// # Errors
    /// For an empty one.
    pub(super) fn new(root: Option<&str>, given: Option<&str>, default: &str) -> Result<Self, Problem> {
        let absolute = |text: &str, at: &str| {
            let wrong = || Problem::value(at, format!("{text:?}"), "an absolute path");
            if text.starts_with('/') { Ok(clean(Path::new(text))) } else { Err(wrong()) }
        };
        let extra = |root: &Path| root.join("extra/config.yaml");
        let legacy = |text: &str| absolute(text, "--config");
        Ok(match (root, given) {
            (Some(root), _) => {
                let root = absolute(root, "configuration root")?;
                Self { daemon: root.join("daemon"), extra: vec![extra(&root)] }
            }
            (None, Some(given)) => {
                Self { daemon: Path::new(ROOT).join("daemon"), extra: vec![legacy(given)?] }
            }
            (None, None) => {
                let root = Path::new(ROOT);
                Self { daemon: root.join("daemon"), extra: vec![extra(root), legacy(default)?] }
            }
        })
    }

    /// Reads them into `config`.
    pub(super) fn read(
        &self,
        config: &mut Config,
        around: &Surroundings,
        notes: &mut Vec<Note>,
        problems: &mut Vec<Problem>,
    ) {
        let main = self.daemon.join("config.yaml");
        for file in std::iter::once(main).chain(around.files(&self.daemon.join("config.yaml.d"))) {
            match readable(&file, around).and_then(|there| there.then(|| around.map(&file)).transpose()) {
                Ok(None) => notes.push(Note::Info(format!("{} is not there", file.display()))),
                Ok(Some(map)) => {
                    let name = file.display().to_string();
                    config.take_daemon(map, &mut Reader { file: &name, notes, problems });
                }
                Err(problem) => problems.push(problem),
            }
        }
        for file in &self.extra {
            match readable(file, around) {
                Ok(_) => {
                    if let Some(extra) = Extra::read(file, around, notes, problems) {
                        config.take_extra(&file.display().to_string(), extra, problems);
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
    }
}

/// Whether the file is there; what it is behind symbolic links must be in a directory for configuration.
fn readable(file: &Path, around: &Surroundings) -> Result<bool, Problem> {
    let found = around.resolve(file)?;
    let real = found.clone().unwrap_or_else(|| file.to_owned());
    let allowed = directories(around);
    // By whole components: `/etc/rte-of-mine` is not in `/etc/rte`.
    if allowed.iter().any(|dir| real.starts_with(dir)) {
        return Ok(found.is_some());
    }
    let allowed: Vec<String> = allowed.iter().map(|dir| dir.display().to_string()).collect();
    Err(Problem::Outside { path: real.display().to_string(), allowed: allowed.join(", ") })
}

/// Where configuration may be; only an administrator or the user itself can write there.
fn directories(around: &Surroundings) -> Vec<PathBuf> {
    let fixed = ["/etc/rte", "/run/rte", "/var/rte", "/usr/local/etc/rte", "/etc/resource-topology-exporter"];
    let mut directories: Vec<PathBuf> = fixed.into_iter().map(PathBuf::from).collect();
    directories.push(PathBuf::from(format!("/run/user/{}/rte", around.user)));
    directories.extend(around.variable("HOME").map(|home| clean(&Path::new(home).join(".rte"))));
    directories
}
