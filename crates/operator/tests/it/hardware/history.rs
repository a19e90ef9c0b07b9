//! What was on the API server at each moment, from watches: Nodes, Modules, NodeModulesConfigs, DeviceConfigs and Pods
//! in the order of their revisions.
//!
//! In: a client. Out: questions that are asked of every moment. Never: a moment that was missed: a watch that breaks
//! fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::super::rig::until;
use super::case::{is_ready, plain};
use super::lab::{configs, objects};

/// A history that goes on.
pub(crate) struct History {
    client: Client,
    moments: Arc<Mutex<Vec<Moment>>>,
    tasks: Vec<JoinHandle<()>>,
}

/// One event.
#[derive(Clone, Debug)]
struct Moment {
    /// The cluster's count of changes; that of a deletion is of the deletion.
    revision: u64,
    kind: &'static str,
    name: String,
    /// The object, or that it is gone.
    object: Option<Value>,
}

/// A history that is over.
pub(crate) struct Past(Vec<Moment>);

/// All objects at a moment.
#[derive(Default)]
struct Now<'m> {
    objects: BTreeMap<(&'m str, &'m str), &'m Value>,
}

const KINDS: [&str; 5] = ["Node", "Module", "NodeModulesConfig", "DeviceConfig", "Pod"];

/// Objects of a kind, in all namespaces or in this one.
fn api(client: &Client, kind: &str, space: Option<&str>) -> Api<DynamicObject> {
    match kind {
        "Node" | "Pod" => objects(client, "v1", kind, space),
        "DeviceConfig" => configs(client, space),
        kind => fakes::kmm::api(client, kind, space),
    }
}

fn revision(object: &DynamicObject) -> u64 {
    object.metadata.resource_version.as_deref().unwrap_or_default().parse().unwrap()
}

impl Moment {
    fn of(kind: &'static str, object: DynamicObject, is_there: bool) -> Self {
        let space = object.metadata.namespace.clone().unwrap_or_default();
        let name = format!("{space}/{}", object.metadata.name.clone().unwrap_or_default());
        Self { revision: revision(&object), kind, name, object: is_there.then(|| plain(object)) }
    }

    /// What matters of it to drivers.
    fn line(&self) -> String {
        let Self { revision, kind, name, object } = self;
        let Some(object) = object else { return format!("{revision} {kind} {name} gone") };
        let modules = |part: &str| -> Vec<String> {
            let all = object[part]["modules"].as_array().into_iter().flatten();
            all.map(|entry| format!("{} {}", entry["name"], entry["version"])).collect()
        };
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let labels: Vec<String> = labels
            .filter(|(key, _)| key.contains("kmm.node") || key.contains("tholepin"))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let (spec, status) = (modules("spec"), modules("status"));
        let is_going = object["metadata"]["deletionTimestamp"].is_string();
        format!("{revision} {kind} {name} going: {is_going}, spec {spec:?}, status {status:?}, {labels:?}")
    }
}

impl History {
    /// From now on.
    pub(crate) async fn begin(client: &Client) -> Self {
        let moments = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for kind in KINDS {
            let api = api(client, kind, None);
            let list = api.list(&ListParams::default()).await.unwrap();
            let from = list.metadata.resource_version.clone().unwrap();
            moments
                .lock()
                .unwrap()
                .extend(list.items.into_iter().map(|object| Moment::of(kind, object, true)));
            let moments = Arc::clone(&moments);
            tasks.push(tokio::spawn(follow(kind, api, from, moments)));
        }
        Self { client: client.clone(), moments, tasks }
    }

    /// How many objects of a kind there are, as far as was told.
    fn alive(&self, kind: &str) -> usize {
        let mut alive = BTreeSet::new();
        for moment in self.moments.lock().unwrap().iter().filter(|moment| moment.kind == kind) {
            match moment.object {
                Some(_) => alive.insert(moment.name.clone()),
                None => alive.remove(&moment.name),
            };
        }
        alive.len()
    }

