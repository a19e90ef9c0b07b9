//! What the NRT object should say, and what has to be written so that it does. Pure.
//!
//! In: zones, the kubelet's settings, the listed pods; the object as the server holds it. Out: [`Content`], and the write
//! that turns what is there into what should be, or nothing when that is the same already. Never: the API.
//!
//! # Whose is what
//! The zones are ours, whole. Of the node's attributes ours are those that exporters write ([`OURS`]); attributes of others
//! stay, behind ours. Of the metadata ours are the annotations exporters write and, when asked for, the owner
//! references: exactly one, the Node. `topologyPolicies` is deprecated and another exporter's leftover would contradict
//! the attributes, so it is removed. Everything else is left alone.

use api::convert::wire_zones;
use api::keys;
use api::nrt::{self, Amount, Attribute, NodeResourceTopology, attribute};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use node::podresources::PodResources;
use serde_json::{Value, json};
use topology::fingerprint::{Fingerprint, Method};
use topology::policy::{Manager, Rules};
use topology::zone::Zone;

/// Attributes that exporters write about a node: ours to set, and to remove when an earlier exporter left them. Names that
/// end in `*` stand for all that begin so.
pub const OURS: [&str; 8] = [
    keys::ATTRIBUTE_FINGERPRINT,
    keys::ATTRIBUTE_FINGERPRINT_METHOD,
    keys::ATTRIBUTE_SCOPE,
    keys::ATTRIBUTE_POLICY,
    keys::ATTRIBUTE_CPU_MANAGER,
    keys::ATTRIBUTE_MEMORY_MANAGER,
    keys::ATTRIBUTE_MAX_NUMA_NODES,
    // Container placements of RTE 0.25: a stale one would be believed.
    "topology.node.k8s.io/numaplacement-*",
];

/// Annotations an earlier exporter may have left that would be wrong now.
const STALE_ANNOTATIONS: [&str; 2] = [keys::ANNOTATION_SLEEP_DURATION, keys::ANNOTATION_UPDATE_INTERVAL];

/// What the object should say about the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    /// Its zones, ascending by id.
    pub zones: Vec<Zone>,
    /// Its attributes, without those of others.
    pub attributes: Vec<Attribute>,
    /// The fingerprint, which has an annotation too.
    pub fingerprint: Fingerprint,
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
    /// Puts together what is known; managers of unknown policy are not mentioned.
    #[must_use]
    pub fn new(zones: Vec<Zone>, rules: Rules, pods: &[PodResources], method: Method) -> Self {
        let fingerprint = fingerprint(pods, method);
        let mut attributes = Vec::with_capacity(6);
        let mut add = |name: &str, value: &str| attribute::insert(&mut attributes, name, value);
        add(keys::ATTRIBUTE_FINGERPRINT, &fingerprint.to_string());
        add(keys::ATTRIBUTE_FINGERPRINT_METHOD, method.as_str());
        add(keys::ATTRIBUTE_SCOPE, rules.scope.as_str());
        add(keys::ATTRIBUTE_POLICY, rules.policy.as_str());
        match rules.cpu_manager {
            Manager::Unknown => {}
            Manager::Off => add(keys::ATTRIBUTE_CPU_MANAGER, "none"),
            Manager::Static => add(keys::ATTRIBUTE_CPU_MANAGER, "static"),
        }
        match rules.memory_manager {
            Manager::Unknown => {}
            Manager::Off => add(keys::ATTRIBUTE_MEMORY_MANAGER, "None"),
            Manager::Static => add(keys::ATTRIBUTE_MEMORY_MANAGER, "Static"),
        }
        Self { zones, attributes, fingerprint }
    }

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
            zones: wire_zones(&self.zones),
            attributes: self.attributes.clone(),
            ..NodeResourceTopology::default()
        };
        object.metadata.name = Some(name.to_owned());
        let annotations = [
            (keys::ANNOTATION_FINGERPRINT.to_owned(), self.fingerprint.to_string()),
            (keys::ANNOTATION_UPDATE.to_owned(), trigger.to_owned()),
        ];
        object.metadata.annotations = Some(annotations.into());
        object.metadata.owner_references = reference(name, owner).map(|reference| vec![reference]);
        object
    }

    /// A JSON merge patch with only the members that differ, conditional on the object being the one held.
    fn patch(&self, name: &str, held: &NodeResourceTopology, owner: &Owner, trigger: &str) -> Option<Value> {
        let mut patch = serde_json::Map::new();
        let zones = wire_zones(&self.zones);
        if !same_zones(&zones, &held.zones) {
            patch.insert("zones".to_owned(), json!(zones));
        }
        let attributes = self.with_others(&held.attributes);
        if attributes != held.attributes {
            patch.insert("attributes".to_owned(), json!(attributes));
        }
        if !held.topology_policies.is_empty() {
            patch.insert("topologyPolicies".to_owned(), Value::Null);
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
        let fingerprint = self.fingerprint.to_string();
        if get(keys::ANNOTATION_FINGERPRINT) != Some(&fingerprint) {
            changes.insert(keys::ANNOTATION_FINGERPRINT.to_owned(), json!(fingerprint));
        }
        for key in STALE_ANNOTATIONS.into_iter().filter(|key| get(key).is_some()) {
            changes.insert(key.to_owned(), Value::Null);
        }
        changes
    }

    /// Our attributes, then those of the held list that are not an exporter's.
    fn with_others(&self, held: &[Attribute]) -> Vec<Attribute> {
        let others = held.iter().filter(|attribute| !is_ours(&attribute.name)).cloned();
        self.attributes.iter().cloned().chain(others).collect()
    }
}

fn is_ours(name: &str) -> bool {
    OURS.iter().any(|ours| ours.strip_suffix('*').map_or(name == *ours, |prefix| name.starts_with(prefix)))
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

/// Signs the pods that `method` selects.
fn fingerprint(pods: &[PodResources], method: Method) -> Fingerprint {
    let counts = |pod: &&PodResources| method == Method::All || pod.holds_something_local();
    Fingerprint::of_names(pods.iter().filter(counts).map(|pod| (pod.namespace.as_str(), pod.name.as_str())))
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
