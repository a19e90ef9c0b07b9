//! Interned resource names and what kind of resource a name stands for.
//!
//! In: names as they stand in pod specs, node status and NRT objects. Out: a small copyable key, equal exactly when
//! the names are. Never: an opinion about amounts.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, RwLock};

/// The name of a resource (`cpu`, `memory`, `hugepages-2Mi`, `vendor.com/nic`), interned for the process.
///
/// Copying and comparing cost one machine word. Names live as long as the process; [`ResourceName::new`] bounds how
/// many and how long, so hostile objects cannot grow the table without limit.
///
/// # Example
/// ```
/// use topology::resource::{ResourceKind, ResourceName};
///
/// let nic = ResourceName::new("vendor.com/nic")?;
/// assert_eq!((nic.kind(), nic.base_units()), (ResourceKind::Device, 1));
/// assert_eq!(ResourceName::new("cpu")?, ResourceName::CPU);
/// assert_eq!(ResourceName::CPU.base_units(), 1000);
/// assert!(ResourceName::new("").is_err());
/// # Ok::<(), topology::resource::ResourceNameError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResourceName(&'static str);

/// Which of the kubelet's resource managers handles a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// `cpu`: the CPU manager.
    Cpu,
    /// `memory` and `hugepages-*`: the memory manager.
    Memory,
    /// A name with a domain that is not `kubernetes.io`: the device manager.
    Device,
    /// Everything else (`pods`, `ephemeral-storage`, `storage`, ...): counted on the node, never aligned.
    Host,
}

/// Why a resource name cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceNameError {
    /// The name is empty or longer than a qualified name can be.
    #[error("resource name has {0} bytes; allowed are 1 to 317 (a 253 byte domain, `/`, a 63 byte name)")]
    Length(usize),
    /// The process has seen too many different names.
    #[error("more than {MAX_NAMES} different resource names seen; refusing {0:?}")]
    TooMany(String),
}

/// DNS subdomain (253) + `/` + name (63), the limit of a Kubernetes qualified name.
const MAX_LEN: usize = 317;
/// Far above any real cluster; bounds the memory that hostile objects can make the process keep.
const MAX_NAMES: usize = 16_384;

/// Names present from the start, so that the constants below need no lock.
const WELL_KNOWN: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

static NAMES: LazyLock<RwLock<HashMap<&'static str, ResourceName>>> =
    LazyLock::new(|| RwLock::new(WELL_KNOWN.iter().map(|n| (*n, ResourceName(n))).collect()));

impl ResourceName {
    /// `cpu`.
    pub const CPU: Self = Self("cpu");
    /// `memory`.
    pub const MEMORY: Self = Self("memory");
    /// `pods`.
    pub const PODS: Self = Self("pods");
    /// `ephemeral-storage`.
    pub const EPHEMERAL_STORAGE: Self = Self("ephemeral-storage");

    /// Interns `name`. A known name costs one read lock; a new one is allocated for the life of the process.
    ///
    /// # Errors
    /// When the name is empty, longer than 317 bytes, or beyond the process' limit of 16,384 names.
    pub fn new(name: &str) -> Result<Self, ResourceNameError> {
        if name.is_empty() || name.len() > MAX_LEN {
            return Err(ResourceNameError::Length(name.len()));
        }
        if let Some(known) = NAMES.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(name) {
            return Ok(*known);
        }
        let mut names = NAMES.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Ok(*known);
        }
        if names.len() >= MAX_NAMES {
            return Err(ResourceNameError::TooMany(name.to_owned()));
        }
        let text: &'static str = Box::leak(name.to_owned().into_boxed_str());
        names.insert(text, Self(text));
        Ok(Self(text))
    }

    /// The name, as it stands in pod specs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// The kubelet manager that handles the resource, from the name alone.
    #[must_use]
    pub fn kind(self) -> ResourceKind {
        match self.0 {
            "cpu" => ResourceKind::Cpu,
            "memory" => ResourceKind::Memory,
            name if name.starts_with("hugepages-") => ResourceKind::Memory,
            name if name.contains('/') && !name.contains("kubernetes.io/") => ResourceKind::Device,
            _ => ResourceKind::Host,
        }
    }

    /// Base units in one whole unit of the resource. CPU amounts are kept in thousandths; all others (bytes, devices,
    /// pods) in whole units, as in kube-scheduler.
    #[must_use]
    pub fn base_units(self) -> i64 {
        if self == Self::CPU { 1000 } else { 1 }
    }
}

impl Ord for ResourceName {
    /// cpu, memory, hugepages, then everything else; alphabetical within a group.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        fn rank(name: ResourceName) -> u8 {
            match name.kind() {
                ResourceKind::Cpu => 0,
                ResourceKind::Memory if name == ResourceName::MEMORY => 1,
                ResourceKind::Memory => 2,
                ResourceKind::Device | ResourceKind::Host => 3,
            }
        }
        rank(*self).cmp(&rank(*other)).then_with(|| self.0.cmp(other.0))
    }
}

impl PartialOrd for ResourceName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ResourceName {
        ResourceName::new(text).unwrap()
    }

    #[test]
    fn interning_makes_equal_names_equal() {
        assert_eq!(name("vendor.com/nic"), name("vendor.com/nic"));
        assert_eq!(name("cpu"), ResourceName::CPU);
        assert_ne!(name("cpu"), ResourceName::MEMORY);
    }

    #[test]
    fn kinds_follow_the_kubelet_managers() {
        for (text, kind) in [
            ("cpu", ResourceKind::Cpu),
            ("memory", ResourceKind::Memory),
            ("hugepages-1Gi", ResourceKind::Memory),
            ("vendor.com/nic", ResourceKind::Device),
            ("ephemeral-storage", ResourceKind::Host),
            ("storage", ResourceKind::Host),
            ("pods", ResourceKind::Host),
            ("kubernetes.io/batch", ResourceKind::Host),
        ] {
            assert_eq!(name(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn names_sort_by_kind_then_alphabet() {
        let mut names: Vec<_> =
            ["b.com/x", "memory", "a.com/x", "hugepages-2Mi", "cpu", "hugepages-1Gi"].map(name).to_vec();
        names.sort();
        let names: Vec<_> = names.iter().map(|n| n.as_str()).collect();
        assert_eq!(names, ["cpu", "memory", "hugepages-1Gi", "hugepages-2Mi", "a.com/x", "b.com/x"]);
    }

    #[test]
    fn bad_names_are_refused() {
        assert_eq!(ResourceName::new(""), Err(ResourceNameError::Length(0)));
        assert_eq!(ResourceName::new(&"x".repeat(318)), Err(ResourceNameError::Length(318)));
    }
}
