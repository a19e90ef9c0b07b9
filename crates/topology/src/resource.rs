//! Interned resource names and what kind of resource a name stands for.
//!
//! In: names as they stand in pod specs, node status and NRT objects. Out: a small copyable key, equal exactly when
//! the names are. Never: an opinion about amounts.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::quantity::{Format, Quantity};

/// The name of a resource (`cpu`, `memory`, `hugepages-2Mi`, `vendor.com/nic`), interned for the process.
///
/// Copying and comparing cost one machine word. Names live as long as the process, so their number is bounded: that of
/// nodes and configurations by [`ResourceName::new`], that of pods by [`ResourceName::of_pod`].
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
#[derive(Clone, Copy)]
pub struct ResourceName(&'static InternedName);

/// A name, and what is asked of it again and again.
struct InternedName {
    text: &'static str,
    kind: ResourceKind,
}

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
    /// The pods of a namespace, or of all namespaces, ask for too many names that no node has.
    #[error("pods ask for too many resource names that no node has, {0:?} among them")]
    TooManyOfPods(String),
}

/// Base units of a CPU.
pub(crate) const MILLI_CPUS: i64 = 1000;
/// DNS subdomain (253) + `/` + name (63), the limit of a Kubernetes qualified name.
const MAX_LEN: usize = 317;
/// Far above any real cluster; bounds the memory that hostile objects can make the process keep.
const MAX_NAMES: usize = 16_384;
/// Names that pods may add. The rest is for nodes, whatever pods ask for.
const MAX_POD_NAMES: usize = MAX_NAMES / 2;
/// Names that the pods of one namespace may add. Names that a node has do not count.
const MAX_NAMESPACE_NAMES: usize = 128;

// A static has one address, so names are equal exactly if their addresses are. A constant could be there several times.
static CPU: InternedName = InternedName { text: "cpu", kind: ResourceKind::Cpu };
static MEMORY: InternedName = InternedName { text: "memory", kind: ResourceKind::Memory };
static PODS: InternedName = InternedName { text: "pods", kind: ResourceKind::Host };
static EPHEMERAL_STORAGE: InternedName = InternedName { text: "ephemeral-storage", kind: ResourceKind::Host };

/// Names present from the start, so that they need no lock.
const WELL_KNOWN: [ResourceName; 4] =
    [ResourceName::CPU, ResourceName::MEMORY, ResourceName::PODS, ResourceName::EPHEMERAL_STORAGE];

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(|| {
    let known = WELL_KNOWN.iter().map(|name| (name.as_str(), *name)).collect();
    RwLock::new(Names { known, of_pods: 0, by_namespace: HashMap::new() })
});

/// The table of names.
struct Names {
    known: HashMap<&'static str, ResourceName>,
    /// Names that pods have added.
    of_pods: usize,
    /// Names that the pods of each namespace have added.
    by_namespace: HashMap<Box<str>, usize>,
}

impl Names {
    fn add(&mut self, name: &str) -> ResourceName {
        let text: &'static str = Box::leak(name.to_owned().into_boxed_str());
        let interned = ResourceName(Box::leak(Box::new(InternedName { text, kind: kind_of(text) })));
        self.known.insert(text, interned);
        interned
    }

    /// Counts one more name of a namespace. Returns whether there is room for it.
    fn count(&mut self, namespace: &str) -> bool {
        let added = self.by_namespace.get(namespace).copied().unwrap_or_default();
        let has_room = added < MAX_NAMESPACE_NAMES && self.of_pods < MAX_POD_NAMES;
        if has_room {
            self.by_namespace.insert(namespace.into(), added + 1);
            self.of_pods += 1;
        }
        has_room
    }
}

impl ResourceName {
    /// `cpu`.
    pub const CPU: Self = Self(&CPU);
    /// `memory`.
    pub const MEMORY: Self = Self(&MEMORY);
    /// `pods`.
    pub const PODS: Self = Self(&PODS);
    /// `ephemeral-storage`.
    pub const EPHEMERAL_STORAGE: Self = Self(&EPHEMERAL_STORAGE);

    /// Interns the name of a resource of nodes or of a configuration. A known name costs one read lock; a new one is
    /// allocated for the life of the process.
    ///
    /// # Errors
    /// When the name is empty, longer than 317 bytes, or beyond the process' limit of 16,384 names.
    pub fn new(name: &str) -> Result<Self, ResourceNameError> {
        Self::intern(name, |names| {
            let has_room = names.known.len() < MAX_NAMES;
            has_room.then_some(()).ok_or_else(|| ResourceNameError::TooMany(name.to_owned()))
        })
    }