    /// Up to now.
    pub(crate) async fn end(self) -> Past {
        let now = api(&self.client, "Node", None).list(&ListParams::default()).await.unwrap();
        let now: u64 = now.metadata.resource_version.unwrap().parse().unwrap();
        // Each watch is asked to tell something that is later than that.
        for kind in KINDS {
            let mark = json!({ "metadata": { "annotations": { "testkit/mark": format!("{now}") } } });
            let all = api(&self.client, kind, None).list(&ListParams::default()).await.unwrap();
            let any = all.items.into_iter().next();
            let Some(any) = any else {
                until("a watch tells that all are gone", async || self.alive(kind) == 0).await;
                continue;
            };
            let name = any.metadata.name.unwrap();
            let one = api(&self.client, kind, any.metadata.namespace.as_deref());
            // It may have gone meanwhile; then that is told.
            let _ = one.patch(&name, &PatchParams::default(), &Patch::Merge(mark)).await;
            until("a watch tells", async || {
                assert!(self.tasks.iter().all(|task| !task.is_finished()), "a watch broke");
                self.moments.lock().unwrap().iter().any(|moment| moment.kind == kind && moment.revision > now)
            })
            .await;
        }
        let mut moments = std::mem::take(&mut *self.moments.lock().unwrap());
        moments.sort_by_key(|moment| moment.revision);
        Past(moments)
    }
}

impl Drop for History {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Notes what is told until it is ended; a watch that ends in order is begun again where it was.
async fn follow(kind: &'static str, api: Api<DynamicObject>, from: String, moments: Arc<Mutex<Vec<Moment>>>) {
    let mut from = from;
    loop {
        let Ok(events) = api.watch(&WatchParams::default(), &from).await else { return };
        let mut events = events.boxed();
        while let Some(event) = events.next().await {
            let moment = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    Moment::of(kind, object, true)
                }
                Ok(WatchEvent::Deleted(object)) => Moment::of(kind, object, false),
                Ok(WatchEvent::Bookmark(mark)) => {
                    from = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(_)) | Err(_) => return,
            };
            from = moment.revision.to_string();
            moments.lock().unwrap().push(moment);
        }
    }
}

