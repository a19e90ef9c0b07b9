//! The world, between the watches that keep it true and the controllers that read it.
//!
//! In: what the watches and the answers of our own writes say. Out: a look at it, and a call to those controllers it matters to. Never: a wait
//! while it is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::BitOr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;

use crate::change::owner::{self, Belongs};
use crate::desired::Controller;
use crate::world::World;
use objects::ObjectKey;

/// A set of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake(u8);

/// The world and who looks at it. One for the process.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    calls: [Notify; Controller::ALL.len()],
    /// Whoever follows the controller of the exporters.
    looks: Notify,
}

#[derive(Debug)]
struct State {
    world: World,
    /// What each controller wanted when it looked last.
    wanted: BTreeMap<Controller, BTreeSet<ObjectKey>>,
    /// What each controller could not do.
    errors: BTreeMap<Controller, Vec<String>>,
}

impl Wake {
    /// No controller.
    pub const NOBODY: Self = Self(0);
    /// All controllers.
    pub const ALL: Self = Self(0b111);

    /// Whether this one is among them.
    #[must_use]
    pub fn contains(self, controller: Controller) -> bool {
        self.0 & Self::from(controller).0 != 0
    }
}

impl From<Controller> for Wake {
    fn from(controller: Controller) -> Self {
        Self(1 << place(controller))
    }
}

impl BitOr for Wake {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Controller> for Wake {
    fn from_iter<I: IntoIterator<Item = Controller>>(controllers: I) -> Self {
        controllers.into_iter().fold(Self::NOBODY, |wake, controller| wake | controller.into())
    }
}

impl Shared {
    /// Shares a world.
    #[must_use]
    pub fn new(world: World) -> Arc<Self> {
        let state = State { world, wanted: BTreeMap::new(), errors: BTreeMap::new() };
        Arc::new(Self {
            state: Mutex::new(state),
            calls: [const { Notify::const_new() }; 3],
            looks: Notify::new(),
        })
    }

    /// Looks at the world; nobody else can meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.state().world)
    }

    /// Changes the world. The change says which controllers it matters to, and those are woken.
    ///
    /// For objects in [`World::live`] there are [`Self::saw`] and [`Self::gone`], which know that by themselves.
    pub fn update(&self, change: impl FnOnce(&mut World) -> Wake) {
        let wake = change(&mut self.state().world);
        self.wake(wake);
    }

    /// An object that may be ours is like this. Older news than what is known is dropped.
    pub fn saw(&self, key: ObjectKey, body: Value) {
        let mut state = self.state();
        let before = state.world.live.get(&key).map(|body| state.concerned(&key, body));
        let now = state.concerned(&key, &body);
        if state.world.live.observe(key, body) {
            drop(state);
            self.wake(now | before.unwrap_or_default());
        }
    }

    /// It is no longer there; `body` is what it was at the end. Older news than what is known is dropped.
    pub fn gone(&self, key: &ObjectKey, body: &Value) {
        let mut state = self.state();
        let wake = state.concerned(key, body);
        if state.world.live.observe_deletion(key, body) {
            drop(state);
            self.wake(wake);
        }
    }

    /// Has controllers look again.
    pub fn wake(&self, wake: Wake) {
        for controller in Controller::ALL.into_iter().filter(|&controller| wake.contains(controller)) {
            self.calls[place(controller)].notify_one();
        }
    }

    /// Waits until a controller is woken; at once if it has been since it was asked last.
    pub(crate) async fn woken(&self, controller: Controller) {
        self.calls[place(controller)].notified().await;
    }

    /// Waits until the controller of the exporters has looked; at once if it has since that was asked last.
    pub(crate) async fn looked(&self) {
        self.looks.notified().await;
    }

    /// It has.
    pub(crate) fn has_looked(&self) {
        self.looks.notify_one();
    }

    /// Notes what a controller wants, so that it hears of it whoever owns that.
    pub(crate) fn wants(&self, controller: Controller, keys: BTreeSet<ObjectKey>) {
        self.state().wanted.insert(controller, keys);
    }

    /// Notes what a controller could not do; whether that is something new.
    pub(crate) fn failed(&self, controller: Controller, errors: &[String]) -> bool {
        let before = self.state().errors.insert(controller, errors.to_vec());
        before.unwrap_or_default() != errors
    }

    /// What a controller could not do.
    pub(crate) fn errors(&self, controller: Controller) -> Vec<String> {
        self.state().errors.get(&controller).cloned().unwrap_or_default()
    }

    /// Notes the answer to a write of ours: whoever made it knows of it.
    pub(crate) fn wrote(&self, key: ObjectKey, body: Value) {
        self.state().world.live.observe(key, body);
    }

    /// Notes that we found it gone.
    pub(crate) fn deleted(&self, key: &ObjectKey, uid: &str) {
        let live = &mut self.state().world.live;
        if live.get(key).is_some_and(|known| known["metadata"]["uid"] == uid) {
            live.remove(key);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A look that panicked has changed nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whom an object matters to.
    fn concerned(&self, key: &ObjectKey, body: &Value) -> Wake {
        let wanted = self.wanted.iter().filter(|(_, keys)| keys.contains(key));
        let wanted: Wake = wanted.map(|(&controller, _)| controller).collect();
        let belongs = match owner::belongs(key, body) {
            Belongs::To(controller) => controller.into(),
            Belongs::Orphan => Wake::ALL,
            Belongs::Nobody => Wake::NOBODY,
        };
        wanted | belongs
    }
}

fn place(controller: Controller) -> usize {
    match controller {
        Controller::NumaResourcesOperator => 0,
        Controller::NumaResourcesScheduler => 1,
        Controller::KubeletConfig => 2,
    }
}
