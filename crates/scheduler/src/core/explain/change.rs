//! Changes of which each alone would make a pod fit on a node that refuses it.
//!
//! In: a pod, its resources, a node. Out: changes that were tried and found to help, the smallest first. Never: one
//! that was not tried.
//!
//! Tried are smaller requests of a container, another scope of the node's kubelet, and the departure of pods: of one,
//! or where that is not enough of as few as it takes when the most important ones stay. Cost: a trial for each; of
//! requests, containers x resources x (zones + [`STEPS`]); of pods, those there twice.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use topology::kubelet::start::{KubeletStart, PolicyOptions};
use topology::policy::{Policy, Scope};
use topology::quantity::{Format, Quantity};
use topology::reason::Amount;
use topology::request::{Need, PodRequest};
use topology::resource::{ResourceKind, ResourceName};

use crate::core::trial::{IncomingPod, Trial};
use crate::core::victim_sets::fewest_to_leave;
use crate::core::{Core, Event};
use crate::cycle::PreFilterState;
use crate::ledger::{PodId, Scratch};
use crate::node::Node;
use crate::plugins::default_preemption::is_curable;
use crate::pod::{PodView, Spec};
use crate::reason::Reason;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A container asks for less.
    Request {
        /// The container.
        container: Box<str>,
        /// What of.
        reductions: Vec<Reduction>,
        /// Pods that have to go as well, by namespace and name: less alone would not do.
        without: Vec<String>,
    },
    /// Pods of the node go: all of these.
    Leave {
        /// Their namespaces and names.
        pods: Vec<String>,
    },
    /// The node's kubelet has another scope.
    Scope(Scope),
}

/// A smaller amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// The resource.
    pub resource: ResourceName,
    /// The amount asked for, in base units.
    pub from: i64,
    /// The amount that fits.
    pub to: i64,
}

/// Whole units below a request that are tried one by one.
const STEPS: i64 = 16;
/// The size of a pod's departure, as a share of the request in percent: requests smaller by less come first.
const LEAVE: i64 = 50;
/// The size of another scope, which restarts a kubelet.
const SCOPE: i64 = 75;
/// Most pods whose departure is tried.
const MAX_PODS: usize = 500;

/// The search for changes on one node. Each is tried on a copy.
pub(super) struct ChangeSearch<'a, 'c> {
    pub(super) core: &'c Core,
    pub(super) slot: usize,
    pub(super) incoming: IncomingPod<'a>,
    /// The pod's resources.
    pub(super) request: &'a PodRequest,
    /// What the pod's constraints look at, the same for all changes.
    pub(super) spanning: &'a PreFilterState<'c>,
    pub(super) scratch: &'a mut Scratch,
}

impl ChangeSearch<'_, '_> {
    /// Changes that help, the smallest first. `reasons`: those for which the node refuses the pod.
    pub(super) fn run(&mut self, reasons: &[Reason]) -> Vec<Change> {
        let Some(view) = &self.core.nodes[self.slot].view else { return Vec::new() };
        let is_about_room = |reason: &Reason| {
            matches!(reason, Reason::Insufficient(_)) || is_curable(*reason, self.incoming.pod, view)
        };
        if !reasons.iter().all(is_about_room) {
            return Vec::new();
        }
        let spec = Arc::clone(&self.incoming.pod.spec);
        let (less, size) = self.smaller_request(&[]).unzip();
        let leave = self.departure(&spec);
        let is_zones = reasons.iter().any(|reason| matches!(reason, Reason::Misaligned(_)));
        let scope = if is_zones { self.other_scope() } else { None };
        if less.is_none() && leave.is_none() && scope.is_none() {
            return self.smaller_and_departure().into_iter().collect();
        }
        let leave_size =
            leave.as_ref().map(|pods| LEAVE * i64::try_from(pods.len()).unwrap_or(i64::MAX / LEAVE));
        let leave = leave.map(|pods| Change::Leave { pods });
        let sized = [(size, less), (leave_size, leave), (Some(SCOPE), scope.map(Change::Scope))];
        let mut sized: Vec<_> =
            sized.into_iter().filter_map(|(size, change)| Some((size?, change?))).collect();
        sized.sort_by_key(|(size, _)| *size);
        sized.into_iter().map(|(_, change)| change).collect()
    }

    /// Whether a pod with these requests fits once these pods have left.
    fn fits(&mut self, spec: &Arc<Spec>, left: &[PodId]) -> bool {
        let pod = PodView {
            spec: Arc::clone(spec),
            charged: Arc::clone(&spec.needs),
            allocated: Arc::clone(&spec.needs),
            ..self.incoming.pod.clone()
        };
        let mut spanning = self.spanning.clone();
        let Some(mut trial) = Trial::new(self.core, self.slot) else { return false };
        left.iter().for_each(|id| trial.remove(*id, &pod, &mut spanning));
        trial.check(IncomingPod { pod: &pod, ..self.incoming }, &spanning, self.scratch).is_ok()
    }

