//! Moves of pods that make room for others: `tholepin defrag`.
//!
//! In: a cluster's objects, pods that need room. Out: a [`Plan`] of the fewest moves. Never: a move that was not played
//! through (`rehearsal`); a pod without a controller, one that a budget keeps, or one that is more important than the
//! pod that gets the room.
//!
//! Pods get room one after the other, and what was planned for one holds for the next. Pods that wait for a node and
//! get no room take nothing.
//!
//! Cost: a search ([`crate::core::relocation`]), and two cores made of all objects for each relocation that it finds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::budget::BudgetView;
use crate::capacity::{listed, place_only, requests};
use crate::core::relocation::{Relocation, SearchLimits, SearchOutcome};
use crate::core::{Event, Settings};
use crate::pod::PodView;
use crate::shell::snapshot::Snapshot;

mod apply;
pub mod cli;
pub mod eviction_blocker;
mod rehearsal;

use eviction_blocker::EvictionBlocker;
use rehearsal::Rehearsal;

/// Most looks of the search for one pod: verdicts, and sets of pods.
const MAX_LOOKS: usize = 2_000_000;

/// Moves that make room for pods.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The pods that get room, in the order in which it is made.
    pub rooms: Vec<Room>,
    /// The pods that get none.
    pub without_room: Vec<WithoutRoom>,
    /// Number of moves.
    pub moves: usize,
    /// Pods with a node that stay there whatever it would bring, by reason.
    pub stay: BTreeMap<EvictionBlocker, usize>,
}

/// A pod that gets room.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Its uid.
    pub uid: Arc<str>,
    /// The moves before, one after the other.
    pub moves: Vec<PlannedMove>,
    /// The node that has room then.
    pub node: Arc<str>,
}

/// A pod that leaves a node for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedMove {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Its uid.
    pub uid: Arc<str>,
    /// What it asks for.
    pub requests: BTreeMap<&'static str, String>,
    /// `spec.priority`.
    pub priority: i32,
    /// The node that it leaves.
    pub from: Arc<str>,
    /// The node that the scheduler would choose.
    pub to: Arc<str>,
}

/// A pod that gets no room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithoutRoom {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Its uid.
    pub uid: Arc<str>,
    /// Why.
    pub reason: String,
}

/// What may be done.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Most moves for one pod.
    pub max_moves: usize,
    /// Whether pods that run to completion may begin anew.
    pub moves_jobs: bool,
    /// Whether pods may lose their emptyDir.
    pub moves_local_data: bool,
}

impl PlanOptions {
    fn allow(self, blockers: EvictionBlocker) -> bool {
        match blockers {
            EvictionBlocker::RunsToCompletion => self.moves_jobs,
            EvictionBlocker::LocalData => self.moves_local_data,
            EvictionBlocker::NoController
            | EvictionBlocker::OfItsNode
            | EvictionBlocker::NotSafeToEvict
            | EvictionBlocker::Budget => false,
        }
    }
}

/// A cluster, as a plan looks at it.
#[derive(Clone, Debug, Default)]
pub struct ClusterObjects {
    /// All objects, reports last.
    pub events: Vec<Event>,
    /// What keeps each pod with a node there, by uid. A pod that is not named stays.
    pub blockers: BTreeMap<String, Vec<EvictionBlocker>>,
}

impl ClusterObjects {
    fn of(mut snapshot: Snapshot) -> Self {
        let blockers = std::mem::take(&mut snapshot.blockers);
        Self { events: snapshot.into_events().collect(), blockers }
    }
}

/// The pods of a snapshot that wait for a node of these settings' schedulers, as the queue orders them.
fn waiting(settings: &Settings, snapshot: &Snapshot) -> Vec<PodView> {
    let is_ours = |pod: &&PodView| {
        let has_ended = pod.progress.is_ending();
        let waits = pod.node.is_none() && !has_ended && pod.spec.gates.is_empty() && pod.nominated.is_none();
        waits && settings.profiles.iter().any(|profile| profile.name == pod.scheduler)
    };
    let mut pods: Vec<PodView> = snapshot.pod_views().filter(is_ours).cloned().collect();
    pods.sort_by_key(|pod| (std::cmp::Reverse(pod.priority), pod.created_s));
    pods
}

