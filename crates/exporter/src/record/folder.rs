//! A folder that is written as a whole: beside its place, then renamed.
//!
//! In: relative paths and texts, a place. Out: files of mode 0600 in folders of mode 0700. Never: half a folder under
//! its name, a folder replaced that has not the file by which ours are known, or a symbolic link followed at the place.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// Texts by relative path.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<PathBuf, String>);

impl Files {
    pub(super) fn put(&mut self, path: impl Into<PathBuf>, text: String) {
        self.0.insert(path.into(), text);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.values().map(String::len).sum()
    }
}

/// Where a folder goes.
#[derive(Debug)]
pub(super) struct Place {
    parent: PathBuf,
    out: PathBuf,
}

/// A folder that is complete and not yet in its place.
#[derive(Debug)]
pub(super) struct Written {
    /// Removed at the end, with what it still holds.
    beside: TempDir,
    out: PathBuf,
}

/// The new folder in the one beside the place.
const NEW: &str = "new";
/// The folder that was in the place.
const FORMER: &str = "former";

impl Place {
    /// A place that is free, or has an empty folder, or with `force` one with the file `mark`.
    pub(super) fn new(out: &Path, mark: &str, force: bool) -> anyhow::Result<Self> {
        let shown = out.display();
        if out.file_name().is_none() {
            bail!("--out: {:?} is not the name of a folder", out.display().to_string());
        }
        let parent = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match fs::symlink_metadata(out) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("--out: {shown}")),
            Ok(found) if !found.is_dir() => bail!("--out: {shown} is there, and is no folder; name another"),
            Ok(_) if is_empty(out).with_context(|| format!("--out: {shown}"))? => {}
            Ok(_) if !out.join(mark).is_file() => {
                bail!("--out: {shown} is there, and is no recording (it has no {mark}); name another folder")
            }
            Ok(_) if !force => bail!("--out: {shown} is there; --force replaces the recording"),
            Ok(_) => {}
        }
        Ok(Self { parent: parent.to_owned(), out: out.to_owned() })
    }

    /// Writes all files beside the place.
    pub(super) fn write(self, files: &Files) -> anyhow::Result<Written> {
        let at = || format!("--out: {}", self.out.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.parent).with_context(at)?;
        let beside =
            tempfile::Builder::new().prefix(".recording-").tempdir_in(&self.parent).with_context(at)?;
        for (path, text) in &files.0 {
            let file = beside.path().join(NEW).join(path);
            write(&file, text).with_context(|| format!("--out: {}", self.out.join(path).display()))?;
        }
        Ok(Written { beside, out: self.out })
    }
}

impl Written {
    /// Where the files are now.
    pub(super) fn path(&self) -> PathBuf {
        self.beside.path().join(NEW)
    }

    /// Moves the folder to its place.
    pub(super) fn keep(self) -> anyhow::Result<PathBuf> {
        let former = self.beside.path().join(FORMER);
        let moved = || {
            match fs::rename(&self.out, &former) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(self.path(), &self.out).inspect_err(|_| {
                // Nothing more can be done if this fails too.
                let _ = fs::rename(&former, &self.out);
            })
        };
        moved().with_context(|| format!("--out: {}", self.out.display()))?;
        Ok(self.out)
    }
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(dir)?.next().is_none())
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?.write_all(text.as_bytes())
}
