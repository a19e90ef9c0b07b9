//! The kubelet's configuration: what decides alignment, and what it keeps for itself.
//!
//! In: the file given with `--config` and the directory given with `--config-dir`, or the answer of `/configz`. Out: a
//! [`Configuration`] with the kubelet's defaults for what is left out. Never: settings guessed from a file that cannot be
//! read, or a value no kubelet starts with. The kubelet's command line, which overrides files, shows in `/configz` only.
//!
//! Names, defaults and checks are those of the kubelet 1.36.3 (`pkg/kubelet/apis/config/v1beta1/defaults.go`,
//! `validation/validation.go`, the managers' `policy_options.go`). Fields nobody here needs are ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use topology::cpuset::CpuSet;
use topology::policy::{CpuOption, PREFER_CLOSEST_NUMA_NODES, Rules};
use topology::quantity::Quantity;
use topology::resource::ResourceName;
use topology::zone::ZoneId;

use crate::file::FileError;
use crate::json::At;

mod document;
mod reader;

/// Where the kubelet reads its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `--config`: the file. It must be there.
    pub file: PathBuf,
    /// `--config-dir`: the directory whose `*.conf` files are merged over it. When given it must be there too: without it
    /// the kubelet does not start either, and settings would be lost silently if only a mount were missing.
    pub drop_ins: Option<PathBuf>,
}

/// What a kubelet model and a scheduler need of a kubelet's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The four policies.
    pub rules: Rules,
    /// `cpuManagerPolicyOptions` as they stand; unknown names are kept, newer kubelets may know them.
    pub cpu_manager_options: BTreeMap<String, String>,
    /// `topologyManagerPolicyOptions` as they stand; unknown names are kept.
    pub topology_manager_options: BTreeMap<String, String>,
    /// With how many NUMA nodes the Topology Manager still works: the option `max-allowable-numa-nodes`, else 8.
    pub max_allowable_numa_nodes: u32,
    /// What the CPU manager's policy `static` never hands out.
    pub reserved_cpus: ReservedCpus,
    /// `reservedMemory`: by zone and resource (`memory`, `hugepages-*`), in bytes; none is zero.
    pub reserved_memory: BTreeMap<ZoneId, BTreeMap<ResourceName, u64>>,
}

/// The CPUs kept for the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservedCpus {
    /// `reservedSystemCPUs`: exactly these. Then amounts of CPU in `kubeReserved` and `systemReserved` do not count.
    Listed(CpuSet),
    /// `kubeReserved` and `systemReserved` together; which CPUs these are the policy chooses.
    Amount(Quantity),
}

impl Default for ReservedCpus {
    fn default() -> Self {
        Self::Amount(Quantity::ZERO)
    }
}

impl ReservedCpus {
    /// How many whole CPUs the policy `static` keeps back.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Listed(cpus) => cpus.len() as u64,
            Self::Amount(amount) => u64::try_from(amount.milli_value()).unwrap_or(0).div_ceil(1000),
        }
    }
}

/// Why the configuration is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is empty, or neither YAML nor JSON.
    #[error("{path} is not a KubeletConfiguration: {reason}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// What the parser said, with line and column.
        reason: String,
    },
    /// A file is about something else.
    #[error("{path}: {field} is {found:?}, expected {expected}")]
    Identity {
        /// Which file.
        path: PathBuf,
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What it says it is; empty when it does not say, which is allowed in the main file only.
        found: String,
        /// What it should say.
        expected: &'static str,
    },
    /// A setting has a value no kubelet accepts.
    #[error("{path}: {field} is {value}; allowed are {allowed}")]
    Value {
        /// The file the field comes from: the last one that sets it, or a part of it.
        path: PathBuf,
        /// Which field.
        field: String,
        /// Its value, as in JSON.
        value: String,
        /// The values the kubelet knows.
        allowed: &'static str,
    },
    /// The directory holds more than anybody would write.
    #[error("{path} holds more than {limit} files or levels, which is not a directory of drop-in files")]
    TooMuch {
        /// Which directory.
        path: PathBuf,
        /// How many may be there.
        limit: usize,
    },
}

/// The fields that are read; a main file's other fields and other spellings are dropped, as the kubelet's decoder does.
const FIELDS: [&str; 10] = [
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "memoryManagerPolicy",
    "reservedSystemCPUs",
    "reservedMemory",
    "kubeReserved",
    "systemReserved",
];

/// What the kubelet puts where these fields are missing or empty.
const DEFAULTS: [(&str, &str); 4] = [
    ("topologyManagerPolicy", "none"),
    ("topologyManagerScope", "container"),
    ("cpuManagerPolicy", "none"),
    ("memoryManagerPolicy", "None"),
];

impl Configuration {
    /// Reads the configuration as the kubelet does at its start.
    ///
    /// # Errors
    /// When something cannot be read or has a value no kubelet accepts; see [`Error`]. A missing file is an error too: a
    /// node whose policy is not known must not look like one that rejects nothing.
    pub fn read(files: &Files) -> Result<Self, Error> {
        reader::configuration(&document::read(files)?)
    }

    /// Like [`Configuration::read`], for the text of a file at `path` without drop-ins.
    ///
    /// # Errors
    /// As for `read`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        reader::configuration(&document::main(text, path)?)
    }

    /// Reads what a kubelet answers on `/configz`, `{"kubeletconfig": {...}}`: its flags and files together, with all
    /// defaults. `name` stands for the answer in errors. The caller bounds the size of `text`.
    ///
    /// # Errors
    /// When it is not such an answer, or has a value no kubelet accepts.
    pub fn from_configz(text: &str, name: &Path) -> Result<Self, Error> {
        reader::configuration(&document::configz(text, name)?)
    }

    /// Whether an option of the CPU manager's policy `static` is on. Off when it has no value Go's `ParseBool` knows, which
    /// can only be with the policy `none`.
    #[must_use]
    pub fn cpu_option(&self, option: CpuOption) -> bool {
        self.cpu_manager_options.get(option.as_str()).is_some_and(|value| go_bool(value) == Some(true))
    }

    /// The Topology Manager's option `prefer-closest-numa-nodes`.
    #[must_use]
    pub fn prefers_closest_numa_nodes(&self) -> bool {
        let value = self.topology_manager_options.get(PREFER_CLOSEST_NUMA_NODES);
        value.is_some_and(|value| go_bool(value) == Some(true))
    }
}

/// What a KubeletConfiguration says of the Topology Manager, word for word; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// `topologyManagerPolicy`.
    pub policy: Option<String>,
    /// `topologyManagerScope`.
    pub scope: Option<String>,
}

impl Stated {
    /// Reads a part of a KubeletConfiguration, such as others merge into one. Nothing is filled in, and no value is checked: that
    /// is the kubelet's to do. `name` stands for the part in errors.
    ///
    /// # Errors
    /// When it is no map of fields, or a field is no text.
    pub fn read(part: &serde_json::Value, name: &Path) -> Result<Self, Error> {
        let document = document::part(part, name)?;
        let text = |field| {
            let text = document.field(field, At::text)?;
            Ok::<_, Error>(Some(text).filter(|text| !text.is_empty()).map(str::to_owned))
        };
        Ok(Self { policy: text("topologyManagerPolicy")?, scope: text("topologyManagerScope")? })
    }
}

/// Go's `strconv.ParseBool`.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
