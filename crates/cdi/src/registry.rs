//! All devices of a machine, as runtimes resolve them from the folders.
//!
//! In: folders, the most important one last. Out: the file that describes each device, and what is wrong. Never: a
//! device with two descriptions in one folder; these make it unresolvable, as they do for runtimes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::check::{Finding, Severity, check};
use crate::file::{self, EXTENSIONS};
use crate::name::{Kind, QualifiedName};
use crate::spec::{Device, Spec};

/// The largest number of files that are read of one folder.
pub const MAX_FILES: usize = 16_384;

/// The specifications in folders, and the devices they describe.
#[derive(Debug, Default)]
pub struct Registry {
    /// The files that runtimes accept, in the order in which they are read: by folder, then by name.
    pub files: Vec<File>,
    /// Findings, with the file or folder of each.
    pub findings: Vec<(PathBuf, Finding)>,
    /// Folders and files that cannot be read at all, with the reason.
    pub unreadable: Vec<(PathBuf, io::Error)>,
    devices: BTreeMap<QualifiedName, Place>,
}

/// One specification file.
#[derive(Debug)]
pub struct File {
    /// The file's path.
    pub path: PathBuf,
    /// The index of the folder; later folders take precedence.
    pub priority: usize,
    /// The specification in the file.
    pub spec: Spec,
}

/// Where a device is described: the indexes of the file and of the device in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    file: usize,
    device: usize,
}

impl Registry {
    /// Reads folders. A missing folder has no devices. Cost: reads and checks every specification file.
    #[must_use]
    pub fn read(folders: &[impl AsRef<Path>]) -> Self {
        let mut registry = Self::default();
        for (priority, folder) in folders.iter().enumerate() {
            let folder = folder.as_ref();
            match paths(folder) {
                Ok(mut paths) => {
                    if paths.len() > MAX_FILES {
                        let problem = format!("{} files; only the first {MAX_FILES} are read", paths.len());
                        registry.find(folder, Severity::Warning, "", problem);
                        paths.truncate(MAX_FILES);
                    }
                    paths.into_iter().for_each(|path| registry.read_file(path, priority));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => registry.unreadable.push((folder.to_owned(), error)),
            }
        }
        registry.resolve();
        registry
    }

    /// The devices that can be asked for, by name, with the file that describes each.
    pub fn devices(&self) -> impl Iterator<Item = (&QualifiedName, &Device, &File)> {
        self.devices.iter().filter_map(|(name, place)| {
            let file = self.files.get(place.file)?;
            Some((name, file.spec.devices.get(place.device)?, file))
        })
    }

    /// One device and the file that describes it; none when the device cannot be resolved.
    #[must_use]
    pub fn device(&self, name: &QualifiedName) -> Option<(&Device, &File)> {
        let place = self.devices.get(name)?;
        let file = self.files.get(place.file)?;
        Some((file.spec.devices.get(place.device)?, file))
    }

    /// Whether any finding is an error, which keeps a device from being resolved.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|(_, finding)| finding.severity == Severity::Error)
    }

    /// Reads one file of the folder with this index.
    pub(crate) fn read_file(&mut self, path: PathBuf, priority: usize) {
        // Opening a pipe would block.
        match fs::metadata(&path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return self.find(&path, Severity::Error, "", "is not a regular file".to_owned()),
            Err(error) => return self.unreadable.push((path, error)),
        }
        if let Err(error) = fs::File::open(&path) {
            return self.unreadable.push((path, error));
        }
        match file::read(&path) {
            Ok(spec) => self.take(path, priority, spec),
            Err(error) => self.find(&path, Severity::Error, "", error.reason),
        }
    }

    /// Checks a specification, and adds it if it has no errors.
    pub(crate) fn take(&mut self, path: PathBuf, priority: usize, spec: Spec) {
        let findings = check(&spec);
        let good = findings.iter().all(|finding| finding.severity != Severity::Error);
        self.findings.extend(findings.into_iter().map(|finding| (path.clone(), finding)));
        if good {
            self.files.push(File { path, priority, spec });
        }
    }

    /// Decides which file describes each device.
    pub(crate) fn resolve(&mut self) {
        let (mut devices, mut clashes) = (BTreeMap::new(), BTreeSet::new());
        let mut told = Vec::new();
        for (file, from) in self.files.iter().enumerate() {
            let Ok(kind) = from.spec.kind.parse::<Kind>() else { continue };
            for (device, name) in from.spec.devices.iter().enumerate() {
                let Ok(name) = kind.device(&name.name) else { continue };
                match devices.entry(name) {
                    Entry::Vacant(free) => drop(free.insert(Place { file, device })),
                    Entry::Occupied(mut taken) => {
                        let other: &File = &self.files[taken.get().file];
                        if other.priority < from.priority {
                            taken.insert(Place { file, device });
                        } else {
                            told.push((taken.key().clone(), from.path.clone(), other.path.clone()));
                            clashes.insert(taken.key().clone());
                        }
                    }
                }
            }
        }
        // A description in a more important folder does not help: runtimes do not resolve such a device either.
        devices.retain(|name, _| !clashes.contains(name));
        self.devices = devices;
        for (name, path, other) in told {
            let problem = format!("{name} is also described in {}; no container can get it", other.display());
            self.find(&path, Severity::Error, "devices", problem);
        }
    }

    fn find(&mut self, path: &Path, severity: Severity, field: &str, problem: String) {
        self.findings.push((path.to_owned(), Finding { severity, field: field.to_owned(), problem }));
    }
}

/// The specification files of a folder, by name.
fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let known =
            path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
        if known && !entry.file_type()?.is_dir() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}
