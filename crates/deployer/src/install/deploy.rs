//! Installing parts, in order; each run completes what an earlier one left.
//!
//! In: parts. Out: a cluster with their objects and no other objects of these components. Never: a write to an object
//! of others, unless adoption is asked for.

use std::time::Duration;

use kube::Client;
use runtime::client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::decide::{decide, lacks_labels, merged, refusal};
use super::kinds::{DEFINITION, is_ground};
use super::run::{Halt, Run};
use super::step::{Change, ObjectStep, Observer, Operation, Step};
use super::{DryRun, Error, Outcome, Settings};
use crate::part::{Component, Part};
use objects::Object;
use objects::client::{CallError, Force};
use objects::decision::Decision;
use objects::equality::{content, says};

/// Attempts to write an object that other clients change between our read and our write.
const TRIES: u32 = 6;
/// The pause after the first attempt; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Deploys the parts in their order.
///
/// Dropping the future or cancelling `cancel` interrupts a deployment anywhere; calling this function again completes
/// it.
///
/// # Errors
/// The first failure; with `atomic` it is an [`Error::RolledBack`]. Nothing is rolled back once all objects are
/// deployed and only objects of earlier deployments remain to be deleted.
pub async fn deploy(
    client: &Client,
    parts: &[Part],
    settings: &Settings,
    observer: &mut dyn Observer,
    cancel: &CancellationToken,
) -> Result<Outcome, Error> {
    let mut run = Run::new(client, settings, observer, cancel);
    let Err(halt) = Box::pin(run.deploy(parts)).await else { return Ok(run.outcome) };
    let cause = run.explain(halt, parts);
    if !settings.atomic || run.is_dry() || run.change_log.closed {
        return Err(cause);
    }
    let failures = Box::pin(run.roll_back()).await;
    Err(Error::RolledBack { cause: Box::new(cause), failures })
}

/// The result of a write.
enum Written {
    Done(Change),
    /// Another client wrote in between, or the kind is not served yet.
    Again,
    /// A field cannot be changed, for this reason.
    Immutable(String),
}

