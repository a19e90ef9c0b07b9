//! API calls for decisions.
//!
//! In: bindings, also of volumes, refusals and evictions. Out: the results of bindings, and evictions that failed.
//! Never: another order of bindings to a node than its kubelet has to keep, a result that is only likely (after a
//! timeout the binding is sent again), or a status older than the last decision about its pod.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use runtime::client;
use runtime::events::{self, Recorder, Severity, Subject};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::event_loop::Output;
use super::extenders::HttpExtender;
use crate::core::{
    BindVolumes, Binding, Deallocation, Decision, Preemption, Refused, ReleaseClaims, ReserveClaims,
    VolumeBindings,
};
use crate::devices::views::claim::ClaimView;
use crate::ledger::{Drift, PodId};
use crate::node::NodeView;
use crate::pod::PodView;

mod answers;
mod bind_queue;
pub(super) mod binding;
mod claims;
mod eviction;
mod extended_claims;
mod pod_group;
mod volumes;

use bind_queue::BindQueue;
pub(super) use bind_queue::MAX_OPEN;
use binding::{BindFailure, bind};
use eviction::Evicted;
use pod_group::GroupWrites;

/// Most condition writes in flight; only people read conditions, so they may be late.
const MAX_CONDITIONS: usize = 8;
/// Most decisions to preempt that are carried out at a time.
const MAX_EVICTIONS: usize = 8;
/// How long bindings in flight are waited for at the end: one call, and a look at its pod.
const DRAIN: Duration = Duration::from_secs(8);
/// Most pods whose volumes are written at a time.
const MAX_VOLUMES: usize = 64;
/// Most pods whose claims are written or given back at a time.
const MAX_CLAIMS: usize = 64;
/// The result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    /// A pod is bound, after a call of this duration.
    Bound(Box<Binding>, Duration),
    /// It is not, for certain.
    BindFailed(Box<Binding>, Duration),
    /// Its binding was withdrawn before it was sent.
    Withdrawn(Box<Binding>),
    /// The volumes of a pod are written, with their new versions.
    VolumesWritten(PodId, VolumeBindings),
    /// They are not all, with the reason.
    VolumesFailed(PodId, VolumeBindings, String),
    /// The claims of a pod are written.
    ClaimsWritten(PodId, Vec<ClaimView>),
    /// They are not, but for these, with the reason.
    ClaimsFailed(PodId, Vec<ClaimView>, String),
    /// A pod could not be evicted for this one.
    PreemptFailed(PodId),
    /// A status was written, or pods were evicted.
    Other,
}

enum Completed {
    Bind(Box<Binding>, Duration, Result<(), BindFailure>),
    /// A binding is not sent any more.
    Withdrawn(Box<Binding>),
    /// A binding is not sent: a pod it relies on has left.
    Departed(Box<Binding>),
    Volumes(PodId, VolumeBindings, Result<(), String>),
    Claims(PodId, Vec<ClaimView>, Result<(), String>),
    /// Claims are given back.
    Released,
    Status(Arc<str>),
    GroupCondition,
    Eviction(Evicted),
    Discarded,
}

