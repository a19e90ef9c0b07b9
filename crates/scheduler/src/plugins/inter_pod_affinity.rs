//! InterPodAffinity: pods that want to be near other pods, or away from them.
//!
//! In: terms of a pod to place and of pods on nodes, and the pods that they select. Out: whether a node may have the
//! pod, and how nodes compare. Never: a node allowed by a term of a pod there that cannot be read: of such a term each
//! part that cannot be read counts for every pod.
//!
//! Source: kube-scheduler 1.36 `interpodaffinity`. Pods of one workload have equal terms, so the cost of a decision
//! grows with the number of different terms and the nodes of those that match, and is nothing without terms.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use kube::core::{Selector, SelectorExt as _};

use crate::affinity::Labels;
use crate::namespace::{NamespaceChange, NamespaceSelection, Namespaces, Target};
use crate::node::Node;
use crate::reason::Reason;
use crate::selection::{self, Counts, PodSelector, Selectable, Selections};

/// What a pod to place wants of pods that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodAffinity {
    /// The labels whose domains must have a pod that is selected.
    near: Vec<String>,
    /// The pods that all required terms select; `None` without such terms.
    near_pods: Option<Arc<PodSelector>>,
    /// The pod's namespace, if its labels are such that it may be one of them itself.
    own_namespace: Option<String>,
    /// Required terms that keep it away.
    apart: Vec<(String, Arc<PodSelector>)>,
    /// Preferred terms with their weights, which are negative where they keep it away.
    preferred: Vec<(i64, String, Arc<PodSelector>)>,
}

/// The terms of a pod as they are stated.
struct StatedTerms<'a> {
    near: &'a [wire::PodAffinityTerm],
    apart: &'a [wire::PodAffinityTerm],
    /// With their weights, which are negative where they keep away.
    preferred: Vec<(&'a wire::PodAffinityTerm, i64)>,
}

/// A term of a pod that is on a node. Terms are compared by their text, in which the pod's namespace stands too.
#[derive(Clone, Debug)]
pub struct Term {
    text: Box<str>,
    /// The node label whose values are the domains.
    topology_key: String,
    /// The namespaces of the pods that it is about.
    namespaces: NamespaceSelection,
    /// The labels of these pods; `None`: any, as the selector cannot be read.
    selector: Option<Selector>,
}

/// The effect of a term of a pod on a node on pods that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TermEffect {
    /// Required anti-affinity: it keeps them away.
    KeepsAway,
    /// Required affinity: it counts in scores, with the weight of the profile.
    Attracts,
    /// A preference: it counts in scores, with this weight, which is negative where it keeps away.
    Weighs(i64),
}

/// A term of a pod, with its effect on others.
pub type PodTerm = (Arc<Term>, TermEffect);

/// The terms of pods on nodes, with the number of pods that have each, by the slot of their node.
#[derive(Debug, Default)]
pub struct ExistingTerms(BTreeMap<PodTerm, Counts>);

/// `InterPodAffinityArgs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args {
    /// The weight of required affinity of pods on nodes.
    pub hard_pod_affinity_weight: i64,
    /// Whether pods without preferred terms are scored without regard to terms of pods on nodes.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

/// Values of node labels that keep a pod away: of each label, by its key, with the number of pods there that do.
#[derive(Clone, Debug, Default)]
pub struct Domains(BTreeMap<String, BTreeMap<String, i64>>);

impl Default for Args {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

impl PodAffinity {
    /// Reads the terms of a pod.
    ///
    /// # Errors
    /// Why a required term cannot be heeded.
    pub fn read(pod: &wire::Pod) -> Result<Self, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let no_labels = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
        let stated = StatedTerms::of(pod);
        let mut read = Self::default();
        let mut pods = PodSelector::new(true);
        for term in stated.near {
            pods = pods.and(selected_namespaces(term, namespace)?, term.label_selector.as_ref())?;
            read.near.push(term.topology_key.clone());
        }
        if !read.near.is_empty() {
            read.own_namespace = pods.matches(labels).then(|| namespace.to_owned());
            read.near_pods = Some(Arc::new(pods));
        }
        for term in stated.apart {
            read.apart.push((term.topology_key.clone(), selector(term, namespace)?));
        }
        for (term, weight) in stated.preferred {
            // A wish that cannot be read is none.
            if let Ok(pods) = selector(term, namespace) {
                read.preferred.push((weight, term.topology_key.clone(), pods));
            }
        }
        Ok(read)
    }

