//! The series of the writer: known events, their counts, and the writes that are due.
//!
//! In: events and the outcome of writes, with the time as a value. Out: the next write. Never: I/O or a clock.

use super::{QueuedEvent, Severity, Subject};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum time between writes of a count. The first repetition is written at once: it turns an event into a series.
const INTERVAL: Duration = Duration::from_secs(20);
/// Silence after which a repetition starts a new series: client-go's `finishTime`.
const FINISH: Duration = Duration::from_secs(6 * 60);
/// Number of series remembered for repetitions.
const REMEMBERED: usize = 4096;
/// Number of events that may wait for a write.
const WAITING: usize = 16_384;
/// Attempts to write one event before it is dropped: client-go's number.
const TRIES: u32 = 12;
/// Kubernetes' limit for object names.
const NAME_LIMIT_BYTES: usize = 253;

/// One event and its repetitions.
#[derive(Debug)]
struct Series {
    name: String,
    first: Timestamp,
    last: Timestamp,
    count: i32,
    /// The count that the server has; 0 before the object exists.
    written: i32,
    written_at: Instant,
    seen: Instant,
    /// Whether a write is queued or under way.
    busy: bool,
    tries: u32,
}

impl Series {
    fn is_due(&self, now: Instant) -> bool {
        !self.busy && self.count > self.written && (self.written < 2 || now >= self.written_at + INTERVAL)
    }

    /// Whether a write is under way or still to come.
    fn is_needed(&self) -> bool {
        self.busy || self.count > self.written
    }
}

/// One request: an object to create, or a new count for one that exists.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) queued: Arc<QueuedEvent>,
    pub(super) name: String,
    first: Timestamp,
    last: Timestamp,
    count: i32,
    exists: bool,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server accepted the object.
    Written,
    /// The object to update no longer exists.
    Gone,
    /// The server was not reached or failed; a retry may succeed.
    Unreached,
    /// The server rejected the object for good.
    Refused,
}

impl Write {
    /// Whether the object has yet to be created.
    pub(super) fn creates(&self) -> bool {
        !self.exists
    }

    /// The namespace of the Event: that of the regarding object, `default` if it has none.
    pub(super) fn namespace(&self) -> &str {
        match self.queued.event.regarding.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        }
    }

    /// The series, once the count is above one.
    pub(super) fn series(&self) -> Option<EventSeries> {
        (self.count > 1)
            .then_some(EventSeries { count: self.count, last_observed_time: MicroTime(self.last) })
    }

    /// The whole Event object.
    pub(super) fn object(&self) -> Event {
        let QueuedEvent { event, source } = self.queued.as_ref();
        let mut object = Event {
            action: Some(event.action.clone()),
            event_time: Some(MicroTime(self.first)),
            note: Some(event.note.clone()),
            reason: Some(event.reason.clone()),
            regarding: Some(reference(&event.regarding)),
            related: event.related.as_ref().map(reference),
            reporting_controller: Some(source.controller.clone()),
            reporting_instance: Some(source.instance.clone()),
            series: self.series(),
            type_: Some(match event.severity {
                Severity::Normal => "Normal".to_owned(),
                Severity::Warning => "Warning".to_owned(),
            }),
            ..Event::default()
        };
        object.metadata.name = Some(self.name.clone());
        object.metadata.namespace = Some(self.namespace().to_owned());
        object
    }
}

/// All remembered series.
#[derive(Debug, Default)]
pub(super) struct SeriesStore {
    series: BTreeMap<Arc<QueuedEvent>, Series>,
    /// The events whose write has not begun.
    queue: VecDeque<Arc<QueuedEvent>>,
}

impl SeriesStore {
    /// Records an event; `false` when too many wait and the event is dropped.
    pub(super) fn observe(&mut self, queued: QueuedEvent, wall: Timestamp, now: Instant) -> bool {
        let queued = Arc::new(queued);
        if let Some(series) = self.series.get_mut(&queued) {
            series.count = series.count.saturating_add(1);
            series.last = wall;
            series.seen = now;
            if series.is_due(now) {
                series.busy = true;
                self.queue.push_back(queued);
            }
            return true;
        }
        if self.queue.len() >= WAITING {
            return false;
        }
        self.make_room();
        let series = Series {
            name: object_name(&queued.event.regarding.name, wall),
            first: wall,
            last: wall,
            count: 1,
            written: 0,
            written_at: now,
            seen: now,
            busy: true,
            tries: 0,
        };
        self.series.insert(queued.clone(), series);
        self.queue.push_back(queued);
        true
    }

