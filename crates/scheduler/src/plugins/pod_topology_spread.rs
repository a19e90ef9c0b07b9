//! PodTopologySpread: pods of a kind spread evenly over the domains that a node label makes.
//!
//! In: constraints of a pod or of its profile, nodes, the pods that the constraints select. Out: whether a node may
//! have the pod, and how nodes compare. Never: constraints of the profile beside those of a pod.
//!
//! Source: kube-scheduler 1.36 `podtopologyspread`. Cost of a pod with constraints: nodes x constraints.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;

use crate::affinity::{self, Labels};
use crate::default_selector::DefaultSelectors;
use crate::namespace::{NamespaceSelection, Namespaces};
use crate::node::{Node, NodeView};
use crate::pod::{PodView, Spec};
use crate::reason::Reason;
use crate::selection::{self, PodSelector, Selectable, Selections};

/// The label that is each node's own (kube-scheduler counts its domains in another way).
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// One of a pod's `topologySpreadConstraints`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// The label whose values are the domains.
    topology_key: String,
    /// The largest difference to the domain with the fewest pods.
    max_skew: i64,
    /// With fewer domains than this, an empty one is thought of.
    min_domains: usize,
    /// Whether nodes are refused (`DoNotSchedule`), not only compared.
    pub(crate) is_required: bool,
    /// Whether only nodes that the pod's node affinity allows are domains.
    honors_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates are domains.
    honors_taints: bool,
    /// The pods that count; `None`: none do.
    selector: Option<Arc<PodSelector>>,
    /// Whether the selector is empty.
    selects_all: bool,
    /// Whether the pod itself will count.
    counts_itself: bool,
    source: ConstraintSource,
}

/// The origin of a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ConstraintSource {
    /// The pod.
    Pod,
    /// The list of the profile.
    List,
    /// kube-scheduler's own list. Nodes without some of its labels are compared by the others.
    System,
}

/// `PodTopologySpreadArgs`: the constraints of pods that state none, without selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args(Vec<SpreadConstraint>);

/// The required constraints of one pod, with the pods of each domain.
#[derive(Clone, Debug, Default)]
pub struct Spread<'a>(Vec<Domains<'a>>);

#[derive(Clone, Debug)]
struct Domains<'a> {
    constraint: &'a SpreadConstraint,
    pods: HashMap<&'a str, i64>,
    /// Pods of the domain with the fewest.
    fewest: i64,
}

impl SpreadConstraint {
    /// The constraints of a pod, in their order.
    ///
    /// # Errors
    /// What is wrong with a selector.
    pub fn read(pod: &wire::Pod) -> Result<Vec<Self>, String> {
        let constraints = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
        let no_labels = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        constraints.map(|constraint| Self::of(constraint, namespace, labels)).collect()
    }

    fn of(wire: &wire::TopologySpreadConstraint, namespace: &str, labels: &Labels) -> Result<Self, String> {
        let mut selector = wire.label_selector.clone();
        for key in wire.match_label_keys.iter().flatten() {
            // The API server has done it already where it can.
            if let (Some(selector), Some(value)) = (&mut selector, labels.get(key)) {
                selector.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
            }
        }
        let selects_all = selector.as_ref().is_some_and(selection::selects_all);
        let pods = PodSelector::new(false).and(NamespaceSelection::one(namespace), selector.as_ref())?;
        Ok(Self {
            counts_itself: pods.matches(labels),
            selector: Some(Arc::new(pods)),
            selects_all,
            ..Self::without_selector(wire, ConstraintSource::Pod)
        })
    }

    fn without_selector(wire: &wire::TopologySpreadConstraint, source: ConstraintSource) -> Self {
        let is = |policy: &Option<String>, text: &str, or: bool| policy.as_ref().map_or(or, |p| p == text);
        Self {
            topology_key: wire.topology_key.clone(),
            max_skew: wire.max_skew.into(),
            min_domains: wire.min_domains.and_then(|count| count.try_into().ok()).unwrap_or(1),
            is_required: wire.when_unsatisfiable == "DoNotSchedule",
            honors_affinity: is(&wire.node_affinity_policy, "Honor", true),
            honors_taints: is(&wire.node_taints_policy, "Honor", false),
            counts_itself: false,
            selector: None,
            selects_all: false,
            source,
        }
    }

    /// The pods on nodes that count. An empty selector counts none of them, though it selects the pod itself and those
    /// that come or leave (kube-scheduler 1.36 `countPodsMatchSelector`).
    pub(crate) fn counted(&self) -> Option<&Arc<PodSelector>> {
        self.selector.as_ref().filter(|_| !self.selects_all)
    }