/// A status of a pod to write.
#[derive(Debug)]
struct StatusWrite {
    pod: PodView,
    /// Reason and message of the condition `PodScheduled`; `None`: it stays.
    condition: Option<(&'static str, String)>,
    /// The nominated node, which is none if the inner value is; `None`: it stays.
    nominated: Option<Option<Arc<str>>>,
}

/// Claims to write.
enum ClaimWrite {
    Reserve(ReserveClaims),
    Release(ReleaseClaims),
    Deallocate(Deallocation),
}

impl ClaimWrite {
    fn is_reservation_for(&self, pod: &str) -> bool {
        matches!(self, Self::Reserve(reserve) if *reserve.binding.pod.uid == *pod)
    }
}

/// Calls that wait or are in flight.
pub(super) struct Outbox {
    client: Client,
    /// The extender that binds pods.
    binder: Option<Arc<HttpExtender>>,
    recorder: Recorder,
    in_flight: FuturesUnordered<BoxFuture<'static, Completed>>,
    binds: BindQueue,
    /// Whether bindings wait: what people only read may be late then.
    urgent: watch::Sender<bool>,
    volumes: VecDeque<BindVolumes>,
    claims: VecDeque<ClaimWrite>,
    /// Number of pods whose claims are being written or given back.
    writing_claims: usize,
    /// Number of pods whose volumes are being written.
    writing_volumes: usize,
    statuses: BTreeMap<Arc<str>, StatusWrite>,
    groups: GroupWrites,
    busy_pods: BTreeSet<Arc<str>>,
    evictions: VecDeque<Preemption>,
    /// Number of decisions to preempt that are being carried out.
    evicting: usize,
    /// Rejected pods to delete.
    discards: VecDeque<PodView>,
    /// Whether one is being deleted.
    is_discarding: bool,
    /// Nothing is sent any more, but what is in flight.
    stopped: CancellationToken,
}

impl Outbox {
    pub(super) fn new(client: Client, recorder: Recorder, binder: Option<Arc<HttpExtender>>) -> Self {
        Self {
            client,
            binder,
            recorder,
            in_flight: FuturesUnordered::new(),
            binds: BindQueue::default(),
            urgent: watch::Sender::new(false),
            volumes: VecDeque::new(),
            claims: VecDeque::new(),
            writing_claims: 0,
            writing_volumes: 0,
            statuses: BTreeMap::new(),
            groups: GroupWrites::default(),
            busy_pods: BTreeSet::new(),
            evictions: VecDeque::new(),
            evicting: 0,
            discards: VecDeque::new(),
            is_discarding: false,
            stopped: CancellationToken::new(),
        }
    }

    /// Whether bindings wait to be sent, from now on.
    pub(super) fn urgent(&self) -> watch::Receiver<bool> {
        self.urgent.subscribe()
    }

