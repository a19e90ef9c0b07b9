//! Finds and reads the configuration files.
//!
//! In: the configuration root or `--config`. Out: the values of the files, in a [`Config`]. Never: a file outside of
//! RTE's directories, even behind a symbolic link.
//!
//! Below the root (an argument, else `/etc/rte`) these files are read in order: `daemon/config.yaml`, each file of
//! `daemon/config.yaml.d/` in lexical order, `extra/config.yaml`. Without the argument the file of `--config` comes
//! last, whose default is RTE's; if that flag is given, `extra/config.yaml` is not read. All files are optional.

use std::path::{Path, PathBuf};

use super::config::Config;
use crate::compat::environment::clean;
use crate::compat::extra::{Extra, Reader};
use crate::compat::{Environment, Note, Problem};

/// The default of the configuration root.
const ROOT: &str = "/etc/rte";

/// The files to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Locations {
    daemon: PathBuf,
    extra: Vec<PathBuf>,
}

impl Locations {
    /// The files for a root (the argument) and `--config` as given, or its default.
    ///
    /// # Errors
    /// When a path is not absolute.
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

    /// Reads the files into `config`.
    pub(super) fn read(
        &self,
        config: &mut Config,
        env: &Environment,
        notes: &mut Vec<Note>,
        problems: &mut Vec<Problem>,
    ) {
        let main = self.daemon.join("config.yaml");
        for file in std::iter::once(main).chain(env.files(&self.daemon.join("config.yaml.d"))) {
            match readable(&file, env).and_then(|there| there.then(|| env.map(&file)).transpose()) {
                Ok(None) => notes.push(Note::Info(format!("{} does not exist", file.display()))),
                Ok(Some(map)) => {
                    let name = file.display().to_string();
                    config.take_daemon(map, &mut Reader { file: &name, notes, problems });
                }
                Err(problem) => problems.push(problem),
            }
        }
        for file in &self.extra {
            match readable(file, env) {
                Ok(_) => {
                    if let Some(extra) = Extra::read(file, env, notes, problems) {
                        config.take_extra(&file.display().to_string(), extra, problems);
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
    }
}

/// Whether the file exists; after symbolic links it must be in a directory for configuration.
fn readable(file: &Path, env: &Environment) -> Result<bool, Problem> {
    let found = env.resolve(file)?;
    let real = found.clone().unwrap_or_else(|| file.to_owned());
    let allowed = directories(env);
    // Whole components are compared: `/etc/rte-of-mine` is not in `/etc/rte`.
    if allowed.iter().any(|dir| real.starts_with(dir)) {
        return Ok(found.is_some());
    }
    let allowed: Vec<String> = allowed.iter().map(|dir| dir.display().to_string()).collect();
    Err(Problem::Outside { path: real.display().to_string(), allowed: allowed.join(", ") })
}

/// The directories for configuration; only an administrator or the user itself can write there.
fn directories(env: &Environment) -> Vec<PathBuf> {
    let fixed = ["/etc/rte", "/run/rte", "/var/rte", "/usr/local/etc/rte", "/etc/resource-topology-exporter"];
    let mut directories: Vec<PathBuf> = fixed.into_iter().map(PathBuf::from).collect();
    directories.push(PathBuf::from(format!("/run/user/{}/rte", env.user)));
    directories.extend(env.variable("HOME").map(|home| clean(&Path::new(home).join(".rte"))));
    directories
}
