//! From content and the object that is there to the write between them.

use std::collections::BTreeMap;

use api::goduration::GoDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::*;
use crate::settings::Mode;

/// The annotations exporters write: ours to set, and to remove.
const ANNOTATIONS: [&str; 4] = [
    keys::ANNOTATION_FINGERPRINT,
    keys::ANNOTATION_UPDATE,
    keys::ANNOTATION_SLEEP_DURATION,
    keys::ANNOTATION_UPDATE_INTERVAL,
];

/// Annotations to set, and to remove where there is no value.
type Annotations = BTreeMap<&'static str, Option<String>>;

impl Content {
    /// What has to be written when the server holds `held` (`None`: no such object); nothing when it says the same already.
    ///
    /// An apply cannot take away what it never owned, such as what another exporter left. Where that has to be done, the
    /// write is a patch whatever the mode; both need the same permission.
    #[must_use]
    pub fn write(&self, frame: &Frame<'_>, held: Option<&NodeResourceTopology>, mode: Mode) -> Option<Write> {
        let Some(held) = held else {
            let object = Box::new(self.object(frame));
            return Some(if mode == Mode::Apply { Write::Apply(object) } else { Write::Create(object) });
        };
        let patch = self.patch(frame, held)?;
        Some(match mode {
            Mode::Update => Write::Replace(Box::new(self.replacement(frame, held))),
            Mode::Apply if !self.takes_away(frame, held) => Write::Apply(Box::new(self.applied(frame, held))),
            Mode::Apply | Mode::Patch => Write::Patch(Change::new(patch, held)),
        })
    }

    /// The object as it should be when there is none.
    #[must_use]
    pub fn object(&self, frame: &Frame<'_>) -> NodeResourceTopology {
        let mut object = NodeResourceTopology {
            topology_policies: self.topology_policies(),
            zones: self.zones.clone(),
            attributes: self.attributes(frame, &[]),
            ..NodeResourceTopology::default()
        };
        object.metadata.name = Some(frame.name.to_owned());
        let said = self.stated(frame).into_iter().map(|(key, value)| (key.to_owned(), value));
        object.metadata.annotations = Some(said.collect());
        object.metadata.owner_references = frame.reference().map(|reference| vec![reference]);
        object
    }

