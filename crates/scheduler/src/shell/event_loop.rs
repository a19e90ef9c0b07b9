//! The task that owns the core: takes changes in, lets the core decide, hands decisions to the outbox.
//!
//! In: changes from the watches, results of API calls, the time. Out: calls in the outbox, gauges. Never: a wait for an
//! API call.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use runtime::ready;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Leadership;
use super::intake::{Change, Intake};
use super::outbox::{CallResult, Outbox};
use super::status_dump::Dumper;
use crate::core::{Core, Decision, Event, Refused};
use crate::ledger::PodId;
use crate::metrics::Metrics;

/// Time between two updates of the gauges.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);
/// How long bindings in flight are waited for at the end: one call, and a look at its pod.
const DRAIN: Duration = Duration::from_secs(8);
/// The most decisions before events, results of calls, a shutdown and a lost lease are looked at again.
const BATCH: usize = 64;

/// The state of the scheduling task.
pub(super) struct EventLoop {
    core: Core,
    intake: Intake,
    outbox: Outbox,
    metrics: Metrics,
    dumper: Option<Dumper>,
    /// Seconds that the decisions took whose bindings have not ended.
    decided: BTreeMap<PodId, f64>,
    /// The node held for a pod, as last logged.
    held: Option<String>,
    started: Instant,
    /// The start in milliseconds since the epoch.
    started_ms: u64,
}

impl EventLoop {
    pub(super) fn new(core: Core, outbox: Outbox, metrics: Metrics, dumper: Option<Dumper>) -> Self {
        let started_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let (intake, started) = (Intake::default(), Instant::now());
        let (decided, held) = (BTreeMap::new(), None);
        Self { core, intake, outbox, metrics, dumper, decided, held, started, started_ms }
    }

    /// Runs until `token` is cancelled: decides while this process leads, and opens `synced` once all watches have
    /// delivered their first lists. Returns whether no binding is in flight any more, so that another process may lead.
    pub(super) async fn run(
        &mut self,
        mut changes: mpsc::UnboundedReceiver<Change>,
        mut leadership: Leadership,
        synced: ready::Gate,
        token: CancellationToken,
    ) -> bool {
        let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
        loop {
            if self.intake.is_synced() {
                synced.open();
            }
            let leads = leadership.as_ref().is_none_or(|status| status.borrow().leads());
            let may_decide = self.intake.is_synced() && leads;
            let has_more = may_decide && self.decide();
            // Only decisions make the time due pass: without any, waiting for it would not end.
            let due = self.core.due().filter(|_| may_decide && !self.outbox.is_full());
            let due = due.map(|due| self.instant(due));
            tokio::select! {
                biased;
                () = token.cancelled() => return self.outbox.stop(DRAIN).await,
                Some(result) = self.outbox.next_result() => self.complete(result),
                Some(change) = changes.recv() => {
                    self.take(change);
                    // The whole burst comes first, so that decisions rest on all of it.
                    for _ in 0..changes.len() {
                        let Ok(change) = changes.try_recv() else { break };
                        self.take(change);
                    }
                }
                () = sleep_until(due) => {}
                _ = gauges.tick() => self.observe(),
                () = changed(&mut leadership) => {}
                () = std::future::ready(()), if has_more => {}
            }
        }
    }

    /// Updates gauges and status files.
    fn observe(&mut self) {
        self.metrics.observe(&self.core);
        let held = self.core.held().map(|(node, pod)| format!("{node} for {}", pod.key()));
        if held != self.held {
            match &held {
                Some(node) => tracing::info!(node, "holding a node for a pod that waits long"),
                None => tracing::info!("no node is held any more"),
            }
            self.held = held;
        }
        if let Some(dumper) = &mut self.dumper {
            dumper.collect(&self.core, jiff::Timestamp::now());
        }
    }

    fn take(&mut self, change: Change) {
        let now = self.now_ms();
        for event in self.intake.take(change) {
            if let Event::PodGone(pod) = &event {
                self.outbox.drop_pod(&pod.uid);
            }
            self.core.handle(event, now);
        }
    }