    /// Whether a verdict depends on other pods.
    #[must_use]
    pub fn is_required(&self) -> bool {
        !(self.near.is_empty() && self.apart.is_empty())
    }

    /// Whether the pod itself is one that all required terms select.
    fn counts_itself((affinity, namespaces): (&Self, &Namespaces)) -> bool {
        affinity
            .near_pods
            .as_ref()
            .zip(affinity.own_namespace.as_ref())
            .is_some_and(|(pods, own)| pods.selects_in(own, namespaces))
    }

    /// All that selections have to follow for it.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &Arc<PodSelector>> {
        let apart = self.apart.iter().map(|(_, pods)| pods);
        self.near_pods.iter().chain(apart).chain(self.preferred.iter().map(|(.., pods)| pods))
    }
}

fn selector(term: &wire::PodAffinityTerm, namespace: &str) -> Result<Arc<PodSelector>, String> {
    let namespaces = selected_namespaces(term, namespace)?;
    Ok(Arc::new(PodSelector::new(true).and(namespaces, term.label_selector.as_ref())?))
}

/// The namespaces in which a pod to place looks for others. kube-scheduler 1.36 lists those that the selector matches,
/// and still holds the selector against no labels (`mergeAffinityTermNamespacesIfNotEmpty`): one that these match
/// selects all.
fn selected_namespaces(term: &wire::PodAffinityTerm, own: &str) -> Result<NamespaceSelection, String> {
    Ok(match namespaces(term, own)? {
        NamespaceSelection::Some { labelled: Some(selector), .. } if selector.matches(&Labels::new()) => {
            NamespaceSelection::All
        }
        namespaces => namespaces,
    })
}

/// The namespaces of a term of a pod in the namespace `own` (kube-scheduler 1.36 `newAffinityTerm`).
fn namespaces(term: &wire::PodAffinityTerm, own: &str) -> Result<NamespaceSelection, String> {
    let names = term.namespaces.iter().flatten().cloned().collect::<BTreeSet<String>>();
    let labelled = match &term.namespace_selector {
        Some(selector) if selection::selects_all(selector) => return Ok(NamespaceSelection::All),
        Some(selector) => Some(Selector::try_from(selector.clone()).map_err(|error| error.to_string())?),
        None if names.is_empty() => return Ok(NamespaceSelection::one(own)),
        None => None,
    };
    Ok(NamespaceSelection::Some { names, labelled })
}

impl<'a> StatedTerms<'a> {
    fn of(pod: &'a wire::Pod) -> Self {
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let wishes = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref());
        let fears =
            apart.and_then(|apart| apart.preferred_during_scheduling_ignored_during_execution.as_ref());
        let weighted = |sign: i64, terms: Option<&'a Vec<wire::WeightedPodAffinityTerm>>| {
            let terms = terms.into_iter().flatten();
            terms.map(move |term| (&term.pod_affinity_term, sign * i64::from(term.weight)))
        };
        Self {
            near: near
                .and_then(|near| near.required_during_scheduling_ignored_during_execution.as_deref())
                .unwrap_or_default(),
            apart: apart
                .and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_deref())
                .unwrap_or_default(),
            preferred: weighted(1, wishes).chain(weighted(-1, fears)).collect(),
        }
    }
}

