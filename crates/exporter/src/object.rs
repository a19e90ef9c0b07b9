//! What the NRT object should say, and what has to be written so that it does. Pure.
//!
//! In: [`Content`], which [`crate::report`] makes; the object as the server holds it. Out: the write that turns what is there
//! into what should be, or nothing when that is the same already. Never: the API.
//!
//! # Whose is what
//! The zones are ours, whole. Of the node's attributes ours are those that exporters write ([`OURS`]); attributes of others
//! stay, behind ours. Of the metadata ours are the annotations exporters write and, when asked for, the owner
//! references: exactly one, the Node. `topologyPolicies` is deprecated and another exporter's leftover would contradict
//! the attributes, so it is removed unless it is asked for. Everything else is left alone.

use api::keys;
use api::nrt::{self, Amount, Attribute, NodeResourceTopology};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use topology::fingerprint::Fingerprint;

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

/// Annotations an earlier exporter may have left that would be wrong now.
const STALE_ANNOTATIONS: [&str; 2] = [keys::ANNOTATION_SLEEP_DURATION, keys::ANNOTATION_UPDATE_INTERVAL];

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
    /// The Node with this UID.
    Node {
        /// The Node's UID; a re-created node has another one.
        uid: String,
    },
}

/// A write that makes the object say what it should.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The object does not exist: create this one.
    Create(Box<NodeResourceTopology>),
    /// Merge this patch into the object.
    Patch(Value),
}

impl Content {
    /// What has to be written when the server holds `held` (`None`: no such object); nothing when it says the same already.
    /// `trigger` tells readers what caused the write and is no reason for one.
    #[must_use]
    pub fn write(
        &self,
        name: &str,
        held: Option<&NodeResourceTopology>,
        owner: &Owner,
        trigger: &str,
    ) -> Option<Write> {
        match held {
            None => Some(Write::Create(Box::new(self.object(name, owner, trigger)))),
            Some(held) => self.patch(name, held, owner, trigger).map(Write::Patch),
        }
    }

    /// The object as it should be when there is none.
    #[must_use]
    pub fn object(&self, name: &str, owner: &Owner, trigger: &str) -> NodeResourceTopology {
        let mut object = NodeResourceTopology {
            topology_policies: self.topology_policies(),
            zones: self.zones.clone(),
            attributes: self.attributes.clone(),
            ..NodeResourceTopology::default()
        };
        object.metadata.name = Some(name.to_owned());
        let update = (keys::ANNOTATION_UPDATE.to_owned(), trigger.to_owned());
        let fingerprint = self.fingerprint.map(|f| (keys::ANNOTATION_FINGERPRINT.to_owned(), f.to_string()));
        object.metadata.annotations = Some(fingerprint.into_iter().chain([update]).collect());
        object.metadata.owner_references = reference(name, owner).map(|reference| vec![reference]);
        object
    }

    /// A JSON merge patch with only the members that differ, conditional on the object being the one held.
    fn patch(&self, name: &str, held: &NodeResourceTopology, owner: &Owner, trigger: &str) -> Option<Value> {
        let mut patch = serde_json::Map::new();
        if !same_zones(&self.zones, &held.zones) {
            patch.insert("zones".to_owned(), json!(self.zones));
        }
        let attributes = self.with_others(&held.attributes);
        if attributes != held.attributes {
            patch.insert("attributes".to_owned(), json!(attributes));
        }
        let policies = self.topology_policies();
        if policies != held.topology_policies {
            let policies = if policies.is_empty() { Value::Null } else { json!(policies) };
            patch.insert("topologyPolicies".to_owned(), policies);
        }
        let mut metadata = serde_json::Map::new();
        if let Some(reference) = reference(name, owner)
            && held.metadata.owner_references.as_deref() != Some(std::slice::from_ref(&reference))
        {
            metadata.insert("ownerReferences".to_owned(), json!([reference]));
        }
        let mut annotations = self.annotations(held);
        if patch.is_empty() && metadata.is_empty() && annotations.is_empty() {
            return None;
        }
        annotations.insert(keys::ANNOTATION_UPDATE.to_owned(), json!(trigger));
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
        if let Some(version) = &held.metadata.resource_version {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        patch.insert("metadata".to_owned(), Value::Object(metadata));
        Some(Value::Object(patch))
    }

    /// Annotations that have to change.
    fn annotations(&self, held: &NodeResourceTopology) -> serde_json::Map<String, Value> {
        let mut changes = serde_json::Map::new();
        let get = |key: &str| held.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let fingerprint = self.fingerprint.map(|fingerprint| fingerprint.to_string());
        if get(keys::ANNOTATION_FINGERPRINT) != fingerprint.as_ref() {
            changes.insert(keys::ANNOTATION_FINGERPRINT.to_owned(), json!(fingerprint));
        }
        for key in STALE_ANNOTATIONS.into_iter().filter(|key| get(key).is_some()) {
            changes.insert(key.to_owned(), Value::Null);
        }
        changes
    }

    fn topology_policies(&self) -> Vec<String> {
        self.topology_policy.map(str::to_owned).into_iter().collect()
    }

    /// Our attributes, then those of the held list that are not an exporter's.
    fn with_others(&self, held: &[Attribute]) -> Vec<Attribute> {
        let others = held.iter().filter(|attribute| !is_ours(&attribute.name)).cloned();
        self.attributes.iter().cloned().chain(others).collect()
    }
}

fn is_ours(name: &str) -> bool {
    OURS.contains(&name)
}

fn reference(name: &str, owner: &Owner) -> Option<OwnerReference> {
    let Owner::Node { uid } = owner else { return None };
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: uid.clone(),
        ..OwnerReference::default()
    })
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
