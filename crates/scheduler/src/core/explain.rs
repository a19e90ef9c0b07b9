//! What filters and scores say of every node about one pod, and what would have to change.
//!
//! In: a pod of the core. Out: a [`NodeVerdict`] for each node, in the order of names. Never: a change of the core, a
//! search that ends early, an extender's opinion.
//!
//! Cost: nodes x a filter; for each node that refuses, the trials of `change`, up to 200 nodes that have one.

use std::sync::Arc;

use topology::request::PodRequest;
use topology::resource::ResourceName;
use topology::zone::ZoneId;

use super::decision::{unsupported, unsupported_features};
use super::search::best_first;
use super::trial::IncomingPod;
use super::{Core, Profile};
use crate::cycle::{self, PreFilterState, PreScoreState, RawScore, SECOND_CHOICE, Scale};
use crate::ledger::{PodId, Scratch};
use crate::plugins::default_preemption::is_curable;
use crate::pod::PodView;
use crate::reason::{Reason, Refusals};

mod change;

use change::ChangeSearch;
pub use change::{Change, Reduction};

/// Most nodes for which changes are looked for. Each takes some hundred trials, and people need no more.
const MAX_CHANGED: usize = 200;

/// The code of a verdict, as plugins of kube-scheduler return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The pod fits.
    Success,
    /// It does not fit now; the departure of pods may help.
    Unschedulable,
    /// No departure of pods helps.
    UnschedulableAndUnresolvable,
    /// The attempt ends in an error.
    Error,
}

impl Code {
    /// The code, as kube-scheduler prints it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Error => "Error",
        }
    }
}

/// What is said of one node.
#[derive(Clone, Debug)]
pub struct NodeVerdict {
    /// The node.
    pub node: Arc<str>,
    /// The code.
    pub code: Code,
    /// The reasons of the first filter that refuses, as in the pod's event; none if the pod fits.
    pub reasons: Vec<String>,
    /// Scores by plugin, before weights. Of a node that refuses, that of zones alone.
    pub scores: Vec<(&'static str, i64)>,
    /// The sum of scores x weights, if the pod fits.
    pub total: Option<i64>,
    /// Whether nodes that are known to align the pod come before, whatever the scores.
    pub is_second_choice: bool,
    /// The zones, as they are believed to be now.
    pub zones: Vec<ZoneAmounts>,
    /// Changes of which each alone would make the pod fit, the smallest first.
    pub changes: Vec<Change>,
}

/// The resources of one zone.
#[derive(Clone, Debug)]
pub struct ZoneAmounts {
    /// The zone.
    pub zone: ZoneId,
    /// Resource, allocatable and free amount in base units.
    pub resources: Vec<(ResourceName, i64, i64)>,
}

/// What is said about one pod.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// By node name.
    pub nodes: Vec<NodeVerdict>,
    /// The node with the highest total, of equal ones the first by name; before it one that admits the pod whichever
    /// pod leaves meanwhile, if it is among the best few.
    pub chosen: Option<Arc<str>>,
    /// The message of the pod's event, if it fits nowhere.
    pub message: Option<String>,
}

impl Core {
    /// What is said about a pod of the core that is on no node. `request`: its resources, to try smaller ones. `None`:
    /// the core does not know the pod, or no profile has its scheduler name.
    pub fn explain(&mut self, uid: &str, request: &PodRequest, now_ms: u64) -> Option<Verdicts> {
        let id = *self.ids.get(uid)?;
        let mut pod = self.view(id)?.clone();
        let profile = self.profile_of(id)?.clone();
        self.spread_by_default(id, &mut pod, &profile);
        let spec = Arc::clone(&pod.spec);
        spec.selectors().for_each(|pods| self.selections.follow(pods));
        let mut order = self.node_order.clone();
        order.sort_by(|one, other| self.nodes[*one].name.cmp(&self.nodes[*other].name));

        let mut scratch = std::mem::take(&mut self.scratch);
        let incoming = IncomingPod { id, rank: self.queue.rank(id), pod: &pod, profile: &profile, now_ms };
        let spanning = self.pre_filter(&pod, &profile, now_ms);
        let mut refusals = Refusals::default();
        let lacking = unsupported_features(&spec);
        let mut changed = 0;
        let mut nodes = Vec::with_capacity(order.len());
        for slot in &order {
            let verdict = self.judge(incoming, *slot, &spanning, &mut scratch);
            let reasons = verdict.err().unwrap_or_default();
            reasons.iter().for_each(|reason| refusals.add(*reason));
            let changes = match reasons.is_empty() || lacking.is_some() || changed == MAX_CHANGED {
                true => Vec::new(),
                false => {
                    let (core, slot, spanning, scratch) = (&*self, *slot, &spanning, &mut scratch);
                    ChangeSearch { core, slot, incoming, request, spanning, scratch }.run(&reasons)
                }
            };
            changed += usize::from(!changes.is_empty());
            let (code, texts) = match &lacking {
                Some(lacking) => (Code::UnschedulableAndUnresolvable, vec![lacking.clone()]),
                None => {
                    let texts = reasons.iter().map(|reason| reason.text(&spec.needs)).collect();
                    (self.code(*slot, &pod, &reasons), texts)
                }
            };
            nodes.push(NodeVerdict {
                node: Arc::clone(&self.nodes[*slot].name),
                code,
                reasons: texts,
                scores: Vec::new(),
                total: None,
                is_second_choice: false,
                zones: self.zone_amounts(*slot),
                changes,
            });
        }
        let (found, totals) = self.score_all((&pod, &profile), &order, &spanning, &mut nodes, &mut scratch);
        let best = best_first(&found, &totals).first().copied();
        let best =
            best.map(|best| self.most_tolerant((&spec, &profile), best, (&found, &totals), &mut scratch));
        // A nominated node is tried before all others.
        let best = self.nominated_slot(id).filter(|slot| found.contains(slot)).or(best);
        self.scratch = scratch;
        let count = self.node_order.len();
        let whole = held_back(&pod)
            .or_else(|| unsupported(&spec, count))
            .or_else(|| self.refused_at_once(&spec, &profile).map(|(message, _)| message))
            .or_else(|| self.claims_not_ready(&pod, &profile, now_ms).map(|(message, _)| message));
        let best = best.filter(|_| whole.is_none());
        let chosen = best.map(|slot| Arc::clone(&self.nodes[slot].name));
        let nothing = || match count {
            0 => "no nodes available to schedule pods".to_owned(),
            _ => refusals.message(count, &spec.needs),
        };
        let message = chosen.is_none().then(|| whole.unwrap_or_else(nothing));
        Some(Verdicts { nodes, chosen, message })
    }

