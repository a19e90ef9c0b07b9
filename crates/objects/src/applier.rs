//! Applies decisions to a cluster.
//!
//! In: objects with decisions, an API server. Out: objects as they are afterwards, told to an [`Observer`]; what became
//! of each. Never: a decision of its own: the meaning of an answer is decided by [`crate::decision`] again.
//!
//! The first write of an object does not force anything, and later ones name the object by its UID: an object that
//! another program makes meanwhile is never overwritten.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::core::params::PropagationPolicy;
use runtime::client::{brief, is_conflict, is_not_found};
use serde_json::Value;
use strum::IntoStaticStr;

use crate::client::{ApiServer, CallError, Force, path};
use crate::decision::{Decision, Policy, Rules, decide};
use crate::desired::{DesiredObject, Treatment};
use crate::equality::with_observed_selector;
use crate::last_applied::LastApplied;
use crate::ownership::{MANAGED_BY_LABEL, uid};
use crate::{Object, ObjectKey, ObjectKind};

/// Writes under way at the same time.
const CONCURRENCY: usize = 8;
/// Rounds of decision and write for one object before it counts as unstable.
const ROUNDS: usize = 4;

/// A role can be bound some milliseconds after it was created; until then the API server reports it as not found.
const BINDING_TRIES: u32 = 8;
/// The pause before the second try; each further pause is this much longer.
const BINDING_PAUSE: Duration = Duration::from_millis(20);

/// The recipient of what the API server answers.
pub trait Observer: Sync {
    /// The last observed state of an object.
    fn observed(&self, key: &ObjectKey) -> Option<Value>;
    /// An object has this state now.
    fn observe(&self, key: &ObjectKey, body: Value);
    /// The object with this UID is gone.
    fn observe_deletion(&self, key: &ObjectKey, uid: &str);
    /// A write is about to be sent.
    fn count_write(&self, kind: &ObjectKind, verb: Verb);
}

/// How an object is written; the name is the value of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
pub enum Verb {
    /// A first apply.
    Create,
    /// An apply over an existing object.
    Apply,
    /// A patch that makes claims of others ours.
    Patch,
    /// A deletion.
    Delete,
    /// A patch of the status.
    Status,
}

/// An object, and what to do with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The object.
    pub key: ObjectKey,
    /// The desired object; `None` for one that goes.
    pub desired: Option<DesiredObject>,
    /// What to do.
    pub decision: Decision,
}

/// What became of an object; the name is the reason of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum Change {
    /// It was created.
    Created,
    /// It was changed, because the desired object changed.
    Updated,
    /// It was changed back to what it was.
    Repaired,
    /// It was deleted and created anew, since it could not be changed.
    Recreated,
    /// It was deleted.
    Deleted,
    /// It is another program's and was left alone.
    Refused,
}

/// What became of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Failures, one line each, for people.
    pub errors: Vec<String>,
    /// Changes in the order of the plan.
    pub changed: Vec<(ObjectKey, Change)>,
    /// Requeue: no watch reports what has to happen next.
    pub pending: bool,
}

/// Applies decisions.
#[derive(Clone)]
pub struct Applier<O> {
    /// The API server.
    pub api_server: ApiServer,
    /// The recipient of answers.
    pub observer: O,
    /// The rules of the program; their policy is overridden by each object's treatment.
    pub rules: Rules<'static>,
}

/// What became of one object.
#[derive(Debug, Default)]
struct Report {
    change: Option<Change>,
    error: Option<String>,
    pending: bool,
    note: Option<Note>,
}

/// What has to be remembered.
#[derive(Debug)]
enum Note {
    Done(DesiredObject),
    Settled(Object, Value),
}

/// What a write led to.
enum Answer {
    /// The object has this state because of the write.
    Written(Change, Value),
    /// The object has this state, or is absent; the write was not done, perhaps for this reason.
    Found(Option<Value>, Option<String>),
}

