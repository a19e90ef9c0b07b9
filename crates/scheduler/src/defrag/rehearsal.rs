//! A relocation played through by a core of its own: what is planned must be what the scheduler does.
//!
//! In: the objects of a cluster, relocations. Out: where each pod ends, or the first step that fails. Never: the core
//! that serves a cluster.
//!
//! While pods move, the nodes that they leave are closed, as [`super::apply`] closes them. A controller may make its
//! pod again before the old one is gone, or after; both are tried, with different ties among equal nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::capacity::place;
use crate::core::relocation::{Move, Relocation, made_again};
use crate::core::{Core, Event, Settings};
use crate::node::NodeView;
use crate::pod::PodView;

/// A cluster that changes by relocations.
pub(super) struct Cluster {
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
enum Controller {
    AfterwardsAgain,
    BeforehandAgain,
}

impl Cluster {
    /// A cluster of these objects. Pods without a node take no part.
    pub(super) fn new(settings: Settings, events: impl Iterator<Item = Event>, now_ms: u64) -> Self {
        let has_node = |event: &Event| !matches!(event, Event::Pod(pod) if pod.node.is_none());
        let core = Core::new(settings.clone());
        let mut cluster =
            Self { settings, events: events.filter(has_node).collect(), now_ms, done: Vec::new(), core };
        cluster.events.iter().for_each(|event| cluster.core.handle(event.clone(), now_ms));
        cluster
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
        let rehearsed = self.copy(0, Controller::AfterwardsAgain, relocation, pod)?;
        self.copy(1, Controller::BeforehandAgain, relocation, pod)?;
        Ok(rehearsed)
    }

    /// Carries a relocation out.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn carry_out(&mut self, relocation: Relocation, pod: &PodView) -> Result<Relocation, String> {
        let played = play(&mut self.core, &relocation, pod, Controller::AfterwardsAgain, self.now_ms)?;
        self.done.push((relocation, pod.clone()));
        Ok(played)
    }

    /// Plays a relocation after what is done in a core of its own.
    fn copy(
        &self,
        seed: u64,
        controller: Controller,
        relocation: &Relocation,
        pod: &PodView,
    ) -> Result<Relocation, String> {
        let settings = Settings { seed: self.settings.seed.wrapping_add(seed), ..self.settings.clone() };
        let mut core = Core::new(settings);
        self.events.iter().for_each(|event| core.handle(event.clone(), self.now_ms));
        for (relocation, pod) in &self.done {
            play(&mut core, relocation, pod, controller, self.now_ms)?;
        }
        play(&mut core, relocation, pod, controller, self.now_ms)
    }
}

fn play(
    core: &mut Core,
    relocation: &Relocation,
    pod: &PodView,
    controller: Controller,
    now_ms: u64,
) -> Result<Relocation, String> {
    let mut moves = Vec::with_capacity(relocation.moves.len());
    let mut closed = Closed::default();
    for Move { pod, from, to } in &relocation.moves {
        closed.open_all(core, now_ms);
        nodes_to_close((from, to), &relocation.node).for_each(|node| closed.close(core, node, now_ms));
        let leaving = core.pod_with_uid(&pod.uid).cloned();
        let leaving = leaving.ok_or_else(|| format!("{} is gone", pod.key()))?;
        let again = made_again(&leaving, now_ms);
        let (mut deleting, mut gone) = (leaving.clone(), leaving);
        deleting.progress.deleting = true;
        (gone.progress.deleting, gone.progress.stopped) = (true, true);
        let to = match controller {
            Controller::AfterwardsAgain => {
                core.handle(Event::PodGone(gone), now_ms);
                place(core, again, now_ms)
            }
            Controller::BeforehandAgain => {
                core.handle(Event::Pod(deleting), now_ms);
                let to = place(core, again, now_ms);
                core.handle(Event::PodGone(gone), now_ms);
                to
            }
        };
        let to = to.map_err(|reason| format!("{} finds no other node: {reason}", pod.key()))?;
        moves.push(Move { pod: pod.clone(), from: Arc::clone(from), to });
    }
    closed.open_all(core, now_ms);
    let node = place(core, pod.clone(), now_ms)?;
    Ok(Relocation { moves, node })
}

/// The nodes that are closed during a move: nothing comes back to the node that it leaves, or takes the room on the
/// node where it is made, unless the pod itself is to go there.
pub(super) fn nodes_to_close<'a>(
    (from, to): (&'a Arc<str>, &'a Arc<str>),
    room: &'a Arc<str>,
) -> impl Iterator<Item = &'a Arc<str>> {
    std::iter::once(from).chain((room != from && room != to).then_some(room))
}

/// Nodes that were closed to new pods here.
#[derive(Default)]
struct Closed(BTreeSet<Arc<str>>);

impl Closed {
    fn close(&mut self, core: &mut Core, node: &Arc<str>, now_ms: u64) {
        if set_unschedulable(core, node, true, now_ms) {
            self.0.insert(Arc::clone(node));
        }
    }

    fn open_all(&mut self, core: &mut Core, now_ms: u64) {
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