impl Past {
    /// Looks at each moment.
    fn each<'m>(&'m self, mut look: impl FnMut(&Now<'m>, &'m Moment)) {
        let mut now = Now::default();
        for moment in &self.0 {
            let key = (moment.kind, moment.name.as_str());
            match &moment.object {
                Some(object) => drop(now.objects.insert(key, object)),
                None => drop(now.objects.remove(&key)),
            }
            look(&now, moment);
        }
    }

    /// How many moments there were.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Nodes that were in several Modules at a moment, with their names. All selectors are asked about all nodes.
    pub(crate) fn in_two_modules(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found = BTreeMap::new();
        self.each(|now, moment| {
            if !matches!(moment.kind, "Node" | "Module") {
                return;
            }
            for (node, body) in now.of("Node") {
                let modules = now.of("Module").filter(|(_, module)| selects(module, body));
                let names: BTreeSet<String> = modules.map(|(name, _)| name.to_owned()).collect();
                if names.len() > 1 {
                    found.entry(node.to_owned()).or_insert(names);
                }
            }
        });
        found
    }

    /// What happened to a node and to all Modules, a line for each moment: for people, when a rule was broken.
    pub(crate) fn story(&self, node: &str) -> Vec<String> {
        let is_about = |moment: &&Moment| match moment.kind {
            "Node" | "NodeModulesConfig" => moment.name == node,
            kind => kind == "Module",
        };
        self.0.iter().filter(is_about).map(Moment::line).collect()
    }

    /// Nodes on which drivers of several Modules were loaded or about to be, at a moment.
    pub(crate) fn with_two_drivers(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found = BTreeMap::new();
        self.each(|_, moment| {
            let Some(nmc) = moment.object.as_ref().filter(|_| moment.kind == "NodeModulesConfig") else {
                return;
            };
            let all =
                ["spec", "status"].into_iter().flat_map(|part| nmc[part]["modules"].as_array()).flatten();
            let names: BTreeSet<String> =
                all.map(|entry| format!("{}/{}", entry["namespace"], entry["name"])).collect();
            if names.len() > 1 {
                found.entry(moment.name.clone()).or_insert(names);
            }
        });
        found
    }

    /// Where KMM was made to load a driver in another way, or no more, at a moment when a pod there used one of these
    /// devices; with those pods.
    pub(crate) fn changed_under_pods(&self, devices: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let (mut found, mut before) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::new());
        self.each(|now, moment| {
            if moment.kind != "NodeModulesConfig" {
                return;
            }
            let after = moment.object.as_ref().map(loaders).unwrap_or_default();
            let former: BTreeMap<_, _> =
                before.insert(moment.name.as_str(), after.clone()).unwrap_or_default();
            if former.iter().all(|(module, config)| after.get(module) == Some(config)) {
                return;
            }
            let node = moment.name.trim_start_matches('/');
            let pods = now.of("Pod").filter(|(_, pod)| pod["spec"]["nodeName"] == node && uses(pod, devices));
            for (name, _) in pods {
                found.entry(node.to_owned()).or_default().insert(name.to_owned());
            }
        });
        found
    }

    /// The most nodes that had the label `whose` and lacked `key` at a moment.
    pub(crate) fn most_without(&self, key: &str, whose: &str) -> usize {
        let mut most = 0;
        self.each(|now, _| {
            let without = now.of("Node").filter(|(_, node)| {
                let labels = &node["metadata"]["labels"];
                labels[whose].is_string() && labels[key].is_null()
            });
            most = most.max(without.count());
        });
        most
    }

    /// DeviceConfigs that said they were ready, with the parameters they ask for, at a moment when a node had others.
    pub(crate) fn ready_too_early(&self) -> Vec<String> {
        let mut early = Vec::new();
        self.each(|now, moment| {
            let config = moment.object.as_ref().filter(|_| moment.kind == "DeviceConfig");
            let Some(config) = config.filter(|config| is_ready(config)) else { return };
            let wanted = &config["spec"]["modprobe"]["parameters"];
            let name = format!("{}-module", moment.name);
            for (node, nmc) in now.of("NodeModulesConfig") {
                let all = nmc["status"]["modules"].as_array().into_iter().flatten();
                let ours = |entry: &&Value| {
                    let text = |field: &str| entry[field].as_str().unwrap_or_default();
                    format!("{}/{}", text("namespace"), text("name")) == name
                };
                let other = |entry: &Value| entry["config"]["modprobe"]["parameters"] != *wanted;
                if all.filter(ours).any(other) {
                    early.push(format!("{name} on {node} at {}", moment.revision));
                }
            }
        });
        early
    }

    /// When an object of a kind in a namespace went.
    pub(crate) fn deletion(&self, kind: &str, namespace: &str) -> Option<u64> {
        let of = |moment: &&Moment| {
            moment.kind == kind
                && moment.object.is_none()
                && moment.name.starts_with(&format!("{namespace}/"))
        };
        self.0.iter().find(of).map(|moment| moment.revision)
    }
}

impl<'m> Now<'m> {
    fn of(&self, kind: &'static str) -> impl Iterator<Item = (&'m str, &'m Value)> {
        let all = self.objects.iter().filter(move |((of, _), _)| *of == kind);
        all.map(|((_, name), object)| (*name, *object))
    }
}

fn selects(module: &Value, node: &Value) -> bool {
    let wanted = module["spec"]["selector"].as_object();
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| node["metadata"]["labels"][key] == *value))
}

/// How each module of a node should be loaded, by its Module.
fn loaders(nmc: &Value) -> BTreeMap<String, Value> {
    let all = nmc["spec"]["modules"].as_array().into_iter().flatten();
    all.map(|entry| (format!("{}/{}", entry["namespace"], entry["name"]), entry["config"].clone())).collect()
}

/// Whether a pod has one of these devices.
fn uses(pod: &Value, devices: &[&str]) -> bool {
    let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    !is_over
        && containers.any(|one| devices.iter().any(|device| !one["resources"]["limits"][device].is_null()))
}