impl Outcome {
    /// Objects that were left alone because they are another program's.
    pub fn refused(&self) -> impl Iterator<Item = &ObjectKey> {
        self.changed.iter().filter(|(_, change)| *change == Change::Refused).map(|(key, _)| key)
    }
}

/// Decides about a desired object by its treatment. `None`: nothing is to be done.
#[must_use]
pub fn plan_object(
    desired: &DesiredObject,
    observed: Option<&Value>,
    rules: Rules<'_>,
    last: &LastApplied,
) -> Option<Planned> {
    let policy = match desired.treatment {
        Treatment::Hold => return None,
        Treatment::Share => Policy::Share,
        Treatment::Own => Policy::Refuse,
    };
    let mut desired = desired.clone();
    if let Some(observed) = observed {
        desired.object = with_observed_selector(&desired.object, observed);
    }
    let decision = match (decide(&desired.object, observed, Rules { policy, ..rules }), observed) {
        (Decision::Leave, _) => return None,
        (Decision::Change { .. }, Some(observed)) if last.is_settled(&desired.object, observed) => {
            return None;
        }
        // A shared object that is not good enough is made so.
        (Decision::Refuse { lacks: Some(_), .. }, Some(observed)) => {
            Decision::Change { uid: uid(observed).to_owned(), claims: None }
        }
        (decision, _) => decision,
    };
    Some(Planned { key: desired.key(), desired: Some(desired), decision })
}

/// The message about an object of another program.
#[must_use]
pub fn refusal(key: &ObjectKey, owner: &str, manager: &str) -> String {
    format!(
        "{key} belongs to {owner} and is left alone; labelled {MANAGED_BY_LABEL}={manager} it is handed over"
    )
}

impl<O: Observer> Applier<O> {
    /// Applies a plan: definitions first, workloads last, then deletions. A failure does not stop the rest.
    pub async fn apply(&self, plan: Vec<Planned>, last: &mut LastApplied) -> Outcome {
        let mut stages: [Vec<Planned>; 5] = Default::default();
        for planned in plan {
            stages[stage(&planned)].push(planned);
        }
        let mut outcome = Outcome::default();
        for stage in stages {
            let known: &LastApplied = last;
            let refused: Vec<ObjectKey> = outcome.refused().cloned().collect();
            let reports = futures::stream::iter(stage).map(|planned| {
                let (key, role) = (planned.key.clone(), foreign_role(&planned, &refused));
                async move {
                    match role {
                        Some(role) => (key.clone(), Report::withheld(&key, &role)),
                        None => (key, Box::pin(self.apply_one(planned, known)).await),
                    }
                }
            });
            let reports: Vec<(ObjectKey, Report)> = reports.buffered(CONCURRENCY).collect().await;
            for (key, report) in reports {
                outcome.errors.extend(report.error);
                outcome.pending |= report.pending;
                outcome.changed.extend(report.change.map(|change| (key, change)));
                match report.note {
                    Some(Note::Done(desired)) => last.done(&desired),
                    Some(Note::Settled(object, observed)) => last.settle(&object, &observed),
                    None => {}
                }
            }
        }
        outcome
    }

    async fn apply_one(&self, planned: Planned, last: &LastApplied) -> Report {
        let Planned { key, desired, decision } = planned;
        match (desired, decision) {
            (_, Decision::Remove { uid }) => self.delete(&key, &uid).await,
            (Some(desired), decision) => {
                let result = self.converge(&desired, decision, last).await;
                result.unwrap_or_else(|error| Report::failed("applying", &desired.object, &error))
            }
            (None, _) => Report::default(),
        }
    }

