//! Events (`events.k8s.io/v1`) about actions of the process, for people who look at an object.
//!
//! In: [`Event`]s from anywhere in the process, queued without waiting. Out: Event objects; a repeated event becomes a
//! series of one object, as Kubernetes' own components write it. Never: a caller that waits or fails, or a flood of
//! requests: an event that cannot be written in time is dropped and counted.
//!
//! # RBAC
//! `create` and `patch` on `events.k8s.io` events.

mod series;

use crate::backoff::Backoff;
use crate::client::{brief, is_already_exists, is_namespace_terminating, is_not_found, is_retryable};
use crate::host;
use crate::token_bucket::TokenBucket;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde_json::json;
use series::{Outcome, SeriesStore, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The API's limit for notes, and kube-scheduler's mark at the end of a shortened one.
const NOTE_LIMIT_BYTES: usize = 1024;
const CUT: &str = " ...";
/// The API's limit for `reportingInstance`.
const INSTANCE_LIMIT_BYTES: usize = 128;
/// Capacity of the queue between recorders and the writer, in events.
const QUEUE: usize = 1024;
/// Writes without a pause after a quiet time, and the time after which one more may be sent.
const BURST: u32 = 500;
const REFILL: Duration = Duration::from_millis(10);
/// Tokens of one write while the server has more urgent requests to answer.
const YIELDING_TOKENS: u32 = 10;
/// Concurrent writes, each on a connection of its own.
const CONCURRENCY: usize = 4;
/// Timeout of one write.
const CALL: Duration = Duration::from_secs(10);
/// Interval at which the writer looks for series with a count to write.
const TICK: Duration = Duration::from_secs(2);
/// Time for the remaining writes once the process shuts down.
const DRAIN: Duration = Duration::from_secs(2);

/// The type of an event: the API knows `Normal` and `Warning` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Information.
    Normal,
    /// A problem that may need action.
    Warning,
}

/// The object an event is about.
///
/// The resource version is left out, unlike in client-go: each change of the object would start another series.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Group and version, for example `v1`.
    pub api_version: String,
    /// The kind, for example `Pod`.
    pub kind: String,
    /// Empty for objects without a namespace; their events go to `default`.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's unique id.
    pub uid: String,
}

impl Subject {
    /// A reference to `object`.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

/// An event to record. Equal events count as one event that happened several times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The object that the event is about.
    pub regarding: Subject,
    /// Another object involved.
    pub related: Option<Subject>,
    /// Information or problem.
    pub severity: Severity,
    /// The reason as one CamelCase word, such as `FailedScheduling`.
    pub reason: String,
    /// The action under way as one CamelCase word, such as `Scheduling`.
    pub action: String,
    /// The text for people, shortened to the API's limit of 1024 bytes.
    pub note: String,
}

/// The reporting controller and its instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    controller: String,
    instance: String,
}

/// An event with its source: the unit of work of the writer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct QueuedEvent {
    event: Event,
    source: Arc<Source>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: &'static str,
}

/// Counts of events written and dropped by this process.
#[derive(Debug, Clone, Default)]
struct Metrics {
    written: Counter,
    dropped: Family<DropLabels, Counter>,
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let written = "Event objects created or updated";
        registry.register("tholepin_events_written", written, metrics.written.clone());
        let dropped = "Events that were not written, by reason";
        registry.register("tholepin_events_dropped", dropped, metrics.dropped.clone());
        metrics
    }

    fn drop_one(&self, reason: &'static str) {
        self.dropped.get_or_create(&DropLabels { reason }).inc();
    }
}

/// Registers the metrics, each with a sample, for [`specimen`](crate::specimen).
pub(crate) fn sample(registry: &mut Registry) {
    Metrics::register(registry).drop_one("full");
}

/// The sending end: records events without waiting. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<QueuedEvent>,
    source: Arc<Source>,
    metrics: Metrics,
}

impl Recorder {
    /// The same recorder in the name of another controller. A scheduler has one for each profile.
    #[must_use]
    pub fn named(&self, controller: &str) -> Self {
        Self { source: Arc::new(Source::new(controller)), ..self.clone() }
    }

    /// Queues an event. When the queue is full, the event is dropped and counted.
    pub fn record(&self, mut event: Event) {
        event.note = shorten(event.note);
        if self.queue.try_send(QueuedEvent { event, source: self.source.clone() }).is_err() {
            self.metrics.drop_one("full");
        }
    }
}

impl Source {
    fn new(controller: &str) -> Self {
        let mut instance = format!("{controller}-{}", host::name());
        cut(&mut instance, INSTANCE_LIMIT_BYTES);
        Self { controller: controller.to_owned(), instance }
    }
}

/// The receiving end, which writes Event objects; [`Writer::run`] is a task.
pub struct Writer {
    queue: mpsc::Receiver<QueuedEvent>,
    client: Client,
    series: SeriesStore,
    bucket: TokenBucket,
    /// Whether more urgent requests wait.
    urgent: watch::Receiver<bool>,
    backoff: Backoff,
    /// No write before this time, because the server did not answer.
    blocked_until: Instant,
    metrics: Metrics,
}

/// A recorder in the name of `controller`, and the writer whose task must run for events to arrive. `client` should not
/// be the one that watches use: events are many and unimportant.
pub fn channel(client: Client, controller: &str, registry: &mut Registry) -> (Recorder, Writer) {
    let metrics = Metrics::register(registry);
    let (sender, queue) = mpsc::channel(QUEUE);
    let recorder =
        Recorder { queue: sender, source: Arc::new(Source::new(controller)), metrics: metrics.clone() };
    let writer = Writer {
        queue,
        client,
        series: SeriesStore::default(),
        bucket: TokenBucket::new(BURST, REFILL, Instant::now().into_std()),
        urgent: watch::channel(false).1,
        backoff: Backoff::new(Duration::from_millis(200), Duration::from_secs(10)),
        blocked_until: Instant::now(),
        metrics,
    };
    (recorder, writer)
}

