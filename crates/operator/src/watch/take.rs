//! Watch events into the cluster state.
//!
//! In: events. Out: a cluster state that says the same, and whether that changed it. Never: a change where nothing
//! differs.

use std::collections::BTreeMap;

use kube::Resource;
use objects::controller::table::{self, Table};
use objects::{ObjectKey, ObjectKind};
use runtime::watch::Event;
use runtime::wire::Raw;
use serde_json::{Value, json};

use crate::cluster_state::{Unreadable, is_newer};
use crate::reconcile::Shared;

/// The names of the entries that an event changed.
type Changed = Vec<String>;

/// Takes an event into a map of objects by name. Returns whether that changed the map.
pub(super) fn by_name<T: PartialEq>(map: &mut BTreeMap<String, T>, event: Event<(String, T)>) -> bool {
    let table = Table::<BTreeMap<String, T>, String, T, Changed> {
        keys: |map| map.keys().cloned().collect(),
        put: |map, name, value| {
            let changed = map.get(&name) != Some(&value);
            if changed {
                map.insert(name.clone(), value);
            }
            changed.then_some(name).into_iter().collect()
        },
        remove: |map, name| map.remove_entry(name).map(|(name, _)| name).into_iter().collect(),
        delete: |map, name, _| map.remove_entry(name).map(|(name, _)| name).into_iter().collect(),
        unreadable: |map, key| map.remove_entry(&*key.name).map(|(name, _)| name).into_iter().collect(),
    };
    !table::take(map, event, &table).is_empty()
}

/// Users' objects of one kind: those that can be read, and those that cannot.
pub(super) struct Requests<'a, T> {
    /// The kind.
    pub(super) kind: &'static str,
    /// The objects by name.
    pub(super) readable: &'a mut BTreeMap<String, T>,
    /// Unreadable objects of all kinds, by kind and name.
    pub(super) unreadable: &'a mut BTreeMap<(&'static str, String), Unreadable>,
}

impl<T: Resource> Requests<'_, T> {
    /// Takes an event. Returns whether that changed anything.
    pub(super) fn take(&mut self, event: Event<(String, Result<T, Unreadable>)>) -> bool {
        let table = Table::<Self, String, Result<T, Unreadable>, Changed> {
            keys: |requests| {
                let unreadable = requests.unreadable.keys().filter(|(kind, _)| *kind == requests.kind);
                requests.readable.keys().chain(unreadable.map(|(_, name)| name)).cloned().collect()
            },
            put: Self::put,
            remove: |requests, name| requests.remove(name),
            delete: |requests, name, _| requests.remove(name),
            unreadable: |requests, key| requests.remove(&key.name),
        };
        !table::take(self, event, &table).is_empty()
    }

    /// Adds or replaces an object. The answer to our own write of its status may be newer than the watch.
    fn put(&mut self, name: String, object: Result<T, Unreadable>) -> Changed {
        let key = (self.kind, name.clone());
        match object {
            Ok(new) if self.readable.get(&name).is_some_and(|known| !is_newer(known, &new)) => Changed::new(),
            Ok(new) => {
                self.unreadable.remove(&key);
                self.readable.insert(name.clone(), new);
                vec![name]
            }
            Err(error) if self.unreadable.get(&key) == Some(&error) => Changed::new(),
            Err(error) => {
                self.readable.remove(&name);
                self.unreadable.insert(key, error);
                vec![name]
            }
        }
    }

    fn remove(&mut self, name: &str) -> Changed {
        let unreadable = self.unreadable.remove(&(self.kind, name.to_owned())).is_some();
        let known = self.readable.remove(name).is_some() || unreadable;
        known.then(|| name.to_owned()).into_iter().collect()
    }
}

