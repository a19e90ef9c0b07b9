//! Keeps the NRT object on the API server equal to what the last scan said.
//!
//! In: the newest content ([`Desired`]); what the server holds ([`Known`], from a watch, reading, and the answers to writes).
//! Out: writes, only when the two differ. Never: a queue of old contents, a write without need, a change to what others wrote.
//!
//! # Why a patch with a resource version
//! All three ways to write ([`Mode`]) start from the object as it is, keep what others put there, and are conditional on its
//! resource version; a conflict means: look again. The patch is the default, because it
//! - is the least: a pod that comes changes a few amounts and the fingerprint, and only those travel, as a JSON patch, or as a
//!   merge patch where that is shorter ([`Change`]). An API server that cannot apply the first gets the second;
//! - can remove what an earlier exporter left, which server-side apply cannot do without having owned it;
//! - leaves no claim in `managedFields` that a later `kubectl apply` would have to fight.
//!
//! Server-side apply has nothing to merge here: the lists in question are atomic, whoever states one states all of it. It is
//! there because nfd-topology-updater does it so; a whole update because older roles of resource-topology-exporter lack
//! `patch`. Nothing needs to be done about fields that other managers own: patches and updates take what they change, and an
//! apply is forced. What another exporter stated and we do not (`topologyPolicies`, its attributes and annotations, its owner
//! reference) is removed by one merge patch even in [`Mode::Apply`].
//!
//! # When less is allowed
//! Nobody has to tell which role we have. A verb that is refused is replaced by another, said once, and tried again after ten
//! seconds, later ten minutes: patch and apply by update, update by patch; watch by reading before the first write and once in an interval; get by
//! a patch that changes nothing, whose answer is the object. Thus `create` with either `patch` or `get` and `update` suffices.
//!
//! # How often
//! One write per changed content, at most `WRITE_BURST` at once and then one in `WRITE_REFILL`; whatever comes meanwhile is in
//! the next one. A pod that comes changes the content once, one that goes once more: `p` pods a second in the whole cluster
//! that hold something cost at most `2 p` writes a second, however many nodes there are, and fewer where several come to a node
//! at once. Nothing happens on a node where nothing happens: its watch is open and silent, its Node is read every ten minutes.
//!
//! # Failures
//! Every call has a deadline. After a refusal or silence the next attempt comes after a jittered pause that grows to
//! `RETRY_MAX` (a busy server is left alone for as long as it says, a second at least) and carries what is newest then. A
//! process that ends drops the request in flight: each is one change, which the server has made or not.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::backoff::{Backoff, Random};
use runtime::client::{brief, code, is_already_exists, is_conflict, is_forbidden, is_not_found};
use runtime::ready::Gate;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tracing::{debug, info, warn};

use crate::metrics::{Metrics, Operation};
use crate::object::{Change, Content, Frame, Owner, Timing, Write};
#[cfg(doc)]
use crate::settings::Mode;
use crate::settings::Publishing;
use access::{Access, Verb};
use owner::Owners;
use runtime::token_bucket::TokenBucket;
use server::Server;

pub use held::{Held, Known};
pub use watching::watch as keep_watching;

mod access;
mod held;
mod owner;
mod server;
mod watching;

/// Pauses between attempts while the API server is away or says no.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Writes that may follow each other at once (a kubelet admits some twenty pods a second), and the time in which one more is earned.
const WRITE_BURST: u32 = 20;
const WRITE_REFILL: Duration = Duration::from_millis(25);
/// Repairs of what somebody else made of our object, at once and then in each such span. Two programs that each hold the
/// other's writes for mistakes would otherwise go on for ever, on every node.
const REPAIR_BURST: u32 = 5;
const REPAIR_REFILL: Duration = Duration::from_secs(15);
/// Attempts in a row that found the object to be another than thought, before there is a pause.
const FREE_TURNS: u32 = 4;