    /// A JSON merge patch with only the members that differ, conditional on the object being the one held.
    fn patch(&self, frame: &Frame<'_>, held: &NodeResourceTopology) -> Option<Value> {
        let mut patch = Map::new();
        if !same_zones(&self.zones, &held.zones) {
            patch.insert("zones".to_owned(), json!(self.zones));
        }
        let attributes = self.attributes(frame, &held.attributes);
        if attributes != held.attributes {
            patch.insert("attributes".to_owned(), json!(attributes));
        }
        let policies = self.topology_policies();
        if policies != held.topology_policies {
            let policies = if policies.is_empty() { Value::Null } else { json!(policies) };
            patch.insert("topologyPolicies".to_owned(), policies);
        }
        let mut metadata = Map::new();
        if let Some(reference) = frame.other_reference(held) {
            metadata.insert("ownerReferences".to_owned(), json!([reference]));
        }
        let annotations = self.annotation_changes(frame, held);
        if patch.is_empty() && metadata.is_empty() && !annotations.iter().any(is_a_reason) {
            return None;
        }
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(annotations));
        }
        if let Some(version) = &held.metadata.resource_version {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        patch.insert("metadata".to_owned(), Value::Object(metadata));
        Some(Value::Object(patch))
    }

    /// The held object with our parts in place; everything else as it is.
    fn replacement(&self, frame: &Frame<'_>, held: &NodeResourceTopology) -> NodeResourceTopology {
        let mut object = held.clone();
        object.zones.clone_from(&self.zones);
        object.attributes = self.attributes(frame, &held.attributes);
        object.topology_policies = self.topology_policies();
        object.metadata.name = Some(frame.name.to_owned());
        let annotations = object.metadata.annotations.get_or_insert_default();
        for (key, value) in self.annotation_changes(frame, held) {
            match value {
                Some(value) => drop(annotations.insert(key.to_owned(), value)),
                None => drop(annotations.remove(key)),
            }
        }
        if let Some(reference) = frame.reference() {
            object.metadata.owner_references = Some(vec![reference]);
        }
        object
    }

    /// All that we say of an object that is there. The list of attributes is one thing to an apply, so those of others are
    /// in it too.
    fn applied(&self, frame: &Frame<'_>, held: &NodeResourceTopology) -> NodeResourceTopology {
        let mut object = self.object(frame);
        object.attributes = self.attributes(frame, &held.attributes);
        object.metadata.resource_version.clone_from(&held.metadata.resource_version);
        object
    }

    /// Whether something has to go that an apply might leave, because it merges what it is about: single annotations, owner
    /// references by UID, `topologyPolicies` that we do not mention.
    fn takes_away(&self, frame: &Frame<'_>, held: &NodeResourceTopology) -> bool {
        let policies = self.topology_policy.is_none() && !held.topology_policies.is_empty();
        let owners = frame.other_reference(held).is_some()
            && held.metadata.owner_references.as_ref().is_some_and(|references| !references.is_empty());
        policies || owners || self.annotation_changes(frame, held).values().any(Option::is_none)
    }

    /// The annotations we state.
    fn stated(&self, frame: &Frame<'_>) -> BTreeMap<&'static str, String> {
        let mut said = BTreeMap::from([(keys::ANNOTATION_UPDATE, frame.trigger.to_owned())]);
        if let Some(fingerprint) = self.fingerprint {
            said.insert(keys::ANNOTATION_FINGERPRINT, fingerprint.to_string());
        }
        if let Some(timing) = frame.timing {
            // The peer rounds the one and not the other.
            let slept = GoDuration::from_secs(timing.slept.as_secs_f64().round() as i64);
            said.insert(keys::ANNOTATION_SLEEP_DURATION, slept.to_string());
            said.insert(keys::ANNOTATION_UPDATE_INTERVAL, GoDuration::from(timing.interval).to_string());
        }
        said
    }

    /// Those that differ from what is stated; what exporters state and we do not has to go.
    fn annotation_changes(&self, frame: &Frame<'_>, held: &NodeResourceTopology) -> Annotations {
        let mut stated = self.stated(frame);
        let held =
            |key: &str| held.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let ours = ANNOTATIONS.into_iter().map(|key| (key, stated.remove(key)));
        ours.filter(|(key, value)| value.as_ref() != held(key)).collect()
    }

    fn topology_policies(&self) -> Vec<String> {
        self.topology_policy.map(str::to_owned).into_iter().collect()
    }

    /// Our attributes, then those of the held list that are not an exporter's.
    fn attributes(&self, frame: &Frame<'_>, held: &[Attribute]) -> Vec<Attribute> {
        let name = keys::ATTRIBUTE_KUBELET_VERSION.to_owned();
        let version = frame.kubelet_version.map(|version| Attribute { name, value: version.to_owned() });
        let others = held.iter().filter(|attribute| !is_ours(&attribute.name)).cloned();
        self.attributes.iter().cloned().chain(version).chain(others).collect()
    }
}

impl Frame<'_> {
    /// The owner reference to state, if there is to be one.
    fn reference(&self) -> Option<OwnerReference> {
        let (kind, name, uid) = match self.owner {
            Owner::Leave => return None,
            Owner::Node { uid } => ("Node", self.name, uid),
            Owner::Namespace { name, uid } => ("Namespace", name.as_str(), uid),
        };
        Some(OwnerReference {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.clone(),
            ..OwnerReference::default()
        })
    }

    /// The same, if the object does not have exactly that.
    fn other_reference(&self, held: &NodeResourceTopology) -> Option<OwnerReference> {
        let same = |reference: &OwnerReference| {
            held.metadata.owner_references.as_deref() == Some(std::slice::from_ref(reference))
        };
        self.reference().filter(|reference| !same(reference))
    }
}

/// Whether a changed annotation alone is worth a write: not what tells of the write itself.
fn is_a_reason((key, value): (&&'static str, &Option<String>)) -> bool {
    *key == keys::ANNOTATION_FINGERPRINT || value.is_none()
}