/// Takes an event of objects that may be the operator's.
pub(super) fn observed(shared: &Shared, kind: &ObjectKind, event: Event<Raw>) {
    let (objects, vanished) = match event {
        Event::Reset { objects, vanished, .. } => (objects, vanished),
        Event::Applied(object) => (vec![object], Vec::new()),
        Event::Deleted(object) => {
            let (key, body) = keyed(kind, object);
            return shared.observe_deletion(&key, &body);
        }
        // Every object can be read as JSON.
        Event::Unreadable { .. } => return,
    };
    for gone in vanished {
        let namespace = Some(gone.namespace.into_string()).filter(|text| !text.is_empty());
        let key = ObjectKey { kind: kind.clone(), namespace, name: gone.name.into_string() };
        shared.observe_deletion(&key, &json!({ "metadata": { "uid": gone.uid } }));
    }
    for object in objects {
        let (key, body) = keyed(kind, object);
        shared.observe(key, body);
    }
}

/// An object with its key. Items of lists lack `apiVersion` and `kind`.
fn keyed(kind: &ObjectKind, object: Raw) -> (ObjectKey, Value) {
    let (namespace, name) = (object.meta.namespace, object.meta.name.unwrap_or_default());
    let mut body = object.body;
    body["apiVersion"] = kind.api_version().into();
    body["kind"] = kind.kind.clone().into();
    (ObjectKey { kind: kind.clone(), namespace, name }, body)
}

#[cfg(test)]
mod tests {
    use api::numaresources::NumaResourcesScheduler;
    use runtime::watch;
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::cluster_state::ClusterState;

