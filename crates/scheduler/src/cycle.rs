//! One attempt to place one pod: filter the nodes, score those that pass.
//!
//! In: a pod's [`Spec`] and the nodes. Out: the scores of the nodes that fit, or the reason why a node does not. Never:
//! I/O, a lock, or a dependence on anything but the arguments. The order of checks is kube-scheduler's
//! (NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit, the volume plugins,
//! PodTopologySpread, InterPodAffinity, DynamicResources, then the zones), so the reasons agree with its own. Cost:
//! nodes x (taints + selector labels + host ports + resources + volumes + constraints + images of the pod + one
//! admission for each possible world). A node with one world and an understood report takes no memory, but for pods of
//! several aligned containers.

use api::schedulerconfig::NUMA_PLUGIN;
use topology::score::ZoneScorer;

use crate::affinity::{self, Labels, NodeAffinity};
use crate::core::Profile;
use crate::devices::Devices;
use crate::devices::extended::Delegated;
use crate::ledger::Scratch;
use crate::namespace::Namespaces;
use crate::node::{Node, NodeView};
use crate::plugins::dynamic_resources::PodClaims;
use crate::plugins::image_locality::Wanted;
use crate::plugins::inter_pod_affinity::{self, Affinity, Domains, ExistingTerms};
use crate::plugins::node_resources_fit::{self, Requests};
use crate::plugins::pod_topology_spread::{self, Spread};
use crate::plugins::{Plugins, Scores};
use crate::pod::{PodView, Spec};
use crate::reason::Reason;
use crate::selection::Selections;
use crate::volumes::Volumes;

pub mod volumes;
pub(crate) mod zones;

use volumes::VolumeState;
pub use zones::{Accounting, Numa, ZoneFilter, filter_zones};
use zones::{is_second_choice, zone_score};

/// How long a new node without a report refuses pods that may need alignment. An exporter starts with its node and
/// reports within seconds. A node without a report after that does not align, or has no exporter.
pub const UNREPORTED_GRACE_MS: u64 = 60_000;

/// Scores of the nodes that passed, before they are put on a common scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawScore {
    aversions: i64,
    preference: i64,
    /// Points of subrequests of claims.
    points: i64,
    sum: i64,
    /// Whether a node that is known to align the pod comes before, whatever the scores.
    pub(crate) is_second_choice: bool,
}

/// What the scores of a pod need of the pod, on whatever node: made once for a pod and cycle.
#[derive(Debug)]
pub struct PreScoreState<'a> {
    spec: &'a Spec,
    plugins: &'a Plugins,
    /// `None`: zones are not scored.
    numa: Option<(&'a Numa, ZoneScorer<'a>)>,
    zones: Option<ZoneFilter>,
    fit: Requests,
    /// `None`: not scored.
    balanced: Option<Requests>,
    images: Wanted,
    devices: &'a Devices,
}

/// The pods and nodes that constraints of one pod look at, made ready (kube-scheduler's PreFilter).
#[derive(Clone, Debug, Default)]
pub struct PreFilterState<'a> {
    spread: Spread<'a>,
    affinity: Affinity<'a>,
    /// The domains that pods on nodes keep the pod away from.
    existing: Domains,
    /// `None`: nothing is made ready.
    namespaces: Option<&'a Namespaces>,
    /// Whether terms of pods that come or leave count.
    counts_terms: bool,
    volumes: VolumeState<'a>,
    /// Whether the pod has to wait for its volumes, whatever the node.
    awaits_volumes: bool,
    claims: Option<PodClaims<'a>>,
    /// Whether the pod has to wait for its claims, whatever the node.
    awaits_claims: bool,
    /// Extended resources that devices serve where no device plugin does.
    delegated: Delegated,
}

/// The objects that constraints look at, and the time.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The pods on nodes.
    pub selections: &'a Selections,
    /// Objects of storage.
    pub volumes: &'a Volumes,
    /// Devices and claims for them.
    pub devices: &'a Devices,
    /// The pod to place, if it is looked at by itself and not for its class.
    pub pod: Option<&'a PodView>,
    /// The time.
    pub now_ms: u64,
}

