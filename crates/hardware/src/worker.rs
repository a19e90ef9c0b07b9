//! Reconciles of DeviceConfigs: plan, execute, write the status.
//!
//! In: keys of the queue. Out: writes, statuses, events, requeues. Never: a write where nothing differs; the same
//! refused write again and again.
//!
//! A reconcile plans and executes until nothing is left to do; then it writes the status. A failed action is left out
//! until its retry: soon, if it may succeed by itself, else with pauses that grow to five minutes, unless its content
//! changes.

use std::time::Duration;

use api::hardware::{self, Status};
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use objects::controller::{Reason, Reconciler, Requeue, Retry, RetryState};
use runtime::events::{Event, Recorder, Subject};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::claim::Id;
use super::cluster_state::{ClusterState, Key};
use super::execute::{Executor, Fault};
use super::metrics::Metrics;
use super::plan::{self, Action, orphan, plan};
use super::status::awaited::{Waits, awaited};
use super::status::overdue::overdue;
use super::status::{Failure, StatusInputs, events, status};

/// Nodes that are written at the same time for one DeviceConfig.
const NODES: usize = 8;
/// Rounds of one reconcile: far more than any plan needs.
const ROUNDS: usize = 12;
/// Pauses before actions that may succeed by themselves are retried, and before a status is.
const SOON: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// Pauses before refused actions are retried.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Dependencies of Modules are not watched; they are verified again after this time.
const RESYNC: Duration = Duration::from_secs(600);
/// The pause between clean-ups for a DeviceConfig that is gone: no watch reports when one can succeed.
const ORPHANS: Duration = Duration::from_secs(1);
/// The pause after a write that found the cluster state out of date.
const STALE: Duration = Duration::from_millis(200);

/// Reconciles DeviceConfigs.
pub struct Worker {
    /// Executes actions.
    pub executor: Executor,
    /// The recipient of events.
    pub recorder: Recorder,
    /// Metrics of reconciles and writes.
    pub metrics: Metrics,
    /// How long nodes may take before that is a problem.
    pub patience: Duration,
}

/// What is remembered of a DeviceConfig between reconciles.
#[derive(Debug)]
pub struct State {
    actions: RetryState<Action, Failure>,
    status: Retry,
    /// Dependencies of the Module that were verified to exist, or to be gone.
    ensured: Vec<Action>,
    ensured_at: Instant,
    /// Awaited changes, with the time since when.
    waits: Waits,
    /// The time by which evicted pods should be gone.
    overdue: Option<Instant>,
}

/// A DeviceConfig as a reconcile finds it.
struct Assessment {
    actions: Vec<Action>,
    status: Status,
    known: Status,
    uid: String,
    /// Nothing of ours is left, and its status is not ours to write.
    gone: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            actions: RetryState::default(),
            status: Retry::new(SOON),
            ensured: Vec::new(),
            ensured_at: Instant::now(),
            waits: Waits::default(),
            overdue: None,
        }
    }
}

impl State {
    /// Whether an action is left out now.
    fn leaves_out(&self, action: &Action, now: Instant) -> bool {
        self.ensured.contains(action) || self.actions.is_waiting(action, now) || self.is_too_early(action)
    }

    /// The finalizer is removed last: not while another action fails.
    fn is_too_early(&self, action: &Action) -> bool {
        *action == Action::Finalizer(false) && self.actions.actions().any(|(failed, _)| failed != action)
    }

    /// Takes in the result of an action.
    fn note(&mut self, action: &Action, result: Result<(), Fault>, now: Instant) {
        match result {
            Ok(()) => {
                self.actions.succeeded(action);
                if matches!(action, Action::Ensure(..) | Action::Remove(..)) {
                    self.ensured.push(action.clone());
                }
            }
            Err(Fault::Stale) => self.actions.postponed(action, STALE, false, now),
            Err(Fault::Later(delay)) => self.actions.postponed(action, delay, true, now),
            Err(Fault::Failed { failure, soon }) => {
                self.actions.failed(action, failure, if soon { SOON } else { REFUSED }, now);
            }
        }
    }

    /// Forgets actions that are no longer planned.
    fn retain(&mut self, planned: &[Action]) {
        self.actions.retain(|action| planned.contains(action));
        self.ensured.retain(|action| planned.contains(action));
    }

    fn failures(&self) -> Vec<Failure> {
        self.actions.actions().filter_map(|(_, failure)| failure.cloned()).collect()
    }

    fn module_refused(&self) -> bool {
        let mut failed = self.actions.actions();
        failed.any(|(action, failure)| matches!(action, Action::Apply(..)) && failure.is_some())
    }

    /// The time of the next try of an action that is not too early.
    fn next_try(&self) -> Option<Instant> {
        self.actions.next(|action| !self.is_too_early(action))
    }
}

