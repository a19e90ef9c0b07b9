//! Keeps the NRT object on the API server equal to what the last scan said.
//!
//! In: the newest content ([`Desired`]); what the server holds ([`Held`], fed by a watch). Out: writes, only when the two
//! differ. Never: a queue of old contents, a write without need, a change to what others wrote.
//!
//! # Why a merge patch with a resource version, and not server-side apply
//! The lists in question are atomic, so server-side apply has nothing to merge: whoever writes a list writes all of it. What
//! it cannot do is remove what an earlier exporter left (`topologyPolicies`, stale attributes) without owning it first, and
//! keep attributes of others, which needs a look at the object anyway. The watch holds that object for us, so a patch
//! can name exactly the members that differ, and the resource version makes sure that it is the object we looked at. A
//! conflict means: look again.
//!
//! # Why a watch of one object, and not a look now and then
//! It notices a deletion or a foreign change at once, saves reading before writing, and costs the server one
//! watch bound to one name, which sees only this node's events.
//!
//! # The owner
//! The Node's UID is read (metadata only) before the first write, again whenever the object was deleted (which is what the
//! garbage collector does to the object of a node that was replaced), whenever the kubelet restarted (which is when nodes
//! are registered), and every ten minutes. While there is no Node, nothing is published: an object without an owner
//! would stay for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use runtime::backoff::Backoff;
use runtime::client::{brief, code, is_already_exists, is_conflict, is_not_found};
use runtime::ready::Gate;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tracing::{debug, info, warn};

use crate::allowance::Allowance;
use crate::metrics::{Metrics, Operation};
use crate::object::{Content, Owner, Write};

pub use held::Held;

mod held;

/// Pauses between attempts while the API server is away or says no.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Writes that may follow each other at once (a kubelet admits some twenty pods a second), and the time in which one more is earned.
const WRITE_BURST: u32 = 20;
const WRITE_EARN: Duration = Duration::from_millis(25);
/// How long the Node's UID is believed without a reason to doubt it.
const OWNER_AGE: Duration = Duration::from_secs(600);
/// Who we are in `managedFields`.
const FIELD_MANAGER: &str = "tholepin-exporter";

/// What the object should say, and why now.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The content.
    pub content: Arc<Content>,
    /// `periodic` or `reactive`.
    pub trigger: &'static str,
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
    /// Whether the Node owns the object.
    pub owned: bool,
}

/// Writes the object.
pub struct Publisher {
    target: Target,
    objects: Api<NodeResourceTopology>,
    nodes: Api<Node>,
    held: Arc<watch::Sender<Held>>,
    metrics: Metrics,
    published: Gate,
    uid: Option<Uid>,
    allowance: Allowance,
}

/// A Node's UID and when it was read.
struct Uid {
    uid: String,
    read: Instant,
    kubelet_starts: u64,
}