    fn code(&self, slot: usize, pod: &PodView, reasons: &[Reason]) -> Code {
        let Some(view) = &self.nodes[slot].view else { return Code::Error };
        match reasons {
            [] => Code::Success,
            reasons if reasons.contains(&Reason::ClaimError) => Code::Error,
            reasons if reasons.iter().all(|reason| is_curable(*reason, pod, view)) => Code::Unschedulable,
            _ => Code::UnschedulableAndUnresolvable,
        }
    }

    fn zone_amounts(&self, slot: usize) -> Vec<ZoneAmounts> {
        let ledger = &self.nodes[slot].ledger;
        let Some(topology) = ledger.topology() else { return Vec::new() };
        let (all, reported) = (topology.allocatable(), topology.available());
        let free = ledger.free().unwrap_or(&reported);
        let row = |row: usize| {
            let cell =
                |(column, name): (usize, &ResourceName)| (*name, all.get(row, column), free.get(row, column));
            all.layout().resources().iter().enumerate().map(cell).collect()
        };
        let zones = all.layout().zones().iter().enumerate();
        zones.map(|(at, zone)| ZoneAmounts { zone: *zone, resources: row(at) }).collect()
    }

    /// Fills in scores and totals. Returns the nodes that fit, with their totals; those of a second choice have less.
    fn score_all(
        &self,
        (pod, profile): (&PodView, &Profile),
        order: &[usize],
        spanning: &PreFilterState<'_>,
        nodes: &mut [NodeVerdict],
        scratch: &mut Scratch,
    ) -> (Vec<usize>, Vec<i64>) {
        let images = self.images.wanted(&pod.images, self.node_order.len());
        let prepared = PreScoreState::new(&pod.spec, profile, images, &self.devices);
        let mut raw: Vec<RawScore> = Vec::new();
        let mut feasible: Vec<usize> = Vec::new();
        for (slot, verdict) in order.iter().zip(nodes.iter_mut()) {
            let node = &self.nodes[*slot];
            let Some(view) = &node.view else { continue };
            let fits = verdict.code == Code::Success;
            prepared.each_score(node, view, |plugin, _, score| {
                if fits || plugin == api::schedulerconfig::NUMA_PLUGIN {
                    verdict.scores.push((plugin, score));
                }
            });
            if fits {
                raw.push(prepared.raw_score(node, view, spanning, scratch));
                feasible.push(*slot);
            }
        }
        let plugins = &*profile.plugins;
        let mut totals = Vec::new();
        cycle::totals(&raw, &plugins.scores, &mut totals);
        let found = (&*feasible, &*self.nodes);
        cycle::add_spanning((pod, &self.existing_terms), found, &self.selections, plugins, &mut totals);
        let compared = cycle::spanning_scores((pod, &self.existing_terms), found, &self.selections, plugins);
        let scale = Scale::of(&raw);
        let fitting = nodes.iter_mut().filter(|verdict| verdict.code == Code::Success);
        for (at, verdict) in fitting.enumerate() {
            verdict.is_second_choice = raw[at].is_second_choice;
            let choice = if verdict.is_second_choice { SECOND_CHOICE } else { 0 };
            verdict.total = totals.get(at).map(|total| total + choice);
            let by_number =
                scale.scores(&raw[at], &plugins.scores).into_iter().filter(|(_, weight, _)| *weight > 0);
            verdict.scores.extend(by_number.map(|(plugin, _, score)| (plugin, score)));
            for (plugin, _, scores) in &compared {
                verdict.scores.extend(scores.as_ref().and_then(|scores| Some((*plugin, *scores.get(at)?))));
            }
            verdict.scores.sort_unstable();
        }
        (feasible, totals)
    }

    /// The name of a pod, for people.
    fn key(&self, id: PodId) -> Option<String> {
        self.view(id).map(PodView::key)
    }
}

/// Why a pod is not tried at all, whatever nodes there are; of one with gates in the words of kube-scheduler 1.36
/// `schedulinggates`.
fn held_back(pod: &PodView) -> Option<String> {
    if pod.progress.deleting {
        return Some("the pod is being deleted".to_owned());
    }
    let gates = &pod.spec.gates;
    (!gates.is_empty()).then(|| format!("waiting for scheduling gates: [{}]", gates.join(" ")))
}