    fn gone(namespace: &str, name: &str, uid: &str) -> watch::Key {
        watch::Key { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    fn named(name: &str, value: u8) -> (String, u8) {
        (name.to_owned(), value)
    }

    #[test]
    fn a_map_follows_the_events() {
        let mut known = BTreeMap::new();
        let mut check = |event: Event<(String, u8)>, changed: bool, wanted: &[(&str, u8)]| {
            assert_eq!(by_name(&mut known, event.clone()), changed, "{event:?}");
            let got: Vec<_> = known.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            assert_eq!(got, wanted, "{event:?}");
        };
        let reset = |objects: &[(&str, u8)], vanished: &[&str]| Event::Reset {
            objects: objects.iter().map(|(name, value)| named(name, *value)).collect(),
            vanished: vanished.iter().map(|name| gone("", name, "")).collect(),
            served: true,
        };
        check(reset(&[("a", 1), ("b", 2)], &[]), true, &[("a", 1), ("b", 2)]);
        check(reset(&[("a", 1), ("b", 2)], &[]), false, &[("a", 1), ("b", 2)]);
        check(Event::Applied(named("a", 1)), false, &[("a", 1), ("b", 2)]);
        check(Event::Applied(named("a", 3)), true, &[("a", 3), ("b", 2)]);
        check(Event::Deleted(named("b", 2)), true, &[("a", 3)]);
        check(Event::Deleted(named("b", 2)), false, &[("a", 3)]);
        // Replaced by one of the same name that says the same.
        check(reset(&[("a", 3)], &["a"]), false, &[("a", 3)]);
        check(reset(&[], &["a"]), true, &[]);
    }

    fn cluster() -> ClusterState {
        crate::watch::tests::cluster()
    }

    type Read = (String, Result<NumaResourcesScheduler, Unreadable>);

    /// A name, a uid and a version; or what is wrong.
    fn read(name: &str, value: Result<(&str, &str), &str>) -> Read {
        let value = value
            .map(|(uid, version)| {
                let mut scheduler = NumaResourcesScheduler::default();
                scheduler.metadata.uid = Some(uid.to_owned());
                scheduler.metadata.resource_version = Some(version.to_owned());
                scheduler
            })
            .map_err(|why| Unreadable { uid: "u".to_owned(), reason: why.to_owned() });
        (name.to_owned(), value)
    }

    /// Checks what is known after an event: names and versions, and what cannot be read.
    #[track_caller]
    fn check_requests(cluster: &mut ClusterState, event: Event<Read>, changed: bool, wanted: &str) {
        let (readable, unreadable) = (&mut cluster.schedulers, &mut cluster.unreadable);
        assert_eq!(Requests { kind: "X", readable, unreadable }.take(event.clone()), changed, "{event:?}");
        let version =
            |one: &NumaResourcesScheduler| one.metadata.resource_version.clone().unwrap_or_default();
        let readable = cluster.schedulers.iter().map(|(name, one)| format!("{name}@{}", version(one)));
        let unreadable = cluster.unreadable.iter().map(|((_, name), odd)| format!("{name}: {}", odd.reason));
        let known: Vec<_> = readable.chain(unreadable).collect();
        assert_eq!(known.join(", "), wanted, "{event:?}");
    }

    /// B-28: an unreadable object is known to exist until it is deleted.
    #[test]
    fn an_unreadable_object_is_known_to_exist() {
        let cluster = &mut cluster();
        let odd = || read("a", Err("odd"));
        check_requests(cluster, Event::Applied(read("a", Ok(("u", "1")))), true, "a@1");
        check_requests(cluster, Event::Applied(odd()), true, "a: odd");
        check_requests(cluster, Event::Applied(odd()), false, "a: odd");
        check_requests(cluster, Event::Applied(read("a", Ok(("u", "3")))), true, "a@3");
        let reset = |objects| Event::Reset { objects, vanished: Vec::new(), served: true };
        check_requests(cluster, reset(vec![odd(), read("b", Ok(("v", "4")))]), true, "b@4, a: odd");
        check_requests(cluster, Event::Deleted(odd()), true, "b@4");
        check_requests(cluster, Event::Deleted(read("b", Ok(("v", "5")))), true, "");
    }

    #[test]
    fn a_state_older_than_our_own_write_is_dropped() {
        let cluster = &mut cluster();
        let ours = read("a", Ok(("u", "10")));
        check_requests(cluster, Event::Applied(ours), true, "a@10");
        check_requests(cluster, Event::Applied(read("a", Ok(("u", "9")))), false, "a@10");
        check_requests(cluster, Event::Applied(read("a", Ok(("u", "10")))), false, "a@10");
        let late =
            Event::Reset { objects: vec![read("a", Ok(("u", "9")))], vanished: Vec::new(), served: true };
        check_requests(cluster, late, false, "a@10");
        check_requests(cluster, Event::Applied(read("a", Ok(("u", "11")))), true, "a@11");
        // Another one of this name.
        check_requests(cluster, Event::Applied(read("a", Ok(("v", "5")))), true, "a@5");
    }

    #[test]
    fn observed_objects_follow_the_events_and_state_their_kind() {
        let kind = ObjectKind::new("apps", "v1", "DaemonSet", "daemonsets");
        let shared = Shared::new(cluster());
        let object = |uid: &str, version: u8| {
            let metadata =
                json!({ "name": "a", "namespace": "n", "uid": uid, "resourceVersion": version.to_string() });
            Raw::deserialize(json!({ "metadata": metadata })).unwrap()
        };
        let check = |event: Event<Raw>, wanted: &[&str]| {
            observed(&shared, &kind, event.clone());
            shared.read(|cluster| {
                let got: Vec<_> = cluster.observed.iter().map(|(_, body)| &body["metadata"]["uid"]).collect();
                assert_eq!(got, wanted, "{event:?}");
                for (key, body) in cluster.observed.iter() {
                    assert_eq!((key.namespace.as_deref(), key.name.as_str()), (Some("n"), "a"));
                    assert_eq!(
                        (&body["apiVersion"], &body["kind"]),
                        (&json!("apps/v1"), &json!("DaemonSet"))
                    );
                }
            });
        };
        let reset =
            |objects: Vec<Raw>, vanished: Vec<watch::Key>| Event::Reset { objects, vanished, served: true };
        check(reset(vec![object("1", 1)], vec![]), &["1"]);
        // Replaced while the watch was interrupted.
        check(reset(vec![object("2", 5)], vec![gone("n", "a", "1")]), &["2"]);
        check(Event::Deleted(object("1", 3)), &["2"]);
        check(Event::Deleted(object("2", 6)), &[]);
        check(Event::Applied(object("3", 7)), &["3"]);
        check(reset(vec![], vec![gone("n", "a", "3")]), &[]);
    }
}
