//! The folder of a collection, with its log and the list of missing data.
//!
//! In: relative paths and bytes. Out: files of the user alone (mode 0600); the missing data in `gather-errors.txt`.
//! Never: a file outside the folder, or an error that ends the collection.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use runtime::output::one_line;
use runtime::stderr;
use serde_json::{Value, json};

/// File with the missing data, one line each.
pub(super) const ERRORS: &str = "gather-errors.txt";
/// File with the progress messages.
const LOG: &str = "gather.log";

/// The destination of a collection.
pub(super) struct Folder {
    root: PathBuf,
    missing: Mutex<Vec<String>>,
    log: Mutex<String>,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, missing: Mutex::default(), log: Mutex::default() }
    }

    /// Writes a file. Each part of the path becomes a valid file name.
    pub(super) fn write(&self, path: &str, bytes: &[u8]) {
        let file = self.root.join(path.split('/').map(segment).collect::<PathBuf>());
        if let Err(error) = write(&file, bytes) {
            self.report_missing(&format!("{}: {error}", file.display()));
        }
    }

    /// Writes a value as YAML.
    pub(super) fn yaml(&self, path: &str, value: &Value) {
        match runtime::yaml::write(value) {
            Ok(text) => self.write(path, text.as_bytes()),
            Err(error) => self.report_missing(&format!("{path}: {error}")),
        }
    }

    /// Writes objects of one kind as a list.
    pub(super) fn list(&self, path: &str, kind: &str, items: &[Value]) {
        let version =
            items.first().and_then(|item| item.get("apiVersion")).cloned().unwrap_or_else(|| "v1".into());
        self.yaml(path, &json!({ "apiVersion": version, "kind": format!("{kind}List"), "items": items }));
    }

    /// Records missing data.
    pub(super) fn report_missing(&self, text: &str) {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.progress(&format!("missing: {line}"));
        if let Ok(mut missing) = self.missing.lock() {
            missing.push(line);
        }
    }

    /// Prints a progress message.
    pub(super) fn progress(&self, text: &str) {
        stderr::line(one_line(text));
        if let Ok(mut log) = self.log.lock() {
            log.push_str(text);
            log.push('\n');
        }
    }

    /// Writes the log and the list of missing data; whether nothing is missing.
    pub(super) fn finish(self) -> bool {
        let mut missing = self.missing.lock().map(|list| list.clone()).unwrap_or_default();
        missing.sort();
        let summary = match missing.len() {
            0 => format!("collected into {}", self.root.display()),
            1 => format!("collected into {}; 1 item is missing, see {ERRORS} there", self.root.display()),
            many => format!(
                "collected into {}; {many} items are missing, see {ERRORS} there",
                self.root.display()
            ),
        };
        self.progress(&summary);
        if !missing.is_empty() {
            self.write(ERRORS, (missing.join("\n") + "\n").as_bytes());
        }
        let log = self.log.lock().map(|log| log.clone()).unwrap_or_default();
        self.write(LOG, log.as_bytes());
        missing.is_empty()
    }
}

/// Writes a file that only the user can read, in folders that only the user can enter.
pub(super) fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(file)?.write_all(bytes)
}

/// A part of a path as a valid file name.
fn segment(name: &str) -> String {
    if name.is_empty() || name.bytes().all(|byte| byte == b'.') {
        return "_".to_owned();
    }
    name.replace(['/', '\\', '\0'], "_")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn nothing_leaves_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("in"));
        folder.write("a/../../b\\c/", b"x");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::read(dir.path().join("in/a/_/_/b_c/_")).unwrap(), b"x");
        for (path, wanted) in [("in/a/_/_/b_c/_", 0o600), ("in/a/_", 0o700), ("in", 0o700)] {
            let mode = fs::metadata(dir.path().join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, wanted, "{path}");
        }
    }

    #[test]
    fn missing_data_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        folder.write("file", b"x");
        folder.write("file/below", b"x");
        folder.report_missing("b:\nis  gone");
        assert!(!folder.finish());
        let listed = fs::read_to_string(dir.path().join(ERRORS)).unwrap();
        assert!(listed.lines().count() == 2 && listed.ends_with("b: is gone\n"), "{listed}");
        assert!(Folder::new(dir.path().join("new")).finish());
        assert!(!dir.path().join("new").join(ERRORS).exists());
    }
}
