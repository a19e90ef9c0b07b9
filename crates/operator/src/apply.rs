//! Makes changes.
//!
//! In: changes, an API server. Out: objects as they are afterwards, in the shared world, and what came of it. Never: a decision of its own: what an
//! answer means is asked of [`crate::change`] again.
//!
//! What is not made by us in the meantime is never overwritten: the first write of an object does not force anything, later ones name the
//! object by its unique id.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::core::params::PropagationPolicy;
use objects::Object;
use objects::client::{ApiServer, CallError, Force, path};
use runtime::client::{brief, is_conflict, is_not_found};
use serde_json::{Value, json};

use crate::change::{Change, Memory, decide, refusal};
use crate::desired::{MANAGER, Wanted};
use crate::reconcile::metrics::{Metrics, Verb};
use crate::reconcile::{Action, Changed, Done, Shared};
use objects::ObjectKey;

/// Writes under way at the same time.
const AT_ONCE: usize = 8;
/// How often one object is looked at again, in one go, because it is not yet as it should be.
const TURNS: usize = 4;

/// The API server gives out a role once it has heard of it itself, some milliseconds after it was made, and says until then that it is not
/// found: how often it is asked again, and after how much more time each time.
const HEARINGS: u32 = 8;
const HEARING: Duration = Duration::from_millis(20);

/// Who makes changes.
#[derive(Clone)]
pub struct Hand {
    /// The API server.
    pub api_server: ApiServer,
    /// Where answers go.
    pub shared: Arc<Shared>,
    /// Where writes are counted.
    pub metrics: Metrics,
}

/// What came of one change.
#[derive(Debug, Default)]
struct Report {
    action: Option<Action>,
    error: Option<String>,
    /// It has to be looked at again.
    pending: bool,
    note: Option<Note>,
}

/// What is to be remembered.
#[derive(Debug)]
enum Note {
    Done(Wanted),
    Settled(Wanted, Value),
}

/// What a write led to.
enum After {
    /// The object is like this, because of it.
    Written(Action, Value),
    /// It is like this, or not there; the write was not done, perhaps for this reason.
    Found(Option<Value>, Option<String>),
}

impl Hand {
    /// Makes changes: definitions first, pods last, and only then what has to go. What fails does not keep the others from being made.
    pub async fn apply(&self, changes: Vec<Change>, memory: &mut Memory) -> Done {
        let mut stages: [Vec<Change>; 5] = Default::default();
        for change in changes {
            stages[stage(&change)].push(change);
        }
        let mut done = Done::default();
        for stage in stages {
            let known: &Memory = memory;
            let refused: Vec<ObjectKey> = done.refused().cloned().collect();
            let reports = futures::stream::iter(stage).map(|change| {
                let (key, role) = (change.key(), foreign_role(&change, &refused));
                async move {
                    match role {
                        Some(role) => (key.clone(), Report::withheld(&key, &role)),
                        None => (key, Box::pin(self.one(change, known)).await),
                    }
                }
            });
            let reports: Vec<(ObjectKey, Report)> = reports.buffered(AT_ONCE).collect().await;
            for (key, report) in reports {
                done.errors.extend(report.error);
                done.pending |= report.pending;
                done.changed.extend(report.action.map(|action| Changed { key, action }));
                match report.note {
                    Some(Note::Done(wanted)) => memory.done(&wanted),
                    Some(Note::Settled(wanted, live)) => memory.settle(&wanted, &live),
                    None => {}
                }
            }
        }
        done
    }

    async fn one(&self, change: Change, memory: &Memory) -> Report {
        let wanted = match change {
            Change::Delete { key, uid } => return self.delete(&key, &uid).await,
            Change::Create(ref wanted)
            | Change::Apply { ref wanted, .. }
            | Change::Recreate { ref wanted, .. }
            | Change::Refuse { ref wanted, .. }
            | Change::Await(ref wanted) => wanted.clone(),
        };
        let result = self.put(&wanted, change, memory).await;
        result.unwrap_or_else(|stop| Report::failed("applying", &wanted.object, &stop))
    }

