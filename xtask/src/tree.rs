//! Files that are made from code and committed.
//!
//! In: folders that hold nothing else, and what is to be in them. Out: the same on disk, or the names of those
//! that are stale. Never: a file outside those folders.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use objects::Object;
use serde::Serialize;

/// Texts by path below some folder, with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Adds a file.
    pub(crate) fn add(&mut self, path: &str, text: String) {
        self.0.insert(path.to_owned(), text);
    }

    /// Adds a document of YAML.
    pub(crate) fn add_yaml(&mut self, path: &str, value: &impl Serialize) -> anyhow::Result<()> {
        self.add(path, runtime::yaml::write(value).with_context(|| format!("writing {path}"))?);
        Ok(())
    }

    /// Adds objects, each a document.
    pub(crate) fn add_objects(&mut self, path: &str, objects: &[Object]) -> anyhow::Result<()> {
        let text = deployer::manifests::text::render_objects(objects);
        self.add(path, text.with_context(|| format!("writing {path}"))?);
        Ok(())
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// All texts, by path.
    pub(crate) fn texts(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// A file's text.
    #[cfg(test)]
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Makes `folder` hold exactly this, or with `check` only fails if it does not; the error says what to run.
    pub(crate) fn put(&self, folder: &Path, check: bool, command: &str) -> anyhow::Result<()> {
        let there = files(folder)?;
        let stale: Vec<&String> = self
            .0
            .iter()
            .filter(|(path, text)| there.get(*path) != Some(text))
            .map(|(path, _)| path)
            .chain(there.keys().filter(|path| !self.0.contains_key(*path)))
            .collect();
        if check {
            if stale.is_empty() {
                return Ok(());
            }
            bail!("stale in {}, run `{command}`: {stale:?}", folder.display());
        }
        for path in stale {
            let target = folder.join(path);
            match self.0.get(path) {
                Some(text) => {
                    let parent = target.parent().unwrap_or(folder);
                    fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
                    fs::write(&target, text).with_context(|| format!("writing {}", target.display()))?;
                    println!("wrote {}", target.display());
                }
                None => {
                    fs::remove_file(&target).with_context(|| format!("removing {}", target.display()))?;
                    println!("removed {}", target.display());
                }
            }
        }
        Ok(())
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// The texts of all files of a folder, by path.
pub(crate) fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        if !next.exists() {
            continue;
        }
        for entry in fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let below = path.strip_prefix(folder).unwrap_or(&path);
            files.insert(below.to_string_lossy().replace('\\', "/"), text);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_to_hold_exactly_this() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.add("a/b.yaml", "one".to_owned());
        tree.add("c.yaml", "two".to_owned());
        let error = tree.put(dir.path(), true, "do it").unwrap_err().to_string();
        assert!(error.ends_with("run `do it`: [\"a/b.yaml\", \"c.yaml\"]"), "{error}");
        tree.put(dir.path(), false, "").unwrap();
        tree.put(dir.path(), true, "").unwrap();
        fs::write(dir.path().join("a/old.yaml"), "three").unwrap();
        fs::write(dir.path().join("c.yaml"), "other").unwrap();
        let error = tree.put(dir.path(), true, "do it").unwrap_err().to_string();
        assert!(error.ends_with("[\"c.yaml\", \"a/old.yaml\"]"), "{error}");
        tree.put(dir.path(), false, "").unwrap();
        assert_eq!(files(dir.path()).unwrap(), tree.0);
    }
}