/// Plans room for these pods, one after the other. `before_each`: told the number of the pod that comes next.
pub fn plan(
    mut settings: Settings,
    ClusterObjects { mut events, blockers }: ClusterObjects,
    pods: &[PodView],
    rules: PlanOptions,
    now_ms: u64,
    before_each: &mut dyn FnMut(usize),
) -> Plan {
    place_only(&mut settings);
    close_nominated(&mut events);
    let budgets: Vec<BudgetView> = events.iter().filter_map(budget).collect();
    let may_move = |pod: &PodView| {
        // A pod that was made again has no object yet.
        let blockers = blockers.get(&*pod.uid);
        blockers.is_some_and(|all| all.iter().all(|one| rules.allow(*one))) && are_kept(&budgets, pod)
    };
    let limits = SearchLimits { moves: rules.max_moves, looks: MAX_LOOKS };
    let mut stay = BTreeMap::new();
    for pod in events.iter().filter_map(with_node) {
        let mut all = blockers.get(&*pod.uid).into_iter().flatten().copied();
        let kept = match all.find(|blockers| !rules.allow(*blockers)) {
            None if !are_kept(&budgets, pod) => Some(EvictionBlocker::Budget),
            blockers => blockers,
        };
        kept.into_iter().for_each(|blockers| *stay.entry(blockers).or_default() += 1);
    }
    let mut rehearsal = Rehearsal::new(settings, events.into_iter(), now_ms);
    let (mut rooms, mut without_room) = (Vec::new(), Vec::new());
    for (number, pod) in pods.iter().enumerate() {
        before_each(number);
        match room(&mut rehearsal, pod, &may_move, limits, now_ms) {
            Ok(relocation) => rooms.push(Room::new(&relocation, pod)),
            Err(reason) => {
                without_room.push(WithoutRoom { pod: pod.key(), uid: Arc::clone(&pod.uid), reason })
            }
        }
    }
    Plan { moves: rooms.iter().map(|room: &Room| room.moves.len()).sum(), rooms, without_room, stay }
}

/// Closes nodes where evictions for a pod are under way: their room is that pod's.
fn close_nominated(events: &mut [Event]) {
    let nominated: BTreeSet<Arc<str>> = events
        .iter()
        .filter_map(|event| match event {
            Event::Pod(pod) if pod.node.is_none() => pod.nominated.clone(),
            _ => None,
        })
        .collect();
    for event in events {
        if let Event::Node(node) = event {
            node.unschedulable |= nominated.contains(&node.name);
        }
    }
}

fn with_node(event: &Event) -> Option<&PodView> {
    match event {
        Event::Pod(pod) => Some(pod).filter(|pod| pod.node.is_some() && !pod.progress.terminal),
        _ => None,
    }
}

fn budget(event: &Event) -> Option<BudgetView> {
    match event {
        Event::Budget(budget) => Some(budget.clone()),
        _ => None,
    }
}

/// Whether an eviction of this pod keeps all budgets. The API server evicts no pod of several budgets. Pods move one
/// after the other, each once the one before runs again, so that one allowed disruption is enough.
fn are_kept(budgets: &[BudgetView], pod: &PodView) -> bool {
    let mut of_pod = budgets.iter().filter(|budget| budget.covers(pod));
    match (of_pod.next(), of_pod.next()) {
        (None, _) => true,
        (Some(budget), None) => budget.allowed() > 0,
        (Some(_), Some(_)) => false,
    }
}

