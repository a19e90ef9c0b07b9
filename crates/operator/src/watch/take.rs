//! From what a watch tells to what the world is.
//!
//! In: events. Out: a [`World`] that says the same. Never: a wake-up where nothing is different.

use std::collections::BTreeMap;

use objects::ObjectKind;
use runtime::watch::Event;
use serde_json::{Value, json};

use crate::reconcile::Shared;
use crate::world::{Unreadable, World};
use objects::ObjectKey;
use objects::observed::compare_versions;
use runtime::wire::Raw;

/// Something with a name, read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named<T> {
    /// Its name.
    pub(super) name: String,
    /// What it says.
    pub(super) value: T,
}

/// Takes an event into a table of things by name; says whether that changed anything.
pub(super) fn table<T: PartialEq>(table: &mut BTreeMap<String, T>, event: Event<Named<T>>) -> bool {
    match event {
        Event::Reset { objects, .. } => {
            let here = objects.into_iter().map(|one| (one.name, one.value)).collect();
            let changed = *table != here;
            *table = here;
            changed
        }
        Event::Applied(one) => put(table, one.name, one.value),
        Event::Deleted(one) => table.remove(&one.name).is_some(),
        Event::Unreadable { key, .. } => table.remove(key.name.as_ref()).is_some(),
    }
}

fn put<T: PartialEq>(table: &mut BTreeMap<String, T>, name: String, value: T) -> bool {
    if table.get(&name) == Some(&value) {
        return false;
    }
    table.insert(name, value);
    true
}

/// Takes an event of objects that a user wrote: those that make no sense are noted in the world instead of being forgotten. The
/// answers to our own writes of their status are in the world before a watch tells of them; what is older is dropped.
pub(super) fn asked<T: PartialEq + Clone + kube::Resource<DynamicType = ()>>(
    world: &mut World,
    kind: &'static str,
    of: fn(&mut World) -> &mut BTreeMap<String, T>,
    event: Event<Named<Result<T, Unreadable>>>,
) -> bool {
    // Both tables as one, and taken apart again.
    let mut all: BTreeMap<String, Result<T, Unreadable>> =
        std::mem::take(of(world)).into_iter().map(|(name, value)| (name, Ok(value))).collect();
    all.extend(
        world.unreadable.remove(kind).unwrap_or_default().into_iter().map(|(name, why)| (name, Err(why))),
    );
    let known = all.clone();
    let changed = table(&mut all, newest(&known, event));
    for (name, value) in all {
        match value {
            Ok(value) => drop(of(world).insert(name, value)),
            Err(why) => drop(world.unreadable.entry(kind).or_default().insert(name, why)),
        }
    }
    changed
}

/// The event, with what is known in the place of what is not newer.
fn newest<T: Clone + kube::Resource<DynamicType = ()>>(
    known: &BTreeMap<String, Result<T, Unreadable>>,
    event: Event<Named<Result<T, Unreadable>>>,
) -> Event<Named<Result<T, Unreadable>>> {
    let version = |object: &T| object.meta().resource_version.clone().unwrap_or_default();
    let newer = |new: Named<Result<T, Unreadable>>| match (known.get(&new.name), &new.value) {
        (Some(Ok(old)), Ok(object))
            if old.meta().uid == object.meta().uid
                && compare_versions(&version(old), &version(object)).is_ge() =>
        {
            Named { value: Ok(old.clone()), name: new.name }
        }
        _ => new,
    };
    match event {
        Event::Reset { objects, vanished } => {
            Event::Reset { objects: objects.into_iter().map(newer).collect(), vanished }
        }
        Event::Applied(object) => Event::Applied(newer(object)),
        other => other,
    }
}

/// Takes an event of objects that may be ours.
pub(super) fn live(shared: &Shared, kind: &ObjectKind, event: Event<Raw>) {
    match event {
        Event::Reset { objects, vanished } => {
            for gone in vanished {
                let namespace = Some(gone.namespace.into_string()).filter(|text| !text.is_empty());
                let key = ObjectKey { kind: kind.clone(), namespace, name: gone.name.into_string() };
                shared.observe_deletion(&key, &json!({ "metadata": { "uid": gone.uid } }));
            }
            for object in objects {
                let (key, body) = known(kind, object);
                shared.observe(key, body);
            }
        }
        Event::Applied(object) => {
            let (key, body) = known(kind, object);
            shared.observe(key, body);
        }
        Event::Deleted(object) => {
            let (key, body) = known(kind, object);
            shared.observe_deletion(&key, &body);
        }
        // Whatever is an object can be read.
        Event::Unreadable { .. } => {}
    }
}