impl<'a> PreFilterState<'a> {
    /// Looks up what the constraints of a spec depend on, as far as the profile filters by them. Cost without any:
    /// nothing; else nodes x constraints.
    #[must_use]
    pub fn new(
        spec: &'a Spec,
        existing: Domains,
        plugins: &Plugins,
        nodes: &'a [Node],
        Known { selections, volumes, devices, pod, now_ms }: Known<'a>,
    ) -> Self {
        let filters = plugins.filters;
        let mut spanning = Self { namespaces: Some(selections.namespaces()), ..Self::default() };
        match VolumeState::new(spec, plugins, volumes) {
            Ok(volumes) => spanning.volumes = volumes,
            Err(_) => spanning.awaits_volumes = true,
        }
        if filters.pod_topology_spread {
            spanning.spread = Spread::new(spec, nodes, selections);
        }
        if filters.inter_pod_affinity {
            spanning.affinity = Affinity::new(&spec.pod_affinity, nodes, selections);
            // Else kube-scheduler 1.36 skips the plugin for this pod, and the terms of nominated pods do not count.
            spanning.counts_terms = !existing.is_empty() || spec.pod_affinity.is_required();
            spanning.existing = existing;
        }
        spanning.delegated = devices.delegated(&spec.needs);
        if filters.dynamic_resources && (!spec.claims.is_empty() || !spanning.delegated.is_empty()) {
            match PodClaims::new((spec, pod), devices, plugins.dynamic_resources.unwrap_or_default(), now_ms)
            {
                Ok(claims) => spanning.claims = claims,
                Err(_) => spanning.awaits_claims = true,
            }
        }
        spanning
    }

    /// Counts that another pod comes to a node (1), or leaves it (-1). `pod`: the one that is placed.
    pub(crate) fn shift(&mut self, pod: &PodView, view: &'a NodeView, other: &PodView, more: i64) {
        self.volumes.shift(&other.spec, more);
        let Some(namespaces) = self.namespaces else { return };
        if self.counts_terms && !other.terms.is_empty() {
            let target = namespaces.target(&pod.namespace, &pod.labels);
            self.existing.shift_all(target, &view.labels, &other.terms, more);
        }
        if pod.spec.spans_nodes() {
            let other = other.selectable();
            self.spread.shift(&pod.spec, view, (&other, namespaces), more);
            self.affinity.shift(&view.labels, &other, more);
        }
    }

    /// Whether it allows every node, so that a verdict depends on nothing but the node and the spec.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let constraints = self.spread.is_empty() && self.affinity.is_empty() && self.existing.is_empty();
        let claims = self.claims.is_some() || self.awaits_claims || !self.delegated.is_empty();
        constraints && self.volumes.is_empty() && !self.awaits_volumes && !claims
    }

    /// Whether a node with these totals fits the pod's volumes.
    ///
    /// # Errors
    /// The first [`Reason`] against it.
    pub fn filter_volumes(&self, totals: &Node, view: &NodeView) -> Result<(), Reason> {
        if self.awaits_volumes {
            return Err(Reason::VolumesNotReady("VolumeBinding"));
        }
        self.volumes.filter(totals, view)
    }

    /// Whether a node fits the pod's claims.
    ///
    /// # Errors
    /// The [`Reason`] against it.
    pub fn filter_claims(&self, view: &NodeView) -> Result<(), Reason> {
        if self.awaits_claims {
            return Err(Reason::ClaimsNotReady);
        }
        self.claims.as_ref().map_or(Ok(()), |claims| claims.filter(view))
    }

    /// The points of a node by the pod's claims.
    #[must_use]
    pub fn points(&self, view: &NodeView) -> i64 {
        let claims = self.claims.as_ref().filter(|claims| claims.scores());
        claims.map_or(0, |claims| claims.points(view))
    }

    /// Whether the pod may be on a node with these labels.
    ///
    /// # Errors
    /// The first [`Reason`] against it.
    pub fn filter(&self, labels: &Labels) -> Result<(), Reason> {
        self.spread.filter(labels)?;
        self.affinity.filter(labels)?;
        if self.existing.contain(labels) { Err(Reason::ExistingAntiAffinity) } else { Ok(()) }
    }
}

/// Whether a pod with this spec, created in this second, fits on a node now.
///
/// # Errors
/// The first [`Reason`] against it.
pub fn filter(
    node: &Node,
    view: &NodeView,
    (spec, created_s): (&Spec, u64),
    spanning: &PreFilterState<'_>,
    profile: &Profile,
    now_ms: u64,
    scratch: &mut Scratch,
) -> Result<(), Reason> {
    let zones = (&node.ledger, &node.over_reserve);
    filter_node(node, view, spec, spanning, &profile.plugins)?;
    filter_zones(zones, (spec, created_s), profile.zone_filter(), now_ms, scratch)
}

/// Whether a pod fits on a node, but for zones.
///
/// # Errors
/// The first [`Reason`] against it.
pub fn filter_node(
    node: &Node,
    view: &NodeView,
    spec: &Spec,
    spanning: &PreFilterState<'_>,
    plugins: &Plugins,
) -> Result<(), Reason> {
    properties(view, spec, plugins)?;
    if plugins.filters.node_ports && !node.ports.are_free(&spec.host_ports) {
        return Err(Reason::HostPort);
    }
    if let Some(resource) = shortages(node, view, (spec, &spanning.delegated), plugins).next() {
        return Err(Reason::short_of(resource));
    }
    spanning.filter_volumes(node, view)?;
    spanning.filter(&view.labels)?;
    spanning.filter_claims(view)?;
    if plugins.filters.node_declared_features && !view.features.cover(spec.features) {
        return Err(Reason::MissingFeatures);
    }
    Ok(())
}

