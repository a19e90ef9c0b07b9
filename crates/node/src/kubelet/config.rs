//! The kubelet's configuration, as far as alignment and reserved resources depend on it.
//!
//! In: the file given with `--config` and the directory given with `--config-dir`, or the answer of `/configz`. Out: a
//! [`Configuration`] with the kubelet's defaults for missing fields. Never: settings guessed from a file that cannot be
//! read, or a value that no kubelet accepts. The kubelet's command line, which overrides files, shows in `/configz`
//! only.
//!
//! Names, defaults and checks are those of the kubelet 1.36.3 (`pkg/kubelet/apis/config/v1beta1/defaults.go`,
//! `validation/validation.go`, the managers' `policy_options.go`). Fields that are not needed here are ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use topology::cpuset::CpuSet;
use topology::gobool;
use topology::policy::{CpuOption, PREFER_CLOSEST_NUMA_NODES, Rules};
use topology::quantity::Quantity;
use topology::resource::ResourceName;
use topology::zone::ZoneId;

use crate::file::FileError;
use crate::json::Field;

mod document;
mod reader;
mod recording;

/// The files from which the kubelet reads its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `--config`: the file. It must exist.
    pub file: PathBuf,
    /// `--config-dir`: the directory whose `*.conf` files are merged over it. It must exist too: the kubelet does not
    /// start without it, and if only a mount were missing, settings would be lost silently.
    pub drop_ins: Option<PathBuf>,
}

/// The settings of a kubelet that a model of it and a scheduler need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// The four policies.
    pub rules: Rules,
    /// `cpuManagerPolicyOptions` as written; unknown names are kept, as newer kubelets may know them.
    pub cpu_manager_options: BTreeMap<String, String>,
    /// `topologyManagerPolicyOptions` as written; unknown names are kept.
    pub topology_manager_options: BTreeMap<String, String>,
    /// The largest number of NUMA nodes with which the Topology Manager works: the option `max-allowable-numa-nodes`,
    /// else 8.
    pub max_allowable_numa_nodes: u32,
    /// The CPUs that the CPU manager's policy `static` never hands out.
    pub reserved_cpus: ReservedCpus,
    /// `reservedMemory`: by zone and resource (`memory`, `hugepages-*`), in bytes; none is zero.
    pub reserved_memory: BTreeMap<ZoneId, BTreeMap<ResourceName, u64>>,
    /// What the node does not give to pods: the sum of `kubeReserved` and `systemReserved`, CPUs left out.
    pub reserved_amounts: BTreeMap<ResourceName, Quantity>,
    /// `evictionHard` of `memory.available`: pods get less by that.
    pub eviction_memory: EvictionMemory,
    /// `maxPods`.
    pub max_pods: u32,
    /// `featureGates` that are set.
    pub feature_gates: BTreeMap<String, bool>,
}

/// The free memory below which the kubelet evicts pods at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EvictionMemory {
    /// An amount.
    Amount(Quantity),
    /// A share of the machine's memory, in percent.
    Percent(f64),
}

impl Default for EvictionMemory {
    /// The kubelet's default (`eviction/defaults_linux.go`).
    fn default() -> Self {
        Self::Amount(Quantity::from_i64(100 << 20, topology::quantity::Format::BinarySI))
    }
}

impl EvictionMemory {
    /// Bytes, on a machine with so much memory. A percentage is rounded down (kubelet 1.36 `GetThresholdQuantity`).
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the kubelet uses float64"
    )]
    pub fn bytes(&self, capacity: u64) -> i64 {
        match self {
            Self::Amount(amount) => amount.value(),
            Self::Percent(percent) => (capacity as f64 * (percent / 100.0)) as i64,
        }
    }
}

/// The kubelet's default of `maxPods`.
pub const DEFAULT_MAX_PODS: u32 = 110;

/// The CPUs kept for the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservedCpus {
    /// `reservedSystemCPUs`: exactly these. The amounts of CPU in `kubeReserved` and `systemReserved` do not count
    /// then.
    Listed(CpuSet),
    /// The sum of `kubeReserved` and `systemReserved`; the policy chooses the CPUs.
    Amount(Quantity),
}

