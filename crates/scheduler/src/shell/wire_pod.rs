//! A pod as it comes from the API server, read as far as it can be.
//!
//! In: the JSON of a pod. Out: its [`PodView`] and the metadata that a watch needs. Never: a pod that counts nothing
//! because of one field; the field is left out, and the pod is not placed.
//!
//! A pod that can be read costs one look over its text more than a plain pod, and in the first list a value. Its
//! managed fields, often half of its text, are passed over. The whole object is dropped at once.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::keys::{CONFIG_MIRROR, POD_ALIGNMENT};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::Segment;

use crate::pod::PodView;

/// Most fields that are left out of one pod; one with more is known by its metadata and node alone.
const MAX_FIELDS: usize = 16;
/// Most pods about which a warning is remembered.
const MAX_WARNINGS: usize = 1_024;

/// A pod of the watch.
#[derive(Clone, Debug)]
pub(super) struct WirePod {
    /// Name, namespace, uid and version.
    meta: ObjectMeta,
    view: PodView,
    /// The first field that could not be read, with the reason.
    problem: Option<String>,
}

/// Warns about each unreadable pod once.
#[derive(Debug, Default)]
pub(super) struct Warnings(BTreeSet<Arc<str>>);

impl Warnings {
    /// The view of a pod.
    pub(super) fn view(&mut self, pod: WirePod) -> PodView {
        let Some(reason) = pod.problem else { return pod.view };
        if self.0.len() >= MAX_WARNINGS {
            self.0.clear();
        }
        if self.0.insert(Arc::clone(&pod.view.uid)) {
            tracing::warn!(pod = pod.view.key(), reason, "a field of a pod cannot be read; the rest counts");
        }
        pod.view.with_unreadable_field(reason)
    }
}

impl WirePod {
    fn new(pod: Pod, problem: Option<String>) -> Self {
        let view = PodView::read(&pod);
        let ObjectMeta { name, namespace, uid, resource_version, .. } = pod.metadata;
        Self {
            meta: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
            view,
            problem,
        }
    }
}

impl<'de> Deserialize<'de> for WirePod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = match deserializer.deserialize_newtype_struct(RAW_VALUE, SourceVisitor)? {
            Source::Text(text) => match serde_json::from_str::<Needed>(text.get()) {
                Ok(pod) => return Ok(Self::new(pod.into(), None)),
                Err(_) => serde_json::from_str(text.get()).map_err(D::Error::custom)?,
            },
            Source::Value(value) => value,
        };
        let (pod, problem) = readable(value).map_err(D::Error::custom)?;
        Ok(Self::new(pod, problem))
    }
}

/// A pod without what nothing here reads.
#[derive(Deserialize)]
struct Needed {
    metadata: NeededMeta,
    spec: Option<PodSpec>,
    status: Option<PodStatus>,
}

/// The metadata that [`PodView::read`] and a watch need.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NeededMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    annotations: Option<NeededAnnotations>,
}

/// The annotations that are read; others are passed over.
#[derive(Deserialize)]
struct NeededAnnotations {
    #[serde(rename = "tholepin.dev/alignment")]
    alignment: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

impl From<NeededAnnotations> for BTreeMap<String, String> {
    fn from(NeededAnnotations { alignment, mirror }: NeededAnnotations) -> Self {
        let all = [(POD_ALIGNMENT, alignment), (CONFIG_MIRROR, mirror)];
        all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }
}

impl From<Needed> for Pod {
    fn from(pod: Needed) -> Self {
        let Needed { metadata, spec, status } = pod;
        let NeededMeta {
            name,
            namespace,
            uid,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            labels,
            owner_references,
            annotations,
        } = metadata;
        let metadata = ObjectMeta {
            name,
            namespace,
            uid,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            labels,
            owner_references,
            annotations: annotations.map(BTreeMap::from),
            ..ObjectMeta::default()
        };
        Self { metadata, spec, status }
    }
}

/// A pod before it is read: as text in a watch, as a value in a list, whose items kube buffers.
enum Source {
    Text(Box<RawValue>),
    Value(Value),
}

struct SourceVisitor;

/// The name by which serde_json knows a [`RawValue`]. Under another name pods would be read as values, only slower.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = Source;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a pod")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Source, A::Error> {
        Box::<RawValue>::deserialize(MapAccessDeserializer::new(map)).map(Source::Text)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Source, D::Error> {
        Value::deserialize(deserializer).map(Source::Value)
    }
}

