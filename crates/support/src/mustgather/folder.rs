//! Where things go, and what went wrong.
//!
//! In: relative paths and bytes. Out: files; a list of troubles as the file `gather-errors.txt`. Never: a file outside the folder, or an error that
//! ends anything.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};

/// What is missing, one line each.
pub(super) const ERRORS: &str = "gather-errors.txt";
/// What is told meanwhile.
const LOG: &str = "gather.log";

/// The folder.
pub(super) struct Folder {
    root: PathBuf,
    troubles: Mutex<Vec<String>>,
    told: Mutex<String>,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, troubles: Mutex::default(), told: Mutex::default() }
    }

    /// Writes a file. Each part of the path becomes a name of a file, whatever it is.
    pub(super) fn write(&self, path: &str, bytes: &[u8]) {
        let file = self.root.join(path.split('/').map(segment).collect::<PathBuf>());
        let folder = file.parent().unwrap_or(&self.root);
        if let Err(error) = fs::create_dir_all(folder).and_then(|()| fs::write(&file, bytes)) {
            self.trouble(&format!("{}: {error}", file.display()));
        }
    }

    /// Writes a value as YAML.
    pub(super) fn yaml(&self, path: &str, value: &Value) {
        match runtime::yaml::write(value) {
            Ok(text) => self.write(path, text.as_bytes()),
            Err(error) => self.trouble(&format!("{path}: {error}")),
        }
    }

    /// Writes objects of one kind as a list.
    pub(super) fn list(&self, path: &str, kind: &str, items: &[Value]) {
        let version =
            items.first().and_then(|item| item.get("apiVersion")).cloned().unwrap_or_else(|| "v1".into());
        self.yaml(path, &json!({ "apiVersion": version, "kind": format!("{kind}List"), "items": items }));
    }

    /// Something is missing.
    pub(super) fn trouble(&self, text: &str) {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.tell(&format!("missing: {line}"));
        if let Ok(mut troubles) = self.troubles.lock() {
            troubles.push(line);
        }
    }

    /// Says how it goes.
    pub(super) fn tell(&self, text: &str) {
        eprintln!("{text}");
        if let Ok(mut told) = self.told.lock() {
            told.push_str(text);
            told.push('\n');
        }
    }

    /// Writes what was told and what is missing; whether nothing is.
    pub(super) fn finish(self) -> bool {
        let mut troubles = self.troubles.lock().map(|list| list.clone()).unwrap_or_default();
        troubles.sort();
        let summary = match troubles.len() {
            0 => format!("collected into {}", self.root.display()),
            many => format!("collected into {}; {many} missing, see {ERRORS} there", self.root.display()),
        };
        self.tell(&summary);
        if !troubles.is_empty() {
            self.write(ERRORS, (troubles.join("\n") + "\n").as_bytes());
        }
        let told = self.told.lock().map(|told| told.clone()).unwrap_or_default();
        self.write(LOG, told.as_bytes());
        troubles.is_empty()
    }
}

/// A name of a file.
fn segment(name: &str) -> String {
    if name.is_empty() || name.bytes().all(|byte| byte == b'.') {
        return "_".to_owned();
    }
    name.replace(['/', '\\', '\0'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("in"));
        folder.write("a/../../b\\c/", b"x");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::read(dir.path().join("in/a/_/_/b_c/_")).unwrap(), b"x");
    }

    #[test]
    fn what_is_missing_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        folder.write("file", b"x");
        folder.write("file/below", b"x");
        folder.trouble("b:\nis  gone");
        assert!(!folder.finish());
        let listed = fs::read_to_string(dir.path().join(ERRORS)).unwrap();
        assert!(listed.lines().count() == 2 && listed.ends_with("b: is gone\n"), "{listed}");
        assert!(Folder::new(dir.path().join("new")).finish());
        assert!(!dir.path().join("new").join(ERRORS).exists());
    }
}