/// Whether the node is one for the pod, whatever else runs there.
pub(crate) fn properties(view: &NodeView, spec: &Spec, plugins: &Plugins) -> Result<(), Reason> {
    let filters = plugins.filters;
    if filters.node_names && spec.affinity.is_elsewhere(&view.name) {
        return Err(Reason::OtherNode);
    }
    if filters.node_unschedulable && view.unschedulable && !affinity::tolerates_cordon(&spec.tolerations) {
        return Err(Reason::Unschedulable);
    }
    if filters.taint_toleration && !affinity::tolerates(&spec.tolerations, &view.taints) {
        return Err(Reason::Taint);
    }
    if filters.node_affinity {
        if !plugins.added_affinity.allows(&view.name, &view.labels) {
            return Err(Reason::AddedAffinity);
        }
        if !spec.affinity.allows(&view.name, &view.labels) {
            return Err(Reason::Affinity);
        }
    }
    Ok(())
}

/// The resources that are short on the whole node, as far as the profile checks them. `delegated`: those that devices
/// serve where no device plugin does.
pub fn shortages<'a>(
    node: &'a Node,
    view: &'a NodeView,
    (spec, delegated): (&'a Spec, &'a [topology::resource::ResourceName]),
    plugins: &'a Plugins,
) -> impl Iterator<Item = topology::resource::ResourceName> + 'a {
    let checked = plugins.filters.node_resources_fit;
    let needs = (&*spec.needs, delegated);
    let short = checked.then(|| node_resources_fit::shortages(&plugins.fit, node, view, needs));
    short.into_iter().flatten()
}