    /// Carries outputs of the core out until `token` is cancelled, and hands the results of calls to `results`. Returns
    /// whether no binding is in flight any more, so that another process may lead.
    pub(super) async fn run(
        mut self,
        mut outputs: UnboundedReceiver<Output>,
        results: impl Fn(CallResult),
        token: CancellationToken,
    ) -> bool {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return self.stop(DRAIN).await,
                Some(result) = self.next_result() => results(result),
                Some(output) = outputs.recv() => self.take(output),
            }
        }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Decision(decision) => self.carry_out(*decision),
            // What waits to be written about a pod that is gone.
            Output::PodGone(uid) => {
                self.statuses.remove(&uid);
                self.volumes.retain(|bind| bind.binding.pod.uid != uid);
                self.drop_reservations_for(&uid);
            }
            Output::Drifted(node, drift) => self.drifted(&node, &drift),
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Bind(binding) => self.bind(binding),
            Decision::BindVolumes(bind) => self.bind_volumes(bind),
            Decision::ReserveClaims(reserve) => {
                self.statuses.remove(&reserve.binding.pod.uid);
                self.write_claims(ClaimWrite::Reserve(reserve));
            }
            Decision::ReleaseClaims(release) => self.write_claims(ClaimWrite::Release(release)),
            Decision::FailVolumes(failed) => self.fail(&failed.binding.pod, failed.message),
            Decision::Refuse(refused) => self.refuse(refused),
            Decision::Preempt(preemption) => self.preempt(preemption),
            Decision::NoteRejection(rejected) => {
                self.discards.push_back(rejected.pod);
                self.start();
            }
            Decision::SetGroupCondition(condition) => {
                self.groups.push(condition);
                self.start();
            }
            Decision::Withdraw(id) => {
                if let Some(binding) = self.binds.withdraw(id) {
                    self.in_flight.push(Box::pin(ready(Completed::Withdrawn(Box::new(binding)))));
                }
            }
        }
    }

    /// Reports that a node's report has contradicted what was booked.
    fn drifted(&self, node: &NodeView, drift: &Drift) {
        let regarding = Subject {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            namespace: String::new(),
            name: node.name.to_string(),
            uid: node.uid.to_string(),
        };
        let (reason, action) = ("LedgerDrift".to_owned(), "Accounting".to_owned());
        let (severity, note) = (Severity::Warning, drift.to_string());
        self.recorder.record(events::Event { regarding, related: None, severity, reason, action, note });
    }

    /// Drops what was not sent yet, and waits until the bindings in flight have ended, at most for `limit`. Returns
    /// whether they have.
    async fn stop(&mut self, limit: Duration) -> bool {
        self.stopped.cancel();
        self.binds.drop_waiting();
        self.volumes.clear();
        self.claims.clear();
        self.statuses.clear();
        self.groups.clear();
        self.evictions.clear();
        self.discards.clear();
        // A claim that is written has its devices, which the next leader must see.
        let ended = async {
            while (self.binds.is_busy() || self.writing_claims > 0) && self.next_result().await.is_some() {}
        };
        tokio::time::timeout(limit, ended).await.is_ok()
    }

    /// Binds a pod, after those that it has to follow.
    fn bind(&mut self, binding: Binding) {
        self.statuses.remove(&binding.pod.uid);
        self.binds.push(binding);
        self.start();
    }

    /// Writes the volumes and claims of a pod. The pods of its node do not wait for that.
    fn bind_volumes(&mut self, bind: BindVolumes) {
        self.statuses.remove(&bind.binding.pod.uid);
        self.volumes.push_back(bind);
        self.start();
    }

    /// Writes claims, or gives them back.
    fn write_claims(&mut self, write: ClaimWrite) {
        self.claims.push_back(write);
        self.start();
    }

    /// Drops reservations that were not sent, which ends their writes.
    fn drop_reservations_for(&mut self, uid: &str) {
        let (dropped, kept): (Vec<_>, Vec<_>) =
            self.claims.drain(..).partition(|write| write.is_reservation_for(uid));
        self.claims = kept.into();
        for write in dropped {
            let ClaimWrite::Reserve(ReserveClaims { binding, .. }) = write else { continue };
            let ended = Completed::Claims(binding.id, Vec::new(), Err("the pod is gone".to_owned()));
            self.writing_claims += 1;
            self.in_flight.push(Box::pin(ready(ended)));
        }
    }

    /// Reports that a pod is not bound after all.
    fn fail(&self, pod: &PodView, message: String) {
        self.record(pod, Severity::Warning, "FailedScheduling", "Scheduling", message);
    }

    /// Reports that a pod fits no node: an event, and the condition `PodScheduled` if its message changed, with the
    /// nominated node if that has changed.
    fn refuse(&mut self, refused: Refused) {
        self.record(
            &refused.pod,
            Severity::Warning,
            "FailedScheduling",
            "Scheduling",
            refused.message.clone(),
        );
        let Refused { pod, message, nominated, deallocation, is_error, .. } = refused;
        if let Some(claim) = deallocation {
            self.write_claims(ClaimWrite::Deallocate(claim));
        }
        // A write that waits or is in flight may set a node that the object does not show yet.
        let is_pending = self.statuses.get(&pod.uid).is_some_and(|write| write.nominated.is_some());
        let is_renominated = nominated != pod.nominated || is_pending || self.busy_pods.contains(&pod.uid);
        if is_renominated || pod.unschedulable.as_deref() != Some(message.as_str()) {
            let reason = if is_error { "SchedulerError" } else { "Unschedulable" };
            let (condition, nominated) = (Some((reason, message)), is_renominated.then_some(nominated));
            self.statuses.insert(Arc::clone(&pod.uid), StatusWrite { pod, condition, nominated });
            self.start();
        }
    }

    /// Reports that a pod fits no node, and evicts others so that it will. Less important pods lose the nomination for
    /// the node.
    fn preempt(&mut self, preemption: Preemption) {
        self.refuse(preemption.refused.clone());
        for pod in preemption.displaced.clone() {
            let write = StatusWrite { pod, condition: None, nominated: None };
            self.statuses.entry(Arc::clone(&write.pod.uid)).or_insert(write).nominated = Some(None);
        }
        self.evictions.push_back(preemption);
        self.start();
    }

    /// Waits for the next call to end; `None` when none is in flight.
    async fn next_result(&mut self) -> Option<CallResult> {
        let completed = self.in_flight.next().await?;
        let result = match completed {
            Completed::Bind(binding, took, Ok(())) => {
                self.binds.done(&binding);
                let note = format!("Successfully assigned {} to {}", binding.pod.key(), binding.node);
                self.record(&binding.pod, Severity::Normal, "Scheduled", "Binding", note);
                CallResult::Bound(binding, took)
            }
            Completed::Bind(binding, took, Err(BindFailure::NamespaceTerminating(reason))) => {
                self.binds.done(&binding);
                // An event would be refused for the same reason.
                tracing::debug!(pod = binding.pod.key(), node = %binding.node, reason, "binding failed");
                CallResult::BindFailed(binding, took)
            }
            Completed::Bind(binding, took, Err(BindFailure::Other(reason))) => {
                self.binds.done(&binding);
                tracing::warn!(pod = binding.pod.key(), node = %binding.node, reason, "binding failed");
                self.record(&binding.pod, Severity::Warning, "FailedScheduling", "Scheduling", reason);
                CallResult::BindFailed(binding, took)
            }
            Completed::Withdrawn(binding) => CallResult::Withdrawn(binding),
            Completed::Departed(binding) => {
                self.binds.done(&binding);
                CallResult::Withdrawn(binding)
            }
            Completed::Volumes(id, volumes, result) => {
                self.writing_volumes = self.writing_volumes.saturating_sub(1);
                match result {
                    Ok(()) => CallResult::VolumesWritten(id, volumes),
                    Err(reason) => CallResult::VolumesFailed(id, volumes, reason),
                }
            }
            Completed::Claims(id, written, result) => {
                self.writing_claims = self.writing_claims.saturating_sub(1);
                match result {
                    Ok(()) => CallResult::ClaimsWritten(id, written),
                    Err(reason) => CallResult::ClaimsFailed(id, written, reason),
                }
            }
            Completed::Released => {
                self.writing_claims = self.writing_claims.saturating_sub(1);
                CallResult::Other
            }
            Completed::Status(uid) => {
                self.busy_pods.remove(&uid);
                CallResult::Other
            }
            Completed::GroupCondition => {
                self.groups.done();
                CallResult::Other
            }
            Completed::Eviction(evicted) => self.evicted(evicted),
            Completed::Discarded => {
                self.is_discarding = false;
                CallResult::Other
            }
        };
        self.start();
        Some(result)
    }

    fn start(&mut self) {
        // A status that is on its way must not reach a pod that is bound meanwhile.
        let is_written = |pod: &PodView| self.busy_pods.contains(&pod.uid);
        while let Some(binding) = self.binds.next(is_written) {
            let binder = self.binder.clone().filter(|binder| binder.concerns(&binding.pod));
            let by = (self.client.clone(), binder);
            self.in_flight.push(Box::pin(bind(by, binding, self.stopped.clone())));
        }
        let waiting = self.binds.is_waiting();
        self.urgent.send_if_modified(|urgent| std::mem::replace(urgent, waiting) != waiting);
        while self.writing_volumes < MAX_VOLUMES {
            let Some(bind) = self.volumes.pop_front() else { break };
            self.writing_volumes += 1;
            self.in_flight.push(Box::pin(volumes::write(self.client.clone(), bind)));
        }
        while self.writing_claims < MAX_CLAIMS {
            let Some(write) = self.claims.pop_front() else { break };
            self.writing_claims += 1;
            let client = self.client.clone();
            self.in_flight.push(match write {
                ClaimWrite::Reserve(reserve) => {
                    Box::pin(claims::reserve(client, reserve, self.stopped.clone()))
                }
                ClaimWrite::Release(release) => Box::pin(claims::release(client, release)),
                ClaimWrite::Deallocate(claim) => Box::pin(claims::deallocate(client, claim)),
            });
        }
        while self.busy_pods.len() < MAX_CONDITIONS {
            let next = self.statuses.keys().find(|uid| !self.busy_pods.contains(*uid)).cloned();
            let Some(write) = next.and_then(|uid| self.statuses.remove(&uid)) else { break };
            self.busy_pods.insert(Arc::clone(&write.pod.uid));
            self.in_flight.push(Box::pin(write_status(self.client.clone(), write)));
        }
        if let Some(condition) = self.groups.next() {
            self.in_flight.push(Box::pin(pod_group::write(self.client.clone(), condition)));
        }
        if !self.is_discarding
            && let Some(pod) = self.discards.pop_front()
        {
            self.is_discarding = true;
            let discarded = eviction::discard(self.client.clone(), pod);
            self.in_flight.push(Box::pin(async {
                discarded.await;
                Completed::Discarded
            }));
        }
        while self.evicting < MAX_EVICTIONS {
            let Some(preemption) = self.evictions.pop_front() else { break };
            self.evicting += 1;
            let evicted = eviction::evict(self.client.clone(), Box::new(preemption));
            self.in_flight.push(Box::pin(async { Completed::Eviction(evicted.await) }));
        }
    }

    fn evicted(&mut self, Evicted { preemption, pods, failure }: Evicted) -> CallResult {
        self.evicting = self.evicting.saturating_sub(1);
        let preemptor = &preemption.refused.pod;
        for pod in &pods {
            let note = format!("Preempted by pod {} on node {}", preemptor.uid, preemption.node);
            let (reason, action) = ("Preempted".to_owned(), "Preempting".to_owned());
            let (regarding, related, severity) = (subject(pod), Some(subject(preemptor)), Severity::Normal);
            let event = events::Event { regarding, related, severity, reason, action, note };
            self.recorder.named(&preemptor.scheduler).record(event);
        }
        let Some(reason) = failure else { return CallResult::Other };
        tracing::warn!(pod = preemptor.key(), node = %preemption.node, reason, "cannot evict a pod");
        CallResult::PreemptFailed(preemption.id)
    }

    fn record(&self, pod: &PodView, severity: Severity, reason: &str, action: &str, note: String) {
        let regarding = subject(pod);
        let (reason, action) = (reason.to_owned(), action.to_owned());
        let event = events::Event { regarding, related: None, severity, reason, action, note };
        self.recorder.named(&pod.scheduler).record(event);
    }
}

