//! Makes the fleet's writes: API calls at a limited rate, several at a time, one at a time for each object.
//!
//! In: [`Write`]s. Out: calls. Never: an older write of an object after a newer one, or a queue of old contents: a
//! write that waits gives way to the next one of its object.
//!
//! # Failures
//! A write that fails is tried again after a pause that grows to [`RETRY_MAX`], unless a newer one is there by then. A
//! write for a pod that is gone or another one by now is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exporter::object::{Content, Owner, WriteContext};
use exporter::publish::{Server, StoredObject};
use exporter::settings::Mode;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use runtime::backoff::doubled;
use runtime::client::{brief, code, is_already_exists, is_conflict, is_not_found};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::nodes::RegisteredNode;
use super::pace::Pace;
use super::{SharedFleet, sleep};
use crate::fleet::{Key, Write};
use crate::machine::KUBELET_VERSION;
use crate::metrics::Metrics;
use crate::pod::PodName;

/// Calls at a time.
const CALLS: usize = 32;
/// Pauses between attempts.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Attempts in a row that find another object than expected, before there is a pause; of a pod, before it is given up.
const CONFLICTS: u32 = 4;

/// Makes writes.
pub(super) struct Outbox {
    client: Client,
    nodes: Arc<Vec<RegisteredNode>>,
    fleet: SharedFleet,
    metrics: Metrics,
    pace: Arc<Pace>,
    /// Reports as the server has them, by node.
    stored: Vec<StoredObject>,
    /// The newest write of each object that waits, and attempts that failed.
    waiting: BTreeMap<Key, (Write, u32)>,
    /// Objects with a write whose turn will come, in their order; those of `busy` are left out.
    ready: VecDeque<Key>,
    /// Objects whose write failed, and when it is tried again.
    resting: BTreeSet<(Instant, Key)>,
    /// Objects with a call in flight.
    busy: BTreeSet<Key>,
}

/// The end of a call.
struct Done {
    write: Write,
    attempt: u32,
    result: Result<(), kube::Error>,
    /// The report as the server has it now.
    stored: Option<StoredObject>,
}

impl Outbox {
    pub(super) fn new(
        client: Client,
        nodes: Arc<Vec<RegisteredNode>>,
        fleet: SharedFleet,
        qps: u32,
        metrics: Metrics,
    ) -> Self {
        let stored = |node: &RegisteredNode| {
            if node.is_new { StoredObject::Absent } else { StoredObject::Unknown }
        };
        Self {
            stored: nodes.iter().map(stored).collect(),
            client,
            nodes,
            fleet,
            metrics,
            pace: Arc::new(Pace::new(qps)),
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
            resting: BTreeSet::new(),
            busy: BTreeSet::new(),
        }
    }

