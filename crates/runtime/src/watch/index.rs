//! From the events of kube's watcher to the events of this module.
//!
//! In: events of kube's watcher, object by object. Out: whole lists and single changes for the sink. Never: an object
//! kept, except those of an incomplete list.

use super::{Event, Key};
use kube::Resource;
use kube::runtime::watcher;
use std::collections::BTreeSet;

/// Collects a list until it is complete, and knows which keys exist.
pub(super) struct Index<K, O, S> {
    convert: O,
    sink: S,
    known: BTreeSet<Key>,
    gathered: Vec<K>,
    gathered_keys: BTreeSet<Key>,
    /// Whether the sink knows that the server does not have the kind.
    absent: bool,
}

/// The meaning of one event of the watcher.
pub(super) enum Received {
    /// A list begins, which does not yet show that the server works.
    Nothing,
    /// A change, or a part of a list.
    Change,
    /// A list is complete.
    Reset,
    /// An object that cannot be read.
    Unreadable { name: String, reason: String },
}

impl<K, O, S: FnMut(Event<K>)> Index<K, O, S> {
    pub(super) fn new(convert: O, sink: S) -> Self {
        let (known, gathered, gathered_keys) = Default::default();
        Self { convert, sink, known, gathered, gathered_keys, absent: false }
    }

    pub(super) fn take<W: Resource>(&mut self, event: watcher::Event<W>) -> Received
    where
        O: FnMut(W) -> Result<K, String>,
    {
        match event {
            watcher::Event::Init => {
                self.gathered.clear();
                self.gathered_keys.clear();
                Received::Nothing
            }
            watcher::Event::InitApply(wire) => self.gather(wire),
            watcher::Event::InitDone => {
                self.absent = false;
                let keys = std::mem::take(&mut self.gathered_keys);
                let vanished = self.known.difference(&keys).cloned().collect();
                self.known = keys;
                let objects = std::mem::take(&mut self.gathered);
                (self.sink)(Event::Reset { objects, vanished, served: true });
                Received::Reset
            }
            watcher::Event::Apply(wire) => self.change(wire, true),
            watcher::Event::Delete(wire) => self.change(wire, false),
        }
    }

    fn gather<W: Resource>(&mut self, wire: W) -> Received
    where
        O: FnMut(W) -> Result<K, String>,
    {
        let key = Key::of(&wire);
        match (self.convert)(wire) {
            Ok(object) => {
                self.gathered.push(object);
                self.gathered_keys.insert(key);
                Received::Change
            }
            Err(reason) => Received::Unreadable { name: key.to_string(), reason },
        }
    }

    fn change<W: Resource>(&mut self, wire: W, exists: bool) -> Received
    where
        O: FnMut(W) -> Result<K, String>,
    {
        let key = Key::of(&wire);
        match (self.convert)(wire) {
            Ok(object) if exists => {
                self.known.insert(key);
                (self.sink)(Event::Applied(object));
                Received::Change
            }
            Ok(object) => {
                self.known.remove(&key);
                (self.sink)(Event::Deleted(object));
                Received::Change
            }
            Err(reason) => {
                self.known.remove(&key);
                let name = key.to_string();
                (self.sink)(Event::Unreadable { key, reason: reason.clone() });
                Received::Unreadable { name, reason }
            }
        }
    }

    /// The server does not have the kind, so there are no objects of it.
    pub(super) fn absent(&mut self) {
        if !std::mem::replace(&mut self.absent, true) {
            let vanished = std::mem::take(&mut self.known).into_iter().collect();
            (self.sink)(Event::Reset { objects: Vec::new(), vanished, served: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
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

    fn show(event: Event<ConfigMap>) -> String {
        let name = |object: &ConfigMap| {
            format!("{}/{}", object.metadata.name.clone().unwrap(), object.metadata.uid.clone().unwrap())
        };
        match event {
            Event::Reset { objects, vanished, .. } => {
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

    /// Feeds `script` and compares the events in the sink. `[` and `]` enclose a list, `+` and `-` are changes, `404`
    /// is a server without the kind.
    #[track_caller]
    fn check(script: &str, want: &[&str]) {
        let mut got = Vec::new();
        let convert =
            |map: ConfigMap| if map.immutable.is_some() { Err("broken".to_owned()) } else { Ok(map) };
        let mut index = Index::new(convert, |event| got.push(show(event)));
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
    fn a_list_is_one_event_with_the_vanished_keys() {
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
    fn unreadable_objects_are_forgotten() {
        check("[ a/1 !b/2 ]", &["reset [a/1] - []"]);
        check("[ a/1 ] +!a/1 [ !a/1 ]", &["reset [a/1] - []", "?a", "reset [] - []"]);
        check("[ a/1 ] [ !a/1 ]", &["reset [a/1] - []", "reset [] - [a/1]"]);
        check("[ a/1 ] -!a/1", &["reset [a/1] - []", "?a"]);
    }

    #[test]
    fn a_missing_kind_is_one_empty_reset() {
        check("404 404 [ 404 [ a/1 ]", &["reset [] - []", "reset [a/1] - []"]);
        check("[ a/1 ] 404 404", &["reset [a/1] - []", "reset [] - [a/1]"]);
    }
}
