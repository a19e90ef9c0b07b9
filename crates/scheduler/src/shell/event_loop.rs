//! The thread that owns the core: takes inputs in, lets the core decide, hands decisions to the outbox.
//!
//! In: changes from the watches, results of API calls, the time. Out: decisions, gauges. Never: a wait for an API call,
//! or a thread of the runtime that a long decision keeps from its connections.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use runtime::ready;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use super::Leadership;
use super::intake::{Burst, Change, Intake};
use super::outbox::{CallResult, MAX_OPEN};
use super::pod_resources::{self, Query};
use super::status_dump::Dumper;
use crate::core::{Binding, Core, Decision, Event, Lap, Refused, RejectedPod};
use crate::ledger::{Drift, PodId};
use crate::metrics::{Metrics, Steps};
use crate::node::NodeView;

/// Time between two updates of the gauges.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);
/// The most decisions before inputs, a shutdown and a lost lease are looked at again.
const BATCH: usize = 64;
/// The time after which they are looked at again in any case.
const MAX_TURN: Duration = Duration::from_millis(50);
/// The most inputs before decisions are made again.
const MAX_INPUTS: usize = 4_096;

/// An input of the thread.
#[derive(Debug)]
pub(super) enum Input {
    /// Objects have changed.
    Change(Change),
    /// An API call has ended.
    Result(CallResult),
    /// A question about the resources of pods.
    Pods(Query),
    /// A call of the core, once it knows what came before.
    Call(CoreCall),
    /// The leadership has changed, or the process ends.
    Wake,
}

/// What is called, with the time.
type Callback = dyn FnOnce(&mut Core, u64) + Send;

/// A call of the core by another thread.
pub(super) struct CoreCall(Box<Callback>);

impl<F: FnOnce(&mut Core, u64) + Send + 'static> From<Box<F>> for CoreCall {
    fn from(call: Box<F>) -> Self {
        Self(call)
    }
}

impl CoreCall {
    /// Calls it.
    pub(super) fn run(self, core: &mut Core, now_ms: u64) {
        (self.0)(core, now_ms);
    }
}

impl std::fmt::Debug for CoreCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CoreCall")
    }
}

/// An output of the thread.
#[derive(Debug)]
pub(super) enum Output {
    /// A decision to carry out.
    Decision(Box<Decision>),
    /// The object of the pod with this uid is gone; what waits to be written about it is void.
    PodGone(Arc<str>),
    /// The report of a node has contradicted its ledger.
    Drifted(Box<NodeView>, Drift),
}

/// The state of the thread.
pub(super) struct EventLoop {
    core: Core,
    intake: Intake,
    outputs: UnboundedSender<Output>,
    metrics: Metrics,
    dumper: Option<Dumper>,
    /// Whether pods are decided about.
    decides: bool,
    steps: Steps,
    /// The starts of the attempts whose bindings have not ended.
    decided: BTreeMap<PodId, Instant>,
    /// The node held for a pod, as last logged.
    held: Option<String>,
    started: Instant,
    /// The start in milliseconds since the epoch.
    started_ms: u64,
}

impl EventLoop {
    pub(super) fn new(
        mut core: Core,
        intake: Intake,
        outputs: UnboundedSender<Output>,
        metrics: Metrics,
        dumper: Option<Dumper>,
    ) -> Self {
        let started_ms = super::now_ms();
        let started = Instant::now();
        core.measure(Instant::now);
        let steps = Steps::new(&metrics);
        let (decided, held) = (BTreeMap::new(), None);
        let decides = true;
        Self { core, intake, outputs, metrics, steps, dumper, decides, decided, held, started, started_ms }
    }

    /// A loop that only keeps the core up to date, for calls.
    pub(super) fn observing(core: Core, intake: Intake, metrics: Metrics) -> Self {
        let (outputs, _) = tokio::sync::mpsc::unbounded_channel();
        Self { decides: false, ..Self::new(core, intake, outputs, metrics, None) }
    }

