//! Reconciles of DeviceConfigs: plan, execute, write the status.
//!
//! In: keys of the queue. Out: writes, statuses, events, requeues. Never: a write without a difference; the same
//! refused write without a pause.
//!
//! A reconcile plans and executes until no action is left; then it writes the status. A failed action is skipped until
//! its retry: soon, if it may succeed by itself, else after pauses that grow to five minutes, unless its content
//! changes.

use std::time::Duration;

use api::hardware::{self, Status};
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use objects::controller::{Reason, Reconciler, Requeue, Retry, RetryState};
use runtime::events::{Event, Recorder, Subject};
use runtime::status::Transition;
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

/// Concurrent writes of nodes for one DeviceConfig.
const NODES: usize = 8;
/// The most rounds of one reconcile, far more than any plan needs.
const ROUNDS: usize = 12;
/// Pauses before retries of actions that may succeed by themselves, and of the status.
const SOON: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// Pauses before retries of refused actions.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The time after which dependencies of Modules, which are not watched, are verified again.
const RESYNC: Duration = Duration::from_secs(600);
/// The pause between clean-ups for a DeviceConfig that is gone; no watch reports when one can succeed.
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
    /// The time that a change of a node may take before it is reported as a problem.
    pub patience: Duration,
}

/// The state of a DeviceConfig between reconciles.
#[derive(Debug)]
pub struct State {
    actions: RetryState<Action, Failure>,
    status: Retry,
    /// Dependencies of the Module that are verified to exist, or to be gone.
    ensured: Vec<Action>,
    ensured_at: Instant,
    /// Awaited changes, with the time since when.
    waits: Waits,
    /// The time by which evicted pods should be gone.
    overdue: Option<Instant>,
}

/// The plan and the status for a DeviceConfig.
struct Assessment {
    actions: Vec<Action>,
    status: Status,
    known: Status,
    uid: String,
    /// The finalizer is removed: the status is not written any more.
    released: bool,
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
    /// Whether an action is not to be executed now.
    fn is_skipped(&self, action: &Action, now: Instant) -> bool {
        self.ensured.contains(action) || self.actions.is_waiting(action, now) || self.is_too_early(action)
    }

    /// Whether this removes the finalizer while another action fails.
    fn is_too_early(&self, action: &Action) -> bool {
        *action == Action::Finalizer(false) && self.actions.actions().any(|(failed, _)| failed != action)
    }

    /// Records the result of an action.
    fn record_result(&mut self, action: &Action, result: Result<(), Fault>, now: Instant) {
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
            let is_due = |action: &&Action| !state.is_skipped(action, now);
            let actions: Vec<Action> = found.actions.iter().filter(is_due).cloned().collect();
            if actions.is_empty() {
                self.write_status(id, found, state).await;
                return self.requeue(state);
            }
            if rounds == ROUNDS {
                debug!(deviceconfig = %id, "more actions than one reconcile executes; requeued");
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

    /// Executes actions. Returns whether the finalizer was removed.
    async fn execute(&self, id: &Id, actions: &[Action], state: &mut State) -> bool {
        let is_on_node = |action: &&Action| matches!(action, Action::Node(_) | Action::Evict(..));
        let was_refused = state.module_refused();
        for action in actions.iter().filter(|action| !is_on_node(action)) {
            if state.is_too_early(action) {
                continue;
            }
            let result = self.executor.execute(id, action).await;
            let succeeded = result.is_ok();
            self.record_result(id, action, result, state);
            if succeeded && *action == Action::Finalizer(false) {
                info!(deviceconfig = %id, "the DeviceConfig is cleaned up; its finalizer is removed");
                return true;
            }
        }
        // The plans for nodes rely on the Module.
        if state.module_refused() && !was_refused {
            return false;
        }
        let nodes: Vec<Action> = actions.iter().filter(is_on_node).cloned().collect();
        let execute = |action: Action| async move { (self.executor.execute(id, &action).await, action) };
        let mut running = stream::iter(nodes).map(execute).buffer_unordered(NODES);
        while let Some((result, action)) = running.next().await {
            self.record_result(id, &action, result, state);
        }
        false
    }

    fn record_result(&self, id: &Id, action: &Action, result: Result<(), Fault>, state: &mut State) {
        self.metrics.action(action, result.as_ref().err());
        if let Err(Fault::Failed { failure, .. }) = &result {
            warn!(deviceconfig = %id, error = failure.text, "an action failed; it is retried later");
        }
        state.record_result(action, result, Instant::now());
    }

    /// Makes the plan and the status; `None`: the DeviceConfig is gone.
    fn assess(&self, id: &Id, state: &mut State, now: Instant) -> Option<Assessment> {
        self.executor.shared.read(|cluster| {
            let config = cluster.configs.get(id)?;
            let plan = plan(cluster, config, state.module_refused());
            state.retain(&plan.actions);
            state.waits.update(awaited(cluster, config, &plan), now);
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
                released: plan.state == plan::ConfigState::Released,
                actions: plan.actions,
            })
        })
    }