impl Reconciler for Worker {
    type Key = Key;
    type State = State;

    fn is_ready(&self) -> bool {
        self.executor.shared.read(ClusterState::is_complete)
    }

    async fn reconcile(&self, key: &Key, state: &mut State) -> Requeue {
        let began = Instant::now();
        let requeue = match key {
            Key::Config(id) => self.reconcile_config(id, state).await,
            Key::Orphan(claim) => self.clean_up(claim, state).await,
        };
        self.metrics.round(began.elapsed());
        requeue
    }
}

impl Worker {
    async fn reconcile_config(&self, id: &Id, state: &mut State) -> Requeue {
        if state.ensured_at.elapsed() > RESYNC {
            state.ensured.clear();
            state.ensured_at = Instant::now();
        }
        let mut rounds = 0;
        loop {
            let now = Instant::now();
            let Some(found) = self.assess(id, state, now) else { return Requeue::forget() };
            let left_out = |action: &&Action| !state.leaves_out(action, now);
            let actions: Vec<Action> = found.actions.iter().filter(left_out).cloned().collect();
            if actions.is_empty() {
                self.write_status(id, found, state).await;
                return self.requeue(state);
            }
            if rounds == ROUNDS {
                debug!(deviceconfig = %id, "actions are left; requeued");
                return self.requeue(state).at(Reason::Failed, now);
            }
            if self.execute(id, &actions, state).await {
                return Requeue::forget();
            }
            rounds += 1;
        }
    }

    fn requeue(&self, state: &State) -> Requeue {
        let resync = (!state.ensured.is_empty()).then(|| state.ensured_at + RESYNC);
        Requeue::await_change()
            .at(Reason::Failed, state.next_try())
            .at(Reason::Failed, state.status.next())
            .at(Reason::Resync, resync)
            .at(Reason::Deadline, state.waits.next(self.patience, Instant::now()))
            .at(Reason::Deadline, state.overdue)
    }

    /// Executes actions. Returns whether our finalizer was removed, after which nothing of ours is left.
    async fn execute(&self, id: &Id, actions: &[Action], state: &mut State) -> bool {
        let is_on_node = |action: &&Action| matches!(action, Action::Node(_) | Action::Evict { .. });
        let was_refused = state.module_refused();
        for action in actions.iter().filter(|action| !is_on_node(action)) {
            if state.is_too_early(action) {
                continue;
            }
            let result = self.executor.execute(id, action).await;
            let succeeded = result.is_ok();
            self.note(id, action, result, state);
            if succeeded && *action == Action::Finalizer(false) {
                info!(deviceconfig = %id, "nothing of the DeviceConfig is left");
                return true;
            }
        }
        // Plans for nodes count on the Module.
        if state.module_refused() && !was_refused {
            return false;
        }
        let nodes: Vec<Action> = actions.iter().filter(is_on_node).cloned().collect();
        let execute = |action: Action| async move { (self.executor.execute(id, &action).await, action) };
        let mut running = stream::iter(nodes).map(execute).buffer_unordered(NODES);
        while let Some((result, action)) = running.next().await {
            self.note(id, &action, result, state);
        }
        false
    }

    fn note(&self, id: &Id, action: &Action, result: Result<(), Fault>, state: &mut State) {
        self.metrics.wrote(action, result.as_ref().err());
        if let Err(Fault::Failed { failure, .. }) = &result {
            warn!(deviceconfig = %id, error = failure.text, "an action failed; it is retried later");
        }
        state.note(action, result, Instant::now());
    }

    /// Plans, and derives the status. `None`: the DeviceConfig is gone.
    fn assess(&self, id: &Id, state: &mut State, now: Instant) -> Option<Assessment> {
        self.executor.shared.read(|cluster| {
            let config = cluster.configs.get(id)?;
            let plan = plan(cluster, config, state.module_refused());
            state.retain(&plan.actions);
            state.waits.turn(awaited(cluster, config, &plan), now);
            let late = state.waits.late(self.patience, now);
            let time = Timestamp::now();
            let (overdue, next) = overdue(config, &plan, time);
            state.overdue = next.map(|left| now + left);
            let inputs = StatusInputs { errors: state.failures(), late, overdue };
            let metadata = &config.object.metadata;
            Some(Assessment {
                status: status(cluster, config, &plan, &inputs, time),
                known: config.object.status.clone(),
                uid: metadata.uid.clone().unwrap_or_default(),
                gone: plan.state == plan::State::Gone,
                actions: plan.actions,
            })
        })
    }

