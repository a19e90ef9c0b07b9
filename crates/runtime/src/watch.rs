//! Watching one kind of object and feeding what happens into a sink.
//!
//! In: an `Api`, a selection. Out: [`Event`]s, handed over the moment they arrive. Never: keeps objects (only
//! their keys, to know which ones vanished), never ends, and never lets one broken object stop the others.
//!
//! # Guarantees
//! - The first event is a [`Event::Reset`]; another one comes whenever the watch could not be resumed where it
//!   broke off. Between two of them every change arrives once and in order.
//! - Applying the events in order gives the server's state; nothing is delivered half.
//! - While the API server is away, nothing is delivered: what was known stays known.
//! - A kind the server does not know has no objects: that is a `Reset` to nothing, and the watch waits until the
//!   kind appears.
//!
//! # RBAC
//! `list` and `watch` on the kind.

use crate::backoff::Backoff;
use crate::client::{brief, code, is_not_found};
use futures::StreamExt;
use kube::Api;
use kube::core::{DeserializeGuard, Resource};
use kube::runtime::watcher::{self, Config, watcher};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::{Debug, Display, Formatter};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// The pauses between attempts while the server is away.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// A watch that held this long before it broke is new trouble, not the old one continued.
const CALM: Duration = Duration::from_secs(15);

/// Which object: a name is used again by another object, a UID never.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The namespace, empty for kinds without one.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The unique id.
    pub uid: Box<str>,
}

impl Key {
    /// The key of an object that came from the API server.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
        Self { namespace: text(&meta.namespace), name: text(&meta.name), uid: text(&meta.uid) }
    }
}

impl Display for Key {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_ref() {
            "" => formatter.write_str(&self.name),
            namespace => write!(formatter, "{namespace}/{}", self.name),
        }
    }
}

/// What happened to the objects of a kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<K> {
    /// The whole truth as of now. Forget what `vanished`, then take in `objects`; in this order, as an object may
    /// have been replaced by one of the same name.
    Reset {
        /// Every object that exists and can be read.
        objects: Vec<K>,
        /// The objects known before that are no longer there, or cannot be read any more.
        vanished: Vec<Key>,
    },
    /// An object is new or changed.
    Applied(K),
    /// An object was deleted; this was its last state.
    Deleted(K),
    /// An object is new or changed, but its content cannot be read: what was known of it no longer holds.
    Unreadable {
        /// The object.
        key: Key,
        /// Why it cannot be read.
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    resource: String,
}

/// How the watches of this process fare, by resource.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    resets: Family<Kind, Counter>,
    errors: Family<Kind, Counter>,
    unreadable: Family<Kind, Counter>,
}

impl Metrics {
    /// Metrics shown by `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let mut add = |name: &str, help: &str, family: &Family<Kind, Counter>| {
            registry.register(name, help, family.clone());
        };
        add("tholepin_watch_resets", "Times a watch had to start over with a full list", &metrics.resets);
        add("tholepin_watch_errors", "Times a watch broke or could not start", &metrics.errors);
        add("tholepin_watch_unreadable", "Objects received that could not be read", &metrics.unreadable);
        metrics
    }
}

/// Watches the objects of `api` that `config` selects, for ever; to stop, drop the future.
///
/// A `K` that leaves fields out must keep name, namespace, UID and resource version. An object whose shape `K`
/// cannot read fails the whole list: right for built-in kinds, which the server validates.
pub async fn run<K>(api: Api<K>, config: Config, metrics: &Metrics, sink: impl FnMut(Event<K>)) -> Infallible
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    drive(api, config, metrics, Index::new(Ok, sink)).await
}

/// As [`run`], for kinds whose content anybody may have written: an object that `K` cannot read is told as
/// [`Event::Unreadable`] and the others go on. It costs a second copy of each object while it is parsed.
pub async fn run_guarded<K>(
    api: Api<DeserializeGuard<K>>,
    config: Config,
    metrics: &Metrics,
    sink: impl FnMut(Event<K>),
) -> Infallible
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let open = |guard: DeserializeGuard<K>| guard.0.map_err(|invalid| invalid.error);
    drive(api, config, metrics, Index::new(open, sink)).await
}