/// The fewest moves that make room for a pod, as they were played; or why there are none.
fn room(
    rehearsal: &mut Rehearsal,
    pod: &PodView,
    may_move: &dyn Fn(&PodView) -> bool,
    limits: SearchLimits,
    now_ms: u64,
) -> Result<Relocation, String> {
    let mut failure = None;
    let search = rehearsal.core().relocation(pod, may_move, limits, now_ms, &mut |found| {
        // Without a move there is nothing that could happen in another order.
        let rehearsed =
            if found.moves.is_empty() { Ok(()) } else { rehearsal.rehearse(found, pod).map(drop) };
        failure = failure.take().or(rehearsed.as_ref().err().cloned());
        rehearsed.is_ok()
    });
    let failure = failure.map(|reason| format!("; a plan failed when played through: {reason}"));
    let (most, failure) = (limits.moves, failure.unwrap_or_default());
    match search {
        SearchOutcome::Found(relocation) => rehearsal.carry_out(relocation, pod),
        SearchOutcome::Unprovable(reason) => Err(format!("nothing can be proved for this pod: {reason}")),
        SearchOutcome::Limited => Err(format!("no plan was found before the search's limit{failure}")),
        SearchOutcome::Nothing => Err(format!("no plan of {most} moves or fewer was found{failure}")),
    }
}

impl Room {
    fn new(relocation: &Relocation, pod: &PodView) -> Self {
        let moves = relocation.moves.iter().map(|it| PlannedMove {
            pod: it.pod.key(),
            uid: Arc::clone(&it.pod.uid),
            requests: requests(&it.pod),
            priority: it.pod.priority,
            from: Arc::clone(&it.from),
            to: Arc::clone(&it.to),
        });
        Self {
            pod: pod.key(),
            uid: Arc::clone(&pod.uid),
            moves: moves.collect(),
            node: Arc::clone(&relocation.node),
        }
    }
}

impl Plan {
    /// The uids of all pods that it is about.
    #[must_use]
    pub fn uids(&self) -> BTreeSet<Arc<str>> {
        let rooms = self.rooms.iter().map(|room| &room.uid);
        rooms.chain(self.without_room.iter().map(|pod| &pod.uid)).cloned().collect()
    }

    /// Whether all pods get room.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.without_room.is_empty()
    }

    /// Text for people. `wide`: also the reasons why pods stay.
    #[must_use]
    pub fn text(&self, wide: bool) -> String {
        let pods = self.rooms.len() + self.without_room.len();
        let mut text = match (pods, self.rooms.len(), self.moves) {
            (0, ..) => "No pod needs room.\n".to_owned(),
            (_, 0, _) => format!("No plan makes room for any of {}.\n", counted(pods, "pod")),
            (_, rooms, 0) => format!("Of {} {rooms} fit without a move.\n", counted(pods, "pod")),
            (_, rooms, moves) => {
                let make = if moves == 1 { "makes" } else { "make" };
                format!("{} {make} room for {rooms} of {}.\n", counted(moves, "move"), counted(pods, "pod"))
            }
        };
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["ROOM FOR", "MOVE", "FROM", "TO", "REQUESTS"]);
        for room in &self.rooms {
            for PlannedMove { pod, requests, from, to, .. } in &room.moves {
                table.add_row([&room.pod, pod, &**from, &**to, &listed(requests)]);
            }
            table.add_row([&room.pod, "(has room)", "", &*room.node, ""]);
        }
        if !self.rooms.is_empty() {
            text += &format!("\n{}\n", table.trim_fmt());
        }
        for WithoutRoom { pod, reason, .. } in &self.without_room {
            text += &format!("\nNo room for {pod}: {reason}.");
        }
        if !self.without_room.is_empty() {
            text += "\n";
        }
        if (wide || !self.is_whole()) && !self.stay.is_empty() {
            let stay: Vec<String> = self
                .stay
                .iter()
                .map(|(blockers, count)| format!("{count} ({})", blockers.as_str()))
                .collect();
            text += &format!("\nPods that stay whatever it would bring: {}.\n", stay.join(", "));
        }
        text
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