    /// Repeats decision and write until the object is as desired.
    async fn converge(
        &self,
        wanted: &DesiredObject,
        first: Decision,
        last: &LastApplied,
    ) -> Result<Report, CallError> {
        let (mut desired, mut decision, mut report) = (wanted.clone(), first, Report::default());
        let again = if last.was(wanted) { Change::Repaired } else { Change::Updated };
        let mut reason = None;
        for round in 0..ROUNDS {
            let answer = match &decision {
                Decision::Create => self.create(&desired.object, Change::Created).await?,
                Decision::Change { uid, claims } => {
                    self.write(&desired.object, uid, claims.as_ref(), again).await?
                }
                Decision::Recreate { uid, .. } => {
                    self.remove(&desired.object, uid).await?;
                    self.create(&desired.object, Change::Recreated).await?
                }
                // Objects of others are not watched everywhere: what was known of this one may be out of date.
                Decision::Refuse { .. } | Decision::Await if round == 0 => {
                    Answer::Found(self.look(&desired.object).await?, None)
                }
                Decision::Refuse { owner, .. } => return Ok(self.refused(&desired.key(), owner)),
                _ => return Ok(Report { pending: true, ..report }),
            };
            let (observed, written) = match answer {
                Answer::Written(change, observed) => {
                    report.change = report.change.or(Some(change));
                    reason = None;
                    (Some(observed), true)
                }
                Answer::Found(observed, refused) => {
                    reason = refused;
                    (observed, false)
                }
            };
            let Some(next) = plan_object(wanted, observed.as_ref(), self.rules, last) else {
                return Ok(Report { note: Some(Note::Done(wanted.clone())), ..report });
            };
            let stuck = next.decision == decision && next.desired.as_ref() == Some(&desired);
            if let Some(next) = next.desired {
                desired = next;
            }
            decision = next.decision;
            match (observed, &decision) {
                // The write made no difference.
                (Some(observed), Decision::Change { .. }) if stuck && (written || reason.is_none()) => {
                    let note = Some(Note::Settled(desired.object, observed));
                    return Ok(Report { note, ..report });
                }
                _ if stuck && reason.is_some() => break,
                _ => {}
            }
        }
        let reason = reason.unwrap_or_else(|| "it keeps changing".to_owned());
        Ok(Report { error: Some(format!("applying {}: {reason}", wanted.object)), pending: true, ..report })
    }

    /// Creates an object that is not known to exist.
    async fn create(&self, object: &Object, change: Change) -> Result<Answer, CallError> {
        if let Some(observed) = self.look(object).await? {
            return Ok(Answer::Found(Some(observed), None));
        }
        let mut applied = Err(CallError::Cancelled);
        for attempt in 0..BINDING_TRIES {
            self.observer.count_write(object.kind(), Verb::Create);
            applied = self.api_server.apply(object, Force::No).await;
            let role_unknown = matches!(&applied, Err(CallError::Failed(error)) if is_not_found(error));
            if !role_unknown || !object.kind().kind.ends_with("Binding") {
                break;
            }
            tokio::time::sleep(BINDING_PAUSE * attempt).await;
        }
        self.interpret(object, None, applied.map(|answer| answer.body), change).await
    }

    /// Changes an existing object.
    async fn write(
        &self,
        object: &Object,
        uid: &str,
        claims: Option<&json_patch::Patch>,
        change: Change,
    ) -> Result<Answer, CallError> {
        if let Some(patch) = claims {
            self.observer.count_write(object.kind(), Verb::Patch);
            let manager = Some(self.rules.ownership.manager.to_owned());
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            let patch = Patch::<()>::Json(patch.clone());
            let request = path(object.kind(), object.namespace()).patch(object.name(), &params, &patch)?;
            if let Err(error) = self.api_server.call(request).await {
                return self.interpret(object, None, Err(error), change).await;
            }
        }
        self.observer.count_write(object.kind(), Verb::Apply);
        let exactly = object.clone().with_metadata("uid", uid.into());
        let before = self.observer.observed(object.key()).and_then(|observed| version(&observed).cloned());
        let applied = self.api_server.apply(&exactly, Force::Yes).await;
        self.interpret(object, before, applied.map(|answer| answer.body), change).await
    }

    async fn delete(&self, key: &ObjectKey, uid: &str) -> Report {
        let object = Object::bare(key.clone());
        match self.remove(&object, uid).await {
            Ok(true) => Report { change: Some(Change::Deleted), ..Report::default() },
            Ok(false) => Report::default(),
            Err(error) => Report::failed("deleting", &object, &error),
        }
    }