    /// Whether it is the profile's, not the pod's.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.source != ConstraintSource::Pod
    }

    /// Whether the node is part of a domain (kube-scheduler 1.36 `matchNodeInclusionPolicies`).
    fn includes(&self, spec: &Spec, view: &NodeView) -> bool {
        (!self.honors_affinity || spec.affinity.allows(&view.name, &view.labels))
            && (!self.honors_taints || affinity::tolerates(&spec.tolerations, &view.taints))
    }
}

impl Default for Args {
    /// `defaultingType: System` (kube-scheduler 1.36 `systemDefaultConstraints`).
    fn default() -> Self {
        let constraint = |(key, max_skew): (&str, i32)| {
            let wire = wire::TopologySpreadConstraint {
                topology_key: key.to_owned(),
                max_skew,
                when_unsatisfiable: "ScheduleAnyway".to_owned(),
                ..wire::TopologySpreadConstraint::default()
            };
            SpreadConstraint::without_selector(&wire, ConstraintSource::System)
        };
        Self([(HOSTNAME, 3), (ZONE, 5)].map(constraint).into())
    }
}

impl Args {
    /// `defaultingType: List` with these `defaultConstraints`.
    #[must_use]
    pub fn list(constraints: &[wire::TopologySpreadConstraint]) -> Self {
        let constraint = |wire| SpreadConstraint::without_selector(wire, ConstraintSource::List);
        Self(constraints.iter().map(constraint).collect())
    }

    /// Whether nodes are refused by them.
    #[must_use]
    pub fn are_required(&self) -> bool {
        self.0.iter().any(|constraint| constraint.is_required)
    }

    /// The constraints of a pod that states none. Without anything that selects the pod it has none.
    #[must_use]
    pub fn constraints(&self, pod: &PodView, selectors: &DefaultSelectors) -> Vec<SpreadConstraint> {
        let stated = if self.0.is_empty() { None } else { selectors.of(pod) };
        let Some(stated) = stated else { return Vec::new() };
        // What selects pods has been checked when it was read.
        let pods = PodSelector::new(false).and(NamespaceSelection::one(&pod.namespace), Some(&stated));
        let Ok(pods) = pods.map(Arc::new) else { return Vec::new() };
        let counts_itself = pods.matches(&pod.labels);
        let with = |constraint: &SpreadConstraint| SpreadConstraint {
            selector: Some(Arc::clone(&pods)),
            counts_itself,
            ..constraint.clone()
        };
        self.0.iter().map(with).collect()
    }
}

/// The domain of a node; a node without the label is in the unnamed one.
fn domain<'a>(view: &'a NodeView, key: &str) -> &'a str {
    view.labels.get(key).map_or("", String::as_str)
}

/// Whether the node has the labels of all these constraints.
fn has_keys<'a>(mut constraints: impl Iterator<Item = &'a SpreadConstraint>, labels: &Labels) -> bool {
    constraints.all(|constraint| labels.contains_key(&constraint.topology_key))
}

impl<'a> Spread<'a> {
    /// Counts the pods of each domain for the pod's required constraints, which `selections` has to follow.
    #[must_use]
    pub fn new(spec: &'a Spec, nodes: &'a [Node], selections: &Selections) -> Self {
        let required = || spec.spread.iter().filter(|constraint| constraint.is_required);
        let mut all: Vec<Domains<'a>> = required()
            .map(|constraint| Domains { constraint, pods: HashMap::new(), fewest: i64::from(i32::MAX) })
            .collect();
        if all.is_empty() {
            return Self(all);
        }
        let counts: Vec<_> = all
            .iter()
            .map(|domains| domains.constraint.counted().and_then(|s| selections.counts(s)))
            .collect();
        for (slot, node) in nodes.iter().enumerate() {
            let Some(view) = &node.view else { continue };
            if !has_keys(required(), &view.labels) {
                continue;
            }
            for (domains, counts) in all.iter_mut().zip(&counts) {
                let Some(value) = view.labels.get(&domains.constraint.topology_key) else { continue };
                if domains.constraint.includes(spec, view) {
                    let pods = counts.and_then(|counts| counts.get(&slot)).copied().unwrap_or(0);
                    *domains.pods.entry(value).or_default() += pods;
                }
            }
        }
        all.iter_mut().for_each(Domains::find_fewest);
        Self(all)
    }