    /// Huge pages of a size in bytes: `hugepages-2Mi`.
    ///
    /// # Errors
    /// When there are too many resource names in this process.
    pub fn hugepages(page_bytes: u64) -> Result<Self, ResourceNameError> {
        let size = i64::try_from(page_bytes).unwrap_or(i64::MAX);
        Self::new(&format!("hugepages-{}", Quantity::from_i64(size, Format::BinarySI)))
    }

    /// Interns a name that a pod of this namespace asks for. A namespace may add 128 names, all together 8,192, so no
    /// tenant can fill the table.
    ///
    /// # Errors
    /// When the name is empty, longer than 317 bytes, or beyond a limit.
    pub fn of_pod(name: &str, namespace: &str) -> Result<Self, ResourceNameError> {
        Self::intern(name, |names| {
            let has_room = names.known.len() < MAX_NAMES && names.count(namespace);
            has_room.then_some(()).ok_or_else(|| ResourceNameError::TooManyOfPods(name.to_owned()))
        })
    }

    fn intern(
        name: &str,
        count: impl FnOnce(&mut Names) -> Result<(), ResourceNameError>,
    ) -> Result<Self, ResourceNameError> {
        if name.is_empty() || name.len() > MAX_LEN {
            return Err(ResourceNameError::Length(name.len()));
        }
        if let Some(known) = NAMES.read().unwrap_or_else(PoisonError::into_inner).known.get(name) {
            return Ok(*known);
        }
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.known.get(name) {
            return Ok(*known);
        }
        count(&mut names)?;
        Ok(names.add(name))
    }

    /// The name, as it stands in pod specs.
    #[must_use]
    #[inline]
    pub fn as_str(self) -> &'static str {
        self.0.text
    }

    /// The kubelet manager that handles the resource, from the name alone.
    #[must_use]
    #[inline]
    pub fn kind(self) -> ResourceKind {
        self.0.kind
    }

    /// The size of a huge page in bytes; `None` for other resources.
    #[must_use]
    pub fn page_bytes(self) -> Option<i64> {
        let size = self.as_str().strip_prefix("hugepages-")?;
        Quantity::parse(size).ok().map(|size| size.value()).filter(|size| *size > 0)
    }

    /// Base units in one whole unit of the resource. CPU amounts are kept in thousandths; all others (bytes, devices,
    /// pods) in whole units, as in kube-scheduler.
    #[must_use]
    #[inline]
    pub fn base_units(self) -> i64 {
        if self == Self::CPU { MILLI_CPUS } else { 1 }
    }

    /// Whole units of an amount, rounded up.
    #[must_use]
    #[inline]
    pub fn whole_units(self, amount: i64) -> i64 {
        // By a constant, which takes a fraction of the time.
        let rounded_up = || amount.div_euclid(MILLI_CPUS) + i64::from(amount.rem_euclid(MILLI_CPUS) != 0);
        if self == Self::CPU { rounded_up() } else { amount }
    }
}

impl PartialEq for ResourceName {
    /// Each text is there once.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for ResourceName {}

impl Hash for ResourceName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Ord for ResourceName {
    /// cpu, memory, hugepages, then everything else; alphabetical within a group.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other {
            return Ordering::Equal;
        }
        let rank = |name: Self| match name.kind() {
            ResourceKind::Cpu => 0,
            ResourceKind::Memory if name == Self::MEMORY => 1,
            ResourceKind::Memory => 2,
            ResourceKind::Device | ResourceKind::Host => 3,
        };
        rank(*self).cmp(&rank(*other)).then_with(|| self.as_str().cmp(other.as_str()))
    }
}

/// The kind that a name tells.
fn kind_of(name: &str) -> ResourceKind {
    match name {
        "cpu" => ResourceKind::Cpu,
        "memory" => ResourceKind::Memory,
        name if name.starts_with("hugepages-") => ResourceKind::Memory,
        name if name.contains('/') && !name.contains("kubernetes.io/") => ResourceKind::Device,
        _ => ResourceKind::Host,
    }
}

impl PartialOrd for ResourceName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    fn no_namespace_fills_the_table() {
        let ask = |number: usize| ResourceName::of_pod(&format!("tenant.example/r{number}"), "tenant");
        assert_eq!((0..16_400).filter(|number| ask(*number).is_ok()).count(), MAX_NAMESPACE_NAMES);
        assert!(ask(0).is_ok(), "a known name costs nothing");
        assert!(ResourceName::of_pod("other.example/r", "other").is_ok());
        let node = name("node.example/late");
        assert_eq!(ResourceName::of_pod("node.example/late", "tenant"), Ok(node));
    }

    #[test]
    fn bad_names_are_refused() {
        assert_eq!(ResourceName::new(""), Err(ResourceNameError::Length(0)));
        assert_eq!(ResourceName::new(&"x".repeat(318)), Err(ResourceNameError::Length(318)));
    }
}
