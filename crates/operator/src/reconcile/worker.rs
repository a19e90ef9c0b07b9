//! One reconcile of a controller: plan, apply, write the status.
//!
//! In: the cluster state. Out: writes, events, log lines, a requeue. Never: a write where nothing differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::numaresources::{NumaResourcesOperator, NumaResourcesScheduler, operator};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use objects::applier::{Observer as _, Planned, Verb};
use objects::client::path;
use objects::controller::status::{event, merge_patch, record};
use objects::controller::{Reason, Reconciler, Requeue, Retry};
use objects::last_applied::LastApplied;
use objects::{CallError, ObjectKey, ObjectKind};
use runtime::client::{brief, is_conflict, is_not_found};
use runtime::events::{Recorder, Severity, Subject};
use runtime::token_bucket::TokenBucket;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::rules::{Rules, StatusUpdate, owners};
use super::shared::ControllerSet;
use super::status::transitions;
use super::{Applier, Change, Outcome, Shared};
use crate::cluster_state::{ClusterState, is_newer};
use crate::desired::{Controller, Desired, DesiredObject, MANAGER};
use crate::kubeletconfig::Warning;
use crate::plan::{PlanInputs, plan};

/// Pauses before failed actions are retried, and before a status is.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The pause before refused objects of others are read again: outside the operator's namespace no watch reports objects
/// without our label. One GET of each such object is the cost.
const REFUSED: Duration = Duration::from_secs(3);
/// Reconciles that may write, at once and then in each interval. It limits two programs that revert each other's
/// writes.
const WRITE_BURST: u32 = 20;
const WRITE_REFILL: Duration = Duration::from_millis(500);

/// Reconciles the controllers.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) rules: fn(Controller) -> Rules,
    pub(super) controllers: Vec<Controller>,
    pub(super) applier: Applier,
    pub(super) recorder: Recorder,
}

/// The state of a controller between reconciles.
pub(super) struct State {
    last: LastApplied,
    actions: Retry,
    status: Retry,
    writes: TokenBucket,
    /// Refused objects of others that events have reported.
    refused: BTreeSet<ObjectKey>,
    /// Warnings that events have reported.
    warned: BTreeSet<Warning>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            last: LastApplied::default(),
            actions: Retry::new(RETRY),
            status: Retry::new(RETRY),
            writes: TokenBucket::new(WRITE_BURST, WRITE_REFILL, Instant::now()),
            refused: BTreeSet::new(),
            warned: BTreeSet::new(),
        }
    }
}

impl Reconciler for Worker {
    type Key = Controller;
    type State = State;

    async fn reconcile(&self, controller: &Controller, state: &mut State) -> Requeue {
        let rules = (self.rules)(*controller);
        let shared = self.shared();
        if !self.controllers.contains(controller) || shared.read(rules.is_paused) {
            return Requeue::await_change();
        }
        let (began, mut api) = (Instant::now(), Duration::ZERO);
        let (planned, keys) = shared.read(|cluster| self.plan(*controller, cluster, &mut state.last));
        shared.note_desired(*controller, keys);
        let mut outcome = Outcome::default();
        if !planned.is_empty() {
            let asked = Instant::now();
            outcome = self.applier.apply(planned, &mut state.last).await;
            api += asked.elapsed();
        }
        if outcome.changed.iter().any(|(_, change)| *change != Change::Refused) {
            state.writes.take(Instant::now());
        }
        let subject = shared.read(rules.subject);
        self.announce(*controller, subject.as_ref(), &outcome, state);
        self.warn(*controller, subject.as_ref(), shared.read(rules.warnings), state);
        let (failed, refused) = (outcome.errors.len(), outcome.refused().count());
        if shared.note_errors(*controller, &outcome.errors) {
            let reporters = Controller::ALL.into_iter();
            let reports = |one: &Controller| (self.rules)(*one).reports_errors_of.contains(controller);
            shared.queue().extend(reporters.filter(reports));
        }
        outcome.errors.extend(rules.reports_errors_of.iter().flat_map(|other| shared.errors(*other)));
        let updates = shared.read(|cluster| (rules.status)(cluster, &outcome, Timestamp::now()));
        let asked = Instant::now();
        let mut unwritten = 0;
        for update in &updates {
            unwritten += usize::from(!self.write_status(*controller, update).await);
        }
        if updates.iter().any(|update| update.old != update.new) {
            api += asked.elapsed();
        }
        shared.reconciled.notify_one();
        self.applier.observer.metrics.reconciled(*controller, began.elapsed(), api, failed + unwritten);
        settle(&mut state.actions, failed > refused || outcome.pending);
        settle(&mut state.status, unwritten > 0);
        let now = tokio::time::Instant::now();
        Requeue::await_change()
            .at(Reason::Failed, state.actions.next())
            .at(Reason::Failed, state.status.next())
            .at(Reason::Refused, (refused > 0).then_some(now + REFUSED))
            .not_before(state.writes.available_at().into())
    }
}

/// Notes in a retry slot whether its actions have to be repeated.
fn settle(retry: &mut Retry, failed: bool) {
    match failed {
        true => retry.failed(tokio::time::Instant::now()),
        false => retry.succeeded(),
    }
}

impl Worker {
    fn shared(&self) -> &Shared {
        &self.applier.observer.shared
    }

