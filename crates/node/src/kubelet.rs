//! The files of the kubelet, and its settings for alignment.
//!
//! In: the kubelet's root directory, its configuration files. Out: the directories to watch, and in [`config`] the
//! settings that decide alignment. Never: the resources of pods, which only its podresources service knows.
//!
//! # Which file changes when
//! Read in kubelet 1.36.3 and seen on one. Every checkpoint is written to a temporary file, synced and renamed over the
//! old one, so it shows up as a rename.
//! - Admission: `cpu_manager_state` and `memory_manager_state` for each container that gets something exclusive, the
//!   device manager's checkpoint, then `allocated_pods_state`. A pod may be refused after the first of these.
//! - Start of the pod: its directory under `pods/`, `dra_manager_state`, `actuated_pods_state`.
//! - Release: **neither the CPU and memory managers nor the allocation manager write anything.** The kubelet drops a
//!   pod from its list once the containers have ended, or at once when the object is gone (deletion by force), and its
//!   managers notice at the next admission or the CPU manager's check every 10 s. What can be seen: `dra_manager_state`
//!   is written when the containers have ended, a moment before the pod leaves the list (for every pod, since dynamic
//!   resource allocation is on: 1.34); the pod's cgroup goes; its directory goes, up to two seconds after its object.

use std::path::{Path, PathBuf};

use crate::file::{self, Kind};
use crate::watch::{Names, Target};

pub mod config;
pub mod machine;
pub mod profile;
pub mod state;

pub use config::{Configuration, Error as RulesError, Files, ReservedCpus};

/// The allocation manager's checkpoint, in the root directory: written once at the end of each pod's admission.
pub const ADMISSIONS: &str = "allocated_pods_state";

/// A new cgroup of a pod: `pod<uid>`, or `kubepods-pod<uid>.slice` with the systemd driver.
const POD_CGROUP: Names = Names::Created("pod");

/// A kind of change of the kubelet's files; the tag of a directory in [`targets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// A manager wrote its checkpoint.
    Allocation,
    /// A pod was admitted and has all its resources: `allocated_pods_state` was written (since 1.33). Where that file
    /// is not visible: the pod's cgroup was created. Such changes are counted.
    Admission,
    /// The device manager wrote its checkpoint (devices came, went, changed health or were handed out), or a plugin's
    /// socket was created or removed.
    Devices,
    /// A pod's directory or cgroup was created or removed.
    Pods,
    /// The podresources socket was created or removed: the kubelet (re)started.
    Socket,
    /// The configuration file was written, or a file in the drop-in directory.
    Config,
    /// Another program asks for a scan: the file of [`notice`] was touched or written.
    Notice,
}

/// The target that reports a touch or write of this file, whether it exists yet or is replaced.
#[must_use]
pub fn notice(file: &Path) -> Option<Target<Change>> {
    let name = file.file_name()?.to_string_lossy().into_owned();
    Some(Target { dir: file.parent()?.to_owned(), names: Names::Touched(name), tag: Change::Notice })
}

/// The file or directory whose changes show admissions; `None`: nothing shows them.
///
/// Without the root directory that is the parent of the pods' cgroups. The kubelet makes a pod's cgroup after its
/// admission, right before the pod's directory (`Kubelet.SyncPod`).
#[must_use]
pub fn admissions(root: Option<&Path>, sysfs: &Path) -> Option<PathBuf> {
    match root {
        Some(root) => Some(root.join(ADMISSIONS)).filter(|path| path.exists()),
        None => pod_cgroups(sysfs).next(),
    }
}

/// The directories to watch for a kubelet with this root directory (if it is visible), podresources socket and
/// configuration, on a machine with this sysfs. Of drop-in directories those below that exist now are watched; a new
/// one is noticed, but not the changes in it.
#[must_use]
pub fn targets(root: Option<&Path>, socket: &Path, config: &Files, sysfs: &Path) -> Vec<Target<Change>> {
    let mut targets = root.map(state).unwrap_or_default();
    if config.file.parent().is_some() {
        // A file that is mounted by itself has no events in its directory.
        targets.push(Target { dir: config.file.clone(), names: Names::Itself, tag: Change::Config });
    }
    for (path, tag) in [(socket, Change::Socket), (&config.file, Change::Config)] {
        if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
            let name = name.to_string_lossy().into_owned();
            targets.push(Target { dir: dir.to_owned(), names: Names::Is(name), tag });
        }
    }
    // All names: behind a mounted ConfigMap the link `..data` changes.
    let drop_ins = config.drop_ins.iter().flat_map(|dir| with_subdirectories(dir));
    targets.extend(drop_ins.map(|dir| Target { dir, names: Names::All, tag: Change::Config }));
    for dir in pod_cgroups(sysfs) {
        if root.is_none() {
            targets.push(Target { dir: dir.clone(), names: POD_CGROUP, tag: Change::Admission });
        }
        targets.push(Target { dir, names: Names::Visible, tag: Change::Pods });
    }
    targets
}

/// A directory and, as far as they can be read now, the ones below it.
fn with_subdirectories(dir: &Path) -> Vec<PathBuf> {
    /// The limit of directories, as each costs a watch of the kernel.
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

/// The target for a file of the kubelet.
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
/// The kubelets of kind have the cgroup root `/kubelet`.
fn pod_cgroups(sysfs: &Path) -> impl Iterator<Item = PathBuf> {
    const PARENTS: [&str; 12] = [
        "kubepods.slice",
        "kubepods.slice/kubepods-burstable.slice",
        "kubepods.slice/kubepods-besteffort.slice",
        "kubepods",
        "kubepods/burstable",
        "kubepods/besteffort",
        "kubelet.slice/kubelet-kubepods.slice",
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice",
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice",
        "kubelet/kubepods",
        "kubelet/kubepods/burstable",
        "kubelet/kubepods/besteffort",
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