    /// Makes writes for ever.
    pub(super) async fn run(mut self, mut writes: mpsc::UnboundedReceiver<Write>) -> Infallible {
        let mut calls = FuturesUnordered::new();
        loop {
            self.metrics.waiting(self.waiting.len());
            let rest = self.resting.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                Some(done) = calls.next() => self.done(done),
                Some(write) = writes.recv() => self.add(write, 0),
                () = sleep(rest) => {
                    if let Some((_, key)) = self.resting.pop_first() {
                        self.ready.push_back(key);
                    }
                }
            }
            while calls.len() < CALLS
                && let Some(call) = self.next_call()
            {
                calls.push(call);
            }
        }
    }

    /// Adds a write, in place of the one of the same object that waits.
    fn add(&mut self, write: Write, attempt: u32) {
        let key = write.key();
        let before = self.waiting.insert(key.clone(), (write, attempt));
        if before.is_none() && !self.busy.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn next_call(&mut self) -> Option<BoxFuture<'static, Done>> {
        loop {
            let key = self.ready.pop_front()?;
            if let Some((write, attempt)) = self.waiting.remove(&key) {
                self.busy.insert(key);
                return Some(self.call(write, attempt));
            }
        }
    }

    fn call(&mut self, write: Write, attempt: u32) -> BoxFuture<'static, Done> {
        let (client, pace, fleet) = (self.client.clone(), Arc::clone(&self.pace), self.fleet.clone());
        let report = match &write {
            Write::Report { node } => {
                self.nodes.get(*node).cloned().zip(self.stored.get_mut(*node).map(std::mem::take))
            }
            _ => None,
        };
        Box::pin(async move {
            pace.turn().await;
            let (result, stored) = match (&write, report) {
                (Write::Status { name, patch, .. }, _) => (patch_pod(&client, name, patch).await, None),
                (Write::Delete { uid, name, patch }, _) => {
                    let patched = match patch {
                        Some(patch) => patch_pod(&client, name, patch).await,
                        None => Ok(()),
                    };
                    match patched {
                        Ok(()) => (delete_pod(&client, name, uid).await, None),
                        failed => (failed, None),
                    }
                }
                (Write::Report { node: number }, Some((node, mut stored))) => {
                    let result = match fleet.with(|fleet| fleet.report(*number)) {
                        Some(content) => publish(client, &node, &content, &mut stored).await,
                        None => Ok(()),
                    };
                    (result, Some(stored))
                }
                (Write::Report { .. }, None) => (Ok(()), None),
            };
            Done { write, attempt, result, stored }
        })
    }

    fn done(&mut self, Done { write, attempt, result, stored }: Done) {
        let key = write.key();
        self.busy.remove(&key);
        if let (Key::Report(node), Some(stored)) = (&key, stored)
            && let Some(slot) = self.stored.get_mut(*node)
        {
            *slot = stored;
        }
        let kind = if matches!(key, Key::Pod(_)) { "pod" } else { "report" };
        self.metrics.wrote(kind, result.is_ok());
        let newer = self.waiting.contains_key(&key);
        if let Err(error) = result {
            let error_text = brief(&error);
            if is_over(&error, &write, attempt) {
                debug!(?key, "not written: {error_text}");
            } else {
                if attempt == 0 {
                    warn!(?key, "not written, trying again: {error_text}");
                }
                if !newer {
                    let pause = doubled(RETRY_MIN, RETRY_MAX, attempt);
                    self.waiting.insert(key.clone(), (write, attempt.saturating_add(1)));
                    self.resting.insert((Instant::now() + pause, key));
                    return;
                }
            }
        }
        if newer {
            self.ready.push_back(key);
        }
    }
}

/// Whether there is nothing left to write: the pod is gone, or another one by now; there is no kind of reports.
///
/// A conflict is either another pod of that name, or other writers in between; that ends after some attempts.
fn is_over(error: &kube::Error, write: &Write, attempt: u32) -> bool {
    match write {
        Write::Status { .. } | Write::Delete { .. } => {
            let is_stale = is_conflict(error) && attempt >= CONFLICTS;
            is_not_found(error) || is_stale || code(error) == Some(422)
        }
        Write::Report { .. } => is_not_found(error),
    }
}

async fn patch_pod(client: &Client, name: &PodName, patch: &Value) -> kube::Result<()> {
    let api = Api::<Pod>::namespaced(client.clone(), &name.namespace);
    api.patch_status(&name.name, &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
}

async fn delete_pod(client: &Client, name: &PodName, uid: &str) -> kube::Result<()> {
    let api = Api::<Pod>::namespaced(client.clone(), &name.namespace);
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
    api.delete(&name.name, &params).await.map(drop)
}

/// Gives the report of a node this content, by the exporter's own rules. `stored` is what the server has.
async fn publish(
    client: Client,
    node: &RegisteredNode,
    content: &Content,
    stored: &mut StoredObject,
) -> kube::Result<()> {
    let (server, owner) = (Server::new(client, &node.name), Owner::Node { uid: node.uid.clone() });
    let context = WriteContext {
        owner: &owner,
        kubelet_version: Some(KUBELET_VERSION),
        ..WriteContext::new(&node.name, "reactive")
    };
    let mut conflicts = 0;
    loop {
        let known = match stored.clone() {
            StoredObject::Unknown => {
                *stored = server.get().await?;
                continue;
            }
            StoredObject::Absent => None,
            StoredObject::Object(object) => Some(object),
        };
        let Some(write) = content.write(&context, known.as_deref(), Mode::Patch) else { return Ok(()) };
        match server.write(&write).await {
            Ok(object) => {
                *stored = StoredObject::present(object);
                return Ok(());
            }
            Err(error) => {
                *stored = StoredObject::Unknown;
                conflicts += 1;
                let is_stale = is_conflict(&error)
                    || is_already_exists(&error)
                    || (is_not_found(&error) && known_before(&write));
                if !is_stale || conflicts >= CONFLICTS {
                    return Err(error);
                }
            }
        }
    }
}

/// Whether a write changes an object that was there.
fn known_before(write: &exporter::object::Write) -> bool {
    !matches!(write, exporter::object::Write::Create(_))
}