    /// Has an object be as wanted, however often that has to be looked at.
    async fn put(&self, wanted: &Wanted, first: Change, memory: &Memory) -> Result<Report, CallError> {
        let (mut change, mut report) = (first, Report::default());
        let again = if memory.was(wanted) { Action::Repaired } else { Action::Updated };
        let mut reason = None;
        for turn in 0..TURNS {
            let after = match &change {
                Change::Create(_) => self.create(&wanted.object, Action::Created).await?,
                Change::Apply { wanted, uid, before } => {
                    self.write(&wanted.object, uid, before.as_ref(), again).await?
                }
                Change::Recreate { wanted, uid, .. } => self.recreate(&wanted.object, uid).await?,
                // So it was known to be; what others do to theirs is not watched everywhere.
                Change::Refuse { wanted, .. } | Change::Await(wanted) if turn == 0 => {
                    After::Found(self.look(&wanted.object).await?, None)
                }
                Change::Refuse { wanted, owner } => {
                    return Ok(Report::refused(&wanted.key(), owner));
                }
                Change::Await(_) | Change::Delete { .. } => return Ok(Report { pending: true, ..report }),
            };
            let (live, written) = match after {
                After::Written(action, live) => {
                    report.action = report.action.or(Some(action));
                    reason = None;
                    (Some(live), true)
                }
                After::Found(live, refused) => {
                    reason = refused;
                    (live, false)
                }
            };
            let Some(next) = decide(wanted, live.as_ref(), memory) else {
                return Ok(Report { note: Some(Note::Done(wanted.clone())), ..report });
            };
            let stuck = next == change;
            change = next;
            match (live, &change) {
                // Written, and it made no difference.
                (Some(live), Change::Apply { wanted, .. }) if stuck && (written || reason.is_none()) => {
                    return Ok(Report { note: Some(Note::Settled(wanted.clone(), live)), ..report });
                }
                _ if stuck && reason.is_some() => break,
                _ => {}
            }
        }
        let reason = reason.unwrap_or_else(|| "it keeps changing".to_owned());
        Ok(Report { error: Some(format!("applying {}: {reason}", wanted.object)), pending: true, ..report })
    }

    /// Makes an object that is not known to be there.
    async fn create(&self, object: &Object, action: Action) -> Result<After, CallError> {
        if let Some(live) = self.look(object).await? {
            return Ok(After::Found(Some(live), None));
        }
        let mut applied = Err(CallError::Cancelled);
        for turn in 0..HEARINGS {
            self.count(object, Verb::Create);
            applied = self.api_server.apply(object, Force::No).await;
            let unheard = matches!(&applied, Err(CallError::Failed(error)) if is_not_found(error));
            if !unheard || !object.kind().kind.ends_with("Binding") {
                break;
            }
            tokio::time::sleep(HEARING * turn).await;
        }
        self.answered(object, None, applied.map(|answer| answer.body), action).await
    }

    /// Makes an object that is there say what it should.
    async fn write(
        &self,
        object: &Object,
        uid: &str,
        before: Option<&json_patch::Patch>,
        action: Action,
    ) -> Result<After, CallError> {
        if let Some(patch) = before {
            self.count(object, Verb::Patch);
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let patch = Patch::<()>::Json(patch.clone());
            let request = path(object.kind(), object.namespace()).patch(object.name(), &params, &patch)?;
            if let Err(stop) = self.api_server.call(request).await {
                return self.answered(object, None, Err(stop), action).await;
            }
        }
        self.count(object, Verb::Apply);
        let exactly = object.clone().with_metadata("uid", uid.into());
        let before = self.shared.read(|world| world.live.get(object.key()).and_then(version).cloned());
        let applied = self.api_server.apply(&exactly, Force::Yes).await;
        self.answered(object, before, applied.map(|answer| answer.body), action).await
    }

    async fn recreate(&self, object: &Object, uid: &str) -> Result<After, CallError> {
        self.remove(object, uid).await?;
        self.create(object, Action::Recreated).await
    }

    async fn delete(&self, key: &ObjectKey, uid: &str) -> Report {
        let body = json!({ "metadata": { "name": key.name, "namespace": key.namespace } });
        let Ok(object) = Object::from_value(key.kind.clone(), body) else { return Report::default() };
        match self.remove(&object, uid).await {
            Ok(true) => Report { action: Some(Action::Deleted), ..Report::default() },
            Ok(false) => Report::default(),
            Err(stop) => Report::failed("deleting", &object, &stop),
        }
    }