impl Resource for WirePod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The pod without the fields that cannot be read, and the first of them with the reason.
fn readable(mut value: Value) -> Result<(Pod, Option<String>), serde_json::Error> {
    let mut problem = None;
    for _ in 0..=MAX_FIELDS {
        let error = match serde_path_to_error::deserialize(&value) {
            Ok(pod) => return Ok((pod, problem)),
            Err(error) => error,
        };
        let path: Vec<Segment> = error.path().iter().cloned().collect();
        let removed = remove(&mut value, &path);
        problem.get_or_insert_with(|| format!("field {}: {}", error.path(), error.inner()));
        if !removed {
            break;
        }
    }
    let known = serde_json::json!({
        "metadata": value["metadata"],
        "spec": { "nodeName": value["spec"]["nodeName"], "schedulerName": value["spec"]["schedulerName"] },
    });
    Ok((serde_json::from_value(known)?, problem))
}

/// Removes the field at a path; whether there was one.
fn remove(value: &mut Value, path: &[Segment]) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let parent = parents.iter().try_fold(value, |value, segment| match segment {
        Segment::Map { key } => value.get_mut(key.as_str()),
        Segment::Seq { index } => value.get_mut(*index),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    match (parent, last) {
        (Some(Value::Object(fields)), Segment::Map { key }) => fields.remove(key).is_some(),
        (Some(Value::Array(list)), Segment::Seq { index }) if *index < list.len() => {
            list.remove(*index);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{ObjectList, WatchEvent};
    use serde_json::json;
    use topology::resource::ResourceName;

    use super::*;

    fn pod(spec: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7" },
            "spec": spec,
            "status": { "phase": "Running", "startTime": "2026-01-01T00:00:00Z" },
        })
    }

    /// Managed fields are passed over, and nothing else that a view shows.
    #[test]
    fn a_pod_of_a_watch_is_viewed_as_the_whole_object() {
        let mut object = pod(&json!({
            "schedulerName": "s", "priority": 7, "containers": [{ "name": "c", "resources": { "limits": { "cpu": "2" } } }],
        }));
        let more = json!({
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:01Z",
            "labels": { "a": "b" },
            "annotations": { POD_ALIGNMENT: "require", CONFIG_MIRROR: "static", "another": "c" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true }],
            "managedFields": [{ "manager": "m", "fieldsV1": { "f:spec": {} } }],
        });
        object["metadata"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let read: WirePod = serde_json::from_str(&object.to_string()).unwrap();
        let whole = PodView::read(&serde_json::from_value(object).unwrap());
        assert_eq!(format!("{:?}", read.view), format!("{whole:?}"));
        assert!(read.view.progress.deleting && read.view.stays && read.problem.is_none());
        assert_eq!((&*read.view.uid, read.view.static_uid.as_deref()), ("u", Some("static")));
    }

    /// A pod counts what can be read of it, whether it comes in a list or in a watch.
    #[test]
    fn a_field_that_cannot_be_read_hides_no_other() {
        let amounts = json!({ "requests": { "cpu": "2", "memory": "1Gi" } });
        let container = |more: Value| {
            let mut container = json!({ "name": "c", "resources": amounts });
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            container
        };
        for (containers, more, cpus, problem) in [
            (json!([container(json!({}))]), json!({}), 2_000, ""),
            (json!([container(json!({ "ports": "new" }))]), json!({}), 2_000, "spec.containers[0].ports"),
            (json!([container(json!({})), "new"]), json!({}), 2_000, "spec.containers[1]"),
            (json!([container(json!({}))]), json!({ "tolerations": 3, "priority": "high" }), 2_000, "spec."),
            (json!({ "c": {} }), json!({}), 0, "spec.containers"),
        ] {
            let mut spec = json!({ "nodeName": "n", "containers": containers });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let object = pod(&spec);
            let event = json!({ "type": "MODIFIED", "object": object }).to_string();
            let list = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [object] });
            let WatchEvent::Modified(watched) = serde_json::from_str::<WatchEvent<WirePod>>(&event).unwrap()
            else {
                panic!("{event}")
            };
            let listed =
                serde_json::from_str::<ObjectList<WirePod>>(&list.to_string()).unwrap().items.remove(0);
            for pod in [watched, listed] {
                assert_eq!(pod.meta.resource_version.as_deref(), Some("7"));
                let view = Warnings::default().view(pod);
                let total = view.charged.totals.iter().find(|need| need.name == ResourceName::CPU);
                assert_eq!(total.map_or(0, |need| need.amount), cpus, "{object}");
                assert_eq!((view.node.as_deref(), view.uid.as_ref()), (Some("n"), "u"));
                let text: Vec<String> = view.spec.unsupported.iter().map(ToString::to_string).collect();
                assert!(text.iter().any(|text| text.contains(problem)) != problem.is_empty(), "{text:?}");
            }
        }
    }
}
