//! The selector of a pod by what selects it: Services, and the controller that owns it.
//!
//! In: Services, ReplicationControllers, ReplicaSets and StatefulSets. Out: the selector by which a pod without spread
//! constraints of its own is spread. Never: a count of pods.
//!
//! Source: kube-scheduler 1.36 `helper.DefaultSelector`. Cost of a pod: a comparison with each Service of its
//! namespace; without any, and without such a controller, nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, OwnerReference,
};
use kube::core::Selector;

use crate::affinity::Labels;
use crate::pod::PodView;

/// Kinds of objects that select pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectingKind {
    /// A Service.
    Service,
    /// A ReplicationController.
    ReplicationController,
    /// A ReplicaSet.
    ReplicaSet,
    /// A StatefulSet.
    StatefulSet,
}

/// An object that selects pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SelectingKey {
    /// Its kind.
    pub kind: SelectingKind,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

/// The fields of an object that selects pods which the scheduler uses.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectingView {
    /// The object.
    pub key: SelectingKey,
    /// `spec.selector`; `None`: it selects nothing, or cannot be read.
    selector: Option<LabelSelector>,
}

/// The controller of a pod, as its owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    kind: SelectingKind,
    name: Arc<str>,
}

/// The objects that select pods.
#[derive(Debug, Default)]
pub struct DefaultSelectors {
    /// Services by namespace and name.
    services: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Labels>>,
    controllers: BTreeMap<SelectingKey, LabelSelector>,
}

impl SelectingView {
    /// An object with this selector.
    #[must_use]
    pub fn new(key: SelectingKey, selector: Option<LabelSelector>) -> Self {
        let is_valid = |selector: &LabelSelector| Selector::try_from(selector.clone()).is_ok();
        Self { key, selector: selector.filter(is_valid) }
    }
}

/// The reference of a pod to its controller.
#[must_use]
pub fn controller_of(pod: &wire::Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

impl Controller {
    /// The controller of a pod, if it is of a kind whose selector counts.
    #[must_use]
    pub fn of(pod: &wire::Pod) -> Option<Self> {
        let owner = controller_of(pod)?;
        let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => SelectingKind::ReplicationController,
            ("apps/v1", "ReplicaSet") => SelectingKind::ReplicaSet,
            ("apps/v1", "StatefulSet") => SelectingKind::StatefulSet,
            _ => return None,
        };
        Some(Self { kind, name: owner.name.as_str().into() })
    }
}

impl DefaultSelectors {
    /// An object is there, or has changed. Returns whether its selector has.
    pub fn set(&mut self, view: SelectingView) -> bool {
        let SelectingView { key, selector } = view;
        let Some(selector) = selector else { return self.remove(&key) };
        if key.kind != SelectingKind::Service {
            return self.controllers.insert(key, selector.clone()) != Some(selector);
        }
        let labels = selector.match_labels.unwrap_or_default();
        let services = self.services.entry(key.namespace).or_default();
        services.insert(key.name, labels.clone()) != Some(labels)
    }

    /// An object is gone. Returns whether it was there.
    pub fn remove(&mut self, key: &SelectingKey) -> bool {
        if key.kind != SelectingKind::Service {
            return self.controllers.remove(key).is_some();
        }
        let Some(services) = self.services.get_mut(&key.namespace) else { return false };
        let was_there = services.remove(&key.name).is_some();
        if services.is_empty() {
            self.services.remove(&key.namespace);
        }
        was_there
    }