    /// Deletes an object if it still has this UID. Returns whether it existed.
    async fn remove(&self, object: &Object, uid: &str) -> Result<bool, CallError> {
        self.observer.count_write(object.kind(), Verb::Delete);
        let existed = self.api_server.delete(object, Some(uid), PropagationPolicy::Background).await?;
        self.observer.observe_deletion(object.key(), uid);
        Ok(existed)
    }

    /// Interprets the answer to a write over the resource version `before`. Looks again if the object is not as it was
    /// thought.
    async fn interpret(
        &self,
        object: &Object,
        before: Option<Value>,
        answer: Result<Value, CallError>,
        change: Change,
    ) -> Result<Answer, CallError> {
        match answer {
            Ok(observed) => {
                self.observer.observe(object.key(), observed.clone());
                // The API server stores nothing where nothing differs.
                let same = before.is_some() && before.as_ref() == version(&observed);
                Ok(if same { Answer::Found(Some(observed), None) } else { Answer::Written(change, observed) })
            }
            Err(CallError::Failed(error))
                if is_conflict(&error) || is_not_found(&error) || is_invalid(&error) =>
            {
                let reason = brief(&error);
                Ok(Answer::Found(self.look(object).await?, Some(reason)))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads an object, and tells the observer.
    async fn look(&self, object: &Object) -> Result<Option<Value>, CallError> {
        let key = object.key();
        let known = self.observer.observed(key);
        let observed = self.api_server.get(object).await?;
        match &observed {
            Some(observed) => self.observer.observe(key, observed.clone()),
            None => self.observer.observe_deletion(key, known.as_ref().map_or("", uid)),
        }
        Ok(observed)
    }

    fn refused(&self, key: &ObjectKey, owner: &str) -> Report {
        let error = Some(refusal(key, owner, self.rules.ownership.manager));
        Report { error, change: Some(Change::Refused), ..Report::default() }
    }
}

impl Report {
    fn failed(doing: &str, object: &Object, error: &CallError) -> Self {
        let error = match error {
            // A cancelled call is no failure.
            CallError::Cancelled => None,
            CallError::Failed(error) => Some(format!("{doing} {object}: {}", brief(error))),
        };
        Self { error, pending: true, ..Self::default() }
    }

    fn withheld(key: &ObjectKey, role: &ObjectKey) -> Self {
        let error = Some(format!("{key} is left alone as long as {role} is somebody else's"));
        Self { error, pending: true, ..Self::default() }
    }
}

/// The role that a binding would grant, if it is among the refused ones: we do not grant what others define.
fn foreign_role(planned: &Planned, refused: &[ObjectKey]) -> Option<ObjectKey> {
    let writes =
        matches!(planned.decision, Decision::Create | Decision::Change { .. } | Decision::Recreate { .. });
    let object = &planned.desired.as_ref().filter(|_| writes)?.object;
    let role = &object.body()["roleRef"];
    let is_role = |key: &&ObjectKey| {
        role["kind"] == key.kind.kind.as_str()
            && role["name"] == key.name.as_str()
            && (key.namespace.is_none() || key.namespace.as_deref() == object.namespace())
    };
    refused.iter().find(is_role).cloned()
}

fn version(observed: &Value) -> Option<&Value> {
    observed["metadata"].get("resourceVersion")
}

/// The test of a patch failed, another object has the name, or the object is invalid.
fn is_invalid(error: &kube::Error) -> bool {
    runtime::client::code(error) == Some(422)
}

/// The stage of a write; writes of one stage can run at the same time.
fn stage(planned: &Planned) -> usize {
    match (&planned.decision, planned.key.kind.group_kind()) {
        (Decision::Remove { .. }, _) => 4,
        (_, ("apiextensions.k8s.io", _)) => 0,
        (_, ("apps", _)) => 3,
        // A role has to exist before it is bound.
        (_, (_, kind)) if kind.ends_with("Binding") => 2,
        _ => 1,
    }
}
