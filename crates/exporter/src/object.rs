//! The content of the NRT object, and the write that gives the object this content. Pure.
//!
//! In: [`Content`], which [`crate::report`] computes; the object as the server holds it. Out: the write that turns the
//! one into the other, or nothing when they are equal. Never: the API.
//!
//! # Ownership
//! The exporter owns all zones. Of the node's attributes it owns those that exporters write ([`OWNED_ATTRIBUTES`]);
//! attributes of others stay, behind ours. Of the metadata it owns the annotations that exporters write and, if
//! configured, the owner references: exactly one, the Node or the namespace. `topologyPolicies` is deprecated, and a
//! value left by another exporter would contradict the attributes. So it is removed unless it is configured. Everything
//! else stays as it is.

use std::time::Duration;

use api::keys;
use api::nrt::{self, Amount, Attribute, NodeResourceTopology};
use topology::fingerprint::Fingerprint;

mod change;
mod ended;
mod write;

pub use change::Change;

/// Attributes that exporters write about a node: set by us, and removed when an earlier exporter left them.
pub const OWNED_ATTRIBUTES: [&str; 22] = [
    keys::ATTRIBUTE_FINGERPRINT,
    keys::ATTRIBUTE_FINGERPRINT_METHOD,
    keys::ATTRIBUTE_PLACEMENT_METADATA,
    keys::ATTRIBUTE_SCOPE,
    keys::ATTRIBUTE_POLICY,
    keys::ATTRIBUTE_POLICY_OPTIONS,
    keys::ATTRIBUTE_MAX_NUMA_NODES,
    keys::ATTRIBUTE_CPU_MANAGER,
    keys::ATTRIBUTE_CPU_MANAGER_OPTIONS,
    keys::ATTRIBUTE_MEMORY_MANAGER,
    keys::ATTRIBUTE_RESERVED_CPUS,
    keys::ATTRIBUTE_RESERVED_MEMORY,
    keys::ATTRIBUTE_THREADS_PER_CORE,
    keys::ATTRIBUTE_THREAD_SIBLINGS,
    keys::ATTRIBUTE_FEATURE_GATES,
    keys::ATTRIBUTE_KUBELET_VERSION,
    keys::ATTRIBUTE_PERFORMANCE_CORES,
    keys::ATTRIBUTE_EFFICIENCY_CORES,
    keys::ATTRIBUTE_UNALIGNED_DEVICES,
    keys::ATTRIBUTE_DEVICE_GROUPS,
    keys::ATTRIBUTE_HOLDINGS,
    keys::ATTRIBUTE_MULTI_ZONE_PLACEMENTS,
];

/// The content that the object should have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The zones, ascending by id.
    pub zones: Vec<nrt::Zone>,
    /// The node's attributes, without those of others.
    pub attributes: Vec<Attribute>,
    /// The fingerprint, which is also an annotation.
    pub fingerprint: Option<Fingerprint>,
    /// The deprecated value for policy and scope, for readers that know nothing else.
    pub topology_policy: Option<&'static str>,
}

/// The owner of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Owner references are not touched.
    Leave,
    /// The Node of the object's name.
    Node {
        /// The Node's UID; a re-created node has another one.
        uid: String,
    },
    /// A namespace.
    Namespace {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// How long the exporter slept, for readers who configured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Between the wake-up that led to this write and the one before; zero for the first.
    pub slept: Duration,
    /// The configured interval if the timer woke it, else zero.
    pub interval: Duration,
}

/// The parts of a write besides the content.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The name of the object.
    pub name: &'a str,
    /// The owner of the object.
    pub owner: &'a Owner,
    /// The version of the kubelet, an attribute.
    pub kubelet_version: Option<&'a str>,
    /// `periodic` or `reactive`: the cause of the write. A difference here causes no write.
    pub trigger: &'a str,
    /// Written as annotations if present. A difference here causes no write; removing stale annotations does.
    pub timing: Option<Timing>,
}

impl<'a> WriteContext<'a> {
    /// A context of a name and a trigger only.
    #[must_use]
    pub fn new(name: &'a str, trigger: &'a str) -> Self {
        Self { name, owner: &Owner::Leave, kubelet_version: None, trigger, timing: None }
    }
}

/// A write that gives the object its content. Writes to an existing object are conditional on the version that was
/// read, if it is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create this object: it does not exist.
    Create(Box<NodeResourceTopology>),
    /// Change the values that differ.
    Patch(Change),
    /// Replace the object by this one.
    Replace(Box<NodeResourceTopology>),
    /// Apply this object, by force.
    Apply(Box<NodeResourceTopology>),
}

fn is_owned(name: &str) -> bool {
    OWNED_ATTRIBUTES.contains(&name)
}

/// Whether two lists of zones are equal, however the amounts are written.
fn same_zones(ours: &[nrt::Zone], stored: &[nrt::Zone]) -> bool {
    let same_amount =
        |a: &Amount, b: &Amount| a == b || matches!((a.parse(), b.parse()), (Ok(a), Ok(b)) if a == b);
    let same_resource = |(a, b): (&nrt::Resource, &nrt::Resource)| {
        a.name == b.name
            && same_amount(&a.capacity, &b.capacity)
            && same_amount(&a.allocatable, &b.allocatable)
            && same_amount(&a.available, &b.available)
    };
    let same_zone = |(a, b): (&nrt::Zone, &nrt::Zone)| {
        a.name == b.name
            && a.kind == b.kind
            && a.parent == b.parent
            && a.costs == b.costs
            && a.attributes == b.attributes
            && a.resources.len() == b.resources.len()
            && a.resources.iter().zip(&b.resources).all(same_resource)
    };
    ours.len() == stored.len() && ours.iter().zip(stored).all(same_zone)
}

#[cfg(test)]
mod tests;