/// Whether the pod fits on a node once all its pods but these have left.
#[must_use]
pub fn could_fit(
    node: &Node,
    staying: &Node,
    (spec, spanning): (&Spec, &PreFilterState<'_>),
    profile: &Profile,
    scratch: &mut Scratch,
) -> bool {
    let Some(view) = &node.view else { return false };
    let plugins = &*profile.plugins;
    properties(view, spec, plugins).is_ok()
        && (!plugins.filters.node_ports || staying.ports.are_free(&spec.host_ports))
        && shortages(staying, view, (spec, &spanning.delegated), plugins).next().is_none()
        && (!profile.numa.as_ref().is_some_and(|numa| numa.filters)
            || node.ledger.could_fit(&spec.needs, scratch))
}

impl<'a> PreScoreState<'a> {
    /// `images`: what the pod's images count, from [`Images::wanted`](crate::plugins::image_locality::Images::wanted).
    #[must_use]
    pub fn new(spec: &'a Spec, profile: &'a Profile, images: Wanted, devices: &'a Devices) -> Self {
        let plugins = &*profile.plugins;
        Self {
            spec,
            plugins,
            numa: profile
                .numa
                .as_ref()
                .filter(|numa| numa.score_weight > 0)
                .map(|numa| (numa, numa.scorer(&spec.needs))),
            zones: profile.zone_filter(),
            fit: plugins.fit.requests(&spec.needs),
            balanced: plugins.balanced.requests(&spec.needs),
            images,
            devices,
        }
    }

    /// The part of a node's score that does not depend on the other nodes.
    #[must_use]
    pub fn raw_score(
        &self,
        node: &Node,
        view: &NodeView,
        spanning: &PreFilterState<'_>,
        scratch: &mut Scratch,
    ) -> RawScore {
        let Self { spec, plugins, .. } = self;
        let mut sum = 0;
        self.each_score(node, view, |_, weight, score| sum += weight * score);
        let preferred = |affinity: &NodeAffinity| affinity.preference(&view.name, &view.labels);
        RawScore {
            aversions: affinity::aversions(&spec.tolerations, &view.taints),
            preference: preferred(&spec.affinity) + preferred(&plugins.added_affinity),
            points: if plugins.scores.dynamic_resources > 0 { spanning.points(view) } else { 0 },
            sum,
            is_second_choice: self
                .zones
                .is_some_and(|filter| is_second_choice(&node.ledger, spec, filter, scratch)),
        }
    }

    /// Hands over name, weight and score of each plugin that scores a node by itself.
    #[inline]
    pub(crate) fn each_score(
        &self,
        node: &Node,
        view: &NodeView,
        mut take: impl FnMut(&'static str, i64, i64),
    ) {
        let Self { plugins, .. } = self;
        let devices = Some(self.devices);
        let weights = plugins.scores;
        if weights.node_resources_fit > 0 {
            let score = plugins.fit.score(node, view, &self.fit, devices);
            take("NodeResourcesFit", weights.node_resources_fit, score);
        }
        if weights.balanced_allocation > 0
            && let Some(requests) = &self.balanced
        {
            let score = plugins.balanced.score(node, view, requests, devices);
            take("NodeResourcesBalancedAllocation", weights.balanced_allocation, score);
        }
        if weights.image_locality > 0 {
            take("ImageLocality", weights.image_locality, self.images.score(&node.images));
        }
        if let Some((numa, scorer)) = &self.numa {
            take(NUMA_PLUGIN, numa.score_weight, zone_score(node, numa.accounting, scorer));
        }
    }
}

/// What a node of the second choice has less than others: more than scores and weights make up for.
pub(crate) const SECOND_CHOICE: i64 = 1 << 48;

/// The scale of scores that compare nodes, over the nodes that passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    worst: i64,
    best: i64,
    most: i64,
}

impl Scale {
    pub(crate) fn of(raw: &[RawScore]) -> Self {
        let max = |value: fn(&RawScore) -> i64| raw.iter().map(value).max().unwrap_or(0);
        Self { worst: max(|r| r.aversions), best: max(|r| r.preference), most: max(|r| r.points) }
    }

    /// Name, weight and score of each plugin that compares nodes by a number of each.
    pub(crate) fn scores(self, raw: &RawScore, weights: &Scores) -> [(&'static str, i64, i64); 3] {
        let share = |part: i64, of: i64| if of == 0 { 0 } else { part * 100 / of };
        [
            ("TaintToleration", weights.taint_toleration, 100 - share(raw.aversions, self.worst)),
            ("NodeAffinity", weights.node_affinity, share(raw.preference, self.best)),
            ("DynamicResources", weights.dynamic_resources, share(raw.points, self.most)),
        ]
    }
}

/// Writes the total scores to `out`, in the order of `raw`.
pub fn totals(raw: &[RawScore], weights: &Scores, out: &mut Vec<i64>) {
    let scale = Scale::of(raw);
    out.clear();
    out.extend(raw.iter().map(|raw| {
        let compared = scale.scores(raw, weights).into_iter().map(|(_, weight, score)| weight * score);
        let choice = if raw.is_second_choice { -SECOND_CHOICE } else { 0 };
        raw.sum + compared.sum::<i64>() + choice
    }));
}

/// Name, weight and scores of each plugin that compares nodes by the pods on all of them, in the order of `feasible`;
/// `None` where a plugin has nothing to say.
pub(crate) fn spanning_scores(
    (pod, existing): (&PodView, &ExistingTerms),
    (feasible, nodes): (&[usize], &[Node]),
    selections: &Selections,
    plugins: &Plugins,
) -> [(&'static str, i64, Option<Vec<i64>>); 2] {
    let (spec, weights) = (&*pod.spec, plugins.scores);
    let spread = || pod_topology_spread::scores(spec, feasible, nodes, selections);
    let near = || {
        let wishes = (&spec.pod_affinity, selections.namespaces().target(&pod.namespace, &pod.labels));
        inter_pod_affinity::scores(plugins.pod_affinity, wishes, existing, feasible, nodes, selections)
    };
    let asked = |weight: i64, scores: &dyn Fn() -> Option<Vec<i64>>| {
        if weight > 0 { scores() } else { None }
    };
    [
        ("PodTopologySpread", weights.pod_topology_spread, asked(weights.pod_topology_spread, &spread)),
        ("InterPodAffinity", weights.inter_pod_affinity, asked(weights.inter_pod_affinity, &near)),
    ]
}

/// Adds the scores that compare nodes by the pods on all of them, in the order of `feasible`.
pub fn add_spanning(
    pod: (&PodView, &ExistingTerms),
    found: (&[usize], &[Node]),
    selections: &Selections,
    plugins: &Plugins,
    totals: &mut [i64],
) {
    for (_, weight, scores) in spanning_scores(pod, found, selections, plugins) {
        for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
            *total += weight * score;
        }
    }
}

/// The number of feasible nodes after which a search ends, by the rule of kube-scheduler's `numFeasibleNodesToFind`:
/// all of up to 100 nodes; of more, `percentage` or, if that is 0, `50 - nodes/125` percent but at least 5; never fewer
/// than 100.
#[must_use]
pub fn feasible_nodes_to_find(nodes: usize, percentage: usize) -> usize {
    if nodes < 100 || percentage >= 100 {
        return nodes;
    }
    let percent = if percentage == 0 { 50_usize.saturating_sub(nodes / 125).max(5) } else { percentage };
    (nodes * percent / 100).max(100)
}