/// What the object should say, and why now.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The content.
    pub content: Arc<Content>,
    /// `periodic` or `reactive`.
    pub trigger: &'static str,
    /// How long the exporter had slept.
    pub timing: Timing,
    /// When what led to it was noticed.
    pub seen: Instant,
    /// Changes whenever the Node may have been registered anew.
    pub kubelet_starts: u64,
}

/// Settings of a [`Publisher`].
#[derive(Clone, Debug)]
pub struct Target {
    /// The node's and the object's name.
    pub name: String,
    /// How it is written.
    pub publishing: Publishing,
    /// How often the object is read while it may not be watched; zero: as often as refusals are doubted.
    pub reread: Duration,
    /// The namespace we run in, if any.
    pub namespace: Option<String>,
}

/// Writes the object.
pub struct Publisher {
    target: Target,
    server: Server,
    owners: Owners,
    access: Access,
    known: Arc<watch::Sender<Known>>,
    /// What was known when the present attempt began.
    before: Known,
    metrics: Metrics,
    published: Gate,
    write_tokens: TokenBucket,
    random: Random,
    /// Writes since the object was last read.
    writes: u32,
    /// The next change goes as a merge patch: a shorter one did not fit.
    plain: bool,
    /// The content that was written last.
    said: Option<Arc<Content>>,
    repairs: TokenBucket,
    /// When what is known becomes too old, if nobody tells us of changes.
    reread_at: Instant,
}

/// What came of one attempt.
enum Step {
    /// There is nothing to say yet, or nothing known yet.
    Waiting,
    /// Server and content agree.
    Settled,
    /// The object or our permissions are not what we thought: try again.
    Again,
    /// Somebody keeps changing the object: not before this moment again, unless there is something new to say.
    Later(Instant),
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not answer, or said no.
    #[error("{verb}: {}{}", brief(source), hint(source))]
    Api {
        /// What was tried.
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

    /// How long the server wants to be left alone.
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
        known: Arc<watch::Sender<Known>>,
        metrics: Metrics,
        published: Gate,
    ) -> Self {
        Self {
            owners: Owners::new(target.publishing.owner, &target.name, target.namespace.clone(), &client),
            server: Server::new(client, &target.name),
            target,
            access: Access::default(),
            known,
            before: Known::default(),
            metrics,
            published,
            write_tokens: TokenBucket::new(WRITE_BURST, WRITE_REFILL, Instant::now()),
            random: Random::from_entropy(),
            writes: 0,
            plain: false,
            said: None,
            repairs: TokenBucket::new(REPAIR_BURST, REPAIR_REFILL, Instant::now()),
            reread_at: Instant::now(),
        }
    }

    /// Publishes whatever is desired. `report` learns of every success and failure.
    ///
    /// # Errors
    /// When there is nobody left to say what is desired.
    pub async fn run(
        mut self,
        mut desired: watch::Receiver<Option<Desired>>,
        report: impl Fn(Result<(), String>),
    ) -> Result<Infallible, RecvError> {
        let mut known = self.known.subscribe();
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let mut complaint = String::new();
        let mut turns = 0;
        loop {
            // Bounds what a storm on the node can do to the API server; only the newest content is written afterwards.
            tokio::time::sleep_until(self.write_tokens.available_at().into()).await;
            let want = desired.borrow_and_update().clone();
            let have = known.borrow_and_update().clone();
            self.before = have.clone();
            let step = match &want {
                Some(want) => self.step(want, &have).await,
                None => Ok(Step::Waiting),
            };
            turns = if matches!(step, Ok(Step::Again)) { turns + 1 } else { 0 };
            match step {
                Ok(Step::Again) if turns <= FREE_TURNS => {}
                Ok(Step::Again) => tokio::time::sleep(backoff.next_delay()).await,
                Ok(Step::Later(at)) => {
                    const TEXT: &str =
                        "somebody keeps changing our object; is there another exporter for this node?";
                    if complaint != TEXT {
                        warn!("{TEXT} repairing it once in {REPAIR_REFILL:?} from now on");
                        TEXT.clone_into(&mut complaint);
                    }
                    report(Err(TEXT.to_owned()));
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
                    backoff.reset();
                    if !complaint.is_empty() {
                        info!("publishing works again");
                        complaint.clear();
                    }
                    self.published.open();
                    report(Ok(()));
                    let doubt = tokio::time::sleep_until(self.doubts_at(have.blind).into());
                    tokio::select! {
                        changed = desired.changed() => changed?,
                        _ = known.changed() => {}
                        () = doubt => {}
                    }
                }
                Err(error) => {
                    let (text, busy) = (error.to_string(), error.retry_after());
                    if complaint != text {
                        warn!(error = text, "cannot publish, trying again");
                        complaint.clone_from(&text);
                    }
                    report(Err(text));
                    let delay = backoff.next_delay();
                    // News from the watch mean that the server is back; a new scan is no reason to hurry.
                    tokio::select! {
                        () = tokio::time::sleep(delay.max(busy.unwrap_or_default())) => {}
                        _ = known.changed(), if busy.is_none() => tokio::time::sleep(RETRY_MIN).await,
                    }
                }
            }
        }
    }