impl Term {
    /// The terms of a pod that count for others.
    #[must_use]
    pub fn read(pod: &wire::Pod) -> Vec<PodTerm> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let StatedTerms { near, apart, preferred } = StatedTerms::of(pod);
        let apart = apart.iter().map(|term| (term, TermEffect::KeepsAway));
        let near = near.iter().map(|term| (term, TermEffect::Attracts));
        let preferred = preferred.into_iter().map(|(term, weight)| (term, TermEffect::Weighs(weight)));
        let terms = apart.chain(near).chain(preferred);
        terms.filter_map(|(term, effect)| Some((Arc::new(Self::of(term, namespace)?), effect))).collect()
    }

    /// `None` for a term without a selector, which selects nothing.
    fn of(term: &wire::PodAffinityTerm, namespace: &str) -> Option<Self> {
        let selector = term.label_selector.clone()?;
        Some(Self {
            text: serde_json::json!([namespace, term]).to_string().into(),
            topology_key: term.topology_key.clone(),
            namespaces: namespaces(term, namespace).unwrap_or(NamespaceSelection::All),
            selector: selector.try_into().ok(),
        })
    }

    fn matches(&self, target: Target<'_>) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(target.labels))
            && self.namespaces.selects(target.namespace, || Some(target.namespace_labels))
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

impl ExistingTerms {
    /// Adds the terms of a pod that is on a node now.
    pub fn add(&mut self, terms: &[PodTerm], slot: usize) {
        for term in terms {
            selection::shift(self.0.entry(term.clone()).or_default(), slot, 1);
        }
    }

    /// Removes the terms of a pod that left a node.
    pub fn remove(&mut self, terms: &[PodTerm], slot: usize) {
        for term in terms {
            let Some(pods) = self.0.get_mut(term).filter(|pods| pods.contains_key(&slot)) else { continue };
            selection::shift(pods, slot, -1);
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

    /// Terms about a pod: those that keep it away, or those that count in scores.
    fn about<'a>(
        &'a self,
        target: Target<'a>,
        keep_away: bool,
    ) -> impl Iterator<Item = (&'a Term, TermEffect, &'a Counts)> {
        let all = self.0.iter().map(|((term, effect), pods)| (&**term, *effect, pods));
        all.filter(move |(term, effect, _)| {
            (*effect == TermEffect::KeepsAway) == keep_away && term.matches(target)
        })
    }

    /// Whether a change of a namespace may turn a term that keeps pods away.
    #[must_use]
    pub fn are_turned_by(&self, change: &NamespaceChange) -> bool {
        let keep_away = self.0.keys().filter(|(_, effect)| *effect == TermEffect::KeepsAway);
        keep_away.map(|(term, _)| term).any(|term| term.namespaces.is_turned_by(change))
    }

    /// The domains that pods there keep a pod away from.
    #[must_use]
    pub fn domains(&self, target: Target<'_>, nodes: &[Node]) -> Domains {
        let mut domains = Domains::default();
        for (term, _, pods) in self.about(target, true) {
            for (slot, count) in pods {
                if let Some(view) = nodes.get(*slot).and_then(|node| node.view.as_ref()) {
                    domains.shift(term, &view.labels, *count);
                }
            }
        }
        domains
    }
}

/// A pod's own required terms, with the domains of the pods that they select and the numbers of these pods.
#[derive(Clone, Debug, Default)]
pub struct Affinity<'a> {
    stated: Option<(&'a PodAffinity, &'a Namespaces)>,
    near: Vec<(&'a str, HashMap<&'a str, i64>)>,
    /// Nothing is selected yet, and the pod itself would be: it may be the first.
    is_first: bool,
    apart: Vec<(&'a str, HashMap<&'a str, i64>)>,
}

impl<'a> Affinity<'a> {
    /// Looks up the domains for required terms, which `selections` has to follow. Cost: terms x nodes with such pods.
    #[must_use]
    pub fn new(affinity: &'a PodAffinity, nodes: &'a [Node], selections: &'a Selections) -> Self {
        let values = |key: &str, pods: &PodSelector| -> HashMap<&'a str, i64> {
            let mut values = HashMap::new();
            for (slot, count) in selections.counts(pods).into_iter().flatten() {
                let view = nodes.get(*slot).and_then(|node| node.view.as_ref());
                if let Some(value) = view.and_then(|view| view.labels.get(key)) {
                    *values.entry(value.as_str()).or_default() += *count;
                }
            }
            values
        };
        let near: Vec<_> = affinity
            .near
            .iter()
            .zip(affinity.near_pods.iter().cycle())
            .map(|(key, pods)| (key.as_str(), values(key, pods)))
            .collect();
        let apart = affinity.apart.iter().map(|(key, pods)| (key.as_str(), values(key, pods))).collect();
        let stated = Some((affinity, selections.namespaces()));
        let mut read = Self { stated, near, is_first: false, apart };
        read.find_first();
        read
    }

    /// Whether no term can refuse a node.
    pub(crate) fn is_empty(&self) -> bool {
        self.near.is_empty() && self.apart.is_empty()
    }

    fn find_first(&mut self) {
        let is_selected = self.near.iter().any(|(_, values)| values.values().any(|count| *count > 0));
        self.is_first = !is_selected && self.stated.is_some_and(PodAffinity::counts_itself);
    }

    /// Counts that a pod comes to a node with these labels (1), or leaves it (-1).
    pub(crate) fn shift(&mut self, labels: &'a Labels, pod: &Selectable, more: i64) {
        let Some((stated, namespaces)) = self.stated else { return };
        let near = stated.near_pods.iter().cycle().map(|pods| pods.selects(pod, namespaces));
        let near = self.near.iter_mut().zip(near);
        let apart = stated.apart.iter().map(|(_, pods)| pods.selects(pod, namespaces));
        let apart = self.apart.iter_mut().zip(apart);
        for ((key, values), _) in near.chain(apart).filter(|(_, selects)| *selects) {
            if let Some(value) = labels.get(*key) {
                *values.entry(value).or_default() += more;
            }
        }
        self.find_first();
    }

    /// Whether the pod may be on a node with these labels.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, labels: &Labels) -> Result<(), Reason> {
        let value = |key: &str| labels.get(key).map(String::as_str);
        let has = |values: &HashMap<&str, i64>, value| values.get(value).is_some_and(|count| *count > 0);
        let is_near = self
            .near
            .iter()
            .all(|(key, values)| value(key).is_some_and(|value| self.is_first || has(values, value)));
        if !is_near {
            return Err(Reason::PodAffinity);
        }
        let is_apart =
            self.apart.iter().all(|(key, values)| value(key).is_none_or(|value| !has(values, value)));
        if is_apart { Ok(()) } else { Err(Reason::PodAntiAffinity) }
    }
}

