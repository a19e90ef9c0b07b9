//! Bookkeeping of the writer: which events are known, how often they happened, and what has to be written.
//!
//! In: reports and the outcome of writes. Out: the next write. Never: I/O; time is handed in.

use super::{Report, Severity, Subject};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The first repetition is written at once, as it makes a series of an event; further counts this often at most.
const INTERVAL: Duration = Duration::from_secs(20);
/// An event not seen for this long starts anew when it comes again: client-go's `finishTime`.
const FINISH: Duration = Duration::from_secs(6 * 60);
/// How many events are remembered for the case that they repeat.
const REMEMBERED: usize = 4096;
/// How many events may wait to be written.
const WAITING: usize = 4096;
/// How often the server may fail to take one event before it is dropped: client-go's number.
const TRIES: u32 = 12;
/// Names of Kubernetes objects are not longer than this.
const NAME_LIMIT_BYTES: usize = 253;

/// One event and its repetitions.
#[derive(Debug)]
struct Series {
    name: String,
    first: Timestamp,
    last: Timestamp,
    count: i32,
    /// The count the server knows; 0 when there is no object yet.
    written: i32,
    written_at: Instant,
    seen: Instant,
    /// In the queue or under way.
    busy: bool,
    tries: u32,
}

impl Series {
    fn is_due(&self, now: Instant) -> bool {
        !self.busy && self.count > self.written && (self.written < 2 || now >= self.written_at + INTERVAL)
    }

    /// Something of it is still to be written.
    fn is_needed(&self) -> bool {
        self.busy || self.count > self.written
    }
}

/// One request to make: an object to create, or the count of one that exists.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) report: Arc<Report>,
    pub(super) name: String,
    first: Timestamp,
    last: Timestamp,
    count: i32,
    exists: bool,
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server has it.
    Written,
    /// The object to update no longer exists.
    Gone,
    /// The server was not reached or could not do it now.
    Unreached,
    /// The server will never take it.
    Refused,
}

impl Write {
    /// Whether the object has yet to be created.
    pub(super) fn creates(&self) -> bool {
        !self.exists
    }

