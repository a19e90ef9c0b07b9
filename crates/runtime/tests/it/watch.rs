//! Watches of kinds that are missing, forbidden, or have unreadable objects.

use crate::{PATIENCE, admin, connect, namespace, shared};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, DeserializeGuard, GroupVersionKind};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource, ResourceExt};
use prometheus_client::registry::Registry;
use runtime::watch::{self, Event, Key, Metrics};
use serde_json::json;
use std::collections::BTreeMap;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The objects by name, from the events of a watch.
pub(crate) struct Mirror<K> {
    events: UnboundedReceiver<Event<K>>,
    pub(crate) objects: BTreeMap<String, K>,
    pub(crate) resets: usize,
    pub(crate) unreadable: Vec<String>,
}

impl<K: Resource<DynamicType = ()> + Clone + Send + 'static> Mirror<K> {
    fn new(events: UnboundedReceiver<Event<K>>) -> Self {
        Self { events, objects: BTreeMap::new(), resets: 0, unreadable: Vec::new() }
    }

    fn apply(&mut self, event: Event<K>) {
        match event {
            Event::Reset { objects, vanished, .. } => {
                self.resets += 1;
                for key in vanished {
                    self.remove(&key);
                }
                let fresh: BTreeMap<_, _> =
                    objects.into_iter().map(|object| (object.name_any(), object)).collect();
                // What did not vanish must be among the objects, or the two halves contradict each other.
                assert!(
                    self.objects.keys().all(|name| fresh.contains_key(name)),
                    "neither listed nor vanished"
                );
                self.objects = fresh;
            }
            Event::Applied(object) => drop(self.objects.insert(object.name_any(), object)),
            Event::Deleted(object) => self.remove(&Key::of(&object)),
            Event::Unreadable { key, .. } => {
                self.objects.remove(&*key.name);
                self.unreadable.push(key.name.into());
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let removed = self.objects.remove(&*key.name).map(|object| Key::of(&object));
        assert_eq!(removed.as_ref(), Some(key), "removed what was not there");
    }

    /// Takes in events until the mirror looks as wanted.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Self) -> bool) {
        while !wanted(self) {
            let event = timeout(PATIENCE, self.events.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("no more events; have {:?}", self.objects.keys()));
            self.apply(event.unwrap());
        }
    }

    /// Whether no event is left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }
}

impl Mirror<ConfigMap> {
    /// A mirror of the watched objects, and the watch's task.
    pub(crate) fn of(api: Api<ConfigMap>, metrics: Metrics) -> (Self, JoinHandle<()>) {
        let (sender, events) = unbounded_channel();
        let task = tokio::spawn(async move {
            // `kube-root-ca.crt` appears in every namespace when a controller runs; it is not ours.
            let config = Config::default().labels("test");
            watch::run(api, config, &metrics, |event| drop(sender.send(event))).await;
        });
        (Self::new(events), task)
    }
}

pub(crate) fn names<K>(mirror: &Mirror<K>) -> Vec<&str> {
    mirror.objects.keys().map(String::as_str).collect()
}

pub(crate) fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) async fn put(api: &Api<ConfigMap>, name: &str) {
    let map = json!({ "metadata": { "name": name, "labels": { "test": "yes" } } });
    api.create(&Default::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
}

fn shown(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

#[tokio::test]
async fn a_forbidden_kind_comes_once_it_is_allowed() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let space = namespace(&client, "watch-forbidden").await;
    put(&maps(&client, space), "a").await;
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let unprivileged =
        connect(&plane.kubeconfig_for("nobody", "nogroup").unwrap()).await.watch_client().unwrap();
    let (mut mirror, _task) = Mirror::of(maps(&unprivileged, space), metrics);
    crate::until("a refusal", async || {
        shown(&registry).contains("tholepin_watch_errors_total{resource=\"configmaps\"}").then_some(())
    })
    .await;
    assert!(mirror.is_quiet());
    for (kind, object) in [
        (
            "Role",
            json!({ "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"] }] }),
        ),
        (
            "RoleBinding",
            json!({
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody" }],
            }),
        ),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), space, &resource);
        api.create(&Default::default(), &DynamicObject::new("reader", &resource).data(object)).await.unwrap();
    }
    mirror.until(|seen| names(seen) == ["a"]).await;
    assert!(shown(&registry).contains("tholepin_watch_resets_total{resource=\"configmaps\"} 1"));
}