    /// The next write, if any. The caller passes its outcome to [`SeriesStore::settle`].
    pub(super) fn next_write(&mut self) -> Option<Write> {
        let queued = self.queue.pop_front()?;
        let series = self.series.get(&queued)?;
        Some(Write {
            name: series.name.clone(),
            first: series.first,
            last: series.last,
            count: series.count,
            exists: series.written > 0,
            queued,
        })
    }

    /// Whether no write waits.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Records the outcome of a write; `false` when the event is dropped.
    pub(super) fn settle(&mut self, write: &Write, outcome: Outcome, now: Instant) -> bool {
        let Some(series) = self.series.get_mut(&write.queued) else { return true };
        series.busy = false;
        match outcome {
            Outcome::Written => {
                series.written = write.count;
                series.written_at = now;
                series.tries = 0;
                if series.is_due(now) {
                    series.busy = true;
                    self.queue.push_back(write.queued.clone());
                }
                return true;
            }
            Outcome::Gone => {
                series.written = 0;
                series.name = object_name(&write.queued.event.regarding.name, series.last);
            }
            Outcome::Unreached => {}
            Outcome::Refused => series.tries = TRIES,
        }
        series.tries += 1;
        if series.tries >= TRIES {
            self.series.remove(&write.queued);
            return false;
        }
        series.busy = true;
        // In front, so that later events do not overtake this one.
        self.queue.push_front(write.queued.clone());
        true
    }

    /// Queues the counts that are due, and forgets series that were silent for [`FINISH`].
    pub(super) fn tick(&mut self, now: Instant) {
        for (queued, series) in &mut self.series {
            if series.is_due(now) {
                series.busy = true;
                self.queue.push_back(queued.clone());
            }
        }
        self.series.retain(|_, series| series.is_needed() || now < series.seen + FINISH);
    }

    /// Forgets the older half of the finished series, when there are too many.
    fn make_room(&mut self) {
        if self.series.len() < REMEMBERED + self.queue.len() {
            return;
        }
        let mut ages: Vec<Instant> = self.series.values().map(|series| series.seen).collect();
        let middle = ages.len() / 2;
        let (_, &mut median, _) = ages.select_nth_unstable(middle);
        self.series.retain(|_, series| series.is_needed() || series.seen > median);
    }
}

fn reference(subject: &Subject) -> ObjectReference {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    ObjectReference {
        api_version: text(&subject.api_version),
        kind: text(&subject.kind),
        namespace: text(&subject.namespace),
        name: text(&subject.name),
        uid: text(&subject.uid),
        ..ObjectReference::default()
    }
}