    /// The namespace of the object: that of what it is about, `default` for what has none.
    pub(super) fn namespace(&self) -> &str {
        match self.report.event.regarding.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        }
    }

    /// The count, once there is more than one.
    pub(super) fn series(&self) -> Option<EventSeries> {
        (self.count > 1)
            .then_some(EventSeries { count: self.count, last_observed_time: MicroTime(self.last) })
    }

    /// The whole object.
    pub(super) fn object(&self) -> Event {
        let Report { event, source } = self.report.as_ref();
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

/// All series that are remembered.
#[derive(Debug, Default)]
pub(super) struct Book {
    series: BTreeMap<Arc<Report>, Series>,
    /// The busy ones that are not under way.
    queue: VecDeque<Arc<Report>>,
}

impl Book {
    /// Takes note of an event; `false` when too many are waiting and it is dropped.
    pub(super) fn observe(&mut self, report: Report, wall: Timestamp, now: Instant) -> bool {
        let report = Arc::new(report);
        if let Some(series) = self.series.get_mut(&report) {
            series.count = series.count.saturating_add(1);
            series.last = wall;
            series.seen = now;
            if series.is_due(now) {
                series.busy = true;
                self.queue.push_back(report);
            }
            return true;
        }
        if self.queue.len() >= WAITING {
            return false;
        }
        self.make_room();
        let series = Series {
            name: object_name(&report.event.regarding.name, wall),
            first: wall,
            last: wall,
            count: 1,
            written: 0,
            written_at: now,
            seen: now,
            busy: true,
            tries: 0,
        };
        self.series.insert(report.clone(), series);
        self.queue.push_back(report);
        true
    }

    /// The next write to make, if any; [`Book::settle`] must be told what became of it.
    pub(super) fn next_write(&mut self) -> Option<Write> {
        let report = self.queue.pop_front()?;
        let series = self.series.get(&report)?;
        Some(Write {
            name: series.name.clone(),
            first: series.first,
            last: series.last,
            count: series.count,
            exists: series.written > 0,
            report,
        })
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes note of what became of a write; `false` when the event is given up.
    pub(super) fn settle(&mut self, write: &Write, outcome: Outcome, now: Instant) -> bool {
        let Some(series) = self.series.get_mut(&write.report) else { return true };
        series.busy = false;
        match outcome {
            Outcome::Written => {
                series.written = write.count;
                series.written_at = now;
                series.tries = 0;
                if series.is_due(now) {
                    series.busy = true;
                    self.queue.push_back(write.report.clone());
                }
                return true;
            }
            Outcome::Gone => {
                series.written = 0;
                series.name = object_name(&write.report.event.regarding.name, series.last);
            }
            Outcome::Unreached => {}
            Outcome::Refused => series.tries = TRIES,
        }
        series.tries += 1;
        if series.tries >= TRIES {
            self.series.remove(&write.report);
            return false;
        }
        series.busy = true;
        // In front, so that an event is not overtaken by what happened after it.
        self.queue.push_front(write.report.clone());
        true
    }

    /// Queues counts that have waited long enough, and forgets what has not happened for a while.
    pub(super) fn tick(&mut self, now: Instant) {
        for (report, series) in &mut self.series {
            if series.is_due(now) {
                series.busy = true;
                self.queue.push_back(report.clone());
            }
        }
        self.series.retain(|_, series| series.is_needed() || now < series.seen + FINISH);
    }

    /// Forgets the older half of what is finished, when too much is remembered.
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

/// `<name>.<nanoseconds since 1970 in hex>`, as client-go names events, cut to what a name may be.
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
    use super::super::{Event as Told, Source};
    use super::*;

    fn report(pod: &str, note: &str) -> Report {
        let regarding = Subject { kind: "Pod".into(), name: pod.into(), ..Subject::default() };
        let source = Source { controller: "c".into(), instance: "c-h".into() };
        let event = Told {
            regarding,
            related: None,
            severity: Severity::Warning,
            reason: "FailedScheduling".into(),
            action: "Scheduling".into(),
            note: note.into(),
        };
        Report { event, source: Arc::new(source) }
    }

    /// A book and its clock.
    struct Scene {
        book: Book,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { book: Book::default(), now: Instant::now() }
        }

        fn happens(&mut self, pod: &str, note: &str) -> bool {
            self.book.observe(report(pod, note), Timestamp::from_second(1_700_000_000).unwrap(), self.now)
        }

        fn passes(&mut self, time: Duration) {
            self.now += time;
            self.book.tick(self.now);
        }

        /// Takes the next write and settles it: `create web 1`, `patch web 2`, or `nothing`.
        fn write(&mut self, outcome: Outcome) -> String {
            let Some(write) = self.book.next_write() else { return "nothing".to_owned() };
            self.book.settle(&write, outcome, self.now);
            describe(&write)
        }
    }

    fn describe(write: &Write) -> String {
        let verb = if write.creates() { "create" } else { "patch" };
        format!("{verb} {} {}", write.report.event.regarding.name, write.count)
    }

    use Outcome::{Gone, Refused, Unreached, Written};

    #[test]
    fn a_repeated_event_becomes_a_series() {
        let mut scene = Scene::new();
        scene.happens("web", "no room");
        assert_eq!(scene.write(Written), "create web 1");
        assert_eq!(scene.write(Written), "nothing");
        scene.happens("web", "no room");
        assert_eq!(scene.write(Written), "patch web 2");
        // From here on the count is written now and then only.
        scene.happens("web", "no room");
        scene.happens("web", "no room");
        assert_eq!(scene.write(Written), "nothing");
        scene.passes(INTERVAL);
        assert_eq!(scene.write(Written), "patch web 4");
        scene.passes(INTERVAL);
        assert_eq!(scene.write(Written), "nothing");
    }

    #[test]
    fn other_objects_and_other_notes_are_other_events() {
        let mut scene = Scene::new();
        for (pod, note) in [("web", "no room"), ("db", "no room"), ("web", "no zone")] {
            scene.happens(pod, note);
        }
        let all = ["create web 1", "create db 1", "create web 1", "nothing"];
        assert_eq!([(); 4].map(|()| scene.write(Written)), all);
    }

    #[test]
    fn what_happens_during_a_write_is_written_after_it() {
        let mut scene = Scene::new();
        scene.happens("web", "no room");
        let first = scene.book.next_write().unwrap();
        scene.happens("web", "no room");
        assert!(scene.book.next_write().is_none(), "two writes of one event at a time");
        scene.book.settle(&first, Written, scene.now);
        assert_eq!(scene.write(Written), "patch web 2");
    }

    #[test]
    fn an_unreached_server_gets_the_sum_later() {
        let mut scene = Scene::new();
        scene.happens("web", "no room");
        assert_eq!(scene.write(Unreached), "create web 1");
        scene.happens("web", "no room");
        let write = scene.book.next_write().unwrap();
        assert_eq!(describe(&write), "create web 2");
        assert_eq!(write.object().series.unwrap().count, 2);
    }

    #[test]
    fn an_event_that_never_succeeds_is_given_up() {
        let mut scene = Scene::new();
        scene.happens("web", "no room");
        for _ in 0..TRIES {
            assert_eq!(scene.write(Unreached), "create web 1");
        }
        assert_eq!(scene.write(Unreached), "nothing");
        scene.happens("web", "refused");
        assert_eq!(scene.write(Refused), "create web 1");
        assert_eq!(scene.write(Refused), "nothing");
    }

    #[test]
    fn an_expired_object_is_replaced() {
        let mut scene = Scene::new();
        scene.happens("web", "no room");
        scene.write(Written);
        scene.happens("web", "no room");
        assert_eq!(scene.write(Gone), "patch web 2");
        assert_eq!(scene.write(Written), "create web 2");
    }

    #[test]
    fn a_finished_event_starts_anew() {
        let mut scene = Scene::new();
        scene.happens("web", "no room");
        scene.write(Written);
        scene.passes(FINISH);
        scene.happens("web", "no room");
        assert_eq!(scene.write(Written), "create web 1");
    }

    #[test]
    fn memory_is_bounded() {
        let mut scene = Scene::new();
        let kept = (0..WAITING + 5).filter(|number| scene.happens(&format!("pod-{number}"), "x")).count();
        assert_eq!(kept, WAITING);
        while scene.write(Written) != "nothing" {}
        for number in 0..3 * REMEMBERED {
            scene.now += Duration::from_millis(1);
            assert!(scene.happens(&format!("new-{number}"), "x"));
            assert_eq!(scene.write(Written), format!("create new-{number} 1"));
            assert!(scene.book.series.len() <= REMEMBERED + 1);
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
        let mut scene = Scene::new();
        let mut node = report("node-1", "full");
        node.event.regarding.namespace = "shop".into();
        node.event.related = Some(Subject { kind: "Node".into(), ..Subject::default() });
        scene.book.observe(node, Timestamp::UNIX_EPOCH, scene.now);
        let object = scene.book.next_write().unwrap().object();
        assert_eq!(object.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(object.type_.as_deref(), Some("Warning"));
        assert_eq!(object.related.unwrap().kind.as_deref(), Some("Node"));
        assert_eq!(object.regarding.unwrap().uid, None);
        assert!(object.series.is_none());
    }
}
