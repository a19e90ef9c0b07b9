//! Computes the write between the content and the stored object.

use std::collections::BTreeMap;

use api::goduration::GoDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use super::*;
use crate::settings::Mode;

/// The annotations exporters write: set and removed by us.
const ANNOTATIONS: [&str; 4] = [
    keys::ANNOTATION_FINGERPRINT,
    keys::ANNOTATION_UPDATE,
    keys::ANNOTATION_SLEEP_DURATION,
    keys::ANNOTATION_UPDATE_INTERVAL,
];

/// Annotations to set; those without a value are removed.
type Annotations = BTreeMap<&'static str, Option<String>>;

impl Content {
    /// The write to make when the server holds `stored` (`None`: no such object); `None` when nothing differs, or only
    /// containers that have ended are forgotten.
    ///
    /// An apply cannot remove fields that it never owned, such as those left by another exporter. Where they have to be
    /// removed, the write is a patch whatever the mode; both need the same permission.
    #[must_use]
    pub fn write(
        &self,
        context: &WriteContext<'_>,
        stored: Option<&NodeResourceTopology>,
        mode: Mode,
    ) -> Option<Write> {
        let Some(stored) = stored else {
            let object = Box::new(self.object(context));
            return Some(if mode == Mode::Apply { Write::Apply(object) } else { Write::Create(object) });
        };
        let patch = self.patch(context, stored)?;
        if self.with_ended(stored).is_some_and(|content| content.patch(context, stored).is_none()) {
            return None;
        }
        Some(match mode {
            Mode::Update => Write::Replace(Box::new(self.replacement(context, stored))),
            Mode::Apply if !self.removes_something(context, stored) => {
                Write::Apply(Box::new(self.applied(context, stored)))
            }
            Mode::Apply | Mode::Patch => Write::Patch(Change::new(patch, stored)),
        })
    }

    /// The object to create when there is none.
    #[must_use]
    pub fn object(&self, context: &WriteContext<'_>) -> NodeResourceTopology {
        let mut object = NodeResourceTopology {
            topology_policies: self.topology_policies(),
            zones: self.zones.clone(),
            attributes: self.attributes(context, &[]),
            ..NodeResourceTopology::default()
        };
        object.metadata.name = Some(context.name.to_owned());
        let said = self.annotations(context).into_iter().map(|(key, value)| (key.to_owned(), value));
        object.metadata.annotations = Some(said.collect());
        object.metadata.owner_references = context.reference().map(|reference| vec![reference]);
        object
    }