    /// The plan of a controller, and the keys of what it desires.
    fn plan(
        &self,
        controller: Controller,
        cluster: &ClusterState,
        last: &mut LastApplied,
    ) -> (Vec<Planned>, BTreeSet<ObjectKey>) {
        let desired = (self.rules)(controller).desired(cluster);
        let others = Controller::ALL.into_iter().filter(|other| *other != controller);
        let others: Vec<Rules> = others.map(self.rules).collect();
        let others_desire = |key: &ObjectKey| {
            others.iter().any(|other| match other.desired(cluster) {
                Desired::Keep => true,
                Desired::Nothing => false,
                Desired::Objects(objects) => objects.iter().any(|one| one.object.key() == key),
            })
        };
        let owners = owners(cluster);
        let inputs =
            PlanInputs { observed: &cluster.observed, owners: &owners, others_desire: &others_desire, last };
        let planned = plan(controller, &desired, inputs);
        let Desired::Objects(objects) = &desired else { return (planned, BTreeSet::new()) };
        let keys: BTreeSet<ObjectKey> = objects.iter().map(DesiredObject::key).collect();
        last.retain(|key| keys.contains(key));
        let open: BTreeSet<&ObjectKey> = planned.iter().map(|one| &one.key).collect();
        for one in objects.iter().filter(|one| !open.contains(one.object.key())) {
            last.done(one);
        }
        (planned, keys)
    }

    /// Reports what was done and what failed, in the log and as events.
    fn announce(
        &self,
        controller: Controller,
        subject: Option<&Subject>,
        outcome: &Outcome,
        state: &mut State,
    ) {
        for error in &outcome.errors {
            warn!(controller = controller.name(), error, "reconcile failed in part");
        }
        let refused: BTreeSet<ObjectKey> = outcome.refused().cloned().collect();
        let known = std::mem::replace(&mut state.refused, refused);
        for (key, change) in &outcome.changed {
            let refused = *change == Change::Refused;
            if refused && known.contains(key) {
                continue;
            }
            let reason: &'static str = change.into();
            info!(controller = controller.name(), object = %key, action = reason);
            let Some(subject) = subject else { continue };
            let (severity, note) = match refused {
                true => (Severity::Warning, format!("{key} belongs to another owner and is left alone")),
                false => (Severity::Normal, key.to_string()),
            };
            self.recorder.record(event(subject, severity, reason, note));
        }
    }

    /// Reports new warnings, in the log and as events.
    fn warn(
        &self,
        controller: Controller,
        subject: Option<&Subject>,
        warnings: Vec<Warning>,
        state: &mut State,
    ) {
        let warnings = BTreeSet::from_iter(warnings);
        for Warning { reason, message } in warnings.difference(&state.warned) {
            warn!(controller = controller.name(), reason, "{message}");
            let Some(subject) = subject else { continue };
            self.recorder.record(event(subject, Severity::Warning, reason, message.clone()));
        }
        state.warned = warnings;
    }

    /// Writes a status if it differs. Returns whether it is as it should be.
    async fn write_status(&self, controller: Controller, update: &StatusUpdate) -> bool {
        let StatusUpdate { subject, kind, old, new } = update;
        let [old_conditions, conditions] = [old, new].map(StatusUpdate::conditions);
        self.applier.observer.metrics.conditions(controller, &conditions);
        let Some(patch) = merge_patch(old, new) else { return true };
        match self.patch_status(subject, kind, patch).await {
            Ok(body) => self.observe_status(kind, body),
            // The object was replaced or deleted meanwhile.
            Err(CallError::Failed(error)) if is_not_found(&error) || is_conflict(&error) => return true,
            Err(CallError::Failed(error)) => {
                warn!(object = subject.name, error = brief(&error), "status not written");
                return false;
            }
            Err(CallError::Cancelled) => return false,
        }
        record(&self.recorder, subject, transitions(&old_conditions, &conditions));
        true
    }

    async fn patch_status(
        &self,
        subject: &Subject,
        kind: &ObjectKind,
        patch: Value,
    ) -> Result<Value, CallError> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "status": patch }));
        let request = path(kind, None).patch_subresource("status", &subject.name, &params, &patch)?;
        self.applier.observer.count_write(kind, Verb::Status);
        Ok(self.applier.api_server.call(request).await?.body)
    }

    /// Takes in the answer to the write of a status.
    fn observe_status(&self, kind: &ObjectKind, body: Value) {
        self.shared().update(|cluster| {
            if kind.kind == operator::KIND {
                replace::<NumaResourcesOperator>(&mut cluster.operators, body);
            } else {
                replace::<NumaResourcesScheduler>(&mut cluster.schedulers, body);
            }
            ControllerSet::new()
        });
    }
}

/// Replaces an object by a newer one.
fn replace<K: kube::Resource<DynamicType = ()> + DeserializeOwned>(
    known: &mut BTreeMap<String, K>,
    body: Value,
) {
    let Ok(new) = serde_json::from_value::<K>(body) else { return };
    let Some(known) = new.meta().name.as_ref().and_then(|name| known.get_mut(name)) else { return };
    if known.meta().uid == new.meta().uid && is_newer(known, &new) {
        *known = new;
    }
}