    /// Runs until `token` is cancelled and an input comes: decides while this process leads, and opens `synced` once
    /// all watches have delivered their first lists.
    pub(super) fn run(
        mut self,
        inputs: &mpsc::Receiver<Input>,
        leadership: &Leadership,
        synced: &ready::Gate,
        token: &CancellationToken,
    ) {
        let mut observes = Instant::now();
        while !token.is_cancelled() {
            // The whole burst comes first, so that decisions rest on all of it.
            self.take_all(inputs.try_iter());
            if self.intake.is_synced() {
                synced.open();
            }
            let leads = self.decides && leadership.as_ref().is_none_or(|status| status.borrow().leads());
            if observes <= Instant::now() {
                self.observe(leads);
                self.tell_drifts(leads);
                observes = Instant::now() + GAUGE_INTERVAL;
            }
            let may_decide = self.intake.is_synced() && leads;
            if may_decide && self.decide() {
                continue;
            }
            // Only decisions make the time due pass: without any, waiting for it would not end.
            let due = self.core.due().filter(|_| may_decide && !self.is_full());
            let due = due.map_or(observes, |due| self.instant(due).min(observes));
            match inputs.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(input) => self.take_all(std::iter::once(input).chain(inputs.try_iter())),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes inputs, at most [`MAX_INPUTS`].
    fn take_all(&mut self, inputs: impl Iterator<Item = Input>) {
        let mut burst = Burst::default();
        let mut calls = Vec::new();
        for input in inputs.take(MAX_INPUTS) {
            match input {
                Input::Change(change) => burst.extend(self.intake.take(change)),
                Input::Result(result) => self.complete(result),
                // The asker may be gone.
                Input::Pods(answer) => drop(answer.send(pod_resources::rows(&self.core))),
                Input::Call(call) => calls.push(call),
                Input::Wake => {}
            }
        }
        let now = self.now_ms();
        for event in burst.into_events() {
            if let Event::PodGone(pod) = &event {
                self.put(Output::PodGone(Arc::clone(&pod.uid)));
            }
            self.core.handle(event, now);
        }
        calls.into_iter().for_each(|call| call.run(&mut self.core, now));
    }

    /// Hands an output over. At the end of the process none is taken any more.
    fn put(&self, output: Output) {
        let _ = self.outputs.send(output);
    }

    fn carry_out(&self, decision: Decision) {
        self.put(Output::Decision(Box::new(decision)));
    }

    /// Whether so many bindings have not ended that decisions should pause.
    fn is_full(&self) -> bool {
        self.decided.len() >= MAX_OPEN
    }

    /// Updates gauges and status files.
    fn observe(&mut self, leads: bool) {
        if !self.decides {
            let rejected = self.core.pass_time(self.now_ms());
            rejected.iter().for_each(|rejected| self.metrics.rejected_by_kubelet(rejected));
        } else if !leads {
            // A process that leads does so with each decision.
            self.core.run_timers(self.now_ms());
        }
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

    /// Logs that reports have contradicted ledgers; the process that leads tells it as events of the nodes.
    fn tell_drifts(&mut self, leads: bool) {
        for (node, drift) in self.core.take_drifts() {
            tracing::warn!(node = %node.name, detail = drift.detail, "{drift}");
            if leads {
                self.put(Output::Drifted(Box::new(node), drift));
            }
        }
    }

    /// Decides about at most [`BATCH`] pods, and about none while too many bindings wait. Returns whether more can be
    /// decided at once.
    fn decide(&mut self) -> bool {
        self.decide_within(MAX_TURN)
    }

    /// The same, and begins no decision after this time.
    fn decide_within(&mut self, limit: Duration) -> bool {
        let turn = Instant::now();
        for _ in 0..BATCH {
            if self.is_full() {
                return false;
            }
            // Extenders may take long, and a decision should rest on what is known by then.
            if turn.elapsed() > limit {
                return true;
            }
            let began = Instant::now();
            let now_ms = self.now_ms();
            let Some(decision) = self.core.next(now_ms) else { return false };
            let seconds = began.elapsed().as_secs_f64();
            self.measure(&decision, seconds);
            match decision {
                Decision::Bind(binding) => {
                    self.pre_bound(&binding, "Success", now_ms);
                    let began = began.checked_sub(waited(&binding, now_ms)).unwrap_or(began);
                    self.decided.insert(binding.id, began);
                    tracing::debug!(pod = binding.pod.key(), node = %binding.node, "binding");
                    self.carry_out(Decision::Bind(binding));
                }
                // It may wait for minutes, and keeps no other pod waiting.
                Decision::BindVolumes(bind) => {
                    tracing::debug!(pod = bind.binding.pod.key(), node = %bind.binding.node, "binding volumes");
                    self.carry_out(Decision::BindVolumes(bind));
                }
                Decision::ReserveClaims(reserve) => {
                    let Binding { pod, node, .. } = &reserve.binding;
                    tracing::debug!(pod = pod.key(), %node, "reserving claims");
                    self.carry_out(Decision::ReserveClaims(reserve));
                }
                Decision::ReleaseClaims(release) => self.carry_out(Decision::ReleaseClaims(release)),
                Decision::FailVolumes(failed) => {
                    let Binding { pod, node, .. } = &failed.binding;
                    self.pre_bound(&failed.binding, "Error", now_ms);
                    let seconds = seconds + waited(&failed.binding, now_ms).as_secs_f64();
                    self.metrics.attempt("error", &pod.scheduler, seconds);
                    tracing::warn!(pod = pod.key(), %node, reason = failed.message, "volumes or claims are not bound");
                    self.carry_out(Decision::FailVolumes(failed));
                }
                Decision::Refuse(refused) => {
                    self.count(&refused, seconds);
                    tracing::debug!(pod = refused.pod.key(), reason = refused.message, "no fit; waiting");
                    self.carry_out(Decision::Refuse(refused));
                }
                Decision::Preempt(preemption) => {
                    self.count(&preemption.refused, seconds);
                    let (pod, victims) = (preemption.refused.pod.key(), preemption.victims.len());
                    if preemption.victims.iter().any(|victim| !victim.progress.deleting) {
                        self.metrics.preempted(victims);
                    }
                    tracing::info!(pod, node = %preemption.node, victims, "evicting less important pods");
                    self.carry_out(Decision::Preempt(preemption));
                }
                Decision::NoteRejection(rejected) => {
                    self.metrics.rejected_by_kubelet(&rejected);
                    let RejectedPod { pod, reason, is_ours, times, .. } = &rejected;
                    let (pod, node) = (pod.key(), pod.node.as_deref());
                    tracing::warn!(pod, node, %reason, is_ours, times, "a kubelet has rejected a pod");
                    if rejected.is_discarded {
                        self.carry_out(Decision::NoteRejection(rejected));
                    }
                }
                Decision::SetGroupCondition(condition) => {
                    self.carry_out(Decision::SetGroupCondition(condition));
                }
                Decision::Withdraw(id) => self.carry_out(Decision::Withdraw(id)),
            }
        }
        true
    }

    /// Counts a decision and its steps.
    fn measure(&mut self, decision: &Decision, seconds: f64) {
        self.metrics.decided(seconds);
        let profile = match decision {
            Decision::Bind(binding) => &binding.pod.scheduler,
            Decision::BindVolumes(bind) => &bind.binding.pod.scheduler,
            Decision::FailVolumes(failed) => &failed.binding.pod.scheduler,
            Decision::Refuse(refused) => &refused.pod.scheduler,
            Decision::Preempt(preemption) => &preemption.refused.pod.scheduler,
            // Not the end of a cycle.
            Decision::ReserveClaims(_)
            | Decision::ReleaseClaims(_)
            | Decision::SetGroupCondition(_)
            | Decision::NoteRejection(_)
            | Decision::Withdraw(_) => {
                return;
            }
        };
        self.core.laps().for_each(|lap| self.steps.observe(profile, lap));
    }

    /// Counts the wait of a pod for its volumes and claims, if there was any.
    fn pre_bound(&mut self, binding: &Binding, status: &'static str, now_ms: u64) {
        let took = waited(binding, now_ms);
        if !took.is_zero() {
            self.steps.observe(&binding.pod.scheduler, Lap { point: "PreBind", status, took });
        }
    }

    fn count(&self, refused: &Refused, seconds: f64) {
        let result = if refused.is_error { "error" } else { "unschedulable" };
        self.metrics.attempt(result, &refused.pod.scheduler, seconds);
        refused.plugins().into_iter().for_each(|plugin| self.metrics.rejected(plugin));
        if refused.tried_preemption {
            self.metrics.tried_preemption();
        }
    }

    fn complete(&mut self, result: CallResult) {
        let now = self.now_ms();
        match result {
            CallResult::Bound(binding, took) => {
                let lap = Lap { point: "Bind", status: "Success", took };
                self.steps.observe(&binding.pod.scheduler, lap);
                let seconds = self.ended(&binding);
                self.metrics.attempt("scheduled", &binding.pod.scheduler, seconds);
                let since_first = Duration::from_millis(now.saturating_sub(binding.first_attempt_ms));
                self.metrics.scheduled(binding.attempts, since_first.as_secs_f64());
                self.core.handle(Event::Bound(binding.id), now);
            }
            CallResult::BindFailed(binding, took) => {
                let lap = Lap { point: "Bind", status: "Error", took };
                self.steps.observe(&binding.pod.scheduler, lap);
                self.bind_failed(&binding, now);
            }
            CallResult::Withdrawn(binding) => {
                let (pod, node) = (binding.pod.key(), &binding.node);
                tracing::debug!(pod, %node, "binding withdrawn: the kubelet may reject the pod by now");
                self.bind_failed(&binding, now);
            }
            CallResult::VolumesWritten(id, volumes) => {
                self.core.handle(Event::VolumesWritten(id, volumes), now);
            }
            CallResult::VolumesFailed(id, volumes, reason) => {
                self.core.handle(Event::VolumesFailed(id, volumes, reason), now);
            }
            CallResult::ClaimsWritten(id, claims) => self.core.handle(Event::ClaimsWritten(id, claims), now),
            CallResult::ClaimsFailed(id, claims, reason) => {
                self.core.handle(Event::ClaimsFailed(id, claims, reason), now);
            }
            CallResult::PreemptFailed(id) => self.core.handle(Event::PreemptFailed(id), now),
            CallResult::Other => {}
        }
    }

    /// A pod is not bound after all.
    fn bind_failed(&mut self, binding: &Binding, now_ms: u64) {
        let seconds = self.ended(binding);
        self.metrics.attempt("error", &binding.pod.scheduler, seconds);
        self.core.handle(Event::BindFailed(binding.id), now_ms);
    }

    /// The seconds of an attempt whose binding has ended.
    fn ended(&mut self, binding: &Binding) -> f64 {
        self.decided.remove(&binding.id).map_or(0.0, |began| began.elapsed().as_secs_f64())
    }

    /// Milliseconds since the epoch, by a clock that does not jump after the start.
    fn now_ms(&self) -> u64 {
        self.started_ms + u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn instant(&self, ms: u64) -> Instant {
        self.started + Duration::from_millis(ms.saturating_sub(self.started_ms))
    }
}

/// How long a pod waited for its volumes after its node was chosen.
fn waited(binding: &Binding, now_ms: u64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(binding.attempt_ms))
}

#[cfg(test)]
mod tests;