    /// Whether no constraint can refuse a node.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts that a pod comes to a node (1), or leaves it (-1). Cost: the domains of the constraints that look at it.
    pub(crate) fn shift(
        &mut self,
        spec: &Spec,
        view: &NodeView,
        (pod, namespaces): (&Selectable, &Namespaces),
        more: i64,
    ) {
        if !has_keys(self.0.iter().map(|domains| domains.constraint), &view.labels) {
            return;
        }
        for domains in &mut self.0 {
            let constraint = domains.constraint;
            let looks = constraint.selector.as_ref().is_some_and(|pods| pods.selects(pod, namespaces));
            if !looks || !constraint.includes(spec, view) {
                continue;
            }
            let value = view.labels.get(&constraint.topology_key).map(String::as_str);
            if let Some(pods) = value.and_then(|value| domains.pods.get_mut(value)) {
                *pods += more;
                domains.find_fewest();
            }
        }
    }

    /// Whether the pod may be on a node with these labels.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter(&self, labels: &Labels) -> Result<(), Reason> {
        for domains in &self.0 {
            let constraint = domains.constraint;
            let value = labels.get(&constraint.topology_key).ok_or(Reason::NoSpreadLabel)?;
            let pods = domains.pods.get(value.as_str()).copied().unwrap_or(0);
            if pods + i64::from(constraint.counts_itself) - domains.fewest > constraint.max_skew {
                return Err(Reason::Spread);
            }
        }
        Ok(())
    }
}

impl Domains<'_> {
    fn find_fewest(&mut self) {
        self.fewest = self.pods.values().copied().min().unwrap_or(self.fewest);
        if self.pods.len() < self.constraint.min_domains {
            self.fewest = 0;
        }
    }
}

/// Compares the nodes that passed by the constraints that are not required: 0 to 100 each, `None` where there are none.
#[must_use]
pub fn scores(spec: &Spec, feasible: &[usize], nodes: &[Node], selections: &Selections) -> Option<Vec<i64>> {
    let constraints: Vec<_> = spec.spread.iter().filter(|constraint| !constraint.is_required).collect();
    if constraints.is_empty() {
        return None;
    }
    let view = |slot: usize| nodes.get(slot)?.view.as_ref();
    // A node without a label is one of an unnamed domain, where nodes without some labels are compared too.
    let takes_all = constraints.iter().all(|constraint| constraint.source == ConstraintSource::System);
    let has_keys = |view: &NodeView| takes_all || has_keys(constraints.iter().copied(), &view.labels);
    let compared: Vec<Option<&NodeView>> =
        feasible.iter().map(|slot| view(*slot).filter(|view| has_keys(view))).collect();
    let counts: Vec<_> = constraints.iter().map(|c| c.counted().and_then(|s| selections.counts(s))).collect();
    let mut sums = vec![0.0; feasible.len()];
    for (constraint, counts) in constraints.iter().zip(counts) {
        let key = &constraint.topology_key;
        let on = |slot: usize| counts.and_then(|counts| counts.get(&slot)).copied().unwrap_or(0);
        let mut domains: HashMap<&str, i64> = HashMap::new();
        if key != HOSTNAME {
            domains.extend(compared.iter().flatten().map(|view| (domain(view, key), 0)));
            for (slot, pods) in counts.into_iter().flatten() {
                let Some(view) = view(*slot).filter(|view| has_keys(view) && constraint.includes(spec, view))
                else {
                    continue;
                };
                if let Some(sum) = domains.get_mut(domain(view, key)) {
                    *sum += pods;
                }
            }
        }
        let size = if key == HOSTNAME { compared.iter().flatten().count() } else { domains.len() };
        let weight = (size as f64 + 2.0).ln();
        for ((sum, slot), view) in sums.iter_mut().zip(feasible).zip(&compared) {
            let Some(value) = view.and_then(|view| view.labels.get(key)) else { continue };
            let pods =
                if key == HOSTNAME { on(*slot) } else { domains.get(value.as_str()).copied().unwrap_or(0) };
            *sum += pods as f64 * weight + (constraint.max_skew - 1) as f64;
        }
    }
    Some(normalized(&sums, &compared))
}

/// kube-scheduler 1.36 `podtopologyspread` `NormalizeScore`: fewer pods are better; nodes without a label get 0.
fn normalized(sums: &[f64], compared: &[Option<&NodeView>]) -> Vec<i64> {
    let rounded = |sum: f64| sum.round() as i64;
    let scored =
        || sums.iter().zip(compared).filter(|(_, view)| view.is_some()).map(|(sum, _)| rounded(*sum));
    let (least, most) = (scored().min().unwrap_or(0), scored().max().unwrap_or(0));
    let score = |(sum, view): (&f64, &Option<&NodeView>)| match view {
        None => 0,
        Some(_) if most == 0 => 100,
        Some(_) => 100 * (most + least - rounded(*sum)) / most,
    };
    sums.iter().zip(compared).map(score).collect()
}