/// As it is kept: items of lists do not say of which kind they are.
fn known(kind: &ObjectKind, object: Raw) -> (ObjectKey, Value) {
    let text = |pointer: &str| object.text(pointer).map(str::to_owned);
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name").unwrap_or_default());
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

    fn gone(namespace: &str, name: &str, uid: &str) -> watch::Key {
        watch::Key { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    fn named(name: &str, value: u8) -> Named<u8> {
        Named { name: name.to_owned(), value }
    }

    #[test]
    fn a_table_says_what_the_server_says() {
        let mut known = BTreeMap::new();
        let mut check = |event: Event<Named<u8>>, changed: bool, wanted: &[(&str, u8)]| {
            assert_eq!(table(&mut known, event.clone()), changed, "{event:?}");
            let got: Vec<_> = known.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            assert_eq!(got, wanted, "{event:?}");
        };
        let reset = |objects: &[(&str, u8)], vanished: &[&str]| Event::Reset {
            objects: objects.iter().map(|(name, value)| named(name, *value)).collect(),
            vanished: vanished.iter().map(|name| gone("", name, "")).collect(),
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

    fn world() -> World {
        crate::watch::tests::world()
    }

    type Read = Named<Result<NumaResourcesScheduler, Unreadable>>;

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
        Named { name: name.to_owned(), value }
    }

    /// Tells what is known: names and versions, and what cannot be read.
    #[track_caller]
    fn check_asked(world: &mut World, event: Event<Read>, changed: bool, wanted: &str) {
        assert_eq!(asked(world, "X", |world| &mut world.schedulers, event.clone()), changed, "{event:?}");
        let version =
            |one: &NumaResourcesScheduler| one.metadata.resource_version.clone().unwrap_or_default();
        let mut told: Vec<_> =
            world.schedulers.iter().map(|(name, one)| format!("{name}@{}", version(one))).collect();
        let odd = world.unreadable.get("X").into_iter().flatten();
        told.extend(odd.map(|(name, odd)| format!("{name}: {}", odd.reason)));
        assert_eq!(told.join(", "), wanted, "{event:?}");
    }

    /// B-28: what cannot be read is known to be there and to be unreadable; only its deletion makes it nothing.
    #[test]
    fn what_makes_no_sense_is_not_forgotten() {
        let world = &mut world();
        let odd = || read("a", Err("odd"));
        check_asked(world, Event::Applied(read("a", Ok(("u", "1")))), true, "a@1");
        check_asked(world, Event::Applied(odd()), true, "a: odd");
        check_asked(world, Event::Applied(odd()), false, "a: odd");
        check_asked(world, Event::Applied(read("a", Ok(("u", "3")))), true, "a@3");
        let reset = |objects| Event::Reset { objects, vanished: Vec::new() };
        check_asked(world, reset(vec![odd(), read("b", Ok(("v", "4")))]), true, "b@4, a: odd");
        check_asked(world, Event::Deleted(odd()), true, "b@4");
        check_asked(world, Event::Deleted(read("b", Ok(("v", "5")))), true, "");
    }

    #[test]
    fn what_is_older_than_our_own_write_is_dropped() {
        let world = &mut world();
        let ours = read("a", Ok(("u", "10")));
        check_asked(world, Event::Applied(ours), true, "a@10");
        check_asked(world, Event::Applied(read("a", Ok(("u", "9")))), false, "a@10");
        check_asked(world, Event::Applied(read("a", Ok(("u", "10")))), false, "a@10");
        let late = Event::Reset { objects: vec![read("a", Ok(("u", "9")))], vanished: Vec::new() };
        check_asked(world, late, false, "a@10");
        check_asked(world, Event::Applied(read("a", Ok(("u", "11")))), true, "a@11");
        // Another one of this name.
        check_asked(world, Event::Applied(read("a", Ok(("v", "5")))), true, "a@5");
    }

    #[test]
    fn objects_come_and_go_and_say_their_kind() {
        let kind = ObjectKind::new("apps", "v1", "DaemonSet", "daemonsets");
        let shared = Shared::new(world());
        let object = |uid: &str, version: u8| {
            let metadata =
                json!({ "name": "a", "namespace": "n", "uid": uid, "resourceVersion": version.to_string() });
            Raw::deserialize(json!({ "metadata": metadata })).unwrap()
        };
        let check = |event: Event<Raw>, wanted: &[&str]| {
            live(&shared, &kind, event.clone());
            shared.read(|world| {
                let got: Vec<_> = world.live.iter().map(|(_, body)| &body["metadata"]["uid"]).collect();
                assert_eq!(got, wanted, "{event:?}");
                for (key, body) in world.live.iter() {
                    assert_eq!((key.namespace.as_deref(), key.name.as_str()), (Some("n"), "a"));
                    assert_eq!(
                        (&body["apiVersion"], &body["kind"]),
                        (&json!("apps/v1"), &json!("DaemonSet"))
                    );
                }
            });
        };
        let reset = |objects: Vec<Raw>, vanished: Vec<watch::Key>| Event::Reset { objects, vanished };
        check(reset(vec![object("1", 1)], vec![]), &["1"]);
        // Replaced while nobody watched.
        check(reset(vec![object("2", 5)], vec![gone("n", "a", "1")]), &["2"]);
        check(Event::Deleted(object("1", 3)), &["2"]);
        check(Event::Deleted(object("2", 6)), &[]);
        check(Event::Applied(object("3", 7)), &["3"]);
        check(reset(vec![], vec![gone("n", "a", "3")]), &[]);
    }
}