/// A kind whose schema on the server accepts everything.
#[derive(kube::CustomResource, Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[kube(group = "tholepin.test", version = "v1", kind = "Widget", namespaced, schema = "disabled")]
pub(crate) struct WidgetSpec {
    size: i64,
}

fn definition() -> CustomResourceDefinition {
    let names =
        json!({ "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" });
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    serde_json::from_value(json!({
        "metadata": { "name": "widgets.tholepin.test" },
        "spec": {
            "group": "tholepin.test",
            "names": names,
            "scope": "Namespaced",
            "versions": [
                { "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } },
            ],
        },
    }))
    .unwrap()
}

/// Writes a widget of any size, once the kind is served.
async fn set_size(client: &Client, namespace: &str, name: &str, size: serde_json::Value) {
    let resource = ApiResource::erase::<Widget>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object = DynamicObject::new(name, &resource).data(json!({ "spec": { "size": size } }));
    let apply = PatchParams::apply("test").force();
    crate::until("the kind to be served", async || {
        api.patch(name, &apply, &Patch::Apply(&object)).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_kind_may_be_missing_appear_vanish_and_have_unreadable_objects() {
    let Some(plane) = shared().await else { return };
    let client = admin(plane).await;
    let space = namespace(&client, "watch-missing").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let watched: Api<DeserializeGuard<Widget>> =
        Api::namespaced(connect(plane.kubeconfig()).await.watch_client().unwrap(), space);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (sender, events) = unbounded_channel();
    let _task = tokio::spawn(async move {
        watch::run_guarded(watched, Config::default(), &metrics, |event| drop(sender.send(event))).await;
    });
    let mut mirror: Mirror<Widget> = Mirror::new(events);

    // Missing: one reset to nothing.
    mirror.until(|seen| seen.resets == 1).await;
    definitions.create(&Default::default(), &definition()).await.unwrap();
    set_size(&client, space, "good", json!(1)).await;
    mirror.until(|seen| names(seen) == ["good"]).await;

    // An unreadable object does not affect the others, and an object that becomes unreadable is forgotten.
    set_size(&client, space, "rubbish", json!("large")).await;
    set_size(&client, space, "fine", json!(2)).await;
    mirror.until(|seen| names(seen) == ["fine", "good"]).await;
    set_size(&client, space, "good", json!({ "deep": [] })).await;
    mirror.until(|seen| names(seen) == ["fine"]).await;
    assert_eq!(mirror.unreadable, ["rubbish", "good"]);
    set_size(&client, space, "good", json!(3)).await;
    mirror.until(|seen| names(seen) == ["fine", "good"]).await;
    assert_eq!(mirror.objects["good"].spec.size, 3);
    assert!(shown(&registry).contains("tholepin_watch_unreadable_total{resource=\"widgets\"} 2"));

    // Gone with everything in it, and back.
    definitions.delete("widgets.tholepin.test", &Default::default()).await.unwrap();
    mirror.until(|seen| seen.objects.is_empty()).await;
    crate::until("the kind to be gone", async || {
        definitions.get_opt("widgets.tholepin.test").await.unwrap().is_none().then_some(())
    })
    .await;
    definitions.create(&Default::default(), &definition()).await.unwrap();
    set_size(&client, space, "again", json!(4)).await;
    mirror.until(|seen| names(seen) == ["again"]).await;
}
