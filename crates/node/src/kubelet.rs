//! Where the kubelet keeps things, and how it aligns.
//!
//! In: its root directory, its configuration files. Out: the directories worth watching, and in [`config`] the settings
//! that decide alignment. Never: what pods hold, which only its podresources service knows.
//!
//! # Which file changes when
//! Read in kubelet 1.36.3 and seen on one. Every checkpoint is written to a temporary file, synced and renamed over the old
//! one, so it shows up as a rename.
//! - Admission: `cpu_manager_state` and `memory_manager_state` for each container that gets something exclusive, the device
//!   manager's checkpoint, then `allocated_pods_state`. A pod may be refused after the first of these.
//! - Start of the pod: its directory under `pods/`, `dra_manager_state`, `actuated_pods_state`.
//! - Release: **neither the CPU and memory managers nor the allocation manager write anything.** The kubelet drops a pod
//!   from its list once the containers have ended, or at once when the object is gone (deletion by force), and its managers
//!   notice at the next admission or the CPU manager's check every 10 s. What can be seen: `dra_manager_state` is written when
//!   the containers have ended, a moment before the pod leaves the list (for every pod, since dynamic resource allocation
//!   is on: 1.34); the pod's cgroup goes; its directory goes, up to two seconds after its object.

use std::path::{Path, PathBuf};

use crate::file::{self, Kind};
use crate::watch::{Names, Target};

pub mod config;

pub use config::{Configuration, Error as RulesError, Files, ReservedCpus};

/// The allocation manager's checkpoint, in the root directory: written once at the end of each pod's admission.
pub const ADMISSIONS: &str = "allocated_pods_state";

/// Something about the kubelet that changed; what [`targets`] tags its directories with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// A manager wrote its checkpoint.
    Allocation,
    /// A pod was admitted and has all it will get: `allocated_pods_state` was written (since 1.33), which is counted.
    Admission,
    /// The device manager wrote its checkpoint (devices came, went, changed health or were handed out), or a plugin's socket
    /// came or went.
    Devices,
    /// A pod's directory or cgroup came or went.
    Pods,
    /// The podresources socket was created or removed: the kubelet (re)started.
    Socket,
    /// The configuration file was written, or something in the drop-in directory.
    Config,
    /// Somebody asks for a look: [`notice`]'s file was touched or written.
    Notice,
}

/// What to watch so that touching or writing this file is seen, whether it is there yet or is replaced.
#[must_use]
pub fn notice(file: &Path) -> Option<Target<Change>> {
    let name = file.file_name()?.to_string_lossy().into_owned();
    Some(Target { dir: file.parent()?.to_owned(), names: Names::Touched(name), tag: Change::Notice })
}

/// The directories to watch for a kubelet with this root directory (where it can be seen), podresources socket and
/// configuration, on a machine with this sysfs. Of drop-in directories those below that exist now are watched; that another one comes is seen, what
/// happens in it then is not.
#[must_use]
pub fn targets(root: Option<&Path>, socket: &Path, config: &Files, sysfs: &Path) -> Vec<Target<Change>> {
    let mut targets = root.map(state).unwrap_or_default();
    for (path, tag) in [(socket, Change::Socket), (&config.file, Change::Config)] {
        if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
            let name = name.to_string_lossy().into_owned();
            targets.push(Target { dir: dir.to_owned(), names: Names::Is(name), tag });
        }
    }
    // All names: behind a mounted ConfigMap it is the link `..data` that changes.
    let drop_ins = config.drop_ins.iter().flat_map(|dir| with_subdirectories(dir));
    targets.extend(drop_ins.map(|dir| Target { dir, names: Names::All, tag: Change::Config }));
    for dir in pod_cgroups(sysfs) {
        targets.push(Target { dir, names: Names::Visible, tag: Change::Pods });
    }
    targets
}

/// A directory and, as far as they can be read now, the ones below it.
fn with_subdirectories(dir: &Path) -> Vec<PathBuf> {
    /// Each costs a watch of the kernel.
    const MAX: usize = 64;
    let mut dirs = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(dir) = dirs.get(next).filter(|_| dirs.len() < MAX).cloned() {
        let below = file::entries(&dir).unwrap_or_default().into_iter();
        let below = below.filter(|(_, kind)| *kind == Kind::Directory).map(|(name, _)| dir.join(name));
        dirs.extend(below.take(MAX - dirs.len()));
        next += 1;
    }
    dirs
}

/// The kubelet's own files.
fn state(root: &Path) -> Vec<Target<Change>> {
    vec![
        Target { dir: root.to_owned(), names: Names::EndWith("_state"), tag: Change::Allocation },
        Target { dir: root.to_owned(), names: Names::Is(ADMISSIONS.to_owned()), tag: Change::Admission },
        Target { dir: root.join("device-plugins"), names: Names::Visible, tag: Change::Devices },
        Target { dir: root.join("pods"), names: Names::Visible, tag: Change::Pods },
    ]
}

/// Parents of the pods' cgroups that exist now: Guaranteed pods lie directly under `kubepods`, the other classes one
/// level deeper; names as the systemd driver and the cgroupfs driver make them; cgroup v2, or v1 with its systemd tree.
fn pod_cgroups(sysfs: &Path) -> impl Iterator<Item = PathBuf> {
    const PARENTS: [&str; 6] = [
        "kubepods.slice",
        "kubepods.slice/kubepods-burstable.slice",
        "kubepods.slice/kubepods-besteffort.slice",
        "kubepods",
        "kubepods/burstable",
        "kubepods/besteffort",
    ];
    ["fs/cgroup", "fs/cgroup/systemd"]
        .into_iter()
        .flat_map(|mount| PARENTS.iter().map(move |parent| format!("{mount}/{parent}")))
        .map(|path| sysfs.join(path))
        .filter(|path| path.is_dir())
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests;
