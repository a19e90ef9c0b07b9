//! One controller at work: look, do, tell, wait until something has changed.
//!
//! In: the shared world. Out: writes and words. Never: a look without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use objects::ObjectKind;
use objects::client::{CallError, path};
use runtime::backoff::Backoff;
use runtime::client::{brief, is_conflict, is_not_found};
use runtime::events::{Event, Recorder, Severity, Subject};
use runtime::token_bucket::TokenBucket;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::metrics::Verb;
use super::rules::{self, Rules, Told, employer, is_paused, owners, subject};
use super::status::turns;
use super::{Action, Changed, Done, Wake};
use crate::apply::Hand;
use crate::change::{Change, Memory, Scene, plan};
use crate::desired::{Controller, Desired, MANAGER, Wanted};
use crate::kubeletconfig::{self, Warning};
use crate::world::World;
use api::numaresources::{GROUP, NumaResourcesOperator, NumaResourcesScheduler, VERSION, operator};
use objects::ObjectKey;
use objects::observed::compare_versions;

/// What comes together is seen together.
const GATHER: Duration = Duration::from_millis(30);
/// Pauses before something that failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The pause before it is looked again whether an object of others has been handed over, or has gone: outside the operator's namespace
/// nobody watches what is not labelled as its own. One GET of each such object is what it costs.
const REFUSED: Duration = Duration::from_secs(3);
/// Looks that wrote something, at once and then in each such span. Two programs that each hold the other's writes for mistakes would otherwise go on
/// at full speed, for ever.
const WRITE_BURST: u32 = 20;
const WRITE_REFILL: Duration = Duration::from_millis(500);

/// A controller at work.
pub(super) struct Worker {
    controller: Controller,
    rules: fn(Controller) -> Rules,
    hand: Hand,
    recorder: Recorder,
    memory: Memory,
    backoff: Backoff,
    writes: TokenBucket,
    /// Of which objects people have heard that they are somebody else's.
    refused: BTreeSet<ObjectKey>,
    /// Of what people have been warned.
    warned: BTreeSet<Warning>,
}

impl Worker {
    pub(super) fn new(
        controller: Controller,
        rules: fn(Controller) -> Rules,
        hand: Hand,
        recorder: Recorder,
    ) -> Self {
        Self {
            controller,
            rules,
            hand,
            recorder,
            memory: Memory::default(),
            backoff: Backoff::new(RETRY.0, RETRY.1),
            writes: TokenBucket::new(WRITE_BURST, WRITE_REFILL, Instant::now()),
            refused: BTreeSet::new(),
            warned: BTreeSet::new(),
        }
    }