/// What came of one attempt.
enum Step {
    /// Server and content agree.
    Settled,
    /// The object is not what we thought: try again, nothing to wait for.
    Again,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not answer, or said no.
    #[error("{verb}: {}", brief(source))]
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

impl Publisher {
    /// Prepares a publisher; `published` opens after the first success.
    pub fn new(
        target: Target,
        client: kube::Client,
        held: Arc<watch::Sender<Held>>,
        metrics: Metrics,
        published: Gate,
    ) -> Self {
        let (objects, nodes) = (Api::all(client.clone()), Api::all(client));
        Self {
            target,
            objects,
            nodes,
            held,
            metrics,
            published,
            uid: None,
            allowance: Allowance::new(WRITE_BURST, WRITE_EARN, Instant::now()),
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
        let mut held = self.held.subscribe();
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let mut complaint = String::new();
        loop {
            // Bounds what a storm on the node can do to the API server; only the newest content is written afterwards.
            tokio::time::sleep_until(self.allowance.free_at().into()).await;
            let want = desired.borrow_and_update().clone();
            let have = held.borrow_and_update().clone();
            let step = match &want {
                Some(want) => self.step(want, &have).await,
                None => Ok(Step::Settled),
            };
            match step {
                Ok(Step::Settled) => {
                    backoff.reset();
                    if !complaint.is_empty() {
                        info!("publishing works again");
                        complaint.clear();
                    }
                    if want.is_some() && !matches!(have, Held::Unknown) {
                        self.published.open();
                        report(Ok(()));
                    }
                    let owner_is_old = tokio::time::sleep(OWNER_AGE);
                    tokio::select! {
                        changed = desired.changed() => changed?,
                        _ = held.changed() => {}
                        () = owner_is_old => {}
                    }
                }
                Ok(Step::Again) => {}
                Err(error) => {
                    let text = error.to_string();
                    if complaint != text {
                        warn!(error = text, "cannot publish, trying again");
                        complaint.clone_from(&text);
                    }
                    report(Err(text));
                    // News from the watch mean that the server is back; a new scan is no reason to hurry.
                    tokio::select! {
                        () = tokio::time::sleep(backoff.next_delay()) => {}
                        _ = held.changed() => tokio::time::sleep(RETRY_MIN).await,
                    }
                }
            }
        }
    }

    /// Compares and writes once.
    async fn step(&mut self, want: &Desired, have: &Held) -> Result<Step, Error> {
        let have = match have {
            Held::Unknown => return Ok(Step::Settled),
            Held::Absent => None,
            Held::Object(object) => Some(object.as_ref()),
        };
        let owner = self.owner(want, have.is_none()).await?;
        let Some(write) = want.content.write(&self.target.name, have, &owner, want.trigger) else {
            return Ok(Step::Settled);
        };
        let started = Instant::now();
        self.allowance.spend(started);
        let (operation, result) = match write {
            Write::Create(object) => {
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                (Operation::Create, self.objects.create(&params, &object).await)
            }
            Write::Patch(patch) => {
                self.measure(&patch, want);
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                (
                    Operation::Update,
                    self.objects.patch(&self.target.name, &params, &Patch::Merge(&patch)).await,
                )
            }
        };
        match result {
            Ok(object) => {
                let since_seen = want.seen.elapsed();
                self.metrics.published(operation, want.trigger, started.elapsed(), since_seen);
                debug!(?operation, trigger = want.trigger, ?since_seen, "published");
                self.learn(Held::object(object));
                Ok(Step::Settled)
            }
            Err(error) => {
                self.metrics.publish_failed(code(&error), operation == Operation::Update);
                self.recover(operation, error).await
            }
        }
    }

    /// After a refused write: learns what is really there, if that explains it.
    async fn recover(&mut self, operation: Operation, error: kube::Error) -> Result<Step, Error> {
        let patched = operation == Operation::Update;
        if (patched && is_conflict(&error)) || (!patched && is_already_exists(&error)) {
            let found = self.objects.get_opt(&self.target.name).await;
            let found = found.map_err(|source| Error::Api { verb: "get", source: Box::new(source) })?;
            self.learn(found.map_or(Held::Absent, Held::object));
            return Ok(Step::Again);
        }
        if patched && is_not_found(&error) {
            self.learn(Held::Absent);
            return Ok(Step::Again);
        }
        let verb = if patched { "patch" } else { "create" };
        Err(Error::Api { verb, source: Box::new(error) })
    }

    /// What the server answered is newer than what the watch has told so far.
    fn learn(&self, held: Held) {
        self.held.send_replace(held);
    }

    /// The owner to state; reads the Node when there is a reason to.
    async fn owner(&mut self, want: &Desired, absent: bool) -> Result<Owner, Error> {
        if !self.target.owned {
            return Ok(Owner::Leave);
        }
        let fresh = |uid: &&Uid| {
            !absent && uid.kubelet_starts == want.kubelet_starts && uid.read.elapsed() < OWNER_AGE
        };
        if let Some(uid) = self.uid.as_ref().filter(fresh) {
            return Ok(Owner::Node { uid: uid.uid.clone() });
        }
        let node = self.nodes.get_metadata_opt(&self.target.name).await;
        let node = node.map_err(|source| Error::Api { verb: "get node", source: Box::new(source) })?;
        let uid = node.and_then(|node| node.metadata.uid);
        let uid = uid.ok_or_else(|| Error::NoNode(self.target.name.clone()))?;
        self.uid = Some(Uid { uid: uid.clone(), read: Instant::now(), kubelet_starts: want.kubelet_starts });
        Ok(Owner::Node { uid })
    }

    fn measure(&self, patch: &serde_json::Value, want: &Desired) {
        let size = |json: serde_json::Result<Vec<u8>>| json.map_or(0, |json| json.len());
        let whole = want.content.object(&self.target.name, &Owner::Leave, want.trigger);
        let (patch, whole) = (size(serde_json::to_vec(patch)), size(serde_json::to_vec(&whole)));
        self.metrics.patch_size(patch as f64 / whole.max(1) as f64);
    }
}

#[cfg(test)]
mod tests;
