//! The environment of a process: its variables, the files it may read, the host.
//!
//! In: the real environment, or a directory and variables of a test. Out: answers. Never: a write.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use runtime::yaml;
use serde_json::Value;

use super::Problem;

/// Where the service account's files are mounted.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The environment of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// The name of the host.
    pub host: String,
    /// The id of the user.
    pub user: u32,
}

impl Environment {
    /// The environment of this process. Variables that are not UTF-8 are left out: all that are read here are text.
    #[must_use]
    pub fn real() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            root: PathBuf::from("/"),
            host: runtime::host::name(),
            user: rustix::process::getuid().as_raw(),
        }
    }

    /// A variable, unless it is empty.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether the path is a directory.
    #[must_use]
    pub fn is_dir(&self, path: &Path) -> bool {
        self.at(path).is_dir()
    }

    /// Whether the path exists.
    #[must_use]
    pub fn exists(&self, path: &Path) -> bool {
        self.at(path).exists()
    }

    /// The namespace of the process: the service account's, else `KUBERNETES_NAMESPACE`.
    #[must_use]
    pub fn namespace(&self) -> Option<String> {
        let file = std::fs::read_to_string(self.at(&Path::new(SERVICE_ACCOUNT).join("namespace")));
        let file = file.unwrap_or_default();
        let found = Some(file.trim()).filter(|text| !text.is_empty());
        found.or_else(|| self.variable("KUBERNETES_NAMESPACE")).map(str::to_owned)
    }

    /// The path with symbolic links followed; `None` when it does not exist.
    ///
    /// # Errors
    /// When the system refuses the look-up.
    pub(super) fn resolve(&self, path: &Path) -> Result<Option<PathBuf>, Problem> {
        let failed =
            |error: io::Error| Problem::File { file: path.display().to_string(), reason: error.to_string() };
        match self.at(path).canonicalize() {
            Ok(real) => {
                let root = self.root.canonicalize().map_err(failed)?;
                let inside = real.strip_prefix(&root).map(|rest| Path::new("/").join(rest));
                Ok(Some(inside.unwrap_or(real)))
            }
            // A path below a plain file does not exist either.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The files of a directory in lexical order, including those behind symbolic links (a mounted ConfigMap has no
    /// others); none if the directory cannot be read.
    pub(super) fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.at(dir)).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> =
            entries.filter(|entry| entry.path().is_file()).map(|entry| dir.join(entry.file_name())).collect();
        files.sort_unstable();
        files
    }

    /// Reads a YAML document that must be a map; an empty one is an empty map.
    pub(super) fn map(&self, path: &Path) -> Result<serde_json::Map<String, Value>, Problem> {
        let file = path.display().to_string();
        match yaml::read_file(&self.at(path), yaml::Mode::Lenient, yaml::CONFIG_LIMIT_BYTES) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(Value::Null) => Ok(serde_json::Map::new()),
            Ok(_) => Err(Problem::File { file, reason: "is not a map of keys".to_owned() }),
            Err(error) => Err(Problem::File { file, reason: error.reason }),
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        if path.is_relative() && self.root == Path::new("/") {
            return path.to_owned();
        }
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// The path without `.`, `..` and doubled slashes; the file system is not consulted.
pub(crate) fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}