    /// Compares, and reads or writes once.
    async fn step(&mut self, want: &Desired, known: &Known) -> Result<Step, Error> {
        let now = Instant::now();
        let readable = self.access.reading(now).is_some();
        if known.blind && readable && (known.held == Held::Unknown || now >= self.reread_at) {
            return self.read().await;
        }
        let held = match &known.held {
            Held::Unknown if !known.blind => return Ok(Step::Waiting),
            // Nobody lets us look: it will turn out.
            Held::Unknown | Held::Absent => None,
            Held::Object(object) => Some(object.as_ref()),
        };
        let told = self.owners.find(want, held.is_none()).await?;
        let Publishing { mode, resync, timing, .. } = self.target.publishing;
        let frame = Frame {
            name: &self.target.name,
            owner: &told.owner,
            kubelet_version: told.kubelet_version.as_deref(),
            trigger: want.trigger,
            timing: timing.then_some(want.timing),
        };
        let mode = self.access.writing(mode, now).unwrap_or(mode);
        let Some(mut write) = want.content.write(&frame, held, mode) else { return Ok(Step::Settled) };
        if let (Write::Patch(change), true) = (&mut write, self.plain) {
            change.edit = None;
        }
        let no_version = held.is_some_and(|held| held.metadata.resource_version.is_none());
        let doubtful = resync.is_some_and(|limit| self.writes >= limit)
            || (no_version && matches!(write, Write::Replace(_)));
        if doubtful && readable {
            return self.read().await;
        }
        let operation = if held.is_none() { Operation::Create } else { Operation::Update };
        let said = |said: &Arc<Content>| Arc::ptr_eq(said, &want.content);
        if held.is_some() && self.said.as_ref().is_some_and(said) {
            if self.repairs.available_at() > now {
                return Ok(Step::Later(self.repairs.available_at()));
            }
            self.repairs.take(now);
        }
        self.send(operation, &write, want).await
    }

    /// Looks at what is really there.
    async fn read(&mut self) -> Result<Step, Error> {
        while let Some(reading) = self.access.reading(Instant::now()) {
            let verb = reading.verb();
            match self.server.read(reading).await {
                Ok(held) => {
                    self.access.allow(verb);
                    self.writes = 0;
                    self.learn(held);
                    return Ok(Step::Again);
                }
                Err(refusal) if is_forbidden(&refusal) => self.refused(verb, &refusal),
                Err(error) => return Err(Error::api(verb.as_str(), error)),
            }
        }
        Ok(Step::Again)
    }

