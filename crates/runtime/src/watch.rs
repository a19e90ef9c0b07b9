//! A watch of one kind of object, which feeds events into a sink.
//!
//! In: an `Api`, a selection. Out: [`Event`]s, delivered as they arrive. Never: a copy of the objects (only their keys,
//! to know which ones vanished), an end, or one unreadable object that stops the others.
//!
//! # Guarantees
//! - The first event is a [`Event::Reset`]; another one comes whenever the watch could not resume where it broke off.
//!   Between two of them every change arrives once and in order.
//! - The events, applied in order, give the server's state. No event is partial.
//! - While the API server is away, no event arrives, and the state known before remains.
//! - A kind that the server does not have means no objects: a `Reset` to nothing that is not `served`. The watch waits
//!   until the kind appears.
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

/// The identity of an object. A later object may have the same name, but never the same UID.
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

/// A change of the objects of a kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<K> {
    /// The whole current state. A receiver first forgets `vanished` and then takes `objects`, because an object may
    /// have been replaced by one of the same name.
    Reset {
        /// Every object that exists and is readable.
        objects: Vec<K>,
        /// The objects known before that no longer exist, or are no longer readable.
        vanished: Vec<Key>,
        /// Whether the server has the kind.
        served: bool,
    },
    /// A new or changed object.
    Applied(K),
    /// A deleted object, in its last state.
    Deleted(K),
    /// A new or changed object whose content cannot be read. Its former state no longer holds.
    Unreadable {
        /// The object.
        key: Key,
        /// The reason.
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    resource: String,
}

/// Counters of the watches of this process, by resource.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    resets: Family<Kind, Counter>,
    errors: Family<Kind, Counter>,
    unreadable: Family<Kind, Counter>,
}

impl Metrics {
    /// Registers the metrics in `registry`.
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

    /// Gives each family a sample, for [`specimen`](crate::specimen).
    pub(crate) fn sample(&self) {
        for family in [&self.resets, &self.errors, &self.unreadable] {
            drop(family.get_or_create(&Kind { resource: "pods".to_owned() }));
        }
    }
}

/// Watches the objects of `api` that `config` selects, until the future is dropped.
///
/// A `K` with fewer fields must keep name, namespace, UID and resource version. An object that `K` cannot read fails
/// the whole list, which is right for built-in kinds: the server validates them.
pub async fn run<K>(api: Api<K>, config: Config, metrics: &Metrics, sink: impl FnMut(Event<K>)) -> Infallible
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match drive(api, &K::plural(&()), config, metrics, Index::new(Ok, sink), keep_waiting).await {
        Ok(never) | Err(never) => never,
    }
}

/// Like [`run`], for callers that keep another form of the objects, and for kinds without a type of their own.
/// `convert` maps each object as it arrives, so that fields it drops are never held, not even during a long list. Its
/// errors become [`Event::Unreadable`]. `resource` names the kind in logs and metrics.
pub async fn run_mapped<W, K>(
    api: Api<W>,
    resource: &str,
    config: Config,
    metrics: &Metrics,
    convert: impl FnMut(W) -> Result<K, String>,
    sink: impl FnMut(Event<K>),
) -> Infallible
where
    W: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match drive(api, resource, config, metrics, Index::new(convert, sink), keep_waiting).await {
        Ok(never) | Err(never) => never,
    }
}

/// Like [`run`], for kinds whose content the server does not validate: an object that `K` cannot read becomes
/// [`Event::Unreadable`], and the others are not affected. Parsing holds a second copy of each object.
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
    match drive(api, &resource, config, metrics, Index::new(unwrap_guard, sink), keep_waiting).await {
        Ok(never) | Err(never) => never,
    }
}

/// Like [`run_guarded`], for callers with an alternative to watching: ends when the server denies the watch, and
/// returns the server's message. Other failures are waited out.
pub async fn run_while_allowed<K>(
    api: Api<DeserializeGuard<K>>,
    config: Config,
    metrics: &Metrics,
    sink: impl FnMut(Event<K>),
) -> String
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    match drive(api, &K::plural(&()), config, metrics, Index::new(unwrap_guard, sink), Err).await {
        Ok(never) => match never {},
        Err(denied) => denied,
    }
}

/// The object that was read, or why it could not be.
///
/// # Errors
/// The reason.
pub fn unwrap_guard<K>(guard: DeserializeGuard<K>) -> Result<K, String> {
    guard.0.map_err(|invalid| invalid.error)
}

/// The answer to a denied watch in most cases: wait until an administrator grants it.
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
    // A streamed list costs the server a fraction of a plain one, but the feature may be off.
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
                    debug!(
                        resource = errors.kind.resource,
                        "server refuses streamed lists; listing page by page"
                    );
                    config.initial_list_strategy = watcher::InitialListStrategy::ListWatch;
                    break;
                }
                Recovery::Absent => {
                    index.absent();
                    errors.pause("the server does not know this kind, waiting for it to appear").await;
                    // The old position is meaningless for a kind that comes back: list again.
                    break;
                }
            }
        }
    }
}
