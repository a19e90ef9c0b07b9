//! Nodes, pods and reports of the cluster as watches deliver them, and waits for conditions on them.
//!
//! In: a client. Out: [`Observed`] states; the moment in which a condition holds. Never: a poll, or a state that is
//! older than what the API server has sent.
//!
//! Cost: a state holds each object once; a wait looks at it once for each change, so conditions should be cheap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::nrt::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt as _};
use runtime::watch::{self, Key, Metrics};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::placement::TOPOLOGY_AFFINITY_ERROR;
use crate::pods::REJECTION_LABEL;
use crate::waits::Waits;

/// Namespace and name of an object; the namespace is empty where the kind has none.
pub type Name = (String, String);

/// All that the specs look at, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Pods, the finished ones too.
    pub pods: BTreeMap<Name, Arc<Pod>>,
    /// Reports by the name of their node.
    pub reports: BTreeMap<String, Arc<NodeResourceTopology>>,
    /// Reports that cannot be read, with the reason.
    pub unreadable: BTreeMap<String, String>,
    /// Events about pods, by the event's own name.
    pub events: BTreeMap<Name, Arc<Event>>,
    /// Pods that a kubelet rejected because it could not align them, by UID, also those that are gone.
    pub rejected: BTreeMap<String, Rejected>,
    /// Kinds whose objects have not arrived yet.
    missing: u8,
}

/// A pod that a kubelet rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Namespace and name.
    pub pod: String,
    /// The node.
    pub node: String,
    /// The scheduler that was to choose the node.
    pub scheduler: String,
    /// The kubelet's words.
    pub message: String,
}

/// A condition did not hold in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} not within {seconds} s; last: {last}", seconds = limit.as_secs())]
pub struct Timeout {
    /// The condition, as `pod a runs`.
    pub what: String,
    /// The longest wait.
    pub limit: Duration,
    /// Why it did not hold at the end.
    pub last: String,
}

/// The watches; dropping it ends them.
#[derive(Debug)]
pub struct Observer {
    state: Receiver<Observed>,
    waits: Waits,
    _watches: JoinSet<()>,
}

const KINDS: u8 = 4;

impl Observer {
    /// Begins to watch.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        let (sender, state) = channel(Observed { missing: KINDS, ..Observed::default() });
        let sender = Arc::new(sender);
        let mut watches = JoinSet::new();
        follow::<Node>(client, &sender, &mut watches, |state, key, node| {
            put(&mut state.nodes, key.name.to_string(), node);
        });
        follow::<Pod>(client, &sender, &mut watches, |state, key, pod| {
            if let Some((uid, rejected)) = pod.as_ref().and_then(Rejected::of) {
                state.rejected.insert(uid, rejected);
            }
            put(&mut state.pods, name(key), pod);
        });
        follow::<Event>(client, &sender, &mut watches, |state, key, event| {
            put(
                &mut state.events,
                name(key),
                event.filter(|event| event.involved_object.kind.as_deref() == Some("Pod")),
            );
        });
        watches.spawn(reports(client.clone(), sender));
        Self { state, waits: Waits::default(), _watches: watches }
    }

    /// The state now.
    #[must_use]
    pub fn now(&self) -> Observed {
        self.state.borrow().clone()
    }

    /// What is waited for now.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Waits until every kind has been listed once.
    ///
    /// # Errors
    /// When the API server does not answer in time.
    pub async fn synced(&self, limit: Duration) -> Result<(), Timeout> {
        self.until("the cluster's nodes, pods, events and reports are listed", limit, |state| {
            match state.missing {
                0 => Ok(()),
                missing => Err(format!("{missing} kinds are missing")),
            }
        })
        .await
    }

    /// Waits until `test` finds what it looks for; its error says why not yet.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        test: impl FnMut(&Observed) -> Result<T, String>,
    ) -> Result<T, Timeout> {
        until(&mut self.state.clone(), &self.waits, (what, limit), test).await
    }
}

