//! What the NRT object should say, and what has to be written so that it does. Pure.
//!
//! In: [`Content`], which [`crate::report`] makes; the object as the server holds it. Out: the write that turns what is there
//! into what should be, or nothing when that is the same already. Never: the API.
//!
//! # Whose is what
//! The zones are ours, whole. Of the node's attributes ours are those that exporters write ([`OURS`]); attributes of others
//! stay, behind ours. Of the metadata ours are the annotations exporters write and, when asked for, the owner
//! references: exactly one, the Node or the namespace. `topologyPolicies` is deprecated and another exporter's leftover would contradict
//! the attributes, so it is removed unless it is asked for. Everything else is left alone.

use std::time::Duration;

use api::keys;
use api::nrt::{self, Amount, Attribute, NodeResourceTopology};
use topology::fingerprint::Fingerprint;

mod change;
mod write;

pub use change::Change;

/// Attributes that exporters write about a node: ours to set, and to remove when an earlier exporter left them.
pub const OURS: [&str; 18] = [
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
    keys::ATTRIBUTE_KUBELET_VERSION,
    keys::ATTRIBUTE_PERFORMANCE_CORES,
    keys::ATTRIBUTE_EFFICIENCY_CORES,
    keys::ATTRIBUTE_UNALIGNED_DEVICES,
    keys::ATTRIBUTE_MULTI_ZONE_PLACEMENTS,
];

/// What the object should say about the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// Its zones, ascending by id.
    pub zones: Vec<nrt::Zone>,
    /// Its attributes, without those of others.
    pub attributes: Vec<Attribute>,
    /// The fingerprint, which has an annotation too.
    pub fingerprint: Option<Fingerprint>,
    /// The deprecated word for policy and scope, for readers that know nothing else.
    pub topology_policy: Option<&'static str>,
}

/// Who owns the object.
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

/// How long the exporter slept, for readers who asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Between the wake-up that led to this write and the one before; zero for the first.
    pub slept: Duration,
    /// The configured interval if the timer woke it, else zero.
    pub interval: Duration,
}

/// What a write says besides the content.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The object's name.
    pub name: &'a str,
    /// Its owner.
    pub owner: &'a Owner,
    /// The kubelet's version, an attribute.
    pub kubelet_version: Option<&'a str>,
    /// `periodic` or `reactive`: what caused the write. No reason for one.
    pub trigger: &'a str,
    /// Told in annotations, if it is to be told. No reason for a write either; taking stale ones away is.
    pub timing: Option<Timing>,
}

impl<'a> Frame<'a> {
    /// Nothing but a name and what caused it.
    #[must_use]
    pub fn new(name: &'a str, trigger: &'a str) -> Self {
        Self { name, owner: &Owner::Leave, kubelet_version: None, trigger, timing: None }
    }
}

/// A write that makes the object say what it should. Whatever is about an object that is there is conditional on the version
/// seen, as far as that is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The object does not exist: create this one.
    Create(Box<NodeResourceTopology>),
    /// Change what differs in the object.
    Patch(Change),
    /// Put this in place of the object.
    Replace(Box<NodeResourceTopology>),
    /// Apply this, by force.
    Apply(Box<NodeResourceTopology>),
}

fn is_ours(name: &str) -> bool {
    OURS.contains(&name)
}

/// Whether two lists of zones say the same, however the amounts are written.
fn same_zones(ours: &[nrt::Zone], held: &[nrt::Zone]) -> bool {
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
    ours.len() == held.len() && ours.iter().zip(held).all(same_zone)
}

#[cfg(test)]
mod tests;