    /// Deletes an object if it is still the one with this id; whether it was.
    async fn remove(&self, object: &Object, uid: &str) -> Result<bool, CallError> {
        self.count(object, Verb::Delete);
        let there = self.api_server.delete(object, Some(uid), PropagationPolicy::Background).await?;
        self.shared.deleted(object.key(), uid);
        Ok(there)
    }

    /// Notes the answer to a write of what was of the version `before`. If that says that the object is not what it was thought to be, looks.
    async fn answered(
        &self,
        object: &Object,
        before: Option<Value>,
        answer: Result<Value, CallError>,
        action: Action,
    ) -> Result<After, CallError> {
        match answer {
            Ok(live) => {
                self.shared.wrote(object.key().clone(), live.clone());
                // The API server stores nothing where nothing differs.
                let same = before.is_some() && before.as_ref() == version(&live);
                Ok(if same { After::Found(Some(live), None) } else { After::Written(action, live) })
            }
            Err(CallError::Failed(error))
                if is_conflict(&error) || is_not_found(&error) || is_invalid(&error) =>
            {
                let reason = brief(&error);
                Ok(After::Found(self.look(object).await?, Some(reason)))
            }
            Err(stop) => Err(stop),
        }
    }

    /// The object as it is, which the world is told too.
    async fn look(&self, object: &Object) -> Result<Option<Value>, CallError> {
        let key = object.key().clone();
        let known =
            self.shared.read(|world| world.live.get(&key).map(|live| live["metadata"]["uid"].clone()));
        let live = self.api_server.get(object).await?;
        match &live {
            Some(live) => self.shared.wrote(key, live.clone()),
            None => self.shared.deleted(&key, known.unwrap_or_default().as_str().unwrap_or_default()),
        }
        Ok(live)
    }

    fn count(&self, object: &Object, verb: Verb) {
        self.metrics.wrote(&object.kind().kind, verb);
    }
}

impl Report {
    fn failed(doing: &str, object: &Object, stop: &CallError) -> Self {
        let error = match stop {
            // Whoever asked to stop does not want to hear of it.
            CallError::Cancelled => None,
            CallError::Failed(error) => Some(format!("{doing} {object}: {}", brief(error))),
        };
        Self { error, pending: true, ..Self::default() }
    }

    fn withheld(key: &ObjectKey, role: &ObjectKey) -> Self {
        let error = Some(format!("{key} is left alone as long as {role} is somebody else's"));
        Self { error, pending: true, ..Self::default() }
    }

    fn refused(key: &ObjectKey, owner: &str) -> Self {
        Self { error: Some(refusal(key, owner)), action: Some(Action::Refused), ..Self::default() }
    }
}

/// The role that a binding would give out, if it is one of those that are somebody else's: what that says is not ours to give.
fn foreign_role(change: &Change, refused: &[ObjectKey]) -> Option<ObjectKey> {
    let (Change::Create(wanted) | Change::Apply { wanted, .. } | Change::Recreate { wanted, .. }) = change
    else {
        return None;
    };
    let role = &wanted.object.body()["roleRef"];
    let is_it = |key: &&ObjectKey| {
        role["kind"] == key.kind.kind.as_str()
            && role["name"] == key.name.as_str()
            && (key.namespace.is_none() || key.namespace.as_deref() == wanted.object.namespace())
    };
    refused.iter().find(is_it).cloned()
}

fn version(live: &Value) -> Option<&Value> {
    live["metadata"].get("resourceVersion")
}

/// The test of a patch failed, an object of another id is there, or the object makes no sense.
fn is_invalid(error: &kube::Error) -> bool {
    runtime::client::code(error) == Some(422)
}

/// When a change is made: each of a stage can be made at the same time.
fn stage(change: &Change) -> usize {
    match change {
        Change::Delete { .. } => 4,
        change => match (change.key().kind.group.as_str(), change.key().kind.kind.as_str()) {
            ("apiextensions.k8s.io", _) => 0,
            ("apps", _) => 3,
            // Nobody is given a role that is not there.
            (_, kind) if kind.ends_with("Binding") => 2,
            _ => 1,
        },
    }
}
