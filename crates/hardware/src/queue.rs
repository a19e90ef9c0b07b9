//! The queue by key: plans, executes, and requeues each DeviceConfig.
//!
//! In: a call that something is to be looked at. Out: the world as it is wanted, status, events. Never: one
//! DeviceConfig that holds up another; a write where nothing differs; the same refused write again and again.
//!
//! Each DeviceConfig is worked on by a task of its own, one at a time. A task plans, does, and plans again, until
//! nothing is left to do; then it writes the status. What failed is left out for this time and tried again later: soon,
//! if it may work by itself, else ever less often, up to five minutes, unless what is to be written changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::hardware::{self, Status};
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use runtime::backoff::Backoff;
use runtime::events::{Event, Recorder, Subject};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::claim::Id;
use super::cluster_state::{ClusterState, Key};
use super::execute::{Applier, Fault};
use super::metrics::Metrics;
use super::plan::{Action, orphan, plan};
use super::status::awaited::{Waits, awaited};
use super::status::overdue::overdue;
use super::status::{Failure, StatusInputs, events, status};

/// Changes that arrive within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(20);
/// DeviceConfigs that are worked on at the same time.
const PARALLEL: usize = 16;
/// Nodes that are written at the same time for one of them.
const NODES: usize = 8;
/// Rounds of one task: far more than anything needs.
const ROUNDS: usize = 12;
/// Between tries of what may work by itself.
const SOON: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// Between tries of what was refused.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// What Modules stand on is not watched; it is looked at again after this time.
const RESYNC: Duration = Duration::from_secs(600);
/// How often it is looked whether something of one that is gone can be cleaned up.
const ORPHANS: Duration = Duration::from_secs(1);
/// How soon the world is looked at again when a write found it changed.
const STALE: Duration = Duration::from_millis(200);

/// The worker.
pub struct Worker {
    /// Applies actions to the API server.
    pub hand: Applier,
    /// Who is told.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: Metrics,
    /// How long nodes may be on their way before that is a problem.
    pub patience: Duration,
}

/// Retries and waits of a DeviceConfig between tasks.
#[derive(Debug)]
struct RetryState {
    /// What went wrong, and when it is tried again.
    failed: Vec<Failed>,
    /// What Modules stand on that was seen to be there, or to be gone.
    ensured: Vec<Action>,
    ensured_at: Instant,
    /// What is waited for, since when.
    waits: Waits,
    /// When pods that were asked to go should be gone.
    overdue: Option<Instant>,
    /// When to look again, whatever happens.
    due: Option<Instant>,
}

/// Something that was not done.
#[derive(Debug)]
struct Failed {
    what: Action,
    failure: Option<Failure>,
    backoff: Backoff,
    next: Instant,
}

/// A task that ended.
struct Ended {
    key: Key,
    retry: RetryState,
    gone: bool,
}

impl Default for RetryState {
    fn default() -> Self {
        Self {
            failed: Vec::new(),
            ensured: Vec::new(),
            ensured_at: Instant::now(),
            waits: Waits::default(),
            overdue: None,
            due: None,
        }
    }
}

impl RetryState {
    /// Whether this is to be left out now.
    fn leaves_out(&self, one: &Action, now: Instant) -> bool {
        self.ensured.contains(one)
            || self.failed.iter().any(|failed| failed.what == *one && now < failed.next)
            || self.is_too_early(one)
    }

    /// The finalizer is the last: it stays while something else could not be done.
    fn is_too_early(&self, one: &Action) -> bool {
        *one == Action::Finalizer(false) && self.failed.iter().any(|failed| failed.what != *one)
    }

