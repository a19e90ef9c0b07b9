//! All hollow nodes of a process: pods and moments in, writes out. Pure.
//!
//! In: events of the watch of pods, the time as a value. Out: [`Write`]s. Never: a clock, I/O, or a write for a pod on
//! a node of others.
//!
//! # What becomes of a pod
//! - It is admitted in the order of the watch, as the kubelet does; after a (re)start in the order of creation. Then it
//!   runs at once, or it fails with the kubelet's reason.
//! - A pod whose kubelet does not restart it succeeds after its time ([`crate::pod::RUN_TIME`]).
//! - A pod that is deleted gracefully gives back what it holds, ends, and its object is deleted. A pod that is gone
//!   without that (deleted by force) gives it back when the watch says so.
//! - A report is due a lag after the first change that it does not have yet, and shows the state when it is written.
//!
//! # Cost
//! An event costs an admission and the logarithm of the pods; a report costs what the exporter's does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use exporter::object::Content;
use jiff::{SignedDuration, Timestamp};
use runtime::watch::Event;
use serde_json::Value;
use topology::kubelet::pod::PodUid;
use topology::kubelet::rejection::Rejection;
use topology::request::ContainerKind;
use tracing::warn;

use crate::checkpoint;
use crate::machine::ListedPod;
use crate::metrics::Metrics;
use crate::node::HollowNode;
use crate::node_group::PlannedNode;
use crate::pod::{ContainerView, Phase, PodName, PodView};
use crate::status::Subject;

/// The times of hollow kubelets and their exporters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// How old a change is when the report that has it is made.
    pub lag: Duration,
    /// How long pods run that their kubelet does not restart; `None`: for ever.
    pub run_time: Option<Duration>,
}

/// A write to the API server. A later one with the same [`Key`] takes the place of an earlier one.
#[derive(Clone, Debug)]
pub enum Write {
    /// Patch the status of a pod.
    Status {
        /// The pod.
        uid: PodUid,
        /// Its name.
        name: PodName,
        /// The patch.
        patch: Value,
    },
    /// Patch the status of a pod, if there is a patch, and delete the object at once.
    Delete {
        /// The pod.
        uid: PodUid,
        /// Its name.
        name: PodName,
        /// The patch.
        patch: Option<Value>,
    },
    /// Give the NodeResourceTopology object of a node the content that [`Fleet::report`] has then.
    Report {
        /// The number of the node.
        node: usize,
    },
}

/// The object of a [`Write`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A pod.
    Pod(PodUid),
    /// The report of a node.
    Report(usize),
}

impl Write {
    /// The object.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Status { uid, .. } | Self::Delete { uid, .. } => Key::Pod(Arc::clone(uid)),
            Self::Report { node } => Key::Report(*node),
        }
    }
}

/// A pod on one of the nodes whose object exists.
#[derive(Debug)]
struct KnownPod {
    name: PodName,
    node: usize,
    containers: Arc<[ContainerView]>,
    started: Timestamp,
    state: State,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It runs, until this moment if there is one.
    Running(Option<Timestamp>),
    /// It has ended, or was rejected.
    Ended,
    /// Its object is being deleted.
    Deleted,
}

/// The nodes and their pods.
#[derive(Debug)]
pub struct Fleet {
    nodes: Vec<HollowNode>,
    by_name: BTreeMap<Arc<str>, usize>,
    pods: BTreeMap<PodUid, KnownPod>,
    /// When which pods succeed.
    ends: BTreeSet<(Timestamp, PodUid)>,
    /// When which reports are due.
    reports: BTreeSet<(Timestamp, usize)>,
    /// Whether the report of a node is due.
    is_due: Vec<bool>,
    /// Pods that run.
    running: usize,
    is_synced: bool,
    times: Times,
    metrics: Metrics,
}

impl Fleet {
    /// Nodes without pods.
    #[must_use]
    pub fn new(planned: &[PlannedNode], times: Times, metrics: Metrics) -> Self {
        let node =
            |planned: &PlannedNode| HollowNode::new(Arc::clone(&planned.name), Arc::clone(&planned.machine));
        let nodes: Vec<_> = planned.iter().map(node).collect();
        Self {
            by_name: nodes.iter().enumerate().map(|(at, node)| (Arc::clone(&node.name), at)).collect(),
            is_due: vec![false; nodes.len()],
            nodes,
            pods: BTreeMap::new(),
            ends: BTreeSet::new(),
            reports: BTreeSet::new(),
            running: 0,
            is_synced: false,
            times,
            metrics,
        }
    }

