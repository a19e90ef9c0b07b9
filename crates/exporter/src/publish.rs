//! Keeps the NRT object on the API server equal to the result of the last scan.
//!
//! In: the newest content ([`Desired`]); the object as the server holds it ([`ServerState`], from a watch, from
//! reading, and from the answers to writes). Out: writes, only when the two differ. Never: a queue of old contents, a
//! write without need, a change to fields of others.
//!
//! # Why a patch with a resource version
//! All three ways to write ([`Mode`]) start from the object as it is, keep the fields of others, and are conditional on
//! its resource version; a conflict means: read again. The patch is the default, because it
//! - is the smallest: a new pod changes a few amounts and the fingerprint, and only those are sent, as a JSON patch, or
//!   as a merge patch where that is shorter ([`Change`]). An API server that cannot apply the first gets the second;
//! - can remove fields that an earlier exporter left, which server-side apply cannot do without having owned them;
//! - leaves no entry in `managedFields` that a later `kubectl apply` would have to overrule.
//!
//! Server-side apply has nothing to merge here: the lists in question are atomic, so each writer states all of a list.
//! It exists because nfd-topology-updater writes so; the whole update exists because older roles of
//! resource-topology-exporter lack `patch`. Fields that other managers own need no care: patches and updates take what
//! they change, and an apply is forced. Fields that another exporter stated and we do not (`topologyPolicies`, its
//! attributes and annotations, its owner reference) are removed by one merge patch even in [`Mode::Apply`].
//!
//! # With fewer permissions
//! The publisher does not need to know its role. A refused verb is replaced by another one, reported once, and tried
//! again after ten seconds, later after ten minutes. Patch and apply are replaced by update, update by patch; watch by
//! reading before the first write and once in an interval; get by a patch that changes nothing, whose answer is the
//! object. Thus `create` with either `patch` or `get` and `update` suffices.
//!
//! # Rate of writes
//! One write per changed content, at most `WRITE_BURST` at once and then one in `WRITE_REFILL`; later changes are
//! merged into the next one. A pod changes the content once when it comes and once when it goes: `p` pods a second in
//! the whole cluster that hold something cost at most `2 p` writes a second, however many nodes there are, and fewer
//! where several come to a node at once. A node without changes costs an open watch, and a read of its Node every ten
//! minutes.
//!
//! # Failures
//! Every call has a deadline. After a refusal or silence the next attempt comes after a jittered pause that grows to
//! `RETRY_MAX`, and carries the content that is newest then. A busy server is left alone for as long as it asks, a
//! second at least. A process that ends drops the request in flight: each is one change, which the server has made or
//! not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::backoff::Backoff;
use runtime::client::{brief, code, is_already_exists, is_conflict, is_forbidden, is_not_found};
use runtime::ready::Gate;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tracing::{debug, info, warn};

use crate::metrics::{Metrics, Operation};
use crate::object::{Change, Content, Owner, Timing, Write, WriteContext};
#[cfg(doc)]
use crate::settings::Mode;
use crate::settings::Publishing;
use access::{Access, Verb};
use owner::OwnerLookup;
use runtime::token_bucket::TokenBucket;
use server_state::ServerView;

pub use object_watch::watch as keep_watching;
pub use server::Server;
pub use server_state::{ServerState, StoredObject};

mod access;
mod object_watch;
mod owner;
mod server;
mod server_state;

/// Pauses between attempts while the API server is unavailable or refuses.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Writes in a burst (a kubelet admits some twenty pods a second), and the time in which one more is allowed.
const WRITE_BURST: u32 = 20;
const WRITE_REFILL: Duration = Duration::from_millis(25);
/// Repairs of other writers' changes to our object, in a burst and then in each such span. Two programs that each take
/// the other's writes for mistakes would otherwise continue for ever, on every node.
const REPAIR_BURST: u32 = 5;
const REPAIR_REFILL: Duration = Duration::from_secs(15);
/// Attempts in a row that found another object than expected, before there is a pause.
const IMMEDIATE_RETRIES: u32 = 4;
/// The problem while repairs are limited.
const CONTESTED: &str = "another writer keeps changing the object; is there a second exporter for this node?";

/// The content the object should have, and the cause of the present change.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The content.
    pub content: Arc<Content>,
    /// `periodic` or `reactive`.
    pub trigger: &'static str,
    /// How long the exporter had slept.
    pub timing: Timing,
    /// When the cause of the change was noticed.
    pub noticed_at: Instant,
    /// Changes whenever the Node may have been registered anew.
    pub kubelet_starts: u64,
}