impl Run<'_> {
    async fn deploy(&mut self, parts: &[Part]) -> Result<(), Halt> {
        let waits = (self.settings.wait || self.settings.atomic) && !self.is_dry();
        for part in parts {
            let component = part.component();
            self.observe(&Step::Began(Operation::Deploy, component));
            for object in part.objects() {
                let put = self.put(component, object).await;
                put.map_err(|halt| self.failed(Operation::Deploy, component, object, halt))?;
            }
            let workloads = part.objects().iter().filter(|object| waits && object.kind().is_workload());
            for object in workloads {
                let waited = self.wait_ready(component, object).await;
                waited.map_err(|halt| self.failed(Operation::Deploy, component, object, halt))?;
            }
            self.observe(&Step::Ended(Operation::Deploy, component));
        }
        self.change_log.closed = true;
        self.prune(parts).await
    }

    /// Creates or updates one object, and reports the change.
    async fn put(&mut self, component: Component, object: &Object) -> Result<(), Halt> {
        let mut anew = false;
        let mut pause = PAUSE;
        for _ in 0..TRIES {
            let live = self.get(object).await?;
            let live = live.as_ref();
            let written = match decide(object, live, self.settings.adopt) {
                Decision::Refuse { owner, lacks } => return Err(refusal(object, owner, lacks).into()),
                Decision::Leave | Decision::Remove { .. } => {
                    if let Some(lacks) = live.and_then(|live| lacks_labels(object, live)) {
                        self.report(component, object, ObjectStep::Note(lacks));
                    }
                    Written::Done(Change::Foreign)
                }
                Decision::Await if self.is_dry() => {
                    let note = "is being deleted; a deployment would wait for that".to_owned();
                    self.report(component, object, ObjectStep::Note(note));
                    self.imagine(component, object).await?
                }
                Decision::Await => {
                    self.wait_gone(component, object, None).await?;
                    continue;
                }
                Decision::Create => self.write(component, object, None, Force::No).await?,
                Decision::Change { .. } => {
                    self.write(component, &merged(object, live), live, Force::Yes).await?
                }
                Decision::Adopt => match self.write(component, object, live, Force::Yes).await? {
                    Written::Done(_) => Written::Done(Change::Adopted),
                    other => other,
                },
                Decision::Recreate { field, .. } => Written::Immutable(format!("{field} cannot be changed")),
            };
            match written {
                Written::Done(Change::Created) if anew => {
                    return self.put_done(component, object, Change::Recreated).await;
                }
                Written::Done(change) => return self.put_done(component, object, change).await,
                Written::Again => {}
                Written::Immutable(reason) => {
                    self.report(component, object, ObjectStep::Recreating(reason));
                    if self.is_dry() {
                        self.imagine(component, object).await?;
                        return self.put_done(component, object, Change::Recreated).await;
                    }
                    self.discard(component, object, live).await?;
                    anew = true;
                    continue;
                }
            }
            self.api_server.sleep(pause).await.map_err(|stop| Halt::of("applying", object, stop))?;
            pause *= 2;
        }
        let busy = kube::Error::Service("the object, its kind or its namespace keeps changing".into());
        Err(Halt::of("applying", object, CallError::Failed(busy)))
    }

    async fn put_done(&mut self, component: Component, object: &Object, change: Change) -> Result<(), Halt> {
        self.report(component, object, ObjectStep::Applied(change));
        if object.kind().group_kind() == DEFINITION && !self.is_dry() {
            self.wait_ready(component, object).await?;
        }
        Ok(())
    }

    /// Applies an object; `live` is the object in the cluster.
    async fn write(
        &mut self,
        component: Component,
        object: &Object,
        live: Option<&Value>,
        force: Force,
    ) -> Result<Written, Halt> {
        if self.settings.dry_run == Some(DryRun::Client) {
            return Ok(Written::Done(match live {
                None => Change::Created,
                Some(live) if says(live, object.body()) => Change::Unchanged,
                Some(_) => Change::Configured,
            }));
        }
        // Logged before the call: a write whose answer is lost has to be undone too.
        self.change_log.note(component, object, live);
        let answer = match self.api_server.apply(object, force).await {
            Ok(answer) => answer,
            Err(stop) if stop.is(client::is_conflict) => return Ok(Written::Again),
            Err(stop) if stop.is(client::is_not_found) && self.is_dry() => {
                return self.imagine(component, object).await;
            }
            // In a cluster of several API servers one may not serve a new kind yet.
            Err(stop) if stop.is(client::is_not_found) => return Ok(Written::Again),
            Err(CallError::Failed(error)) if live.is_some() && !is_ground(object.kind()) => {
                return match unchangeable(&error) {
                    Some(reason) => Ok(Written::Immutable(reason)),
                    None => Err(Halt::of("applying", object, CallError::Failed(error))),
                };
            }
            Err(stop) => return Err(Halt::of("applying", object, stop)),
        };
        self.warn(component, object, answer.warnings);
        Ok(Written::Done(match live {
            None => Change::Created,
            Some(live) if content(live) == content(&answer.body) => {
                self.change_log.forget(object);
                Change::Unchanged
            }
            Some(_) => Change::Configured,
        }))
    }

    /// Lets the API server validate an object under another name, because its namespace does not exist yet or the old
    /// object is still there.
    async fn imagine(&mut self, component: Component, object: &Object) -> Result<Written, Halt> {
        if self.settings.dry_run == Some(DryRun::Server) {
            match self.api_server.probe(object).await {
                Ok(answer) => self.warn(component, object, answer.warnings),
                Err(stop) if stop.is(client::is_not_found) => {
                    let note = "was not checked, because the API server does not serve its kind yet";
                    self.report(component, object, ObjectStep::Note(note.to_owned()));
                }
                Err(stop) => return Err(Halt::of("applying", object, stop)),
            }
        }
        Ok(Written::Done(Change::Created))
    }

    fn warn(&mut self, component: Component, object: &Object, warnings: Vec<String>) {
        for warning in warnings {
            self.report(component, object, ObjectStep::Warned(warning));
        }
    }

    /// Deletes an object that cannot be changed, and waits until it is gone.
    async fn discard(
        &mut self,
        component: Component,
        object: &Object,
        live: Option<&Value>,
    ) -> Result<(), Halt> {
        let Some(live) = live else { return Ok(()) };
        self.change_log.note(component, object, Some(live));
        self.delete(object, live, object.kind().is_workload()).await?;
        self.wait_gone(component, object, Some(&live["metadata"]["uid"])).await
    }

    /// The error for the caller.
    fn explain(&self, halt: Halt, parts: &[Part]) -> Error {
        let done = self.outcome.applied.len();
        let objects = || parts.iter().flat_map(Part::objects);
        match halt {
            Halt::Failed(error) => error,
            Halt::Cancelled => Error::Cancelled {
                done,
                all: objects().count(),
                next: objects().nth(done).map(ToString::to_string),
            },
        }
    }
}

/// The immutable fields that an update tried to change, if nothing else is wrong with it.
fn unchangeable(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    let causes = &status.details.as_ref().filter(|_| status.code == 422)?.causes;
    let says_so = |message: &str| message.contains("immutable") || message.contains("cannot change");
    let all = !causes.is_empty() && causes.iter().all(|cause| says_so(&cause.message));
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    all.then(|| format!("{} cannot be changed", fields.join(", ")))
}
