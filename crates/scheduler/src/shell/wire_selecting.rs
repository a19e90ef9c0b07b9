//! An object that selects pods, as it comes from the API server: its selector, and nothing of what it makes.
//!
//! In: the JSON of a Service, ReplicationController, ReplicaSet or StatefulSet. Out: its [`SelectingView`] and the
//! metadata that a watch needs. Never: its template or status, most of its text, which are passed over.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::default_selector::{SelectingKey, SelectingKind, SelectingView};

/// A kind of objects that select pods.
pub(super) trait Selecting: Resource<DynamicType = ()> {
    /// The kind.
    const KIND: SelectingKind;
    /// The form of `spec.selector`.
    type Selector: DeserializeOwned;

    /// The selector in the common form.
    fn selector(stated: Self::Selector) -> LabelSelector;
}

/// An object of the watch.
#[derive(Clone, Debug)]
pub(super) struct WireSelecting<K> {
    /// Name, namespace, uid and version.
    meta: ObjectMeta,
    view: SelectingView,
    kind: PhantomData<K>,
}

#[derive(Deserialize)]
struct Needed<S> {
    metadata: NeededMeta,
    spec: Option<NeededSpec<S>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NeededMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

#[derive(Deserialize)]
struct NeededSpec<S> {
    selector: Option<S>,
}

impl<K> WireSelecting<K> {
    /// The view of the object.
    pub(super) fn into_view(self) -> SelectingView {
        self.view
    }
}

impl<'de, K: Selecting> Deserialize<'de> for WireSelecting<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Needed { metadata, spec } = Needed::<K::Selector>::deserialize(deserializer)?;
        let NeededMeta { name, namespace, uid, resource_version } = metadata;
        let text = |value: &Option<String>| value.as_deref().unwrap_or_default().into();
        let key = SelectingKey { kind: K::KIND, namespace: text(&namespace), name: text(&name) };
        let view = SelectingView::new(key, spec.and_then(|spec| spec.selector).map(K::selector));
        let meta = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        Ok(Self { meta, view, kind: PhantomData })
    }
}

impl<K: Selecting> Resource for WireSelecting<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

fn of_labels(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

impl Selecting for Service {
    const KIND: SelectingKind = SelectingKind::Service;
    type Selector = BTreeMap<String, String>;

    fn selector(stated: Self::Selector) -> LabelSelector {
        of_labels(stated)
    }
}

impl Selecting for ReplicationController {
    const KIND: SelectingKind = SelectingKind::ReplicationController;
    type Selector = BTreeMap<String, String>;

    fn selector(stated: Self::Selector) -> LabelSelector {
        of_labels(stated)
    }
}

impl Selecting for ReplicaSet {
    const KIND: SelectingKind = SelectingKind::ReplicaSet;
    type Selector = LabelSelector;

    fn selector(stated: LabelSelector) -> LabelSelector {
        stated
    }
}

impl Selecting for StatefulSet {
    const KIND: SelectingKind = SelectingKind::StatefulSet;
    type Selector = LabelSelector;

    fn selector(stated: LabelSelector) -> LabelSelector {
        stated
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<K: Selecting>(selector: Value) -> WireSelecting<K> {
        let object = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}]},
            "spec": {"selector": selector, "template": {"spec": {"containers": "passed over"}}},
            "status": {"replicas": "passed over"},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn selectors_of_each_kind_are_read() {
        let labels = json!({"app": "web"});
        let wanted = |kind, selector: Value| {
            let key = SelectingKey { kind, namespace: "ns".into(), name: "a".into() };
            SelectingView::new(key, serde_json::from_value(selector).unwrap())
        };
        let selector = json!({"matchLabels": labels});
        let service = read::<Service>(labels.clone());
        assert_eq!(service.meta().resource_version.as_deref(), Some("7"));
        assert_eq!(service.meta().uid.as_deref(), Some("u"));
        assert_eq!(service.into_view(), wanted(SelectingKind::Service, selector.clone()));
        let controller = read::<ReplicationController>(labels);
        assert_eq!(controller.into_view(), wanted(SelectingKind::ReplicationController, selector.clone()));
        let set = read::<ReplicaSet>(selector.clone());
        assert_eq!(set.into_view(), wanted(SelectingKind::ReplicaSet, selector.clone()));
        let set = read::<StatefulSet>(selector.clone());
        assert_eq!(set.into_view(), wanted(SelectingKind::StatefulSet, selector));
        let headless = read::<Service>(Value::Null);
        assert_eq!(headless.into_view(), wanted(SelectingKind::Service, Value::Null));
        assert_eq!(WireSelecting::<ReplicaSet>::plural(&()), "replicasets");
    }
}