    /// A JSON merge patch with only the members that differ, conditional on the version of `stored`.
    fn patch(&self, context: &WriteContext<'_>, stored: &NodeResourceTopology) -> Option<Value> {
        let mut patch = Map::new();
        if !same_zones(&self.zones, &stored.zones) {
            patch.insert("zones".to_owned(), json!(self.zones));
        }
        let attributes = self.attributes(context, &stored.attributes);
        if attributes != stored.attributes {
            patch.insert("attributes".to_owned(), json!(attributes));
        }
        let policies = self.topology_policies();
        if policies != stored.topology_policies {
            let policies = if policies.is_empty() { Value::Null } else { json!(policies) };
            patch.insert("topologyPolicies".to_owned(), policies);
        }
        let mut metadata = Map::new();
        if let Some(reference) = context.other_reference(stored) {
            metadata.insert("ownerReferences".to_owned(), json!([reference]));
        }
        let annotations = self.annotation_changes(context, stored);
        if patch.is_empty() && metadata.is_empty() && !annotations.iter().any(justifies_write) {
            return None;
        }
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(annotations));
        }
        if let Some(version) = &stored.metadata.resource_version {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        patch.insert("metadata".to_owned(), Value::Object(metadata));
        Some(Value::Object(patch))
    }

    /// The stored object with our fields replaced, and everything else as it is.
    fn replacement(&self, context: &WriteContext<'_>, stored: &NodeResourceTopology) -> NodeResourceTopology {
        let mut object = stored.clone();
        object.zones.clone_from(&self.zones);
        object.attributes = self.attributes(context, &stored.attributes);
        object.topology_policies = self.topology_policies();
        object.metadata.name = Some(context.name.to_owned());
        let annotations = object.metadata.annotations.get_or_insert_default();
        for (key, value) in self.annotation_changes(context, stored) {
            match value {
                Some(value) => drop(annotations.insert(key.to_owned(), value)),
                None => drop(annotations.remove(key)),
            }
        }
        if let Some(reference) = context.reference() {
            object.metadata.owner_references = Some(vec![reference]);
        }
        object
    }

    /// The object to apply to an existing one. An apply replaces the list of attributes as a whole, so it includes
    /// those of others.
    fn applied(&self, context: &WriteContext<'_>, stored: &NodeResourceTopology) -> NodeResourceTopology {
        let mut object = self.object(context);
        object.attributes = self.attributes(context, &stored.attributes);
        object.metadata.resource_version.clone_from(&stored.metadata.resource_version);
        object
    }

    /// Whether a field has to be removed that an apply might leave, because it merges: single annotations, owner
    /// references by UID, `topologyPolicies` that we do not state.
    fn removes_something(&self, context: &WriteContext<'_>, stored: &NodeResourceTopology) -> bool {
        let policies = self.topology_policy.is_none() && !stored.topology_policies.is_empty();
        let owners = context.other_reference(stored).is_some()
            && stored.metadata.owner_references.as_ref().is_some_and(|references| !references.is_empty());
        policies || owners || self.annotation_changes(context, stored).values().any(Option::is_none)
    }

    /// The annotations to write.
    fn annotations(&self, context: &WriteContext<'_>) -> BTreeMap<&'static str, String> {
        let mut said = BTreeMap::from([(keys::ANNOTATION_UPDATE, context.trigger.to_owned())]);
        if let Some(fingerprint) = self.fingerprint {
            said.insert(keys::ANNOTATION_FINGERPRINT, fingerprint.to_string());
        }
        if let Some(timing) = context.timing {
            // RTE rounds the first and not the second.
            let slept = GoDuration::from_secs(timing.slept.as_secs_f64().round() as i64);
            said.insert(keys::ANNOTATION_SLEEP_DURATION, slept.to_string());
            said.insert(keys::ANNOTATION_UPDATE_INTERVAL, GoDuration::from(timing.interval).to_string());
        }
        said
    }

    /// The annotations that differ from `stored`; those of exporters that we do not write are removed.
    fn annotation_changes(&self, context: &WriteContext<'_>, stored: &NodeResourceTopology) -> Annotations {
        let mut stated = self.annotations(context);
        let stored =
            |key: &str| stored.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let ours = ANNOTATIONS.into_iter().map(|key| (key, stated.remove(key)));
        ours.filter(|(key, value)| value.as_ref() != stored(key)).collect()
    }

    fn topology_policies(&self) -> Vec<String> {
        self.topology_policy.map(str::to_owned).into_iter().collect()
    }

    /// Our attributes, then those of the stored list that no exporter owns.
    fn attributes(&self, context: &WriteContext<'_>, stored: &[Attribute]) -> Vec<Attribute> {
        let name = keys::ATTRIBUTE_KUBELET_VERSION.to_owned();
        let version = context.kubelet_version.map(|version| Attribute { name, value: version.to_owned() });
        let others = stored.iter().filter(|attribute| !is_owned(&attribute.name)).cloned();
        self.attributes.iter().cloned().chain(version).chain(others).collect()
    }
}

impl WriteContext<'_> {
    /// The owner reference to write, if any.
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

    /// The same, unless the object has exactly that one.
    fn other_reference(&self, stored: &NodeResourceTopology) -> Option<OwnerReference> {
        let same = |reference: &OwnerReference| {
            stored.metadata.owner_references.as_deref() == Some(std::slice::from_ref(reference))
        };
        self.reference().filter(|reference| !same(reference))
    }
}

/// Whether a changed annotation alone justifies a write. Annotations about the write itself do not.
fn justifies_write((key, value): (&&'static str, &Option<String>)) -> bool {
    *key == keys::ANNOTATION_FINGERPRINT || value.is_none()
}