    fn note(&mut self, one: &Action, result: Result<(), Fault>, now: Instant) {
        let place = self.failed.iter().position(|failed| failed.what == *one);
        let fault = match result {
            Ok(()) => {
                self.failed.retain(|failed| failed.what != *one);
                if matches!(one, Action::Ensure(..) | Action::Remove(..)) {
                    self.ensured.push(one.clone());
                }
                return;
            }
            Err(fault) => fault,
        };
        let limits = match &fault {
            Fault::Failed { soon: false, .. } => REFUSED,
            _ => SOON,
        };
        let mut failed = place.map(|place| self.failed.remove(place)).unwrap_or_else(|| Failed {
            what: one.clone(),
            failure: None,
            backoff: Backoff::new(limits.0, limits.1),
            next: now,
        });
        let delay = match fault {
            Fault::Stale => STALE,
            Fault::Later(delay) => {
                failed.failure = None;
                delay
            }
            Fault::Failed { failure, .. } => {
                failed.failure = Some(failure);
                failed.backoff.next_delay()
            }
        };
        failed.next = now + delay;
        self.failed.push(failed);
    }

    /// Forgets actions that are no longer planned.
    fn keep(&mut self, doing: &[Action]) {
        self.failed.retain(|failed| doing.contains(&failed.what));
        self.ensured.retain(|one| doing.contains(one));
    }

    fn errors(&self) -> Vec<Failure> {
        self.failed.iter().filter_map(|failed| failed.failure.clone()).collect()
    }

    fn module_refused(&self) -> bool {
        self.failed.iter().any(|failed| matches!(failed.what, Action::Apply(..)) && failed.failure.is_some())
    }
}

