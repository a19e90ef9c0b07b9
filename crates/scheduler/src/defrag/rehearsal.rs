//! A relocation played through by a core of its own: what is planned must be what the scheduler does.
//!
//! In: the objects of a cluster, relocations. Out: where each pod ends, or the first step that fails. Never: the core
//! that serves a cluster.
//!
//! While pods move, the nodes that they leave are cordoned, as [`super::apply`] cordons them. A controller may make its
//! pod again before the old one is gone, or after; both are tried, with different ties among equal nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::capacity::place;
use crate::core::relocation::{Move, Relocation, recreated};
use crate::core::{Core, Event, Settings};
use crate::node::NodeView;
use crate::pod::PodView;

/// A cluster that changes by relocations.
pub(super) struct Rehearsal {
    settings: Settings,
    events: Vec<Event>,
    now_ms: u64,
    /// Relocations that are done, each with the pod that got room.
    done: Vec<(Relocation, PodView)>,
    /// The core after them.
    core: Core,
}

/// When a controller makes its pod again.
#[derive(Clone, Copy, Debug)]
enum Recreation {
    AfterDeletion,
    BeforeDeletion,
}

impl Rehearsal {
    /// A cluster of these objects. Pods without a node take no part.
    pub(super) fn new(settings: Settings, events: impl Iterator<Item = Event>, now_ms: u64) -> Self {
        let has_node = |event: &Event| !matches!(event, Event::Pod(pod) if pod.node.is_none());
        let events: Vec<Event> = events.filter(has_node).collect();
        let core = core_of(settings.clone(), &events, now_ms);
        Self { settings, events, now_ms, done: Vec::new(), core }
    }

    /// The core after what is done.
    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    /// Plays a relocation in copies. Returns where pods really end.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn rehearse(&self, relocation: &Relocation, pod: &PodView) -> Result<Relocation, String> {
        let rehearsed = self.copy(0, Recreation::AfterDeletion, relocation, pod)?;
        self.copy(1, Recreation::BeforeDeletion, relocation, pod)?;
        Ok(rehearsed)
    }

    /// Carries a relocation out.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn carry_out(&mut self, relocation: Relocation, pod: &PodView) -> Result<Relocation, String> {
        let played = play(&mut self.core, &relocation, pod, Recreation::AfterDeletion, self.now_ms)?;
        self.done.push((relocation, pod.clone()));
        Ok(played)
    }

    /// Plays a relocation after what is done in a core of its own.
    fn copy(
        &self,
        seed: u64,
        recreation: Recreation,
        relocation: &Relocation,
        pod: &PodView,
    ) -> Result<Relocation, String> {
        let settings = Settings { seed: self.settings.seed.wrapping_add(seed), ..self.settings.clone() };
        let mut core = core_of(settings, &self.events, self.now_ms);
        for (relocation, pod) in &self.done {
            play(&mut core, relocation, pod, recreation, self.now_ms)?;
        }
        play(&mut core, relocation, pod, recreation, self.now_ms)
    }
}

/// A core that knows these objects.
fn core_of(settings: Settings, events: &[Event], now_ms: u64) -> Core {
    let mut core = Core::new(settings);
    events.iter().for_each(|event| core.handle(event.clone(), now_ms));
    core
}

fn play(
    core: &mut Core,
    relocation: &Relocation,
    pod: &PodView,
    recreation: Recreation,
    now_ms: u64,
) -> Result<Relocation, String> {
    let mut moves = Vec::with_capacity(relocation.moves.len());
    let mut cordoned = CordonedNodes::default();
    for Move { pod, from, to } in &relocation.moves {
        cordoned.uncordon_all(core, now_ms);
        nodes_to_cordon((from, to), &relocation.node).for_each(|node| cordoned.cordon(core, node, now_ms));
        let leaving = core.pod_with_uid(&pod.uid).cloned();
        let leaving = leaving.ok_or_else(|| format!("{} is gone", pod.key()))?;
        let again = recreated(&leaving, now_ms);
        let (mut deleting, mut gone) = (leaving.clone(), leaving);
        deleting.progress.deleting = true;
        (gone.progress.deleting, gone.progress.stopped) = (true, true);
        let to = match recreation {
            Recreation::AfterDeletion => {
                core.handle(Event::PodGone(gone), now_ms);
                place(core, again, now_ms)
            }
            Recreation::BeforeDeletion => {
                core.handle(Event::Pod(deleting), now_ms);
                let to = place(core, again, now_ms);
                core.handle(Event::PodGone(gone), now_ms);
                to
            }
        };
        let to = to.map_err(|reason| format!("{} finds no other node: {reason}", pod.key()))?;
        moves.push(Move { pod: pod.clone(), from: Arc::clone(from), to });
    }
    cordoned.uncordon_all(core, now_ms);
    let node = place(core, pod.clone(), now_ms)?;
    Ok(Relocation { moves, node })
}

/// The nodes that are cordoned during a move: nothing comes back to the node that it leaves, or takes the room on the
/// node where it is made, unless the pod itself is to go there.
pub(super) fn nodes_to_cordon<'a>(
    (from, to): (&'a Arc<str>, &'a Arc<str>),
    room: &'a Arc<str>,
) -> impl Iterator<Item = &'a Arc<str>> {
    std::iter::once(from).chain((room != from && room != to).then_some(room))
}

/// Nodes that are cordoned here.
#[derive(Default)]
struct CordonedNodes(BTreeSet<Arc<str>>);

impl CordonedNodes {
    fn cordon(&mut self, core: &mut Core, node: &Arc<str>, now_ms: u64) {
        if set_unschedulable(core, node, true, now_ms) {
            self.0.insert(Arc::clone(node));
        }
    }

    fn uncordon_all(&mut self, core: &mut Core, now_ms: u64) {
        for node in std::mem::take(&mut self.0) {
            set_unschedulable(core, &node, false, now_ms);
        }
    }
}

/// Returns whether that is a change.
fn set_unschedulable(core: &mut Core, node: &str, unschedulable: bool, now_ms: u64) -> bool {
    let view = core.node_named(node).and_then(|node| node.view.as_ref());
    let Some(view) = view.filter(|view| view.unschedulable != unschedulable) else { return false };
    let view = NodeView { unschedulable, ..view.clone() };
    core.handle(Event::Node(view), now_ms);
    true
}