/// Settings of a [`Publisher`].
#[derive(Clone, Debug)]
pub struct Target {
    /// The name of the node and of the object.
    pub name: String,
    /// How the object is written.
    pub publishing: Publishing,
    /// The interval of reads while the object may not be watched; zero: as often as refusals are tried again.
    pub reread: Duration,
    /// The namespace the exporter runs in, if any.
    pub namespace: Option<String>,
}

/// Writes the object.
pub struct Publisher {
    target: Target,
    server: Server,
    owners: OwnerLookup,
    access: Access,
    metrics: Metrics,
    published: Gate,
    view: ServerView,
    limits: Limits,
    history: WriteHistory,
}

/// How often the object may be written.
struct Limits {
    writes: TokenBucket,
    repairs: TokenBucket,
}

/// The writes so far, as far as later ones depend on them.
#[derive(Default)]
struct WriteHistory {
    /// Writes since the object was last read.
    since_read: u32,
    /// The next change goes as a merge patch: the server refused a JSON patch.
    merge_only: bool,
    /// The content that was written last.
    content: Option<Arc<Content>>,
}

/// The result of one attempt.
enum Step {
    /// Neither the content nor the state of the server is known yet.
    Waiting,
    /// Server and content agree.
    Settled,
    /// The object or our permissions are not as expected: try again.
    Retry,
    /// Another writer keeps changing the object: not before this moment again, unless the content changes.
    Postponed(Instant),
}

/// Failures in a row: how long to wait, and which error has been logged.
struct RetryState {
    backoff: Backoff,
    /// Attempts in a row that ended with [`Step::Retry`].
    retries: u32,
    /// The error that was logged last; empty after a success.
    logged: String,
}

impl RetryState {
    fn new() -> Self {
        Self { backoff: Backoff::new(RETRY_MIN, RETRY_MAX), retries: 0, logged: String::new() }
    }

    /// Counts retries in a row, and gives the pause before the next attempt.
    fn count(&mut self, step: &Result<Step, Error>) -> Duration {
        self.retries = if matches!(step, Ok(Step::Retry)) { self.retries + 1 } else { 0 };
        if self.retries > IMMEDIATE_RETRIES { self.backoff.next_delay() } else { Duration::ZERO }
    }

    /// Whether this error is not the one that was logged last.
    fn is_new(&mut self, error: &str) -> bool {
        let new = self.logged != error;
        error.clone_into(&mut self.logged);
        new
    }

    fn succeeded(&mut self) {
        self.backoff.reset();
        if !std::mem::take(&mut self.logged).is_empty() {
            info!("publishing works again");
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not answer, or refused.
    #[error("{verb}: {}{}", brief(source), hint(source))]
    Api {
        /// The verb of the call.
        verb: &'static str,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// There is no such Node.
    #[error("there is no Node {0:?} to own the object (yet); --add-nrt-owner=false publishes without one")]
    NoNode(String),
}

impl Error {
    fn api(verb: &'static str, source: kube::Error) -> Self {
        Self::Api { verb, source: Box::new(source) }
    }

    /// The pause the server asks for.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api { source, .. } => server::retry_after(source),
            Self::NoNode(_) => None,
        }
    }
}

impl Publisher {
    /// Prepares a publisher; `published` opens after the first success.
    pub fn new(
        target: Target,
        client: kube::Client,
        known: Arc<watch::Sender<ServerState>>,
        metrics: Metrics,
        published: Gate,
    ) -> Self {
        let (owner, namespace) = (target.publishing.owner, target.namespace.clone());
        let reread = Some(target.reread).filter(|reread| !reread.is_zero());
        let now = Instant::now();
        Self {
            owners: OwnerLookup::new(owner, &target.name, namespace, &client),
            server: Server::new(client, &target.name),
            access: Access::default(),
            metrics,
            published,
            view: ServerView::new(known, reread.unwrap_or(access::REFUSAL_MAX)),
            limits: Limits {
                writes: TokenBucket::new(WRITE_BURST, WRITE_REFILL, now),
                repairs: TokenBucket::new(REPAIR_BURST, REPAIR_REFILL, now),
            },
            history: WriteHistory::default(),
            target,
        }
    }