    /// The selector of a pod; `None`: nothing selects it, or all that does selects all pods.
    #[must_use]
    pub fn of(&self, pod: &PodView) -> Option<LabelSelector> {
        let services = self.services.get(&pod.namespace).into_iter().flat_map(BTreeMap::values);
        let selects =
            |service: &&Labels| service.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
        let mut labels: Labels =
            services.filter(selects).flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut expressions = Vec::new();
        if let Some(Controller { kind, name }) = &pod.controller {
            let (namespace, name) = (Arc::clone(&pod.namespace), Arc::clone(name));
            let found = self.controllers.get(&SelectingKey { kind: *kind, namespace, name });
            let stated = found.into_iter().flat_map(|selector| selector.match_labels.iter().flatten());
            let stated = stated.map(|(key, value)| (key.clone(), value.clone()));
            match kind {
                SelectingKind::ReplicationController => labels.extend(stated),
                // It counts beside the Services: a pod has to match both, even if they contradict each other.
                _ => expressions.extend(stated.map(|(key, value)| LabelSelectorRequirement {
                    key,
                    operator: "In".to_owned(),
                    values: Some(vec![value]),
                })),
            }
            let more = found.into_iter().flat_map(|selector| selector.match_expressions.iter().flatten());
            expressions.extend(more.cloned());
        }
        if labels.is_empty() && expressions.is_empty() {
            return None;
        }
        Some(LabelSelector { match_labels: Some(labels), match_expressions: Some(expressions) })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(kind: SelectingKind, name: &str, selector: Value) -> SelectingView {
        let key = SelectingKey { kind, namespace: "ns".into(), name: name.into() };
        SelectingView::new(key, serde_json::from_value(selector).unwrap())
    }

    #[test]
    fn pods_have_the_selector_of_what_selects_them() {
        use SelectingKind::{ReplicaSet, ReplicationController, Service, StatefulSet};
        let mut all = DefaultSelectors::default();
        let web = json!({"app": "web"});
        let selecting = |labels: &Value| json!({"matchLabels": labels});
        for (kind, name, selector) in [
            (Service, "web", selecting(&web)),
            (Service, "front", selecting(&json!({"tier": "front"}))),
            (Service, "both", selecting(&json!({"app": "web", "tier": "back"}))),
            (Service, "headless", Value::Null),
            (ReplicationController, "rc", selecting(&json!({"run": "rc"}))),
            (ReplicaSet, "rs", selecting(&json!({"hash": "1"}))),
            (ReplicaSet, "other-app", selecting(&json!({"app": "db"}))),
            (ReplicaSet, "all", json!({})),
            (ReplicaSet, "wrong", json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})),
            (StatefulSet, "set", json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})),
        ] {
            all.set(view(kind, name, selector));
        }
        let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        let exists = json!({"key": "app", "operator": "Exists"});
        for (labels, owner, wanted) in [
            (json!({}), None, None),
            (json!({"app": "db"}), None, None),
            (web.clone(), None, Some((web.clone(), vec![]))),
            (
                json!({"app": "web", "tier": "front"}),
                None,
                Some((json!({"app": "web", "tier": "front"}), vec![])),
            ),
            (
                web.clone(),
                Some(("v1", "ReplicationController", "rc")),
                Some((json!({"app": "web", "run": "rc"}), vec![])),
            ),
            (web.clone(), Some(("apps/v1", "ReplicaSet", "rs")), Some((web.clone(), vec![is("hash", "1")]))),
            (
                web.clone(),
                Some(("apps/v1", "ReplicaSet", "other-app")),
                Some((web.clone(), vec![is("app", "db")])),
            ),
            (web.clone(), Some(("apps/v1", "ReplicaSet", "wrong")), Some((web.clone(), vec![]))),
            (web.clone(), Some(("apps/v1", "ReplicaSet", "set")), Some((web.clone(), vec![]))),
            (json!({}), Some(("apps/v1", "StatefulSet", "set")), Some((json!({}), vec![exists]))),
            (json!({}), Some(("apps/v1", "ReplicaSet", "all")), None),
            (json!({}), Some(("batch/v1", "Job", "rs")), None),
        ] {
            let owners = owner.map(|(version, kind, name)| {
                json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}])
            });
            let meta = json!({"namespace": "ns", "name": "p", "labels": labels, "ownerReferences": owners});
            let pod = PodView::read(&serde_json::from_value(json!({"metadata": meta})).unwrap());
            let wanted = wanted.map(|(labels, expressions)| {
                serde_json::from_value(json!({"matchLabels": labels, "matchExpressions": expressions}))
                    .unwrap()
            });
            assert_eq!(all.of(&pod), wanted, "{labels} {owner:?}");
        }
    }

    #[test]
    fn changes_are_told_apart() {
        let mut all = DefaultSelectors::default();
        for kind in [SelectingKind::Service, SelectingKind::ReplicaSet] {
            let web = view(kind, "web", json!({"matchLabels": {"app": "web"}}));
            assert!(all.set(web.clone()));
            assert!(!all.set(web.clone()));
            assert!(all.set(view(kind, "web", json!({"matchLabels": {"app": "db"}}))));
            assert!(all.remove(&web.key));
            assert!(!all.remove(&web.key));
            assert!(!all.set(view(kind, "web", Value::Null)));
        }
    }
}
