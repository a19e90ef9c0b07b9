//! Attribute lists: read and change, with the semantics of the Go helpers, so that both sides see the same value.
//!
//! In: a list, perhaps with repeated names. Out: the first value of a name, or the changed list with the order of all
//! other entries kept.
//!
//! ```
//! use api::nrt::attribute;
//!
//! let mut list = Vec::new();
//! attribute::insert(&mut list, "topologyManagerScope", "pod");
//! assert_eq!(attribute::get(&list, "topologyManagerScope"), Some("pod"));
//! ```

use super::Attribute;

/// The value of the first attribute of that name.
#[must_use]
pub fn get<'a>(list: &'a [Attribute], name: &str) -> Option<&'a str> {
    list.iter().find(|attribute| attribute.name == name).map(|attribute| attribute.value.as_str())
}

/// Sets an attribute: replaces the value of the first one of that name, or appends a new one. An empty name has no
/// effect; an empty value is valid.
pub fn insert(list: &mut Vec<Attribute>, name: &str, value: impl Into<String>) {
    if name.is_empty() {
        return;
    }
    match list.iter_mut().find(|attribute| attribute.name == name) {
        Some(attribute) => attribute.value = value.into(),
        None => list.push(Attribute { name: name.to_owned(), value: value.into() }),
    }
}

/// Inserts every attribute of `updated`, in order.
pub fn merge(list: &mut Vec<Attribute>, updated: &[Attribute]) {
    for attribute in updated {
        insert(list, &attribute.name, attribute.value.as_str());
    }
}

/// Removes every attribute of that name.
pub fn delete_all(list: &mut Vec<Attribute>, name: &str) {
    list.retain(|attribute| attribute.name != name);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a=1 b=2` as a list.
    fn list(text: &str) -> Vec<Attribute> {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap();
            Attribute { name: name.to_owned(), value: value.to_owned() }
        };
        text.split_whitespace().map(pair).collect()
    }

    #[test]
    fn get_finds_the_first() {
        for (attributes, name, value) in [
            ("", "", None),
            ("", "a", None),
            ("a=1 b=2", "", None),
            ("a=1 b=2", "c", None),
            ("a=1 b=2", "b", Some("2")),
            ("a=1 b=2 a=3", "a", Some("1")),
            ("a= b=2", "a", Some("")),
            ("a=1", "A", None),
        ] {
            assert_eq!(get(&list(attributes), name), value, "{attributes:?} {name:?}");
        }
    }

    #[test]
    fn insert_replaces_in_place_or_appends() {
        for (before, name, value, after) in [
            ("", "", "1", ""),
            ("", "a", "1", "a=1"),
            ("a=1", "", "2", "a=1"),
            ("a=1", "b", "2", "a=1 b=2"),
            ("a=1 b=2 c=3", "b", "9", "a=1 b=9 c=3"),
            ("a=1 b=2 a=3", "a", "9", "a=9 b=2 a=3"),
            ("a=1", "a", "", "a="),
        ] {
            let mut attributes = list(before);
            insert(&mut attributes, name, value);
            assert_eq!(attributes, list(after), "{before:?} {name:?} {value:?}");
        }
    }

    #[test]
    fn merge_overrides_in_place_and_appends_in_order() {
        for (before, updated, after) in [
            ("", "", ""),
            ("", "b=1 a=2", "b=1 a=2"),
            ("a=1 b=2", "", "a=1 b=2"),
            ("a=1", "c=3 b=2", "a=1 c=3 b=2"),
            ("a=1 b=2 c=3", "d=4 b=9", "a=1 b=9 c=3 d=4"),
        ] {
            let mut attributes = list(before);
            merge(&mut attributes, &list(updated));
            assert_eq!(attributes, list(after), "{before:?} {updated:?}");
        }
    }

    #[test]
    fn delete_all_keeps_the_order_of_the_rest() {
        for (before, name, after) in [
            ("", "a", ""),
            ("a=1 b=2", "c", "a=1 b=2"),
            ("a=1 b=2", "a", "b=2"),
            ("a=1 b=2 a=3 c=4", "a", "b=2 c=4"),
        ] {
            let mut attributes = list(before);
            delete_all(&mut attributes, name);
            assert_eq!(attributes, list(after), "{before:?} {name:?}");
        }
    }
}