impl Default for ReservedCpus {
    fn default() -> Self {
        Self::Amount(Quantity::ZERO)
    }
}

impl ReservedCpus {
    /// The number of whole CPUs that the policy `static` keeps back.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Listed(cpus) => cpus.len() as u64,
            Self::Amount(amount) => u64::try_from(amount.milli_value()).unwrap_or(0).div_ceil(1000),
        }
    }
}

/// Why the configuration is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is empty, or neither YAML nor JSON.
    #[error("{path} is not a KubeletConfiguration: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's error, with line and column.
        reason: String,
    },
    /// A file is of another kind.
    #[error("{path}: {field} is {found:?}, expected {expected}")]
    Identity {
        /// The file.
        path: PathBuf,
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// The value found; empty if missing, which is allowed in the main file only.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A setting has a value that no kubelet accepts.
    #[error("{path}: {field} is {value}; allowed are {allowed}")]
    Value {
        /// The file that sets the field last, or a part of it.
        path: PathBuf,
        /// The field.
        field: String,
        /// The value, as in JSON.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// The directory exceeds the limits.
    #[error("{path} holds more than {limit} files or levels, which is not a directory of drop-in files")]
    TooMuch {
        /// The directory.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
}

/// The fields that are read. Other fields and other spellings of a main file are dropped, as the kubelet's decoder
/// does.
const FIELDS: [&str; 13] = [
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
    "evictionHard",
    "maxPods",
    "featureGates",
];

/// The kubelet's values for these fields if they are missing or empty.
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
    /// When a file cannot be read or has a value that no kubelet accepts; see [`Error`]. A missing file is an error
    /// too: a node with an unknown policy must not look like one that rejects nothing.
    pub fn read(files: &Files) -> Result<Self, Error> {
        reader::configuration(&document::read(files)?)
    }

    /// Like [`Configuration::read`], for the text of a file at `path` without drop-ins.
    ///
    /// # Errors
    /// As [`Configuration::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        reader::configuration(&document::main(text, path)?)
    }

    /// Reads what a kubelet answers on `/configz`, `{"kubeletconfig": {...}}`: its flags and files together, with all
    /// defaults. `name` stands for the answer in errors. The caller bounds the size of `text`.
    ///
    /// # Errors
    /// When the text is not such an answer, or has a value that no kubelet accepts.
    pub fn from_configz(text: &str, name: &Path) -> Result<Self, Error> {
        reader::configuration(&document::configz(text, name)?)
    }

    /// Whether an option of the CPU manager's policy `static` is on. A value that Go's `ParseBool` rejects means off;
    /// it is possible only with the policy `none`.
    #[must_use]
    pub fn cpu_option(&self, option: CpuOption) -> bool {
        self.cpu_manager_options.get(option.as_str()).is_some_and(|value| gobool::parse(value) == Some(true))
    }

    /// The Topology Manager's option `prefer-closest-numa-nodes`.
    #[must_use]
    pub fn prefers_closest_numa_nodes(&self) -> bool {
        let value = self.topology_manager_options.get(PREFER_CLOSEST_NUMA_NODES);
        value.is_some_and(|value| gobool::parse(value) == Some(true))
    }
}

/// The Topology Manager's fields of a KubeletConfiguration, unchanged; `None` where a field is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// `topologyManagerPolicy`.
    pub policy: Option<String>,
    /// `topologyManagerScope`.
    pub scope: Option<String>,
}

impl Stated {
    /// Reads a part of a KubeletConfiguration that will be merged into one. No defaults are filled in, and no value is
    /// checked. `name` stands for the part in errors.
    ///
    /// # Errors
    /// When the text is not a map of fields, or a field is not text.
    pub fn read(part: &serde_json::Value, name: &Path) -> Result<Self, Error> {
        let document = document::part(part, name)?;
        let text = |field| {
            let text = document.field(field, Field::text)?;
            Ok::<_, Error>(Some(text).filter(|text| !text.is_empty()).map(str::to_owned))
        };
        Ok(Self { policy: text("topologyManagerPolicy")?, scope: text("topologyManagerScope")? })
    }
}

#[cfg(test)]
mod tests;