/// Compares the nodes that passed by the wishes of the pod and of the pods there: 0 to 100 each, `None` without any.
#[must_use]
pub fn scores(
    args: Args,
    (affinity, target): (&PodAffinity, Target<'_>),
    existing: &ExistingTerms,
    feasible: &[usize],
    nodes: &[Node],
    selections: &Selections,
) -> Option<Vec<i64>> {
    if args.ignore_preferred_terms_of_existing_pods && affinity.preferred.is_empty() {
        return None;
    }
    let view = |slot: usize| nodes.get(slot)?.view.as_ref();
    let mut sums: BTreeMap<&str, HashMap<&str, i64>> = BTreeMap::new();
    let mut add = |key, weight: i64, pods: &Counts| {
        for (slot, count) in pods {
            if let Some(value) = view(*slot).and_then(|view| view.labels.get::<str>(key)) {
                *sums.entry(key).or_default().entry(value).or_default() += weight * count;
            }
        }
    };
    for (weight, key, pods) in &affinity.preferred {
        selections.counts(pods).into_iter().for_each(|pods| add(key, *weight, pods));
    }
    for (term, effect, pods) in existing.about(target, false) {
        let weight = match effect {
            TermEffect::Weighs(weight) => weight,
            TermEffect::Attracts => args.hard_pod_affinity_weight,
            TermEffect::KeepsAway => 0,
        };
        add(&term.topology_key, weight, pods);
    }
    if sums.is_empty() {
        return None;
    }
    let sum = |slot: &usize| -> i64 {
        let Some(view) = view(*slot) else { return 0 };
        sums.iter().filter_map(|(key, sums)| sums.get(view.labels.get::<str>(key)?.as_str())).sum()
    };
    let all: Vec<i64> = feasible.iter().map(sum).collect();
    let (least, most) = (all.iter().min().copied()?, all.iter().max().copied()?);
    // kube-scheduler computes in floating point and cuts off.
    let score = |sum: &i64| {
        if most > least { (100.0 * ((sum - least) as f64 / (most - least) as f64)) as i64 } else { 0 }
    };
    Some(all.iter().map(score).collect())
}

impl Domains {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node with these labels is in one of the domains.
    #[must_use]
    pub fn contain(&self, labels: &Labels) -> bool {
        let has = |values: &BTreeMap<String, i64>, value| values.get(value).is_some_and(|count| *count > 0);
        self.0.iter().any(|(key, values)| labels.get(key).is_some_and(|value| has(values, value)))
    }

    fn shift(&mut self, term: &Term, labels: &Labels, more: i64) {
        if let Some(value) = labels.get(&term.topology_key) {
            let values = self.0.entry(term.topology_key.clone()).or_default();
            *values.entry(value.clone()).or_default() += more;
        }
    }

    /// Counts that a pod with these terms comes to a node with these labels (1), or leaves it (-1). `target`: the pod
    /// that may be kept away.
    pub(crate) fn shift_all(&mut self, target: Target<'_>, labels: &Labels, terms: &[PodTerm], more: i64) {
        for (term, effect) in terms {
            if *effect == TermEffect::KeepsAway && term.matches(target) {
                self.shift(term, labels, more);
            }
        }
    }
}