/// `<name>.<nanoseconds since 1970 in hex>`, as client-go names events, shortened to the limit for names.
fn object_name(regarding: &str, wall: Timestamp) -> String {
    let suffix = format!(".{:x}", wall.as_nanosecond());
    let plain = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '.' | '-') => letter,
        _ => '-',
    };
    let name: String = regarding.chars().map(plain).take(NAME_LIMIT_BYTES - suffix.len()).collect();
    match name.trim_matches(['.', '-']) {
        "" => format!("event{suffix}"),
        name => format!("{name}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event as Recorded, Source};
    use super::*;

    fn queued(pod: &str, note: &str) -> QueuedEvent {
        let regarding = Subject { kind: "Pod".into(), name: pod.into(), ..Subject::default() };
        let source = Source { controller: "c".into(), instance: "c-h".into() };
        let event = Recorded {
            regarding,
            related: None,
            severity: Severity::Warning,
            reason: "FailedScheduling".into(),
            action: "Scheduling".into(),
            note: note.into(),
        };
        QueuedEvent { event, source: Arc::new(source) }
    }

    /// A store and its clock.
    struct Fixture {
        store: SeriesStore,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { store: SeriesStore::default(), now: Instant::now() }
        }

        fn record(&mut self, pod: &str, note: &str) -> bool {
            self.store.observe(queued(pod, note), Timestamp::from_second(1_700_000_000).unwrap(), self.now)
        }

        fn advance(&mut self, time: Duration) {
            self.now += time;
            self.store.tick(self.now);
        }

        /// Takes the next write and settles it: `create web 1`, `patch web 2`, or `nothing`.
        fn write(&mut self, outcome: Outcome) -> String {
            let Some(write) = self.store.next_write() else { return "nothing".to_owned() };
            self.store.settle(&write, outcome, self.now);
            describe(&write)
        }
    }

    fn describe(write: &Write) -> String {
        let verb = if write.creates() { "create" } else { "patch" };
        format!("{verb} {} {}", write.queued.event.regarding.name, write.count)
    }

    use Outcome::{Gone, Refused, Unreached, Written};

    #[test]
    fn a_repeated_event_becomes_a_series() {
        let mut fixture = Fixture::new();
        fixture.record("web", "no room");
        assert_eq!(fixture.write(Written), "create web 1");
        assert_eq!(fixture.write(Written), "nothing");
        fixture.record("web", "no room");
        assert_eq!(fixture.write(Written), "patch web 2");
        // From here on the count is written once per interval only.
        fixture.record("web", "no room");
        fixture.record("web", "no room");
        assert_eq!(fixture.write(Written), "nothing");
        fixture.advance(INTERVAL);
        assert_eq!(fixture.write(Written), "patch web 4");
        fixture.advance(INTERVAL);
        assert_eq!(fixture.write(Written), "nothing");
    }

    #[test]
    fn other_objects_and_other_notes_are_other_events() {
        let mut fixture = Fixture::new();
        for (pod, note) in [("web", "no room"), ("db", "no room"), ("web", "no zone")] {
            fixture.record(pod, note);
        }
        let all = ["create web 1", "create db 1", "create web 1", "nothing"];
        assert_eq!([(); 4].map(|()| fixture.write(Written)), all);
    }

    #[test]
    fn repetitions_during_a_write_are_written_after_it() {
        let mut fixture = Fixture::new();
        fixture.record("web", "no room");
        let first = fixture.store.next_write().unwrap();
        fixture.record("web", "no room");
        assert!(fixture.store.next_write().is_none(), "two writes of one event at a time");
        fixture.store.settle(&first, Written, fixture.now);
        assert_eq!(fixture.write(Written), "patch web 2");
    }

    #[test]
    fn an_unreached_server_gets_the_sum_later() {
        let mut fixture = Fixture::new();
        fixture.record("web", "no room");
        assert_eq!(fixture.write(Unreached), "create web 1");
        fixture.record("web", "no room");
        let write = fixture.store.next_write().unwrap();
        assert_eq!(describe(&write), "create web 2");
        assert_eq!(write.object().series.unwrap().count, 2);
    }

    #[test]
    fn an_event_that_never_succeeds_is_dropped() {
        let mut fixture = Fixture::new();
        fixture.record("web", "no room");
        for _ in 0..TRIES {
            assert_eq!(fixture.write(Unreached), "create web 1");
        }
        assert_eq!(fixture.write(Unreached), "nothing");
        fixture.record("web", "refused");
        assert_eq!(fixture.write(Refused), "create web 1");
        assert_eq!(fixture.write(Refused), "nothing");
    }

    #[test]
    fn an_expired_object_is_replaced() {
        let mut fixture = Fixture::new();
        fixture.record("web", "no room");
        fixture.write(Written);
        fixture.record("web", "no room");
        assert_eq!(fixture.write(Gone), "patch web 2");
        assert_eq!(fixture.write(Written), "create web 2");
    }

    #[test]
    fn a_finished_event_starts_anew() {
        let mut fixture = Fixture::new();
        fixture.record("web", "no room");
        fixture.write(Written);
        fixture.advance(FINISH);
        fixture.record("web", "no room");
        assert_eq!(fixture.write(Written), "create web 1");
    }

    #[test]
    fn memory_is_bounded() {
        let mut fixture = Fixture::new();
        let kept = (0..WAITING + 5).filter(|number| fixture.record(&format!("pod-{number}"), "x")).count();
        assert_eq!(kept, WAITING);
        while fixture.write(Written) != "nothing" {}
        for number in 0..3 * REMEMBERED {
            fixture.now += Duration::from_millis(1);
            assert!(fixture.record(&format!("new-{number}"), "x"));
            assert_eq!(fixture.write(Written), format!("create new-{number} 1"));
            assert!(fixture.store.series.len() <= REMEMBERED + 1);
        }
    }

    #[test]
    fn object_names_are_always_valid() {
        let wall = Timestamp::from_nanosecond(0x1234_5678).unwrap();
        let long = "x".repeat(300);
        let table = [("web", "web.12345678"), ("", "event.12345678"), ("é:A/b", "a-b.12345678")];
        for (regarding, want) in table {
            assert_eq!(object_name(regarding, wall), want);
        }
        assert_eq!(object_name(&long, wall).len(), NAME_LIMIT_BYTES);
    }

    #[test]
    fn objects_are_complete() {
        let mut fixture = Fixture::new();
        let mut node = queued("node-1", "full");
        node.event.regarding.namespace = "shop".into();
        node.event.related = Some(Subject { kind: "Node".into(), ..Subject::default() });
        fixture.store.observe(node, Timestamp::UNIX_EPOCH, fixture.now);
        let object = fixture.store.next_write().unwrap().object();
        assert_eq!(object.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(object.type_.as_deref(), Some("Warning"));
        assert_eq!(object.related.unwrap().kind.as_deref(), Some("Node"));
        assert_eq!(object.regarding.unwrap().uid, None);
        assert!(object.series.is_none());
    }
}