    /// Writes once.
    async fn send(&mut self, operation: Operation, write: &Write, want: &Desired) -> Result<Step, Error> {
        let started = Instant::now();
        self.write_tokens.take(started);
        if let Write::Patch(change) = write {
            self.measure(change.bytes(), want);
        }
        let verb = match write {
            Write::Create(_) => Verb::Create,
            Write::Patch(_) | Write::Apply(_) => Verb::Patch,
            Write::Replace(_) => Verb::Update,
        };
        match self.server.write(write).await {
            Ok(object) => {
                let since_seen = want.seen.elapsed();
                self.metrics.published(operation, want.trigger, started.elapsed(), since_seen);
                debug!(?operation, trigger = want.trigger, ?since_seen, "published");
                self.access.allow(verb);
                self.writes = self.writes.saturating_add(1);
                self.plain = false;
                self.said = Some(Arc::clone(&want.content));
                self.learn(Held::object(object));
                Ok(Step::Settled)
            }
            Err(error) => {
                self.metrics.publish_failed(code(&error), verb == Verb::Patch);
                let edited = matches!(write, Write::Patch(Change { edit: Some(_), .. }));
                // Its places are not there: the object is another than thought, or the server has its own mind about this notation.
                if edited && matches!(code(&error), Some(400 | 415 | 422)) {
                    self.plain = true;
                    return self.read().await;
                }
                self.recover(operation, verb, error, want).await
            }
        }
    }

    /// After a refused write: learns what explains it, if anything does.
    async fn recover(
        &mut self,
        operation: Operation,
        verb: Verb,
        error: kube::Error,
        want: &Desired,
    ) -> Result<Step, Error> {
        let now = Instant::now();
        if is_forbidden(&error) {
            if self.owners.refused(&error, want) {
                return Ok(Step::Again);
            }
            self.refused(verb, &error);
            if verb != Verb::Create && self.access.writing(self.target.publishing.mode, now).is_some() {
                return Ok(Step::Again);
            }
            self.access.doubt(now);
        } else if (is_conflict(&error) || is_already_exists(&error)) && self.access.reading(now).is_some() {
            return self.read().await;
        } else if operation == Operation::Update && is_not_found(&error) {
            self.learn(Held::Absent);
            return Ok(Step::Again);
        }
        Err(Error::api(verb.as_str(), error))
    }

    fn refused(&mut self, verb: Verb, refusal: &kube::Error) {
        let first = self.access.refuse(verb, Instant::now());
        if first && brief(refusal).contains("ValidatingAdmissionPolicy") {
            info!(refusal = brief(refusal), "an admission policy does not let us write our object");
        } else if first {
            info!(
                refusal = brief(refusal),
                "not allowed to {verb} our object, looking for another way; verb {verb} on \
                 noderesourcetopologies.topology.node.k8s.io in a ClusterRole would help",
                verb = verb.as_str()
            );
        }
    }

    /// Takes in what the server answered, unless the watch has told something newer meanwhile.
    fn learn(&mut self, held: Held) {
        let reread = Some(self.target.reread).filter(|reread| !reread.is_zero());
        self.reread_at = Instant::now() + jittered(reread.unwrap_or(access::BELIEVED_MAX), &mut self.random);
        self.known.send_modify(|known| known.learn(held, &self.before));
    }

    /// When to look again although nothing has happened.
    fn doubts_at(&self, blind: bool) -> Instant {
        let owner = self.owners.doubts_at();
        // Where nothing may be read there is nothing to be gained by waking up for it.
        if blind && self.access.reading(Instant::now()).is_some() { owner.min(self.reread_at) } else { owner }
    }

    fn measure(&self, bytes: usize, want: &Desired) {
        let owner = &Owner::Leave;
        let frame = Frame { owner, ..Frame::new(&self.target.name, want.trigger) };
        let whole = serde_json::to_vec(&want.content.object(&frame)).map_or(0, |json| json.len());
        self.metrics.patch_size(bytes as f64 / whole.max(1) as f64);
    }
}

/// What to do about a refusal, where that is known: who looks for a lost object finds it, so it is the kind that is not there.
fn hint(error: &kube::Error) -> &'static str {
    if is_not_found(error) {
        "; is the CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io installed?"
    } else {
        ""
    }
}

/// Around `span`, give or take a tenth: thousands of exporters that start together must not stay together.
fn jittered(span: Duration, random: &mut Random) -> Duration {
    span.mul_f64(0.9 + 0.2 * random.fraction())
}

#[cfg(test)]
mod tests;