    /// The smallest reduction of one container's requests that helps, with its size in percent of the request.
    fn smaller_request(&mut self, left: &[PodId]) -> Option<(Change, i64)> {
        let (core, spec) = (self.core, Arc::clone(&self.incoming.pod.spec));
        let mut best: Option<(i64, Change)> = None;
        for (at, container) in spec.needs.containers.iter().enumerate() {
            let node = &core.nodes[self.slot];
            let mut fits = |reductions: &Vec<Reduction>| {
                let less = self.with_less(at, reductions);
                self.fits(&less, left)
            };
            let single = container.needs.iter().filter_map(|need| {
                let reduction = |to| vec![Reduction { resource: need.name, from: need.amount, to }];
                largest_that_fits(node, *need, |to| fits(&reduction(to))).map(reduction)
            });
            let mut found: Vec<Vec<Reduction>> = single.collect();
            if found.is_empty() {
                found.extend(zone_sized(node, &container.needs).into_iter().find(&mut fits));
            }
            for reductions in found {
                let size = reductions.iter().map(Reduction::percent).max().unwrap_or(100);
                if best.as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                    let container = container.name.clone();
                    best = Some((size, Change::Request { container, reductions, without: Vec::new() }));
                }
            }
        }
        best.map(|(size, change)| (change, size))
    }

    /// Smaller requests of a container that would fit an empty node, and the pods that have to go even then.
    fn smaller_and_departure(&mut self) -> Option<Change> {
        let (change, _) = self.smaller_request(&self.may_go())?;
        let Change::Request { container, reductions, .. } = change else { return None };
        let mut names = self.incoming.pod.spec.needs.containers.iter().map(|it| &it.name);
        let at = names.position(|name| *name == container)?;
        let without = self.departure(&self.with_less(at, &reductions))?;
        Some(Change::Request { container, reductions, without })
    }

    /// The constraints of the pod if this container asks for less. A limit that is the request goes with it; the QoS
    /// class stays.
    fn with_less(&self, at: usize, reductions: &[Reduction]) -> Arc<Spec> {
        let mut request = self.request.clone();
        request.stated_qos = Some(self.incoming.pod.spec.needs.qos);
        for Reduction { resource, to, .. } in reductions {
            let Some(container) = request.containers.get_mut(at) else { continue };
            let to = quantity(*resource, *to);
            let of = |list: &[(ResourceName, Quantity)]| {
                list.iter().find(|(name, _)| name == resource).map(|(_, amount)| *amount)
            };
            let before = of(&container.requests).or_else(|| of(&container.limits));
            let limits = container.limits.iter_mut().filter(|(_, amount)| Some(*amount) == before);
            let amounts = container.requests.iter_mut().chain(limits);
            amounts.filter(|(name, _)| name == resource).for_each(|(_, amount)| *amount = to);
        }
        Arc::new(Spec { needs: Arc::new(request.needs()), ..Spec::clone(&self.incoming.pod.spec) })
    }

    /// The least important pod whose departure helps; else as few pods as it takes, the most important ones left there.
    fn departure(&mut self, spec: &Arc<Spec>) -> Option<Vec<String>> {
        let may_go = self.may_go();
        let single = may_go.iter().copied().find(|id| self.fits(spec, &[*id]));
        let left = match single {
            Some(id) => vec![id],
            None => fewest_to_leave(&may_go, |left| self.fits(spec, left))?,
        };
        Some(left.into_iter().filter_map(|id| self.core.key(id)).collect())
    }

    /// Pods of the node that may go, the least important first.
    fn may_go(&self) -> Vec<PodId> {
        let stays = |id: &PodId| self.core.view(*id).is_none_or(|view| view.stays);
        let residents = self.core.nodes[self.slot].residents.iter().map(|(_, id)| *id);
        residents.filter(|id| *id != self.incoming.id && !stays(id)).take(MAX_PODS).collect()
    }

    /// The scope under which the kubelet would take the pod, if the other one does.
    fn other_scope(&mut self) -> Option<Scope> {
        let (core, incoming) = (self.core, self.incoming);
        let node = &core.nodes[self.slot];
        let mut topology = node.ledger.topology()?.clone();
        let scope = match topology.rules.scope {
            Scope::Pod => Scope::Container,
            Scope::Container => Scope::Pod,
        };
        topology.rules.scope = scope;
        // Without such a kubelet there is nothing to change.
        if topology.rules.policy == Policy::None
            || KubeletStart::new(&topology, PolicyOptions::default()).is_err()
        {
            return None;
        }
        let mut alone = Core::new(core.settings.clone());
        let mut take = |event| alone.handle(event, incoming.now_ms);
        take(Event::Node(node.view.clone()?));
        let residents = node.residents.iter().filter_map(|(_, id)| core.view(*id));
        residents.filter(|pod| pod.node.is_some()).for_each(|pod| take(Event::Pod(pod.clone())));
        take(Event::Report(Arc::clone(&node.name), Arc::new(topology)));
        let slot = *alone.slots.get(&node.name)?;
        let spanning = alone.pre_filter(incoming.pod, incoming.profile, incoming.now_ms);
        let (request, scratch) = (self.request, &mut *self.scratch);
        let mut search = ChangeSearch { core: &alone, slot, incoming, request, spanning: &spanning, scratch };
        search.fits(&incoming.pod.spec, &[]).then_some(scope)
    }
}