async fn drive<W, K, S: FnMut(Event<K>)>(
    api: Api<W>,
    config: Config,
    metrics: &Metrics,
    mut index: Index<W, K, S>,
) -> Infallible
where
    W: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut trouble = Trouble::new(W::plural(&()).into_owned(), metrics);
    // A streamed list costs the server a fraction of a plain one, but it may have that feature switched off.
    let mut config = config.streaming_lists();
    loop {
        let mut stream = std::pin::pin!(watcher(api.clone(), config.clone()));
        while let Some(item) = stream.next().await {
            let error = match item {
                Ok(event) => {
                    trouble.heard(index.take(event));
                    continue;
                }
                Err(error) => error,
            };
            match Cure::of(&error, &config) {
                Cure::Skip(reason) => trouble.unreadable("(unknown)", &reason),
                Cure::Wait(reason) => trouble.pause(&reason).await,
                Cure::Anew => break,
                Cure::Page => {
                    debug!(resource = trouble.kind.resource, "server refuses streamed lists, paging");
                    config.initial_list_strategy = watcher::InitialListStrategy::ListWatch;
                    break;
                }
                Cure::Absent => {
                    index.absent();
                    trouble.pause("the server does not know this kind, waiting for it to appear").await;
                    // The old position means nothing to a kind that comes back: list anew.
                    break;
                }
            }
        }
    }
}

/// Turns the watcher's events into ours: gathers a list until it is complete, and knows which keys exist.
struct Index<W, K, S> {
    open: fn(W) -> Result<K, String>,
    sink: S,
    known: BTreeSet<Key>,
    gathered: Vec<K>,
    gathered_keys: BTreeSet<Key>,
    /// The sink was told that the server does not know the kind.
    absent: bool,
}

/// What one event of the watcher meant.
enum Heard {
    /// A list begins; that alone does not show that the server works.
    Nothing,
    /// A change, or a part of a list.
    Change,
    /// A list is complete.
    Reset,
    /// An object we cannot read.
    Unreadable { name: String, reason: String },
}

impl<W: Resource, K, S: FnMut(Event<K>)> Index<W, K, S> {
    fn new(open: fn(W) -> Result<K, String>, sink: S) -> Self {
        let (known, gathered, gathered_keys) = Default::default();
        Self { open, sink, known, gathered, gathered_keys, absent: false }
    }

    fn take(&mut self, event: watcher::Event<W>) -> Heard {
        match event {
            watcher::Event::Init => {
                self.gathered.clear();
                self.gathered_keys.clear();
                Heard::Nothing
            }
            watcher::Event::InitApply(wire) => self.gather(wire),
            watcher::Event::InitDone => {
                self.absent = false;
                let keys = std::mem::take(&mut self.gathered_keys);
                let vanished = self.known.difference(&keys).cloned().collect();
                self.known = keys;
                (self.sink)(Event::Reset { objects: std::mem::take(&mut self.gathered), vanished });
                Heard::Reset
            }
            watcher::Event::Apply(wire) => self.change(wire, true),
            watcher::Event::Delete(wire) => self.change(wire, false),
        }
    }

    fn gather(&mut self, wire: W) -> Heard {
        let key = Key::of(&wire);
        match (self.open)(wire) {
            Ok(object) => {
                self.gathered.push(object);
                self.gathered_keys.insert(key);
                Heard::Change
            }
            Err(reason) => Heard::Unreadable { name: key.to_string(), reason },
        }
    }

    fn change(&mut self, wire: W, exists: bool) -> Heard {
        let key = Key::of(&wire);
        match (self.open)(wire) {
            Ok(object) if exists => {
                self.known.insert(key);
                (self.sink)(Event::Applied(object));
                Heard::Change
            }
            Ok(object) => {
                self.known.remove(&key);
                (self.sink)(Event::Deleted(object));
                Heard::Change
            }
            Err(reason) => {
                self.known.remove(&key);
                let name = key.to_string();
                (self.sink)(Event::Unreadable { key, reason: reason.clone() });
                Heard::Unreadable { name, reason }
            }
        }
    }

    /// The server does not know the kind, so it has no objects of it.
    fn absent(&mut self) {
        if !std::mem::replace(&mut self.absent, true) {
            let vanished = std::mem::take(&mut self.known).into_iter().collect();
            (self.sink)(Event::Reset { objects: Vec::new(), vanished });
        }
    }
}