impl Worker {
    /// Works until it is stopped; what is being written then may be written.
    pub async fn run(self, token: CancellationToken) {
        let worker = Arc::new(self);
        let mut retries: BTreeMap<Key, RetryState> = BTreeMap::new();
        let mut running: BTreeSet<Key> = BTreeSet::new();
        let mut due: BTreeSet<Key> = BTreeSet::new();
        let mut tasks: JoinSet<Ended> = JoinSet::new();
        loop {
            due.extend(worker.hand.shared.take());
            let now = Instant::now();
            let timed = retries.iter().filter(|(_, retry)| retry.due.is_some_and(|at| at <= now));
            due.extend(timed.map(|(key, _)| key.clone()));
            // What is left of one that is gone is looked at now and then: nothing tells whether that has become of use.
            let rests = |key: &Key| {
                matches!(key, Key::Orphan(_))
                    && retries.get(key).is_some_and(|retry| retry.due.is_some_and(|at| at > now))
            };
            let ready: Vec<Key> =
                due.iter().filter(|key| !running.contains(*key) && !rests(key)).cloned().collect();
            for key in ready.into_iter().take(PARALLEL.saturating_sub(running.len())) {
                due.remove(&key);
                running.insert(key.clone());
                let mut retry = retries.remove(&key).unwrap_or_default();
                retry.due = None;
                let worker = Arc::clone(&worker);
                tasks.spawn(async move { worker.task(key, retry).await });
            }
            let next = retries.values().filter_map(|retry| retry.due).min();
            let timer = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    let Ended { key, retry, gone } = match ended {
                        Ok(ended) => ended,
                        // A mistake of ours ends the process, as it does elsewhere.
                        Err(error) => match error.try_into_panic() {
                            Ok(panic) => std::panic::resume_unwind(panic),
                            Err(_) => continue,
                        },
                    };
                    running.remove(&key);
                    if !gone {
                        retries.insert(key, retry);
                    }
                }
                () = worker.hand.shared.called() => sleep(TOGETHER).await,
                () = timer => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn task(&self, key: Key, mut retry: RetryState) -> Ended {
        let began = Instant::now();
        let gone = match &key {
            Key::Config(id) => self.config(id, &mut retry).await,
            Key::Orphan(claim) => self.orphan(claim, &mut retry).await,
        };
        self.metrics.round(began.elapsed());
        let waits = retry.failed.iter().map(|failed| failed.next);
        let resync = (!retry.ensured.is_empty()).then(|| retry.ensured_at + RESYNC);
        let late = retry.waits.next(self.patience, Instant::now());
        retry.due = match &key {
            Key::Config(_) => waits.chain(resync).chain(late).chain(retry.overdue).min(),
            Key::Orphan(_) => Some(Instant::now() + ORPHANS),
        };
        Ended { key, retry, gone }
    }

    /// Works on a DeviceConfig; says whether it is gone.
    async fn config(&self, id: &Id, retry: &mut RetryState) -> bool {
        if retry.ensured_at.elapsed() > RESYNC {
            retry.ensured.clear();
            retry.ensured_at = Instant::now();
        }
        for _ in 0..ROUNDS {
            let now = Instant::now();
            let Some(look) = self.look(id, retry, now) else { return true };
            let doing: Vec<Action> =
                look.doing.iter().filter(|one| !retry.leaves_out(one, now)).cloned().collect();
            if doing.is_empty() {
                return self.tell(id, look, retry).await;
            }
            if self.perform(id, &doing, retry).await {
                return true;
            }
        }
        debug!(deviceconfig = %id, "there is still something to do; looking again soon");
        self.hand.shared.wake(id.clone());
        false
    }

    /// Does all of it; says whether our finalizer was taken away, after which there is nothing of ours.
    async fn perform(&self, id: &Id, doing: &[Action], retry: &mut RetryState) -> bool {
        let on_nodes = |one: &&Action| matches!(one, Action::Node(_) | Action::Evict { .. });
        let was_refused = retry.module_refused();
        for one in doing.iter().filter(|one| !on_nodes(one)) {
            if retry.is_too_early(one) {
                continue;
            }
            let result = self.hand.perform(id, one).await;
            let done = result.is_ok();
            self.noted(id, one, result, retry);
            if done && *one == Action::Finalizer(false) {
                info!(deviceconfig = %id, "nothing of it is left");
                return true;
            }
        }
        // What is planned for nodes counts on the Module.
        if retry.module_refused() && !was_refused {
            return false;
        }
        let nodes: Vec<Action> = doing.iter().filter(on_nodes).cloned().collect();
        let perform = |one: Action| async move { (self.hand.perform(id, &one).await, one) };
        let mut under_way = stream::iter(nodes).map(perform).buffer_unordered(NODES);
        while let Some((result, one)) = under_way.next().await {
            self.noted(id, &one, result, retry);
        }
        false
    }

    fn noted(&self, id: &Id, one: &Action, result: Result<(), Fault>, retry: &mut RetryState) {
        self.metrics.wrote(one, result.as_ref().err());
        if let Err(Fault::Failed { failure, .. }) = &result {
            warn!(deviceconfig = %id, error = failure.text, "cannot do what is to be done; trying again later");
        }
        retry.note(one, result, Instant::now());
    }

    fn look(&self, id: &Id, retry: &mut RetryState, now: Instant) -> Option<Look> {
        self.hand.shared.read(|world| {
            let config = world.configs.get(id)?;
            let plan = plan(world, config, retry.module_refused());
            retry.keep(&plan.doing);
            retry.waits.turn(awaited(world, config, &plan), now);
            let late = retry.waits.late(self.patience, now);
            let time = Timestamp::now();
            let (overdue, next) = overdue(config, &plan, time);
            retry.overdue = next.map(|left| now + left);
            let inputs = StatusInputs { errors: retry.errors(), late, overdue };
            let metadata = &config.object.metadata;
            Some(Look {
                told: status(world, config, &plan, &inputs, time),
                known: config.object.status.clone(),
                uid: metadata.uid.clone().unwrap_or_default(),
                silent: plan.state == super::plan::State::Gone,
                doing: plan.doing,
            })
        })
    }

    /// Writes the status and tells what turned.
    async fn tell(&self, id: &Id, look: Look, retry: &mut RetryState) -> bool {
        if look.silent {
            return false;
        }
        let result = match self.hand.status(id, &look.uid, &look.known, &look.told).await {
            Err(_) if self.is_gone(id) => Err(Fault::Stale),
            result => result,
        };
        if result != Ok(false) {
            self.metrics.status(result.as_ref().err());
        }
        match result {
            Ok(false) => {}
            Ok(true) => self.events(id, &look),
            Err(Fault::Failed { failure, .. }) => {
                warn!(deviceconfig = %id, error = failure.text, "cannot write the status; trying again later");
                let later = Action::Finalizer(true);
                retry.note(&later, Err(Fault::Later(Duration::from_secs(2))), Instant::now());
            }
            Err(_) => {
                let later = Action::Finalizer(true);
                retry.note(&later, Err(Fault::Stale), Instant::now());
            }
        }
        false
    }

    fn is_gone(&self, id: &Id) -> bool {
        self.hand.shared.read(|world| !world.configs.contains_key(id))
    }

    fn events(&self, id: &Id, look: &Look) {
        for turn in events::turns(&look.known, &look.told) {
            info!(deviceconfig = %id, reason = turn.reason, note = turn.note, "turned");
            self.recorder.record(Event {
                regarding: Subject {
                    api_version: format!("{}/{}", hardware::GROUP, hardware::VERSION),
                    kind: hardware::KIND.to_owned(),
                    namespace: id.namespace.clone(),
                    name: id.name.clone(),
                    uid: look.uid.clone(),
                },
                related: None,
                severity: turn.severity,
                reason: turn.reason,
                action: "Reconciling".to_owned(),
                note: turn.note,
            });
        }
    }

    /// Cleans up after one that is gone; says whether nothing is left.
    async fn orphan(&self, claim: &str, retry: &mut RetryState) -> bool {
        *retry = RetryState::default();
        // A Module that is going is only waited for.
        if self.hand.shared.read(|world| is_orphan(world, claim) && orphan(world, claim).is_empty()) {
            return false;
        }
        match self.hand.is_claimed(claim).await {
            Ok(false) => {}
            // It is there, and the watch will tell.
            Ok(true) => return true,
            Err(fault) => {
                retry.note(&Action::Finalizer(false), Err(fault), Instant::now());
                return false;
            }
        }
        for _ in 0..ROUNDS {
            let doing = self.hand.shared.read(|world| {
                let known = world.claims.owner(claim).is_some();
                if known { Vec::new() } else { orphan(world, claim) }
            });
            let last = doing.iter().all(|one| matches!(one, Action::Remove(..)));
            self.perform(&Id::default(), &doing, retry).await;
            if last || !retry.failed.is_empty() {
                break;
            }
        }
        let done = retry.failed.is_empty() && !self.hand.shared.read(|world| is_orphan(world, claim));
        if done {
            info!(claim, "cleaned up after a DeviceConfig that is gone");
        }
        done
    }
}

/// An object of a claim without DeviceConfig is still there.
fn is_orphan(world: &ClusterState, claim: &str) -> bool {
    world.orphans().contains(claim)
}

/// A look at a DeviceConfig.
struct Look {
    doing: Vec<Action>,
    told: Status,
    known: Status,
    uid: String,
    silent: bool,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
    use objects::ObjectKind;