    /// Takes an event of the watch of pods.
    pub fn take(&mut self, event: Event<PodView>, now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        match event {
            Event::Reset { objects, vanished, .. } => {
                vanished.iter().for_each(|key| self.forget(&key.uid, now));
                self.take_all(objects, now, &mut writes);
            }
            Event::Applied(pod) => self.take_pod(&pod, now, &mut writes),
            Event::Deleted(pod) => self.forget(&pod.uid, now),
            Event::Unreadable { key, .. } => self.forget(&key.uid, now),
        }
        self.metrics.pods(self.ends.len(), self.running);
        writes
    }

    /// What is due by now.
    pub fn due(&mut self, now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        while let Some((_, uid)) = self.ends.first().filter(|(at, _)| *at <= now).cloned() {
            self.end(&uid, State::Ended, now);
            writes.extend(self.subject(&uid).map(|(name, subject)| {
                let patch = subject.succeeded(now);
                Write::Status { uid: Arc::clone(&uid), name: name.clone(), patch }
            }));
        }
        while let Some((_, node)) = self.reports.first().filter(|(at, _)| *at <= now).copied() {
            self.reports.pop_first();
            if let Some(is_due) = self.is_due.get_mut(node) {
                *is_due = false;
            }
            writes.push(Write::Report { node });
        }
        self.metrics.pods(self.ends.len(), self.running);
        writes
    }

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let end = self.ends.first().map(|(at, _)| *at);
        let report = self.reports.first().map(|(at, _)| *at);
        end.into_iter().chain(report).min()
    }

    /// What the exporter of a node would publish now; `None` for a number without a node. Cost: that of
    /// [`crate::machine::Machine::report`].
    #[must_use]
    pub fn report(&self, node: usize) -> Option<Content> {
        let hollow = self.nodes.get(node)?;
        let pods: Vec<(&PodUid, &KnownPod, Vec<&str>)> = hollow
            .pods
            .iter()
            .filter_map(|uid| {
                let known = self.pods.get(uid)?;
                let runs = known.containers.iter().filter(|container| container.kind != ContainerKind::Init);
                Some((uid, known, runs.map(|container| &*container.name).collect()))
            })
            .collect();
        let listed: Vec<ListedPod<'_>> = pods
            .iter()
            .map(|(uid, known, running)| ListedPod {
                uid,
                namespace: &known.name.namespace,
                name: &known.name.name,
                running,
            })
            .collect();
        match hollow.report(&listed) {
            Ok(content) => Some(content),
            Err(error) => {
                warn!(node = %hollow.name, "no report: {error:#}");
                None
            }
        }
    }

    /// Takes the whole state of the server.
    fn take_all(&mut self, mut pods: Vec<PodView>, now: Timestamp, writes: &mut Vec<Write>) {
        pods.retain(|pod| self.by_name.contains_key(&*pod.node));
        pods.sort_unstable_by(|a, b| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        if !std::mem::replace(&mut self.is_synced, true) {
            self.adopt(&pods, now, writes);
            (0..self.nodes.len()).for_each(|node| self.changed(node, now));
        }
        pods.iter().for_each(|pod| self.take_pod(pod, now, writes));
    }

    /// Takes over the pods that ran before this process started.
    fn adopt(&mut self, pods: &[PodView], now: Timestamp, writes: &mut Vec<Write>) {
        let mut by_node = BTreeMap::<usize, Vec<&PodView>>::new();
        let runs = |pod: &&PodView| pod.started.is_some() && pod.phase != Phase::Ended && !pod.is_deleted;
        for pod in pods.iter().filter(runs) {
            if let Some(node) = self.by_name.get(&*pod.node) {
                by_node.entry(*node).or_default().push(pod);
            }
        }
        for (node, pods) in by_node {
            let Some(hollow) = self.nodes.get_mut(node) else { continue };
            let mut rejected: BTreeMap<PodUid, Rejection> = hollow.adopt(pods.clone()).into_iter().collect();
            for pod in pods {
                let started = pod.started.unwrap_or(now);
                match rejected.remove(&pod.uid) {
                    Some(rejection) => self.reject(node, pod, &rejection, started, writes),
                    None => {
                        self.metrics.adopted();
                        self.run(node, pod, started);
                        if pod.phase == Phase::Pending {
                            self.write_running(pod, None, now, writes);
                        }
                    }
                }
            }
        }
    }

    fn take_pod(&mut self, pod: &PodView, now: Timestamp, writes: &mut Vec<Write>) {
        let Some(node) = self.by_name.get(&*pod.node).copied() else { return };
        let known = self.pods.get(&pod.uid).map(|known| known.state);
        let delete = |patch| Write::Delete { uid: Arc::clone(&pod.uid), name: pod.name.clone(), patch };
        match known {
            Some(State::Deleted) => {}
            Some(State::Running(_)) if pod.is_deleted => {
                self.end(&pod.uid, State::Deleted, now);
                let patch = self.subject(&pod.uid).map(|(_, subject)| subject.succeeded(now));
                writes.push(delete(patch));
            }
            // Another client says so: the pod is over.
            Some(State::Running(_)) if pod.phase == Phase::Ended => self.end(&pod.uid, State::Ended, now),
            Some(State::Running(_)) => {}
            Some(State::Ended) if pod.is_deleted => {
                self.end(&pod.uid, State::Deleted, now);
                writes.push(delete(None));
            }
            Some(State::Ended) => {}
            None if pod.is_deleted => {
                self.know(node, pod, pod.started.unwrap_or(now), State::Deleted);
                let ended = pod.phase == Phase::Ended;
                let patch = self.subject(&pod.uid).filter(|_| !ended);
                let patch = patch.map(|(_, subject)| subject.succeeded(now));
                writes.push(delete(patch));
            }
            None if pod.phase == Phase::Ended => {
                self.know(node, pod, pod.started.unwrap_or(now), State::Ended);
            }
            None => self.admit(node, pod, now, writes),
        }
    }

    fn admit(&mut self, node: usize, pod: &PodView, now: Timestamp, writes: &mut Vec<Write>) {
        let Some(hollow) = self.nodes.get_mut(node) else { return };
        match hollow.admit(pod) {
            Ok(allocation) => {
                self.metrics.admitted();
                self.run(node, pod, now);
                self.changed(node, now);
                self.write_running(pod, checkpoint::write(&allocation).as_deref(), now, writes);
            }
            Err(rejection) => self.reject(node, pod, &rejection, now, writes),
        }
    }

    fn run(&mut self, node: usize, pod: &PodView, started: Timestamp) {
        let run_time = pod.run_time.or(self.times.run_time).filter(|_| !pod.restarts);
        let until = run_time.map(|time| after(started, time));
        if let Some(until) = until {
            self.ends.insert((until, Arc::clone(&pod.uid)));
        }
        self.running += 1;
        self.know(node, pod, started, State::Running(until));
    }

    fn write_running(&self, pod: &PodView, held: Option<&str>, now: Timestamp, writes: &mut Vec<Write>) {
        writes.extend(self.subject(&pod.uid).map(|(name, subject)| {
            let patch = subject.running(held, now);
            Write::Status { uid: Arc::clone(&pod.uid), name: name.clone(), patch }
        }));
    }

    fn reject(
        &mut self,
        node: usize,
        pod: &PodView,
        rejection: &Rejection,
        started: Timestamp,
        writes: &mut Vec<Write>,
    ) {
        self.metrics.rejected(&rejection.reason());
        self.know(node, pod, started, State::Ended);
        writes.extend(self.subject(&pod.uid).map(|(name, subject)| {
            let patch = subject.rejected(rejection);
            Write::Status { uid: Arc::clone(&pod.uid), name: name.clone(), patch }
        }));
    }

    fn know(&mut self, node: usize, pod: &PodView, started: Timestamp, state: State) {
        let containers = Arc::clone(&pod.containers);
        let known = KnownPod { name: pod.name.clone(), node, containers, started, state };
        self.pods.insert(Arc::clone(&pod.uid), known);
    }

    fn subject(&self, uid: &PodUid) -> Option<(&PodName, Subject<'_>)> {
        let (uid, KnownPod { name, node, containers, started, .. }) = self.pods.get_key_value(uid)?;
        let node = &self.nodes.get(*node)?.name;
        Some((name, Subject { uid, name, node, containers, started: *started }))
    }

    /// A pod is over: if it ran, its resources are free.
    fn end(&mut self, uid: &PodUid, state: State, now: Timestamp) {
        let Some(known) = self.pods.get_mut(uid) else { return };
        let (node, before) = (known.node, std::mem::replace(&mut known.state, state));
        let State::Running(until) = before else { return };
        self.running = self.running.saturating_sub(1);
        if let Some(until) = until {
            self.ends.remove(&(until, Arc::clone(uid)));
        }
        if let Some(hollow) = self.nodes.get_mut(node) {
            hollow.release(uid);
        }
        self.changed(node, now);
    }

    /// The object of a pod is gone.
    fn forget(&mut self, uid: &str, now: Timestamp) {
        let uid: PodUid = uid.into();
        self.end(&uid, State::Deleted, now);
        self.pods.remove(&uid);
    }

    /// The report of a node is due after the lag, if it is not already.
    fn changed(&mut self, node: usize, now: Timestamp) {
        if let Some(is_due) = self.is_due.get_mut(node)
            && !std::mem::replace(is_due, true)
        {
            self.reports.insert((after(now, self.times.lag), node));
        }
    }
}

/// A moment later; the end of time if there is none.
fn after(moment: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    moment.checked_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