fn subject(pod: &PodView) -> Subject {
    Subject {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
    }
}

async fn write_status(client: Client, write: StatusWrite) -> Completed {
    let api: Api<Pod> = Api::namespaced(client, &write.pod.namespace);
    let patch = Patch::Strategic(write.patch());
    let result = api.patch_status(&write.pod.name, &PatchParams::default(), &patch).await;
    if let Err(error) = result
        && !client::is_not_found(&error)
        && !client::is_conflict(&error)
    {
        let (pod, reason) = (write.pod.key(), client::brief(&error));
        tracing::warn!(pod, reason, "cannot write the pod's status");
    }
    Completed::Status(write.pod.uid)
}

impl StatusWrite {
    fn patch(&self) -> Value {
        let mut status = json!({});
        if let Some((reason, message)) = &self.condition {
            let mut condition = json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
            });
            if self.pod.unschedulable.is_none() {
                condition["lastTransitionTime"] = json!(Time(jiff::Timestamp::now()));
            }
            status["conditions"] = json!([condition]);
        }
        if let Some(node) = &self.nominated {
            status["nominatedNodeName"] = json!(node.as_deref());
        }
        json!({ "metadata": { "uid": self.pod.uid.as_ref() }, "status": status })
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::reason::Refusals;

    fn pod(name: &str, status: Value) -> PodView {
        let meta = json!({ "namespace": "ns", "name": name, "uid": format!("uid-{name}") });
        PodView::read(&serde_json::from_value(json!({ "metadata": meta, "status": status })).unwrap())
    }

    fn outbox() -> Outbox {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let (recorder, _) = events::channel(client.clone(), "scheduler", &mut Registry::default());
        Outbox::new(client, recorder, None)
    }

    fn refused(pod: PodView, nominated: Option<&str>) -> Refused {
        let (message, refusals) = ("no".to_owned(), Refusals::default());
        let nominated = nominated.map(Arc::from);
        Refused {
            pod,
            message,
            refusals,
            nominated,
            deallocation: None,
            tried_preemption: true,
            is_error: false,
        }
    }

    #[test]
    fn statuses_say_what_has_changed() {
        let condition =
            json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m" });
        let waits =
            json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "message": "old" }] });
        for (message, nominated, wanted) in [
            (Some("m"), None, json!({ "conditions": [condition] })),
            (Some("m"), Some(Some("n")), json!({ "conditions": [condition], "nominatedNodeName": "n" })),
            (Some("m"), Some(None), json!({ "conditions": [condition], "nominatedNodeName": null })),
            (None, Some(None), json!({ "nominatedNodeName": null })),
        ] {
            let nominated = nominated.map(|node: Option<&str>| node.map(Arc::from));
            let condition = message.map(|message| ("Unschedulable", message.to_owned()));
            let write = StatusWrite { pod: pod("p", waits.clone()), condition, nominated };
            assert_eq!(write.patch(), json!({ "metadata": { "uid": "uid-p" }, "status": wanted }));
        }
    }

    /// A status is written when the message or the nominated node is another than the object shows.
    #[tokio::test]
    async fn a_status_is_written_when_it_differs() {
        let shown = |message: &str, node: Option<&str>| {
            let conditions = json!([{ "type": "PodScheduled", "status": "False", "message": message }]);
            pod("p", json!({ "conditions": conditions, "nominatedNodeName": node }))
        };
        for (shows, node, nominated, written) in [
            ("no", None, None, false),
            ("no", Some("n"), Some("n"), false),
            ("yes", Some("n"), Some("n"), true),
            ("no", None, Some("n"), true),
            ("no", Some("n"), None, true),
            ("no", Some("n"), Some("m"), true),
        ] {
            let mut outbox = outbox();
            outbox.refuse(refused(shown(shows, node), nominated));
            assert_eq!(!outbox.busy_pods.is_empty(), written, "{shows} {node:?} {nominated:?}");
        }
    }

    /// A server that is not there: the pod that the eviction was for is told.
    #[tokio::test]
    async fn an_eviction_that_fails_is_told_and_one_without_calls_is_not() {
        let leaving = json!({ "metadata": { "name": "v", "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let leaving = PodView::read(&serde_json::from_value(leaving).unwrap());
        for (victim, fails) in [(pod("v", json!({})), true), (leaving, false)] {
            let mut outbox = outbox();
            let refused = refused(pod("p", json!({})), Some("n"));
            let (victims, displaced) = (vec![victim], vec![pod("d", json!({}))]);
            outbox.preempt(Preemption { id: PodId(7), refused, node: "n".into(), victims, displaced });
            assert_eq!((outbox.evicting, outbox.busy_pods.len()), (1, 2), "p and d get a status");
            let mut failed = false;
            while outbox.evicting > 0 {
                failed |= matches!(outbox.next_result().await, Some(CallResult::PreemptFailed(PodId(7))));
            }
            assert_eq!(failed, fails);
        }
    }
}
