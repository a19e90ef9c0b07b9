//! Required anti-affinity of pods that are on nodes, against pods that are to come.
//!
//! In: pods on nodes, with their terms; a pod to place. Out: the nodes that pods there keep it away from. Never: a node
//! allowed by a term that cannot be read, or that selects namespaces by labels, which are not watched: such a term
//! counts for every namespace.
//!
//! Pods of one workload have equal terms, so the cost of a decision grows with the number of different terms and the
//! nodes of those that match, and is nothing without terms. kube-scheduler 1.36 `interpodaffinity` treats the terms of
//! existing pods alike.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use kube::core::{Selector, SelectorExt as _};

use crate::affinity::Labels;
use crate::node::Node;

/// A required term of a pod. Terms are compared by their text, in which the pod's namespace stands too.
#[derive(Clone, Debug)]
pub struct Term {
    text: Box<str>,
    /// The node label whose values are the domains.
    topology_key: String,
    /// The namespaces of the pods that it keeps away; `None`: all.
    namespaces: Option<BTreeSet<String>>,
    /// The labels of these pods; `None`: any, as the selector cannot be read.
    selector: Option<Selector>,
}

/// The terms of pods on nodes, with the number of pods that have each, by the slot of their node.
#[derive(Debug, Default)]
pub struct AntiAffinity(BTreeMap<Arc<Term>, BTreeMap<usize, usize>>);

/// Values of node labels that keep a pod away: of each label, by its key.
#[derive(Debug, Default)]
pub struct Domains(BTreeMap<String, BTreeSet<String>>);

impl Term {
    /// The required anti-affinity terms of a pod.
    #[must_use]
    pub fn read(pod: &wire::Pod) -> Vec<Arc<Self>> {
        let spec = pod.spec.as_ref();
        let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
        let terms =
            affinity.and_then(|terms| terms.required_during_scheduling_ignored_during_execution.as_ref());
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        terms.into_iter().flatten().filter_map(|term| Self::of(term, namespace)).map(Arc::new).collect()
    }

    /// `None` for a term without a selector, which selects nothing.
    fn of(term: &wire::PodAffinityTerm, namespace: &str) -> Option<Self> {
        let selector = term.label_selector.clone()?;
        let stated = term.namespaces.iter().flatten().cloned().collect::<BTreeSet<String>>();
        let namespaces = match &term.namespace_selector {
            Some(_) => None,
            None if stated.is_empty() => Some(BTreeSet::from([namespace.to_owned()])),
            None => Some(stated),
        };
        Some(Self {
            text: serde_json::json!([namespace, term]).to_string().into(),
            topology_key: term.topology_key.clone(),
            namespaces,
            selector: selector.try_into().ok(),
        })
    }

    fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.contains(namespace))
            && self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }
}

impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Term {}

impl PartialOrd for Term {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Term {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl AntiAffinity {
    /// Adds the terms of a pod that is on a node now.
    pub fn add(&mut self, terms: &[Arc<Term>], slot: usize) {
        for term in terms {
            *self.0.entry(Arc::clone(term)).or_default().entry(slot).or_default() += 1;
        }
    }

    /// Removes the terms of a pod that left a node.
    pub fn remove(&mut self, terms: &[Arc<Term>], slot: usize) {
        for term in terms {
            let Some(pods) = self.0.get_mut(term) else { continue };
            if let Some(count) = pods.get_mut(&slot) {
                *count -= 1;
                if *count == 0 {
                    pods.remove(&slot);
                }
            }
            if pods.is_empty() {
                self.0.remove(term);
            }
        }
    }

    /// Whether no pod on a node has a term.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The domains that pods there keep a pod with these labels away from.
    #[must_use]
    pub fn domains(&self, namespace: &str, labels: &Labels, nodes: &[Node]) -> Domains {
        let mut domains = Domains::default();
        for (term, pods) in self.0.iter().filter(|(term, _)| term.matches(namespace, labels)) {
            let views = pods.keys().filter_map(|slot| nodes.get(*slot)?.view.as_ref());
            let values = views.filter_map(|view| view.labels.get(&term.topology_key)).cloned();
            domains.0.entry(term.topology_key.clone()).or_default().extend(values);
        }
        domains
    }
}

impl Domains {
    /// Whether a node with these labels is in one of the domains.
    #[must_use]
    pub fn contain(&self, labels: &Labels) -> bool {
        self.0.iter().any(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
    }
}