    /// Writes the status if it differs, and records an event for each transition.
    async fn write_status(&self, id: &Id, found: Assessment, state: &mut State) {
        if found.released {
            return;
        }
        let result = match self.executor.write_status(id, &found.uid, &found.known, &found.status).await {
            Err(_) if self.is_gone(id) => Err(Fault::Stale),
            result => result,
        };
        if result != Ok(false) {
            self.metrics.write("status", result.as_ref().err());
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
        for transition in events::transitions(&found.known, &found.status) {
            let Transition { severity, reason, note } = transition;
            info!(deviceconfig = %id, reason, note, "the status changed");
            self.recorder.record(Event {
                regarding: Subject {
                    api_version: format!("{}/{}", hardware::GROUP, hardware::VERSION),
                    kind: hardware::KIND.to_owned(),
                    namespace: id.namespace.clone(),
                    name: id.name.clone(),
                    uid: found.uid.clone(),
                },
                related: None,
                severity,
                reason,
                action: "Reconciling".to_owned(),
                note,
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

    /// Removes the objects and labels of an orphaned claim. Returns whether no further try is needed.
    async fn is_cleaned_up(&self, claim: &str, state: &mut State) -> bool {
        let is_orphan = |cluster: &ClusterState| cluster.orphans().contains(claim);
        let shared = &self.executor.shared;
        let waits = |cluster: &ClusterState| {
            cluster.claims.owner(claim).is_none() && orphan(cluster, claim).is_empty()
        };
        // Nothing to do but wait for KMM, which deletes the Module or unloads the driver.
        if shared.read(waits) {
            return false;
        }
        match self.executor.is_claimed(claim).await {
            Ok(false) => {}
            // The DeviceConfig exists; the watch will report it.
            Ok(true) => return true,
            Err(fault) => {
                state.record_result(&Action::Finalizer(false), Err(fault), Instant::now());
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
        let done = state.actions.is_empty() && !shared.read(|cluster| is_orphan(cluster) || waits(cluster));
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
        let due = |state: &State, now| -> Vec<Action> {
            all.iter().filter(|action| !state.is_skipped(action, now)).cloned().collect()
        };
        assert_eq!(due(&state, now), all);
        state.record_result(&account, Err(fault()), now);
        state.record_result(&map, Ok(()), now);
        assert_eq!(due(&state, now), []);
        assert_eq!(state.failures().len(), 1);
        let later = now + REFUSED.1;
        assert_eq!(due(&state, later), all[..1]);
        state.record_result(&account, Ok(()), later);
        assert_eq!(due(&state, later), [Action::Finalizer(false)]);
        // A failed removal of the finalizer is retried.
        state.record_result(&finalizer, Err(fault()), later);
        assert_eq!(due(&state, later), []);
        assert_eq!(due(&state, later + REFUSED.1), [Action::Finalizer(false)]);
        // While another action fails, the finalizer does not requeue.
        state.record_result(&account, Err(fault()), later + REFUSED.1);
        assert!(state.next_try().is_some_and(|next| next > later + REFUSED.1));
    }
}