    /// Writes the status if it differs, and records an event for each condition that turned.
    async fn write_status(&self, id: &Id, found: Assessment, state: &mut State) {
        if found.gone {
            return;
        }
        let result = match self.executor.write_status(id, &found.uid, &found.known, &found.status).await {
            Err(_) if self.is_gone(id) => Err(Fault::Stale),
            result => result,
        };
        if result != Ok(false) {
            self.metrics.status(result.as_ref().err());
        }
        match result {
            Ok(written) => {
                state.status.succeeded();
                if written {
                    self.record(id, &found);
                }
            }
            Err(Fault::Failed { failure, .. }) => {
                warn!(deviceconfig = %id, error = failure.text, "the status was not written; it is retried later");
                state.status.failed(Instant::now());
            }
            Err(Fault::Stale | Fault::Later(_)) => state.status.postponed(Instant::now(), STALE),
        }
    }

    fn is_gone(&self, id: &Id) -> bool {
        self.executor.shared.read(|cluster| !cluster.configs.contains_key(id))
    }

    fn record(&self, id: &Id, found: &Assessment) {
        for turn in events::turns(&found.known, &found.status) {
            info!(deviceconfig = %id, reason = turn.reason, note = turn.note, "a condition turned");
            self.recorder.record(Event {
                regarding: Subject {
                    api_version: format!("{}/{}", hardware::GROUP, hardware::VERSION),
                    kind: hardware::KIND.to_owned(),
                    namespace: id.namespace.clone(),
                    name: id.name.clone(),
                    uid: found.uid.clone(),
                },
                related: None,
                severity: turn.severity,
                reason: turn.reason,
                action: "Reconciling".to_owned(),
                note: turn.note,
            });
        }
    }

    /// Cleans up for a DeviceConfig that is gone.
    async fn clean_up(&self, claim: &str, state: &mut State) -> Requeue {
        *state = State::default();
        if self.is_cleaned_up(claim, state).await {
            return Requeue::forget();
        }
        let next = Instant::now() + ORPHANS;
        Requeue::await_change().at(Reason::Resync, next).not_before(next)
    }

    /// Removes what an orphaned claim left. Returns whether there is no need to come back.
    async fn is_cleaned_up(&self, claim: &str, state: &mut State) -> bool {
        let is_orphan = |cluster: &ClusterState| cluster.orphans().contains(claim);
        let shared = &self.executor.shared;
        // A Module that is being deleted is only awaited.
        if shared.read(|cluster| is_orphan(cluster) && orphan(cluster, claim).is_empty()) {
            return false;
        }
        match self.executor.is_claimed(claim).await {
            Ok(false) => {}
            // The DeviceConfig exists; the watch will report it.
            Ok(true) => return true,
            Err(fault) => {
                state.note(&Action::Finalizer(false), Err(fault), Instant::now());
                return false;
            }
        }
        for _ in 0..ROUNDS {
            let actions = shared.read(|cluster| {
                let has_owner = cluster.claims.owner(claim).is_some();
                if has_owner { Vec::new() } else { orphan(cluster, claim) }
            });
            let is_last = actions.iter().all(|action| matches!(action, Action::Remove(..)));
            self.execute(&Id::default(), &actions, state).await;
            if is_last || !state.actions.is_empty() {
                break;
            }
        }
        let done = state.actions.is_empty() && !shared.read(is_orphan);
        if done {
            info!(claim, "cleaned up after a DeviceConfig that is gone");
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
    use objects::ObjectKind;

    use super::*;

    #[test]
    fn the_finalizer_waits_for_failed_actions() {
        let fault =
            || Fault::Failed { failure: Failure { module: false, text: "denied".to_owned() }, soon: false };
        let (now, mut state) = (Instant::now(), State::default());
        let account = Action::Remove(ObjectKind::of::<ServiceAccount>(), Id::new("hw", "a"));
        let map = Action::Remove(ObjectKind::of::<ConfigMap>(), Id::new("hw", "m"));
        let finalizer = Action::Finalizer(false);
        let all = [account.clone(), map.clone(), finalizer.clone()];
        let left = |state: &State, now| -> Vec<Action> {
            all.iter().filter(|action| !state.leaves_out(action, now)).cloned().collect()
        };
        assert_eq!(left(&state, now), all);
        state.note(&account, Err(fault()), now);
        state.note(&map, Ok(()), now);
        assert_eq!(left(&state, now), []);
        assert_eq!(state.failures().len(), 1);
        let later = now + REFUSED.1;
        assert_eq!(left(&state, later), all[..1]);
        state.note(&account, Ok(()), later);
        assert_eq!(left(&state, later), [Action::Finalizer(false)]);
        // A failure of its own does not keep it for ever.
        state.note(&finalizer, Err(fault()), later);
        assert_eq!(left(&state, later), []);
        assert_eq!(left(&state, later + REFUSED.1), [Action::Finalizer(false)]);
        // While another action fails its slot does not requeue.
        state.note(&account, Err(fault()), later + REFUSED.1);
        assert!(state.next_try().is_some_and(|next| next > later + REFUSED.1));
    }
}
