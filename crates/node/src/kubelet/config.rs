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
use topology::policy::{
    CpuOption, DEFAULT_MAX_NUMA_NODES, MAX_ALLOWABLE_NUMA_NODES, Manager, PREFER_CLOSEST_NUMA_NODES, Policy,
    Rules, Scope,
};
use topology::quantity::{Format, Quantity};
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::ZoneId;

use crate::file::FileError;
use crate::json::At;
use document::Document;

mod document;

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
        Reader { document: &document::read(files)? }.configuration()
    }

    /// Like [`Configuration::read`], for the text of a file at `path` without drop-ins.
    ///
    /// # Errors
    /// As for `read`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        Reader { document: &document::main(text, path)? }.configuration()
    }

    /// Reads what a kubelet answers on `/configz`, `{"kubeletconfig": {...}}`: its flags and files together, with all
    /// defaults. `name` stands for the answer in errors. The caller bounds the size of `text`.
    ///
    /// # Errors
    /// When it is not such an answer, or has a value no kubelet accepts.
    pub fn from_configz(text: &str, name: &Path) -> Result<Self, Error> {
        Reader { document: &document::configz(text, name)? }.configuration()
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

/// Takes values from a document and checks them.
struct Reader<'a> {
    document: &'a Document,
}

impl Reader<'_> {
    fn configuration(&self) -> Result<Configuration, Error> {
        let rules = self.rules()?;
        let cpu_manager_options = self.options("cpuManagerPolicyOptions")?;
        if rules.cpu_manager == Manager::Static {
            self.check_cpu_options(&cpu_manager_options)?;
        }
        let topology_manager_options = self.options("topologyManagerPolicyOptions")?;
        Ok(Configuration {
            rules,
            max_allowable_numa_nodes: self.max_numa_nodes(rules.policy, &topology_manager_options)?,
            cpu_manager_options,
            topology_manager_options,
            reserved_cpus: self.reserved_cpus()?,
            reserved_memory: self.reserved_memory()?,
        })
    }

    fn rules(&self) -> Result<Rules, Error> {
        // `Manager::parse` takes both managers' spellings; a kubelet takes only its own.
        let manager =
            |names: [&'static str; 2]| move |text: &str| names.contains(&text).then(|| Manager::parse(text));
        Ok(Rules {
            policy: self.choice(
                "topologyManagerPolicy",
                "none, best-effort, restricted, single-numa-node",
                Policy::parse,
            )?,
            scope: self.choice("topologyManagerScope", "container, pod", Scope::parse)?,
            cpu_manager: self.choice("cpuManagerPolicy", "none, static", manager(["none", "static"]))?,
            memory_manager: self.choice(
                "memoryManagerPolicy",
                "None, Static",
                manager(["None", "Static"]),
            )?,
        })
    }

    /// One of the fields in [`DEFAULTS`].
    fn choice<T>(
        &self,
        name: &str,
        allowed: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let default = DEFAULTS.iter().find(|(field, _)| *field == name).map_or("", |(_, default)| default);
        let text = self.document.field(name, At::text)?;
        let text = Some(text).filter(|text| !text.is_empty()).unwrap_or(default);
        parse(text).ok_or_else(|| self.bad(name, text, allowed))
    }

    /// Options, or reserved amounts: texts by name.
    fn options(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        self.document.field(name, |map| {
            map.fields()?.into_iter().map(|(name, at)| Ok((name.to_owned(), at.text()?.to_owned()))).collect()
        })
    }

    fn check_cpu_options(&self, options: &BTreeMap<String, String>) -> Result<(), Error> {
        for (name, value) in options {
            if CpuOption::parse(name).is_some() && go_bool(value).is_none() {
                return Err(self.bad(&format!("cpuManagerPolicyOptions.{name}"), value, "true, false"));
            }
        }
        Ok(())
    }

    /// `topologymanager.NewPolicyOptions`; with the policy `none` the kubelet does not look at the options.
    fn max_numa_nodes(&self, policy: Policy, options: &BTreeMap<String, String>) -> Result<u32, Error> {
        let field = |name| format!("topologyManagerPolicyOptions.{name}");
        let closest = options.get(PREFER_CLOSEST_NUMA_NODES).filter(|value| go_bool(value).is_none());
        let max = options.get(MAX_ALLOWABLE_NUMA_NODES);
        // Go's `Atoi` takes signs and leading zeros, as Rust does.
        let number = max.map(|text| text.parse().ok().filter(|max| *max >= DEFAULT_MAX_NUMA_NODES));
        if policy == Policy::None {
            return Ok(number.flatten().unwrap_or(DEFAULT_MAX_NUMA_NODES));
        }
        if let Some(value) = closest {
            return Err(self.bad(&field(PREFER_CLOSEST_NUMA_NODES), value, "true, false"));
        }
        match (max, number.unwrap_or(Some(DEFAULT_MAX_NUMA_NODES))) {
            (_, Some(number)) => Ok(number),
            (text, None) => {
                let text = text.map(String::as_str).unwrap_or_default();
                Err(self.bad(&field(MAX_ALLOWABLE_NUMA_NODES), text, "whole numbers from 8"))
            }
        }
    }

    fn reserved_cpus(&self) -> Result<ReservedCpus, Error> {
        const NAME: &str = "reservedSystemCPUs";
        let text = self.document.field(NAME, At::text)?;
        let listed = CpuSet::parse(text).ok().filter(|_| text.trim() == text);
        let listed = listed.ok_or_else(|| self.bad(NAME, text, "lists of CPUs such as 0-3,8"))?;
        let mut sum = Quantity::from_i64(0, Format::DecimalSI);
        for name in ["kubeReserved", "systemReserved"] {
            // Read even when the list overrides them: a wrong type stops the kubelet all the same.
            let amounts = self.options(name)?;
            if let (Some(text), true) = (amounts.get("cpu"), listed.is_empty()) {
                let amount = Quantity::parse(text).ok().filter(|amount| amount.sign() >= 0);
                let bad = || self.bad(&format!("{name}.cpu"), text, "quantities from 0 such as 2 or 500m");
                sum = sum.saturating_add(amount.ok_or_else(bad)?);
            }
        }
        Ok(if listed.is_empty() { ReservedCpus::Amount(sum) } else { ReservedCpus::Listed(listed) })
    }

    /// `validateReservedMemoryConfiguration` and the memory manager's `convertReserved`.
    fn reserved_memory(&self) -> Result<BTreeMap<ZoneId, BTreeMap<ResourceName, u64>>, Error> {
        const NAME: &str = "reservedMemory";
        let entries = self.document.field(NAME, |list| {
            list.list(|entry| {
                let amount = |(name, at): (&str, At)| Ok((name.to_owned(), at.text_or_number()?));
                let limits =
                    entry.get("limits", |limits| limits.fields()?.into_iter().map(amount).collect())?;
                Ok((entry.get("numaNode", At::signed)?, limits))
            })
        })?;
        let mut reserved = BTreeMap::<ZoneId, BTreeMap<_, _>>::new();
        for (index, (zone, limits)) in entries.into_iter().enumerate() {
            let limits: Vec<(String, String)> = limits;
            let at = format!("{NAME}[{index}]");
            // The kubelet's type is int32.
            let id = i32::try_from(zone).ok().and_then(|zone| u32::try_from(zone).ok());
            let id = id.ok_or_else(|| self.bad_raw(&format!("{at}.numaNode"), zone, "NUMA node ids"))?;
            for (name, text) in limits {
                let field = format!("{at}.limits.{name}");
                let resource =
                    ResourceName::new(&name).ok().filter(|name| name.kind() == ResourceKind::Memory);
                let allowed = "limits of memory and hugepages-<size>";
                let resource = resource.ok_or_else(|| self.bad(&field, &text, allowed))?;
                let bytes =
                    bytes(&text).ok_or_else(|| self.bad(&field, &text, "whole numbers of bytes above 0"))?;
                if reserved.entry(ZoneId(id)).or_default().insert(resource, bytes).is_some() {
                    return Err(self.bad(&field, &text, "one limit of a resource for each NUMA node"));
                }
            }
        }
        Ok(reserved)
    }

    fn bad(&self, field: &str, value: &str, allowed: &'static str) -> Error {
        self.bad_raw(field, format!("{:?}", value.chars().take(60).collect::<String>()), allowed)
    }

    fn bad_raw(&self, field: &str, value: impl ToString, allowed: &'static str) -> Error {
        let path = self.document.origin(field).to_owned();
        Error::Value { path, field: field.to_owned(), value: value.to_string(), allowed }
    }
}

/// A quantity of whole bytes above zero.
fn bytes(text: &str) -> Option<u64> {
    let amount = Quantity::parse(text).ok()?;
    let bytes = amount.value();
    let whole = Quantity::from_i64(bytes, Format::BinarySI) == amount;
    u64::try_from(bytes).ok().filter(|bytes| whole && *bytes > 0)
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