    use super::*;

    /// What failed is tried again when its time has come; until then there is nothing left to do, and it is told.
    #[test]
    fn the_finalizer_waits_for_what_failed() {
        let fault =
            || Fault::Failed { failure: Failure { module: false, text: "denied".to_owned() }, soon: false };
        let (now, mut retry) = (Instant::now(), RetryState::default());
        let account = Action::Remove(ObjectKind::of::<ServiceAccount>(), Id::new("hw", "a"));
        let map = Action::Remove(ObjectKind::of::<ConfigMap>(), Id::new("hw", "m"));
        let all = [account.clone(), map.clone(), Action::Finalizer(false)];
        let left = |retry: &RetryState, now| -> Vec<Action> {
            all.iter().filter(|one| !retry.leaves_out(one, now)).cloned().collect()
        };
        assert_eq!(left(&retry, now), all);
        retry.note(&account, Err(fault()), now);
        retry.note(&map, Ok(()), now);
        assert_eq!(left(&retry, now), []);
        assert_eq!(retry.errors().len(), 1);
        let later = now + REFUSED.1;
        assert_eq!(left(&retry, later), all[..1]);
        retry.note(&account, Ok(()), later);
        assert_eq!(left(&retry, later), [Action::Finalizer(false)]);
        // Its own failure does not keep it for ever.
        retry.note(&Action::Finalizer(false), Err(fault()), later);
        assert_eq!(left(&retry, later), []);
        assert_eq!(left(&retry, later + REFUSED.1), [Action::Finalizer(false)]);
    }
}