    /// Publishes the newest desired content for ever. `report` is called with every success and failure.
    ///
    /// # Errors
    /// When the sender of the desired content is gone.
    pub async fn run(
        mut self,
        mut desired: watch::Receiver<Option<Desired>>,
        report: impl Fn(Result<(), String>),
    ) -> Result<Infallible, RecvError> {
        let mut known = self.view.subscribe();
        let mut retry = RetryState::new();
        loop {
            // Bounds what a storm on the node can do to the API server; only the newest content is written afterwards.
            tokio::time::sleep_until(self.limits.writes.available_at().into()).await;
            let want = desired.borrow_and_update().clone();
            let state = known.borrow_and_update().clone();
            self.view.begin(&state);
            let step = match &want {
                Some(want) => self.step(want, &state).await,
                None => Ok(Step::Waiting),
            };
            let pause = retry.count(&step);
            match step {
                Ok(Step::Retry) => tokio::time::sleep(pause).await,
                Ok(Step::Postponed(at)) => {
                    if retry.is_new(CONTESTED) {
                        warn!("{CONTESTED} It is repaired at most once in {REPAIR_REFILL:?} from now on");
                    }
                    report(Err(CONTESTED.to_owned()));
                    tokio::select! {
                        changed = desired.changed() => changed?,
                        () = tokio::time::sleep_until(at.into()) => {}
                    }
                }
                Ok(Step::Waiting) => tokio::select! {
                    changed = desired.changed() => changed?,
                    _ = known.changed() => {}
                },
                Ok(Step::Settled) => {
                    retry.succeeded();
                    self.published.open();
                    report(Ok(()));
                    let recheck = tokio::time::sleep_until(self.recheck_at(state.unwatched).into());
                    tokio::select! {
                        changed = desired.changed() => changed?,
                        _ = known.changed() => {}
                        () = recheck => {}
                    }
                }
                Err(error) => {
                    let (text, busy) = (error.to_string(), error.retry_after());
                    if retry.is_new(&text) {
                        warn!(error = text, "cannot publish, trying again");
                    }
                    report(Err(text));
                    let delay = retry.backoff.next_delay();
                    // An event of the watch means that the server is back; a new scan is no reason to hurry.
                    tokio::select! {
                        () = tokio::time::sleep(delay.max(busy.unwrap_or_default())) => {}
                        _ = known.changed(), if busy.is_none() => tokio::time::sleep(RETRY_MIN).await,
                    }
                }
            }
        }
    }

    /// Compares the object with the desired content, and reads or writes once.
    async fn step(&mut self, desired: &Desired, known: &ServerState) -> Result<Step, Error> {
        let now = Instant::now();
        let readable = self.access.reading(now).is_some();
        if known.unwatched
            && readable
            && (known.stored == StoredObject::Unknown || now >= self.view.reread_at())
        {
            return self.read().await;
        }
        let stored = match &known.stored {
            StoredObject::Unknown if !known.unwatched => return Ok(Step::Waiting),
            // The object may not be read: the answer to a write will show it.
            StoredObject::Unknown | StoredObject::Absent => None,
            StoredObject::Object(object) => Some(object.as_ref()),
        };
        let info = self.owners.find(desired, stored.is_none()).await?;
        let Publishing { mode, resync, timing, .. } = self.target.publishing;
        let context = WriteContext {
            name: &self.target.name,
            owner: &info.owner,
            kubelet_version: info.kubelet_version.as_deref(),
            trigger: desired.trigger,
            timing: timing.then_some(desired.timing),
        };
        let mode = self.access.writing(mode, now).unwrap_or(mode);
        let Some(mut write) = desired.content.write(&context, stored, mode) else { return Ok(Step::Settled) };
        if let (Write::Patch(change), true) = (&mut write, self.history.merge_only) {
            change.edit = None;
        }
        let no_version = stored.is_some_and(|stored| stored.metadata.resource_version.is_none());
        let doubtful = resync.is_some_and(|limit| self.history.since_read >= limit)
            || (no_version && matches!(write, Write::Replace(_)));
        if doubtful && readable {
            return self.read().await;
        }
        let operation = if stored.is_none() { Operation::Create } else { Operation::Update };
        let same = |written: &Arc<Content>| Arc::ptr_eq(written, &desired.content);
        if stored.is_some() && self.history.content.as_ref().is_some_and(same) {
            if self.limits.repairs.available_at() > now {
                return Ok(Step::Postponed(self.limits.repairs.available_at()));
            }
            self.limits.repairs.take(now);
        }
        self.send(operation, &write, desired).await
    }