    /// Decides about at most [`BATCH`] pods, and about none while too many bindings wait. Returns whether more can be
    /// decided at once.
    fn decide(&mut self) -> bool {
        for _ in 0..BATCH {
            if self.outbox.is_full() {
                return false;
            }
            let began = Instant::now();
            let Some(decision) = self.core.next(self.now_ms()) else { return false };
            let seconds = began.elapsed().as_secs_f64();
            match decision {
                Decision::Bind(binding) => {
                    // A pod that has waited for its volumes was decided about before.
                    self.decided.entry(binding.id).or_insert(seconds);
                    tracing::debug!(pod = binding.pod.key(), node = %binding.node, "binding");
                    self.outbox.bind(binding);
                }
                Decision::BindVolumes(bind) => {
                    self.decided.entry(bind.binding.id).or_insert(seconds);
                    tracing::debug!(pod = bind.binding.pod.key(), node = %bind.binding.node, "binding volumes");
                    self.outbox.bind_volumes(bind);
                }
                Decision::FailVolumes(failed) => {
                    let (pod, message) = (&failed.binding.pod, failed.message);
                    let seconds = self.decided.remove(&failed.binding.id).unwrap_or(0.0);
                    self.metrics.attempt("error", &pod.scheduler, seconds);
                    let node = &failed.binding.node;
                    tracing::warn!(pod = pod.key(), %node, reason = message, "volumes are not bound");
                    self.outbox.fail(pod, message);
                }
                Decision::Refuse(refused) => {
                    self.count(&refused, seconds);
                    tracing::debug!(pod = refused.pod.key(), reason = refused.message, "no fit; waiting");
                    self.outbox.refuse(refused);
                }
                Decision::Preempt(preemption) => {
                    self.count(&preemption.refused, seconds);
                    let (pod, victims) = (preemption.refused.pod.key(), preemption.victims.len());
                    if preemption.victims.iter().any(|victim| !victim.progress.deleting) {
                        self.metrics.preempted(victims);
                    }
                    tracing::info!(pod, node = %preemption.node, victims, "evicting less important pods");
                    self.outbox.preempt(preemption);
                }
            }
        }
        true
    }

    fn count(&self, refused: &Refused, seconds: f64) {
        self.metrics.attempt("unschedulable", &refused.pod.scheduler, seconds);
        refused.plugins().into_iter().for_each(|plugin| self.metrics.rejected(plugin));
        if refused.tried_preemption {
            self.metrics.tried_preemption();
        }
    }

    fn complete(&mut self, result: CallResult) {
        let now = self.now_ms();
        match result {
            CallResult::Bound(binding) => {
                let seconds = self.decided.remove(&binding.id).unwrap_or(0.0);
                self.metrics.attempt("scheduled", &binding.pod.scheduler, seconds);
                self.metrics.scheduled(binding.attempts);
                self.core.handle(Event::Bound(binding.id), now);
            }
            CallResult::BindFailed(binding) => {
                let seconds = self.decided.remove(&binding.id).unwrap_or(0.0);
                self.metrics.attempt("error", &binding.pod.scheduler, seconds);
                self.core.handle(Event::BindFailed(binding.id), now);
            }
            CallResult::VolumesWritten(id, volumes) => {
                self.core.handle(Event::VolumesWritten(id, volumes), now);
            }
            CallResult::VolumesFailed(id, volumes, reason) => {
                self.core.handle(Event::VolumesFailed(id, volumes, reason), now);
            }
            CallResult::PreemptFailed(id) => self.core.handle(Event::PreemptFailed(id), now),
            CallResult::Other => {}
        }
    }

    /// Milliseconds since the epoch, by a clock that does not jump after the start.
    fn now_ms(&self) -> u64 {
        self.started_ms + u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn instant(&self, ms: u64) -> Instant {
        self.started + Duration::from_millis(ms.saturating_sub(self.started_ms))
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

async fn changed(leadership: &mut Leadership) {
    let gone = match leadership {
        Some(status) => status.changed().await.is_err(),
        None => true,
    };
    if gone {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests;