/// What to do about an error of the watcher.
#[derive(Debug, PartialEq)]
enum Cure {
    /// One event could not be parsed; the watch goes on behind it.
    Skip(String),
    /// Try again from where we were, after a pause.
    Wait(String),
    /// Where we were is gone from the server's memory: list anew, at once.
    Anew,
    /// List page by page from now on.
    Page,
    /// There is no such kind (yet).
    Absent,
}

impl Cure {
    fn of(error: &watcher::Error, config: &Config) -> Self {
        let streaming = config.initial_list_strategy == watcher::InitialListStrategy::StreamingList;
        match error {
            watcher::Error::WatchError(status) if status.code == 410 => Self::Anew,
            watcher::Error::WatchError(status) => Self::Wait(brief(&kube::Error::Api(status.clone()))),
            watcher::Error::WatchFailed(error @ kube::Error::SerdeError(_)) => Self::Skip(brief(error)),
            // How servers without the WatchList feature say no: as an invalid request.
            watcher::Error::WatchStartFailed(error)
                if streaming && matches!(code(error), Some(400 | 422)) =>
            {
                Self::Page
            }
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match code(error) {
                Some(410) => Self::Anew,
                _ if is_not_found(error) => Self::Absent,
                _ => Self::Wait(brief(error)),
            },
            watcher::Error::NoResourceVersion => Self::Wait(error.to_string()),
        }
    }
}

/// What went wrong lately: says it once, and paces the attempts.
struct Trouble<'m> {
    kind: Kind,
    metrics: &'m Metrics,
    backoff: Backoff,
    told: Option<String>,
    tried: Option<Instant>,
}

