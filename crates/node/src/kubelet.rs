//! Where the kubelet keeps things, and how it aligns.
//!
//! In: its root directory, its KubeletConfiguration file. Out: the directories worth watching and the four settings that
//! decide alignment, with the kubelet's defaults for what the file leaves out. Never: settings guessed from a file that
//! cannot be read, nor the kubelet's command line (deprecated flags and drop-in directories are not seen).
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

use serde::Deserialize;
use topology::policy::{Manager, Policy, Rules, Scope};

use crate::file::{self, FileError};
use crate::watch::{Names, Target};

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
    /// The configuration file was written.
    Config,
}

/// The directories to watch for a kubelet with this root directory, podresources socket and configuration file, on a
/// machine with this sysfs.
#[must_use]
pub fn targets(root: &Path, socket: &Path, config: &Path, sysfs: &Path) -> Vec<Target<Change>> {
    let mut targets = vec![
        Target { dir: root.to_owned(), names: Names::EndWith("_state"), tag: Change::Allocation },
        Target { dir: root.to_owned(), names: Names::Is(ADMISSIONS.to_owned()), tag: Change::Admission },
        Target { dir: root.join("device-plugins"), names: Names::Visible, tag: Change::Devices },
        Target { dir: root.join("pods"), names: Names::Visible, tag: Change::Pods },
    ];
    for (path, tag) in [(socket, Change::Socket), (config, Change::Config)] {
        if let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
            let name = name.to_string_lossy().into_owned();
            targets.push(Target { dir: dir.to_owned(), names: Names::Is(name), tag });
        }
    }
    for dir in pod_cgroups(sysfs) {
        targets.push(Target { dir, names: Names::Visible, tag: Change::Pods });
    }
    targets
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

/// Why the rules are not known.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not YAML, or a field has the wrong type.
    #[error("{path} is not a KubeletConfiguration: {reason}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// What the parser said, with line and column.
        reason: String,
    },
    /// The file is about something else.
    #[error("{path}: kind is {kind:?}, expected KubeletConfiguration")]
    Kind {
        /// Which file.
        path: PathBuf,
        /// What it says it is.
        kind: String,
    },
    /// A setting has a value no kubelet accepts.
    #[error("{path}: {field} is {value:?}; allowed are {allowed}")]
    Value {
        /// Which file.
        path: PathBuf,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The values the kubelet knows.
        allowed: &'static str,
    },
}

/// The few fields of a KubeletConfiguration we need; all others are ignored.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    kind: Option<String>,
    topology_manager_policy: Option<String>,
    topology_manager_scope: Option<String>,
    cpu_manager_policy: Option<String>,
    memory_manager_policy: Option<String>,
}

/// Reads from a KubeletConfiguration file how the kubelet aligns pods. A field that is missing or empty has the kubelet's
/// default: policies `none` and scope `container`.
///
/// # Errors
/// When the file cannot be read or says something no kubelet understands. A missing file is an error too: a node whose
/// policy is not known must not look like one that rejects nothing.
pub fn read_rules(path: &Path) -> Result<Rules, RulesError> {
    parse_rules(&file::read(path)?, path)
}

/// Like [`read_rules`], for text that has been read from `path`.
///
/// # Errors
/// As for `read_rules`.
pub fn parse_rules(text: &str, path: &Path) -> Result<Rules, RulesError> {
    let wire: Wire = serde_saphyr::from_str(text).map_err(|error| RulesError::Syntax {
        path: path.to_owned(),
        reason: first_line(&error.to_string()),
    })?;
    if let Some(kind) = wire.kind.filter(|kind| !kind.is_empty() && kind != "KubeletConfiguration") {
        return Err(RulesError::Kind { path: path.to_owned(), kind });
    }
    let field = |field, value: Option<String>, allowed| Field { path, field, value, allowed };
    // `Manager::parse` takes both managers' spellings; a kubelet takes only its own.
    let manager =
        |names: [&'static str; 2]| move |text: &str| names.contains(&text).then(|| Manager::parse(text));
    Ok(Rules {
        policy: field(
            "topologyManagerPolicy",
            wire.topology_manager_policy,
            "none, best-effort, restricted, single-numa-node",
        )
        .value("none", Policy::parse)?,
        scope: field("topologyManagerScope", wire.topology_manager_scope, "container, pod")
            .value("container", Scope::parse)?,
        cpu_manager: field("cpuManagerPolicy", wire.cpu_manager_policy, "none, static")
            .value("none", manager(["none", "static"]))?,
        memory_manager: field("memoryManagerPolicy", wire.memory_manager_policy, "None, Static")
            .value("None", manager(["None", "Static"]))?,
    })
}

/// One field on its way from text to a value.
struct Field<'a> {
    path: &'a Path,
    field: &'static str,
    value: Option<String>,
    allowed: &'static str,
}

impl Field<'_> {
    fn value<T>(self, default: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, RulesError> {
        let value = self.value.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned());
        parse(&value).ok_or_else(|| RulesError::Value {
            path: self.path.to_owned(),
            field: self.field,
            value,
            allowed: self.allowed,
        })
    }
}

/// The parser shows the offending lines below its message; one line is enough for a log.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

#[cfg(test)]
mod tests;