    /// Works until it is stopped.
    pub(super) async fn run(mut self, cancel: &CancellationToken) {
        let work = async {
            loop {
                let pause = self.round().await;
                let called = self.hand.shared.woken(self.controller);
                match pause {
                    None => called.await,
                    // Whoever calls may have mended it.
                    Some(pause) => drop(tokio::time::timeout(pause, called).await),
                }
                let free = self.writes.available_at().saturating_duration_since(Instant::now());
                tokio::time::sleep(GATHER.max(free)).await;
                self.hand.shared.woken(self.controller).now_or_never();
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }

    /// Looks once. After which time to look again even if nobody calls.
    async fn round(&mut self) -> Option<Duration> {
        let began = Instant::now();
        let shared = self.hand.shared.clone();
        let is_idle = |world: &World| employer(world, self.controller).is_some_and(is_paused);
        if shared.read(is_idle) {
            return None;
        }
        let (changes, keys) = shared.read(|world| self.plan(world));
        shared.wants(self.controller, keys);
        let mut api = Duration::ZERO;
        let mut done = Done::default();
        if !changes.is_empty() {
            let asked = Instant::now();
            done = self.hand.apply(changes, &mut self.memory).await;
            api += asked.elapsed();
        }
        if done.changed.iter().any(|changed| changed.action != Action::Refused) {
            self.writes.take(Instant::now());
        }
        self.tell(&done);
        if self.controller == Controller::KubeletConfig {
            self.warn(shared.read(kubeletconfig::warnings));
        }
        let failed = done.errors.len();
        let refused = done.refused().count();
        if shared.failed(self.controller, &done.errors) && self.controller == Controller::KubeletConfig {
            shared.wake(Wake::from(Controller::NumaResourcesOperator));
        }
        if self.controller == Controller::NumaResourcesOperator {
            done.errors.extend(shared.errors(Controller::KubeletConfig));
        }
        let told =
            shared.read(|world| ((self.rules)(self.controller).status)(world, &done, Timestamp::now()));
        let asked = Instant::now();
        let mut unwritten = 0;
        for told in &told {
            unwritten += usize::from(!self.publish(told).await);
        }
        if told.iter().any(|told| told.old != told.new) {
            api += asked.elapsed();
        }
        if self.controller == Controller::NumaResourcesOperator {
            shared.has_looked();
        }
        self.hand.metrics.looked(self.controller, began.elapsed(), api, failed + unwritten);
        let glance = (refused > 0).then_some(REFUSED);
        if failed > refused || done.pending || unwritten > 0 {
            let delay = self.backoff.next_delay();
            // What failed may have needed what is refused.
            return Some(glance.map_or(delay, |glance| delay.min(glance)));
        }
        self.backoff.reset();
        glance
    }

    /// What has to be done, and what is wanted.
    fn plan(&mut self, world: &World) -> (Vec<Change>, BTreeSet<ObjectKey>) {
        let desired = rules::desired((self.rules)(self.controller), world, self.controller);
        let others: Vec<Controller> =
            Controller::ALL.into_iter().filter(|other| *other != self.controller).collect();
        let wants = |key: &ObjectKey| {
            others.iter().any(|other| match rules::desired((self.rules)(*other), world, *other) {
                Desired::Keep => true,
                Desired::Nothing => false,
                Desired::Objects(objects) => objects.iter().any(|wanted| wanted.key() == *key),
            })
        };
        let owners = owners(world);
        let scene = Scene { live: &world.live, owners: &owners, others_want: &wants, memory: &self.memory };
        let changes = plan(self.controller, &desired, scene);
        let Desired::Objects(objects) = &desired else { return (changes, Default::default()) };
        let keys: BTreeSet<ObjectKey> = objects.iter().map(Wanted::key).collect();
        self.memory.retain(|key| keys.contains(key));
        let open: BTreeSet<ObjectKey> = changes.iter().map(Change::key).collect();
        for wanted in objects.iter().filter(|wanted| !open.contains(&wanted.key())) {
            self.memory.done(wanted);
        }
        (changes, keys)
    }

    /// Tells people what was done and what was not.
    fn tell(&mut self, done: &Done) {
        for error in &done.errors {
            warn!(controller = self.controller.name(), error, "not done");
        }
        let now: BTreeSet<ObjectKey> = done.refused().cloned().collect();
        let before = std::mem::replace(&mut self.refused, now);
        let subject = self.hand.shared.read(|world| subject(world, self.controller));
        for Changed { key, action } in &done.changed {
            if *action == Action::Refused && before.contains(key) {
                continue;
            }
            info!(controller = self.controller.name(), object = %key, action = action.reason());
            let Some(subject) = &subject else { continue };
            self.recorder.record(event(subject, *action, key));
        }
    }

    /// Warns people of what they have not been warned of.
    fn warn(&mut self, warnings: Vec<Warning>) {
        let now = BTreeSet::from_iter(warnings);
        let subject = self.hand.shared.read(|world| subject(world, self.controller));
        for Warning { reason, message } in now.difference(&self.warned) {
            warn!(controller = self.controller.name(), reason, "{message}");
            let Some(subject) = &subject else { continue };
            self.recorder.record(Event {
                regarding: subject.clone(),
                related: None,
                severity: Severity::Warning,
                reason: (*reason).to_owned(),
                action: "Reconciling".to_owned(),
                note: message.clone(),
            });
        }
        self.warned = now;
    }

    /// Writes a status if it is not so already; whether it is now.
    async fn publish(&self, told: &Told) -> bool {
        let Told { subject, plural, old, new, before, conditions } = told;
        self.hand.metrics.conditions(self.controller, conditions);
        let Some(patch) = runtime::status::merge_patch(old, new) else { return true };
        let answer = self.patch_status(subject, plural, patch).await;
        match answer {
            Ok(body) => self.note(plural, body),
            // It is another one by now, or none.
            Err(CallError::Failed(error)) if is_not_found(&error) || is_conflict(&error) => return true,
            Err(CallError::Failed(error)) => {
                warn!(object = subject.name, error = brief(&error), "status not written");
                return false;
            }
            Err(CallError::Cancelled) => return false,
        }
        for turn in turns(before, conditions) {
            info!(object = subject.name, reason = turn.reason, note = turn.note, "condition");
            self.recorder.record(Event {
                regarding: subject.clone(),
                related: None,
                severity: turn.severity,
                reason: turn.reason,
                action: "Reconciling".to_owned(),
                note: turn.note,
            });
        }
        true
    }

    async fn patch_status(&self, subject: &Subject, plural: &str, patch: Value) -> Result<Value, CallError> {
        let kind = ObjectKind::new(GROUP, VERSION, &subject.kind, plural);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "status": patch }));
        let request = path(&kind, None).patch_subresource("status", &subject.name, &params, &patch)?;
        self.hand.metrics.wrote(&subject.kind, Verb::Status);
        Ok(self.hand.api_server.call(request).await?.body)
    }

    /// Notes the answer to the write of a status.
    fn note(&self, plural: &str, body: Value) {
        self.hand.shared.update(|world| {
            if plural == operator::PLURAL {
                replace::<NumaResourcesOperator>(&mut world.operators, body);
            } else {
                replace::<NumaResourcesScheduler>(&mut world.schedulers, body);
            }
            Wake::NOBODY
        });
    }
}

/// Replaces an object by the one in an answer, if that is newer.
fn replace<K: kube::Resource<DynamicType = ()> + DeserializeOwned>(
    known: &mut BTreeMap<String, K>,
    body: Value,
) {
    let Ok(new) = serde_json::from_value::<K>(body) else { return };
    let Some(known) = new.meta().name.as_ref().and_then(|name| known.get_mut(name)) else { return };
    let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    if known.meta().uid == new.meta().uid && compare_versions(&version(known), &version(&new)).is_lt() {
        *known = new;
    }
}

fn event(subject: &Subject, action: Action, key: &ObjectKey) -> Event {
    let refused = action == Action::Refused;
    let note =
        if refused { format!("{key} belongs to somebody else and is left alone") } else { key.to_string() };
    Event {
        regarding: subject.clone(),
        related: None,
        severity: if refused { Severity::Warning } else { Severity::Normal },
        reason: action.reason().to_owned(),
        action: "Reconciling".to_owned(),
        note,
    }
}