/// The largest smaller amount that fits, as far as more never fits where less does not. Cost: the amounts that are
/// tried first, and log2 of the units between two of them.
fn largest_that_fits(node: &Node, need: Need, mut fits: impl FnMut(i64) -> bool) -> Option<i64> {
    let unit = step(need.name);
    let mut too_much = need.amount;
    for Reverse(amount) in amounts_below(node, need) {
        if !fits(amount) {
            too_much = amount;
            continue;
        }
        let mut enough = amount;
        while too_much - enough > unit {
            let between = enough + (too_much - enough) / (2 * unit) * unit;
            let between = between.max(enough + unit);
            match fits(between) {
                true => enough = between,
                false => too_much = between,
            }
        }
        return Some(enough);
    }
    None
}

/// Smaller amounts that may fit, the largest first: what zones and the node have left, and a few units less.
fn amounts_below(node: &Node, need: Need) -> BTreeSet<Reverse<i64>> {
    let unit = step(need.name);
    let mut amounts = BTreeSet::new();
    let mut add = |amount: i64| {
        let whole = amount / unit * unit;
        if 0 < whole && whole < need.amount {
            amounts.insert(Reverse(whole));
        }
    };
    if let Some(free) = node.ledger.free()
        && let Some(column) = free.layout().column(need.name)
    {
        (0..free.layout().zones().len()).for_each(|row| add(free.get(row, column)));
    }
    if let Some(view) = &node.view {
        add(node.left_of(view, need.name));
    }
    (1..=STEPS).for_each(|steps| add(need.amount - steps * unit));
    add(need.amount / 2);
    add(unit);
    amounts
}

/// For each zone the reductions to what it has left; none for a zone that lacks something altogether.
fn zone_sized(node: &Node, needs: &[Need]) -> Vec<Vec<Reduction>> {
    let Some(free) = node.ledger.free() else { return Vec::new() };
    let rows = 0..free.layout().zones().len();
    let of_zone = |row: usize| {
        let mut reductions = Vec::new();
        for need in needs {
            let Some(column) = free.layout().column(need.name) else { continue };
            let (left, unit) = (free.get(row, column), step(need.name));
            let to = left.min(need.amount) / unit * unit;
            if to <= 0 {
                return None;
            }
            if to < need.amount {
                reductions.push(Reduction { resource: need.name, from: need.amount, to });
            }
        }
        Some(reductions).filter(|reductions| !reductions.is_empty())
    };
    rows.filter_map(of_zone).collect()
}

impl Reduction {
    /// The part that is given up, in percent of the request.
    fn percent(&self) -> i64 {
        let lost = i128::from(self.from - self.to) * 100;
        i64::try_from(lost / i128::from(self.from.max(1))).unwrap_or(100)
    }
}

/// The smallest step of an amount that people would state.
fn step(resource: ResourceName) -> i64 {
    match resource.kind() {
        ResourceKind::Memory => resource.page_bytes().unwrap_or(1 << 20),
        _ => resource.base_units(),
    }
}

fn quantity(resource: ResourceName, amount: i64) -> Quantity {
    if resource == ResourceName::CPU {
        Quantity::from_milli(amount, Format::DecimalSI)
    } else {
        Quantity::from_i64(amount, Format::DecimalSI)
    }
}

impl std::fmt::Display for Change {
    /// Writes `cpu 8 instead of 9 in container "c"`, `without pod ns/name`, `topologyManagerScope pod`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request { container, reductions, without } => {
                let texts: Vec<String> = reductions.iter().map(ToString::to_string).collect();
                write!(f, "{} in container {container:?}", texts.join(", "))?;
                match without.is_empty() {
                    true => Ok(()),
                    false => write!(f, ", {}", departed(without)),
                }
            }
            Self::Leave { pods } => f.write_str(&departed(pods)),
            Self::Scope(scope) => write!(f, "topologyManagerScope {}", scope.as_str()),
        }
    }
}

fn departed(pods: &[String]) -> String {
    format!("without pod{} {}", if pods.len() == 1 { "" } else { "s" }, pods.join(", "))
}

impl std::fmt::Display for Reduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { resource, from, to } = *self;
        write!(f, "{resource} {} instead of {}", Amount(resource, to), Amount(resource, from))
    }
}
