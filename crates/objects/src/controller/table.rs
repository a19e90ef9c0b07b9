//! Watch events into tables.
//!
//! In: events of one kind. Out: a table that says what the API server says, and the keys that the event concerns.
//! Never: a key where nothing differs, if the table's functions keep that.

use std::collections::BTreeSet;

use runtime::watch::{self, Event};

/// The functions by which one table of a state `S` is changed. `C` collects the keys that a change concerns.
pub struct Table<S, K, V, C> {
    /// The keys in the table.
    pub keys: fn(&S) -> Vec<K>,
    /// Adds or replaces an entry.
    pub put: fn(&mut S, K, V) -> C,
    /// Removes an entry that is no longer listed.
    pub remove: fn(&mut S, &K) -> C,
    /// Removes an entry whose object was deleted; the table may know a newer object of the same name.
    pub delete: fn(&mut S, &K, &V) -> C,
    /// Takes in that an object cannot be read.
    pub unreadable: fn(&mut S, &watch::Key) -> C,
}

/// Takes an event into a table. Cost of a reset grows with the table, of other events with one entry.
pub fn take<S, K, V, C>(state: &mut S, event: Event<(K, V)>, table: &Table<S, K, V, C>) -> C
where
    K: Ord,
    C: Default + IntoIterator + Extend<<C as IntoIterator>::Item>,
{
    match event {
        Event::Reset { objects, .. } => {
            let mut concerned = C::default();
            let known = (table.keys)(state);
            let gone: Vec<&K> = {
                let listed: BTreeSet<&K> = objects.iter().map(|(key, _)| key).collect();
                known.iter().filter(|key| !listed.contains(key)).collect()
            };
            for key in gone {
                concerned.extend((table.remove)(state, key));
            }
            for (key, value) in objects {
                concerned.extend((table.put)(state, key, value));
            }
            concerned
        }
        Event::Applied((key, value)) => (table.put)(state, key, value),
        Event::Deleted((key, value)) => (table.delete)(state, &key, &value),
        Event::Unreadable { key, .. } => (table.unreadable)(state, &key),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type State = BTreeMap<u8, char>;

    const TABLE: Table<State, u8, char, Vec<u8>> = Table {
        keys: |state| state.keys().copied().collect(),
        put: |state, key, value| if state.insert(key, value) == Some(value) { vec![] } else { vec![key] },
        remove: |state, key| state.remove(key).map(|_| *key).into_iter().collect(),
        delete: |state, key, value| match state.get(key) == Some(value) {
            true => state.remove(key).map(|_| *key).into_iter().collect(),
            false => vec![],
        },
        unreadable: |_, _| vec![],
    };

    #[test]
    fn a_table_says_what_the_server_says() {
        let mut state = State::new();
        let mut check = |event: Event<(u8, char)>, concerned: &[u8], wanted: &[(u8, char)]| {
            assert_eq!(take(&mut state, event, &TABLE), concerned);
            assert_eq!(state.clone().into_iter().collect::<Vec<_>>(), wanted);
        };
        let reset = |objects: &[(u8, char)]| Event::Reset {
            objects: objects.to_vec(),
            vanished: Vec::new(),
            served: true,
        };
        check(reset(&[(1, 'a'), (2, 'b')]), &[1, 2], &[(1, 'a'), (2, 'b')]);
        check(reset(&[(1, 'a'), (3, 'c')]), &[2, 3], &[(1, 'a'), (3, 'c')]);
        check(Event::Applied((1, 'a')), &[], &[(1, 'a'), (3, 'c')]);
        check(Event::Applied((1, 'z')), &[1], &[(1, 'z'), (3, 'c')]);
        check(Event::Deleted((1, 'a')), &[], &[(1, 'z'), (3, 'c')]);
        check(Event::Deleted((3, 'c')), &[3], &[(1, 'z')]);
    }
}