/// Waits until `test` finds what it looks for in a state; its error says why not yet. The sender has to live as long.
///
/// # Errors
/// When it does not in time.
pub(crate) async fn until<S, T>(
    state: &mut Receiver<S>,
    waits: &Waits,
    (what, limit): (&str, Duration),
    mut test: impl FnMut(&S) -> Result<T, String>,
) -> Result<T, Timeout> {
    let ends = Instant::now() + limit;
    let waiting = waits.begin(what);
    loop {
        let last = match test(&state.borrow_and_update()) {
            Ok(found) => return Ok(found),
            Err(reason) => reason,
        };
        waiting.goes_on(&last);
        if !matches!(tokio::time::timeout_at(ends, state.changed()).await, Ok(Ok(()))) {
            return Err(Timeout { what: what.to_owned(), limit, last });
        }
    }
}

impl Rejected {
    /// The pod's UID and the rest, if a scheduler had chosen its node.
    fn of(pod: &Pod) -> Option<(String, Self)> {
        let (status, spec) = (pod.status.as_ref()?, pod.spec.as_ref()?);
        let is_rejected = status.reason.as_deref() == Some(TOPOLOGY_AFFINITY_ERROR);
        let is_on_purpose =
            pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(REJECTION_LABEL));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let rejected = Self {
            pod: format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name)),
            node: text(&spec.node_name),
            scheduler: text(&spec.scheduler_name),
            message: text(&status.message),
        };
        (is_rejected && !is_on_purpose).then(|| (text(&pod.metadata.uid), rejected))
    }
}

fn name(key: &Key) -> Name {
    (key.namespace.to_string(), key.name.to_string())
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, Arc<V>>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, Arc::new(value)),
        None => map.remove(&key),
    };
}

/// Watches a kind; `put` stores an object, or removes it where there is none any more.
fn follow<K>(
    client: &Client,
    sender: &Arc<Sender<Observed>>,
    watches: &mut JoinSet<()>,
    put: impl Fn(&mut Observed, &Key, Option<K>) + Send + Sync + 'static,
) where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let (api, sender) = (Api::<K>::all(client.clone()), Arc::clone(sender));
    let mut synced = false;
    watches.spawn(async move {
        watch::run(api, Config::default(), &Metrics::default(), |event| {
            sender.send_modify(|state| match event {
                watch::Event::Reset { objects, vanished, .. } => {
                    vanished.iter().for_each(|key| put(state, key, None));
                    objects.into_iter().for_each(|object| put(state, &Key::of(&object), Some(object)));
                    state.missing -= u8::from(!std::mem::replace(&mut synced, true));
                }
                watch::Event::Applied(object) => put(state, &Key::of(&object), Some(object)),
                watch::Event::Deleted(object) => put(state, &Key::of(&object), None),
                watch::Event::Unreadable { key, .. } => put(state, &key, None),
            });
        })
        .await;
    });
}

/// Watches reports, whose content no API server validates.
async fn reports(client: Client, sender: Arc<Sender<Observed>>) {
    let api = Api::<DeserializeGuard<NodeResourceTopology>>::all(client);
    let mut synced = false;
    watch::run_guarded(api, Config::default(), &Metrics::default(), |event| {
        sender.send_modify(|state| {
            let forget = |state: &mut Observed, key: &Key| {
                state.reports.remove(&*key.name);
                state.unreadable.remove(&*key.name);
            };
            let store = |state: &mut Observed, report: NodeResourceTopology| {
                let node = report.name_any();
                state.unreadable.remove(&node);
                state.reports.insert(node, Arc::new(report));
            };
            match event {
                watch::Event::Reset { objects, vanished, .. } => {
                    vanished.iter().for_each(|key| forget(state, key));
                    objects.into_iter().for_each(|report| store(state, report));
                    state.missing -= u8::from(!std::mem::replace(&mut synced, true));
                }
                watch::Event::Applied(report) => store(state, report),
                watch::Event::Deleted(report) => forget(state, &Key::of(&report)),
                watch::Event::Unreadable { key, reason } => {
                    forget(state, &key);
                    state.unreadable.insert(key.name.to_string(), reason);
                }
            }
        });
    })
    .await;
}