    /// Reads the object.
    async fn read(&mut self) -> Result<Step, Error> {
        while let Some(reading) = self.access.reading(Instant::now()) {
            let verb = reading.verb();
            match self.server.read(reading).await {
                Ok(stored) => {
                    self.access.allow(verb);
                    self.history.since_read = 0;
                    self.view.record(stored);
                    return Ok(Step::Retry);
                }
                Err(refusal) if is_forbidden(&refusal) => self.refused(verb, &refusal),
                Err(error) => return Err(Error::api(verb.as_str(), error)),
            }
        }
        Ok(Step::Retry)
    }

    /// Writes the object once.
    async fn send(&mut self, operation: Operation, write: &Write, desired: &Desired) -> Result<Step, Error> {
        let started = Instant::now();
        self.limits.writes.take(started);
        if let Write::Patch(change) = write {
            self.measure(change.bytes(), desired);
        }
        let verb = match write {
            Write::Create(_) => Verb::Create,
            Write::Patch(_) | Write::Apply(_) => Verb::Patch,
            Write::Replace(_) => Verb::Update,
        };
        match self.server.write(write).await {
            Ok(object) => {
                let since_noticed = desired.noticed_at.elapsed();
                self.metrics.published(operation, desired.trigger, started.elapsed(), since_noticed);
                debug!(?operation, trigger = desired.trigger, ?since_noticed, "published");
                self.access.allow(verb);
                self.history.since_read = self.history.since_read.saturating_add(1);
                self.history.merge_only = false;
                self.history.content = Some(Arc::clone(&desired.content));
                self.view.record(StoredObject::present(object));
                Ok(Step::Settled)
            }
            Err(error) => {
                self.metrics.publish_failed(code(&error), verb == Verb::Patch);
                let edited = matches!(write, Write::Patch(Change { edit: Some(_), .. }));
                // Its paths do not exist: the object is another one than expected, or the server rejects the notation.
                if edited && matches!(code(&error), Some(400 | 415 | 422)) {
                    self.history.merge_only = true;
                    return self.read().await;
                }
                self.recover(operation, verb, error).await
            }
        }
    }

    /// After a refused write: finds the cause, if it is known how to continue.
    async fn recover(&mut self, operation: Operation, verb: Verb, error: kube::Error) -> Result<Step, Error> {
        let now = Instant::now();
        if is_forbidden(&error) {
            if self.owners.refused(&error) {
                return Ok(Step::Retry);
            }
            self.refused(verb, &error);
            if verb != Verb::Create && self.access.writing(self.target.publishing.mode, now).is_some() {
                return Ok(Step::Retry);
            }
            self.access.retry_all(now);
        } else if (is_conflict(&error) || is_already_exists(&error)) && self.access.reading(now).is_some() {
            return self.read().await;
        } else if operation == Operation::Update && is_not_found(&error) {
            self.view.record(StoredObject::Absent);
            return Ok(Step::Retry);
        }
        Err(Error::api(verb.as_str(), error))
    }

    fn refused(&mut self, verb: Verb, refusal: &kube::Error) {
        let first = self.access.refuse(verb, Instant::now());
        if first && brief(refusal).contains("ValidatingAdmissionPolicy") {
            info!(refusal = brief(refusal), "an admission policy refuses writes of the object");
        } else if first {
            info!(
                refusal = brief(refusal),
                "not allowed to {verb} the object, trying another verb; to allow it, grant verb {verb} on \
                 noderesourcetopologies.topology.node.k8s.io in a ClusterRole",
                verb = verb.as_str()
            );
        }
    }

    /// When to check the object again although nothing has changed.
    fn recheck_at(&self, unwatched: bool) -> Instant {
        let owner = self.owners.expires_at();
        // Without permission to read, waking up for it would be in vain.
        if unwatched && self.access.reading(Instant::now()).is_some() {
            owner.min(self.view.reread_at())
        } else {
            owner
        }
    }

    fn measure(&self, bytes: usize, desired: &Desired) {
        let owner = &Owner::Leave;
        let context = WriteContext { owner, ..WriteContext::new(&self.target.name, desired.trigger) };
        let whole = serde_json::to_vec(&desired.content.object(&context)).map_or(0, |json| json.len());
        self.metrics.patch_size(bytes as f64 / whole.max(1) as f64);
    }
}

/// The remedy for a refusal, where it is known. A missing object is created, so "not found" means a missing definition.
fn hint(error: &kube::Error) -> &'static str {
    if is_not_found(error) {
        "; is the CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io installed?"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests;
