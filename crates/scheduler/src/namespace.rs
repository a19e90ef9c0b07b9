//! Namespaces, as terms of pod affinity select them.
//!
//! In: `Namespace` objects. Out: whether a term counts pods of a namespace, which it may tell by name or by labels.
//! Never: pods.
//!
//! Source: kube-scheduler 1.36 `interpodaffinity`: the terms of a pod to place count pods of namespaces that exist;
//! those of pods on nodes take a namespace that is not known for one without labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use kube::core::{Selector, SelectorExt as _};
use serde::Serialize;

use crate::affinity::Labels;

/// The fields of a Namespace that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`.
    pub labels: Arc<Labels>,
}

/// The labels of the namespaces that exist.
#[derive(Debug, Default)]
pub struct Namespaces(BTreeMap<Arc<str>, Arc<Labels>>);

/// A namespace that came, went or has other labels.
#[derive(Debug)]
pub struct NamespaceChange {
    name: Arc<str>,
    before: Option<Arc<Labels>>,
    now: Option<Arc<Labels>>,
}

/// The namespaces in which a selector selects pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum NamespaceSelection {
    /// All.
    All,
    /// Some.
    Some {
        /// Those with these names.
        names: BTreeSet<String>,
        /// And those with such labels.
        labelled: Option<Selector>,
    },
}

/// A pod to place, as terms of pods on nodes see it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The labels of its namespace.
    pub namespace_labels: &'a Labels,
    /// Its labels.
    pub labels: &'a Labels,
}

static NO_LABELS: Labels = Labels::new();

impl NamespaceView {
    /// Reads a namespace.
    #[must_use]
    pub fn read(namespace: &wire::Namespace) -> Self {
        let meta = &namespace.metadata;
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
        }
    }
}

impl Namespaces {
    /// A namespace has these labels from now on, or is gone. `None`: nothing has changed.
    pub fn set(&mut self, name: Arc<str>, labels: Option<Arc<Labels>>) -> Option<NamespaceChange> {
        let before = match &labels {
            Some(labels) => self.0.insert(Arc::clone(&name), Arc::clone(labels)),
            None => self.0.remove(&name),
        };
        (before != labels).then_some(NamespaceChange { name, before, now: labels })
    }

    /// The labels of a namespace; `None`: it does not exist.
    #[must_use]
    pub fn labels(&self, name: &str) -> Option<&Labels> {
        self.0.get(name).map(|labels| &**labels)
    }

    /// A pod with these labels in this namespace, to be placed.
    #[must_use]
    pub fn target<'a>(&'a self, namespace: &'a str, labels: &'a Labels) -> Target<'a> {
        Target { namespace, namespace_labels: self.labels(namespace).unwrap_or(&NO_LABELS), labels }
    }
}

impl NamespaceSelection {
    /// One namespace.
    #[must_use]
    pub fn one(name: &str) -> Self {
        Self::Some { names: [name.to_owned()].into(), labelled: None }
    }

    /// The name, where one alone is selected.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        match self {
            Self::Some { names, labelled: None } if names.len() == 1 => names.first().map(String::as_str),
            _ => None,
        }
    }

    /// Whether this namespace is selected. `labels`: asked for only if they matter; `None`: it does not exist.
    pub fn selects<'a>(&self, name: &str, labels: impl FnOnce() -> Option<&'a Labels>) -> bool {
        match self {
            Self::All => true,
            Self::Some { names, labelled } => {
                names.contains(name)
                    || labelled
                        .as_ref()
                        .is_some_and(|selector| labels().is_some_and(|labels| selector.matches(labels)))
            }
        }
    }

    /// Whether a change makes a difference to it.
    #[must_use]
    pub fn is_turned_by(&self, change: &NamespaceChange) -> bool {
        let selects = |labels: &Option<Arc<Labels>>| self.selects(&change.name, || labels.as_deref());
        selects(&change.before) != selects(&change.now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels(value: Value) -> Arc<Labels> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn labelled(expression: Value) -> NamespaceSelection {
        let selector = json!({"matchExpressions": [expression]});
        let selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector =
            serde_json::from_value(selector).unwrap();
        let names = ["named".to_owned()].into();
        NamespaceSelection::Some { names, labelled: Some(selector.try_into().unwrap()) }
    }

    #[test]
    fn namespaces_are_selected_by_name_or_labels() {
        let team_x = labelled(json!({"key": "team", "operator": "In", "values": ["x"]}));
        let no_team = labelled(json!({"key": "team", "operator": "DoesNotExist"}));
        let mut namespaces = Namespaces::default();
        namespaces.set("x".into(), Some(labels(json!({"team": "x"}))));
        namespaces.set("plain".into(), Some(labels(json!({}))));
        for (selection, name, selected) in [
            (&team_x, "x", true),
            (&team_x, "plain", false),
            (&team_x, "named", true),
            (&no_team, "x", false),
            (&no_team, "plain", true),
            (&no_team, "unknown", false),
            (&NamespaceSelection::one("x"), "x", true),
            (&NamespaceSelection::one("x"), "plain", false),
            (&NamespaceSelection::All, "unknown", true),
        ] {
            let found = selection.selects(name, || namespaces.labels(name));
            assert_eq!(found, selected, "{selection:?} {name}");
        }
        // To pods on nodes a namespace that is not known has no labels.
        let nothing = Labels::new();
        let target = namespaces.target("unknown", &nothing);
        assert!(no_team.selects(target.namespace, || Some(target.namespace_labels)));
    }

    #[test]
    fn changes_that_matter_are_told() {
        let team_x = labelled(json!({"key": "team", "operator": "In", "values": ["x"]}));
        let mut namespaces = Namespaces::default();
        let mut set = |name: &str, value: Option<Value>| namespaces.set(name.into(), value.map(labels));
        for (name, value, turned) in [
            ("a", Some(json!({})), Some(false)),
            ("a", Some(json!({})), None),
            ("a", Some(json!({"team": "x"})), Some(true)),
            ("a", Some(json!({"team": "x", "more": ""})), Some(false)),
            ("a", None, Some(true)),
            ("a", None, None),
            ("named", Some(json!({"team": "x"})), Some(false)),
        ] {
            let change = set(name, value.clone());
            assert_eq!(change.map(|change| team_x.is_turned_by(&change)), turned, "{name} {value:?}");
        }
    }
}