impl<'m> Trouble<'m> {
    fn new(resource: String, metrics: &'m Metrics) -> Self {
        let backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        Self { kind: Kind { resource }, metrics, backoff, told: None, tried: None }
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Nothing => return,
            Heard::Change => {}
            Heard::Reset => drop(self.metrics.resets.get_or_create(&self.kind).inc()),
            Heard::Unreadable { name, reason } => self.unreadable(&name, &reason),
        }
        if self.told.take().is_some() {
            info!(resource = self.kind.resource, "watch works again");
        }
        self.backoff.reset();
    }

    fn unreadable(&self, name: &str, reason: &str) {
        self.metrics.unreadable.get_or_create(&self.kind).inc();
        warn!(resource = self.kind.resource, object = name, reason, "object cannot be read, ignoring it");
    }

    async fn pause(&mut self, reason: &str) {
        self.metrics.errors.get_or_create(&self.kind).inc();
        if self.tried.is_some_and(|tried| tried.elapsed() > CALM) {
            self.told = None;
            self.backoff.reset();
        }
        if self.told.as_deref() != Some(reason) {
            warn!(resource = self.kind.resource, reason, "watch is interrupted");
            self.told = Some(reason.to_owned());
        }
        tokio::time::sleep(self.backoff.next_delay()).await;
        self.tried = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;
    use kube::runtime::watcher::Event as Wire;

    /// `name/uid`, and `!` for an object whose content is broken.
    fn object(text: &str) -> ConfigMap {
        let (name, uid) = text.split_once('/').unwrap();
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.trim_start_matches('!').to_owned());
        map.metadata.uid = Some(uid.to_owned());
        map.immutable = name.starts_with('!').then_some(true);
        map
    }

    fn told(event: Event<ConfigMap>) -> String {
        let name = |object: &ConfigMap| {
            format!("{}/{}", object.metadata.name.clone().unwrap(), object.metadata.uid.clone().unwrap())
        };
        match event {
            Event::Reset { objects, vanished } => {
                let objects: Vec<_> = objects.iter().map(name).collect();
                let vanished: Vec<_> =
                    vanished.iter().map(|key| format!("{}/{}", key.name, key.uid)).collect();
                format!("reset [{}] - [{}]", objects.join(" "), vanished.join(" "))
            }
            Event::Applied(object) => format!("+{}", name(&object)),
            Event::Deleted(object) => format!("-{}", name(&object)),
            Event::Unreadable { key, .. } => format!("?{}", key.name),
        }
    }

    /// Feeds `script` and compares what the sink is told. `[` and `]` enclose a list, `+` and `-` are changes, `404`
    /// is a server without the kind.
    #[track_caller]
    fn check(script: &str, want: &[&str]) {
        let mut got = Vec::new();
        let open = |map: ConfigMap| if map.immutable.is_some() { Err("broken".to_owned()) } else { Ok(map) };
        let mut index = Index::new(open, |event| got.push(told(event)));
        for word in script.split_whitespace() {
            match (word, word.get(..1), word.get(1..)) {
                ("[", ..) => drop(index.take(Wire::Init)),
                ("]", ..) => drop(index.take(Wire::InitDone)),
                ("404", ..) => index.absent(),
                (_, Some("+"), Some(rest)) => drop(index.take(Wire::Apply(object(rest)))),
                (_, Some("-"), Some(rest)) => drop(index.take(Wire::Delete(object(rest)))),
                _ => drop(index.take(Wire::InitApply(object(word)))),
            }
        }
        assert_eq!(got, want, "{script}");
    }

    #[test]
    fn a_list_is_one_event_and_tells_what_vanished() {
        check("[ a/1 b/2 ]", &["reset [a/1 b/2] - []"]);
        check("[ a/1 b/2 ] [ b/2 ]", &["reset [a/1 b/2] - []", "reset [b/2] - [a/1]"]);
        check("[ a/1 ] +c/3 -a/1 [ ]", &["reset [a/1] - []", "+c/3", "-a/1", "reset [] - [c/3]"]);
    }

    #[test]
    fn an_object_replaced_under_its_name_vanished_too() {
        check("[ a/1 ] [ a/2 ]", &["reset [a/1] - []", "reset [a/2] - [a/1]"]);
    }

    #[test]
    fn a_list_that_broke_off_leaves_no_trace() {
        check("[ a/1 b/2 [ b/2 ]", &["reset [b/2] - []"]);
        check("[ a/1 ] [ b/2 +b/3 [ a/1 b/3 ]", &["reset [a/1] - []", "+b/3", "reset [a/1 b/3] - []"]);
    }

    #[test]
    fn what_cannot_be_read_is_no_longer_known() {
        check("[ a/1 !b/2 ]", &["reset [a/1] - []"]);
        check("[ a/1 ] +!a/1 [ !a/1 ]", &["reset [a/1] - []", "?a", "reset [] - []"]);
        check("[ a/1 ] [ !a/1 ]", &["reset [a/1] - []", "reset [] - [a/1]"]);
        check("[ a/1 ] -!a/1", &["reset [a/1] - []", "?a"]);
    }

    #[test]
    fn a_missing_kind_is_empty_and_told_once() {
        check("404 404 [ 404 [ a/1 ]", &["reset [] - []", "reset [a/1] - []"]);
        check("[ a/1 ] 404 404", &["reset [a/1] - []", "reset [] - [a/1]"]);
    }

    #[test]
    fn errors_have_their_cure() {
        let api =
            |code: u16, reason: &str| kube::Error::Api(Status::failure("m", reason).with_code(code).boxed());
        let streaming = Config::default().streaming_lists();
        let paging = Config::default();
        let wait = |text: &str| Cure::Wait(text.to_owned());
        let start = watcher::Error::WatchStartFailed;
        let broken = serde_json::from_str::<u8>("true").unwrap_err();
        let gone = Status::failure("m", "Expired").with_code(410).boxed();
        let table = [
            (start(api(422, "Invalid")), &streaming, Cure::Page),
            (start(api(422, "Invalid")), &paging, wait("422 Invalid: m")),
            (start(api(404, "NotFound")), &streaming, Cure::Absent),
            (start(api(403, "Forbidden")), &streaming, wait("403 Forbidden: m")),
            (start(api(410, "Gone")), &streaming, Cure::Anew),
            (start(kube::Error::Service("refused".into())), &streaming, wait("refused")),
            (watcher::Error::InitialListFailed(api(404, "NotFound")), &paging, Cure::Absent),
            (watcher::Error::InitialListFailed(api(503, "ServiceUnavailable")), &paging, {
                wait("503 ServiceUnavailable: m")
            }),
            (watcher::Error::WatchError(gone), &streaming, Cure::Anew),
            (watcher::Error::WatchFailed(kube::Error::SerdeError(broken)), &streaming, {
                Cure::Skip(
                    "Error deserializing response: invalid type: boolean `true`, expected u8 at line 1 column 4".into(),
                )
            }),
        ];
        for (error, config, want) in table {
            assert_eq!(Cure::of(&error, config), want, "{error}");
        }
    }
}
