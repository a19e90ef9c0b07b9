//! The objects of a cluster that KMM reads.
//!
//! In: lists or watches of an API server. Out: objects by kind and name, the newest that was seen of each.
//! Never: a decision.

use std::collections::BTreeMap;

use futures::stream::{BoxStream, select_all};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::labels::{GROUP, VERSION};

/// How long a watch that fails waits before it asks again, in milliseconds.
const AGAIN_AFTER_MS: u64 = 50;

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Module,
    Images,
    NodeModules,
    Node,
    Namespace,
    DaemonSet,
    Pod,
    Claim,
    Account,
}

/// Objects by kind and `NAMESPACE/NAME`, or just `NAME`.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    objects: BTreeMap<Kind, BTreeMap<String, Value>>,
    /// What a list that is being read has brought so far.
    listed: BTreeMap<Kind, BTreeMap<String, Value>>,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Module,
        Self::Images,
        Self::NodeModules,
        Self::Node,
        Self::Namespace,
        Self::DaemonSet,
        Self::Pod,
        Self::Claim,
        Self::Account,
    ];

    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Module => (GROUP, VERSION, "Module", "modules"),
            Self::Images => (GROUP, VERSION, "ModuleImagesConfig", "moduleimagesconfigs"),
            Self::NodeModules => (GROUP, VERSION, "NodeModulesConfig", "nodemodulesconfigs"),
            Self::Node => ("", "v1", "Node", "nodes"),
            Self::Namespace => ("", "v1", "Namespace", "namespaces"),
            Self::DaemonSet => ("apps", "v1", "DaemonSet", "daemonsets"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::Claim => ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
            Self::Account => ("", "v1", "ServiceAccount", "serviceaccounts"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// The objects at `key`'s namespace, or of the whole cluster.
    pub(super) fn api(self, client: &Client, key: &str) -> Api<DynamicObject> {
        match key.split_once('/') {
            Some((namespace, _)) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => Api::all_with(client.clone(), &self.resource()),
        }
    }
}

/// Events of all kinds; those that cannot be watched are asked for again.
pub(super) fn events(client: &Client) -> BoxStream<'static, (Kind, watcher::Result<Event<DynamicObject>>)> {
    let of = |kind: Kind| {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
        let events = watcher(all, watcher::Config::default()).then(async |event| {
            if event.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(AGAIN_AFTER_MS)).await;
            }
            event
        });
        events.map(move |event| (kind, event)).boxed()
    };
    select_all(Kind::ALL.map(of)).boxed()
}

impl ClusterState {
    /// All there is now. Kinds that are not served have no objects.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(super) async fn list(client: &Client) -> anyhow::Result<Self> {
        let listed = futures::stream::iter(Kind::ALL).map(async |kind| {
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
            let objects = match all.list(&ListParams::default()).await {
                Ok(list) => list.items,
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(error) => return Err(error),
            };
            let objects = objects.into_iter().filter_map(|object| Some((key(&object), value(object)?)));
            Ok((kind, objects.collect()))
        });
        let objects = listed.buffer_unordered(Kind::ALL.len()).try_collect().await?;
        Ok(Self { objects, listed: BTreeMap::new() })
    }

    /// Notes an event.
    pub(super) fn note(&mut self, kind: Kind, event: Event<DynamicObject>) {
        match event {
            Event::Init => drop(self.listed.insert(kind, BTreeMap::new())),
            Event::InitApply(object) => {
                let key = key(&object);
                if let Some(value) = value(object) {
                    self.listed.entry(kind).or_default().insert(key, value);
                }
            }
            Event::InitDone => drop(self.objects.insert(kind, self.listed.remove(&kind).unwrap_or_default())),
            Event::Apply(object) => self.put(kind, object),
            Event::Delete(object) => {
                let key = key(&object);
                let all = self.objects.entry(kind).or_default();
                // The object was made again under the same name, and the answer to that came first.
                if all.get(&key).is_some_and(|known| known["metadata"]["uid"] == uid(&object)) {
                    all.remove(&key);
                }
            }
        }
    }

    /// Notes that this kind is not served.
    pub(super) fn forget(&mut self, kind: Kind) {
        self.objects.insert(kind, BTreeMap::new());
    }

    /// Whether something is known of every kind.
    pub(super) fn is_whole(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.objects.contains_key(kind))
    }

    /// Notes an object unless a newer one of it is known.
    pub(super) fn put(&mut self, kind: Kind, object: DynamicObject) {
        let key = key(&object);
        let all = self.objects.entry(kind).or_default();
        let Some(object) = value(object) else { return };
        if all.get(&key).is_none_or(|known| revision(known) <= revision(&object)) {
            all.insert(key, object);
        }
    }

    /// Objects of a kind by their names.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.get(&kind).into_iter().flatten().map(|(key, object)| (key.as_str(), object))
    }

    pub(super) fn get(&self, kind: Kind, key: &str) -> Option<&Value> {
        self.objects.get(&kind)?.get(key)
    }

    /// Whether it is there.
    pub(super) fn has(&self, kind: Kind, key: &str) -> bool {
        self.get(kind, key).is_some()
    }

    /// As a test writes it.
    #[cfg(test)]
    pub(super) fn with(mut self, kind: Kind, object: Value) -> Self {
        let all = Kind::ALL.map(|kind| (kind, BTreeMap::new()));
        for (kind, none) in all {
            self.objects.entry(kind).or_insert(none);
        }
        self.put(kind, serde_json::from_value(object).unwrap());
        self
    }

    /// As a test takes it away.
    #[cfg(test)]
    pub(super) fn remove(&mut self, kind: Kind, key: &str) {
        self.objects.entry(kind).or_default().remove(key);
    }
}

/// `NAMESPACE/NAME`, or `NAME` of what is in no namespace.
pub(super) fn key(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

fn value(object: DynamicObject) -> Option<Value> {
    serde_json::to_value(object).ok()
}

fn uid(object: &DynamicObject) -> Value {
    object.uid().map_or(Value::Null, Value::String)
}

/// Revisions of one server are in order.
fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}
