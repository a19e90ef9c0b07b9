//! From what a watch tells to what the world is.
//!
//! In: events. Out: a [`World`] that says the same. Never: a wake-up where nothing is different.

use std::collections::BTreeMap;

use deployer::object::Sort;
use runtime::watch::Event;
use serde_json::{Value, json};

use super::wire::Raw;
use crate::live::Key;
use crate::reconcile::Shared;
use crate::world::{Unreadable, World};

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

/// Takes an event of objects that a user wrote: those that make no sense are noted in the world instead of being forgotten.
pub(super) fn asked<T: PartialEq>(
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
    let changed = table(&mut all, event);
    for (name, value) in all {
        match value {
            Ok(value) => drop(of(world).insert(name, value)),
            Err(why) => drop(world.unreadable.entry(kind).or_default().insert(name, why)),
        }
    }
    changed
}

/// Takes an event of objects that may be ours.
pub(super) fn live(shared: &Shared, sort: &Sort, event: Event<Raw>) {
    match event {
        Event::Reset { objects, vanished } => {
            for gone in vanished {
                let namespace = Some(gone.namespace.into_string()).filter(|text| !text.is_empty());
                let key = Key { sort: sort.clone(), namespace, name: gone.name.into_string() };
                shared.gone(&key, &json!({ "metadata": { "uid": gone.uid } }));
            }
            for object in objects {
                let (key, body) = known(sort, object);
                shared.saw(key, body);
            }
        }
        Event::Applied(object) => {
            let (key, body) = known(sort, object);
            shared.saw(key, body);
        }
        Event::Deleted(object) => {
            let (key, body) = known(sort, object);
            shared.gone(&key, &body);
        }
        // Whatever is an object can be read.
        Event::Unreadable { .. } => {}
    }
}

/// As it is kept: items of lists do not say of which kind they are.
fn known(sort: &Sort, object: Raw) -> (Key, Value) {
    let text = |pointer: &str| object.text(pointer).map(str::to_owned);
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name").unwrap_or_default());
    let mut body = object.body;
    body["apiVersion"] = sort.api_version().into();
    body["kind"] = sort.kind.clone().into();
    (Key { sort: sort.clone(), namespace, name }, body)
}

#[cfg(test)]
mod tests {
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

    /// B-28: what cannot be read is known to be there and to be unreadable; only its deletion makes it nothing.
    #[test]
    fn what_makes_no_sense_is_not_forgotten() {
        use crate::world::MachineConfigPool as Pool;
        let mut world = world();
        let read = |name: &str, value: Result<(), &str>| Named {
            name: name.to_owned(),
            value: value
                .map(|()| Pool::default())
                .map_err(|why| Unreadable { uid: "u".to_owned(), reason: why.to_owned() }),
        };
        let mut check =
            |event: Event<Named<Result<Pool, Unreadable>>>, changed: bool, good: usize, bad: &[&str]| {
                assert_eq!(
                    asked(&mut world, "Pool", |world| &mut world.pools, event.clone()),
                    changed,
                    "{event:?}"
                );
                let why: Vec<_> = world
                    .unreadable
                    .get("Pool")
                    .into_iter()
                    .flatten()
                    .map(|(_, why)| why.reason.as_str())
                    .collect();
                assert_eq!((world.pools.len(), why.as_slice()), (good, bad), "{event:?}");
            };
        check(Event::Applied(read("a", Ok(()))), true, 1, &[]);
        check(Event::Applied(read("a", Err("odd"))), true, 0, &["odd"]);
        check(Event::Applied(read("a", Err("odd"))), false, 0, &["odd"]);
        check(Event::Applied(read("a", Ok(()))), true, 1, &[]);
        let reset = |objects| Event::Reset { objects, vanished: Vec::new() };
        check(reset(vec![read("a", Err("odd")), read("b", Ok(()))]), true, 1, &["odd"]);
        check(Event::Deleted(read("a", Err("odd"))), true, 1, &[]);
        check(Event::Deleted(read("b", Ok(()))), true, 0, &[]);
    }

    #[test]
    fn objects_come_and_go_and_say_their_kind() {
        let sort = Sort::new("apps", "v1", "DaemonSet", "daemonsets");
        let shared = Shared::new(world());
        let object = |uid: &str, version: u8| {
            let metadata =
                json!({ "name": "a", "namespace": "n", "uid": uid, "resourceVersion": version.to_string() });
            Raw::deserialize(json!({ "metadata": metadata })).unwrap()
        };
        let check = |event: Event<Raw>, wanted: &[&str]| {
            live(&shared, &sort, event.clone());
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