impl Writer {
    /// The same writer, which writes a tenth as often while `urgent` is true: while other requests of this process wait
    /// for the server. Events come later then, and none is lost sooner.
    #[must_use]
    pub fn yielding_to(self, urgent: watch::Receiver<bool>) -> Self {
        Self { urgent, ..self }
    }

    /// Writes recorded events until `token` is cancelled, then for at most two seconds the ones still queued.
    pub async fn run(mut self, token: CancellationToken) {
        let mut under_way = FuturesUnordered::new();
        let mut tick = tokio::time::interval(TICK);
        let mut last_call = None;
        loop {
            let now = Instant::now();
            while under_way.len() < CONCURRENCY && now >= self.next_write() {
                let Some(write) = self.series.next_write() else { break };
                let tokens = if *self.urgent.borrow() { YIELDING_TOKENS } else { 1 };
                (0..tokens).for_each(|_| self.bucket.take(now.into_std()));
                under_way.push(perform(self.client.clone(), write));
            }
            let finished =
                last_call.is_some() && under_way.is_empty() && self.series.is_idle() && self.queue.is_empty();
            if finished || last_call.is_some_and(|end| now >= end) {
                return;
            }
            let waiting = under_way.len() < CONCURRENCY && !self.series.is_idle();
            let next = self.next_write();
            tokio::select! {
                () = token.cancelled(), if last_call.is_none() => last_call = Some(Instant::now() + DRAIN),
                Some(queued) = self.queue.recv() => self.observe(queued),
                Some((write, result)) = under_way.next() => self.settle(write, result),
                () = sleep_until(next), if waiting => {}
                _ = tick.tick() => self.series.tick(Instant::now()),
            }
        }
    }

    /// The time from which the next write may be sent.
    fn next_write(&self) -> Instant {
        self.blocked_until.max(self.bucket.available_at().into())
    }

    fn observe(&mut self, queued: QueuedEvent) {
        if !self.series.observe(queued, Timestamp::now(), Instant::now()) {
            self.metrics.drop_one("behind");
        }
    }

    fn settle(&mut self, write: Write, result: Result<(), kube::Error>) {
        let outcome = match &result {
            Ok(()) => Outcome::Written,
            // An earlier attempt of this writer arrived after all.
            Err(error) if write.creates() && is_already_exists(error) => Outcome::Written,
            // The object's time to live is over; the series goes on in a new one.
            Err(error) if !write.creates() && is_not_found(error) => Outcome::Gone,
            Err(error) if is_retryable(error) => Outcome::Unreached,
            Err(_) => Outcome::Refused,
        };
        match outcome {
            Outcome::Written => {
                self.metrics.written.inc();
                self.backoff.reset();
            }
            Outcome::Unreached => self.blocked_until = Instant::now() + self.backoff.next_delay(),
            Outcome::Gone | Outcome::Refused => {}
        }
        let kept = self.series.settle(&write, outcome, Instant::now());
        let Err(error) = result else { return };
        // Events go with the namespace that is being deleted.
        let is_moot = is_namespace_terminating(&error);
        let error = brief(&error);
        if kept {
            debug!(object = write.queued.event.regarding.name, error, "event not written yet");
        } else if is_moot {
            debug!(object = write.queued.event.regarding.name, error, "event dropped");
            self.metrics.drop_one("refused");
        } else {
            warn!(object = write.queued.event.regarding.name, error, "event dropped");
            self.metrics.drop_one(if outcome == Outcome::Refused { "refused" } else { "failed" });
        }
    }
}

async fn perform(client: Client, write: Write) -> (Write, Result<(), kube::Error>) {
    let api: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(client, write.namespace());
    let call = async {
        if write.creates() {
            return api.create(&PostParams::default(), &write.object()).await;
        }
        let series = json!({ "series": write.series() });
        api.patch(&write.name, &PatchParams::default(), &Patch::Merge(series)).await
    };
    let result = match timeout(CALL, call).await {
        Ok(result) => result.map(drop),
        Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
    };
    (write, result)
}

/// Shortens a note to the API's limit, as kube-scheduler does.
fn shorten(mut note: String) -> String {
    if note.len() > NOTE_LIMIT_BYTES {
        cut(&mut note, NOTE_LIMIT_BYTES - CUT.len());
        note += CUT;
    }
    note
}

/// Shortens `text` to the last whole character within `limit_bytes`.
fn cut(text: &mut String, limit_bytes: usize) {
    let boundary = (0..=limit_bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    text.truncate(boundary.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_at_a_character() {
        let exact = "x".repeat(NOTE_LIMIT_BYTES);
        assert_eq!(shorten(exact.clone()), exact);
        assert_eq!(shorten(exact + "x"), "x".repeat(1020) + " ...");
        // Three bytes each: 1020 is a boundary, 1019 and 1018 are not.
        let euros = shorten("a".to_owned() + &"€".repeat(400));
        assert_eq!(euros, "a".to_owned() + &"€".repeat(339) + " ...");
    }

    #[test]
    fn the_instance_fits_any_controller_name() {
        let source = Source::new(&"é".repeat(100));
        assert!(source.instance.len() <= INSTANCE_LIMIT_BYTES);
        assert_eq!(Source::new("numa").instance, format!("numa-{}", host::name()));
    }
}
