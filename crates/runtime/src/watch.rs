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

mod index;
mod recovery;

use futures::StreamExt;
use index::Index;
use kube::Api;
use kube::core::{DeserializeGuard, Resource};
use kube::runtime::watcher::{self, Config, watcher};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use recovery::{Recovery, WatchErrors};
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt::{Debug, Display, Formatter};
use tracing::debug;

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
    match drive(api, &K::plural(&()), config, metrics, Index::new(Ok, sink), keep_waiting).await {
        Ok(never) | Err(never) => never,
    }
}

/// As [`run`], for what is kept in another form than it is on the wire, and for kinds without a type of their own:
/// `open` turns each object into what is kept the moment it arrives, so what that leaves out is never held, not even while a
/// long list comes in. What it refuses is told as [`Event::Unreadable`]. `resource` names the kind in logs and metrics.
pub async fn run_mapped<W, K>(
    api: Api<W>,
    resource: &str,
    config: Config,
    metrics: &Metrics,
    open: impl FnMut(W) -> Result<K, String>,
    sink: impl FnMut(Event<K>),
) -> Infallible
where
    W: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match drive(api, resource, config, metrics, Index::new(open, sink), keep_waiting).await {
        Ok(never) | Err(never) => never,
    }
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
    let resource = K::plural(&());
    match drive(api, &resource, config, metrics, Index::new(open_guard, sink), keep_waiting).await {
        Ok(never) | Err(never) => never,
    }
}

/// As [`run_guarded`], for callers that have another way: ends when the server says that watching is not allowed, with what
/// it said. Everything else is waited for, as ever.
pub async fn run_while_allowed<K>(
    api: Api<DeserializeGuard<K>>,
    config: Config,
    metrics: &Metrics,
    sink: impl FnMut(Event<K>),
) -> String
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match drive(api, &K::plural(&()), config, metrics, Index::new(open_guard, sink), Err).await {
        Ok(never) => match never {},
        Err(denied) => denied,
    }
}

fn open_guard<K>(guard: DeserializeGuard<K>) -> Result<K, String> {
    guard.0.map_err(|invalid| invalid.error)
}

/// What most do when they are not allowed: hope that somebody grants it.
fn keep_waiting(_: String) -> Result<(), Infallible> {
    Ok(())
}

async fn drive<W, K, O, S, E>(
    api: Api<W>,
    resource: &str,
    config: Config,
    metrics: &Metrics,
    mut index: Index<K, O, S>,
    denied: impl Fn(String) -> Result<(), E>,
) -> Result<Infallible, E>
where
    W: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    O: FnMut(W) -> Result<K, String>,
    S: FnMut(Event<K>),
{
    let mut errors = WatchErrors::new(resource.to_owned(), metrics);
    // A streamed list costs the server a fraction of a plain one, but it may have that feature switched off.
    let mut config = config.streaming_lists();
    loop {
        let mut stream = std::pin::pin!(watcher(api.clone(), config.clone()));
        while let Some(item) = stream.next().await {
            let error = match item {
                Ok(event) => {
                    errors.record(index.take(event));
                    continue;
                }
                Err(error) => error,
            };
            match Recovery::of(&error, &config) {
                Recovery::Skip(reason) => errors.unreadable("(unknown)", &reason),
                Recovery::Wait(reason) => errors.pause(&reason).await,
                Recovery::Denied(reason) => {
                    denied(reason.clone())?;
                    errors.pause(&reason).await;
                }
                Recovery::Relist => break,
                Recovery::Page => {
                    debug!(resource = errors.kind.resource, "server refuses streamed lists, paging");
                    config.initial_list_strategy = watcher::InitialListStrategy::ListWatch;
                    break;
                }
                Recovery::Absent => {
                    index.absent();
                    errors.pause("the server does not know this kind, waiting for it to appear").await;
                    // The old position means nothing to a kind that comes back: list anew.
                    break;
                }
            }
        }
    }
}
