//! What the server holds, as far as we know: from the watch, and from the answers to our own writes.

use std::sync::Arc;

use api::nrt::NodeResourceTopology;
use runtime::watch::Event;

/// What is known of the server, and whether that keeps itself up to date.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// Our object.
    pub held: Held,
    /// We may not watch: what is known was true when it was read or written last.
    pub blind: bool,
}

/// Our object on the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Held {
    /// Nobody has told yet, or what was told is too old.
    #[default]
    Unknown,
    /// There is none, or no such kind.
    Absent,
    /// This.
    Object(Arc<NodeResourceTopology>),
}

impl Known {
    /// Takes in what the watch says, as [`Held::take`] does. True if something changed.
    pub fn take(&mut self, event: Event<NodeResourceTopology>) -> bool {
        let sees_again = std::mem::replace(&mut self.blind, false);
        self.held.take(event) || sees_again
    }
}

impl Held {
    /// Keeps an object without what we never look at.
    #[must_use]
    pub fn object(mut object: NodeResourceTopology) -> Self {
        object.metadata.managed_fields = None;
        Self::Object(Arc::new(object))
    }

    /// Takes in what the watch says. Its events may be older than the answer to our last write: an older version of the
    /// same object, or the end of an object that has been replaced since, changes nothing. True if something changed.
    pub fn take(&mut self, event: Event<NodeResourceTopology>) -> bool {
        match event {
            Event::Reset { objects, .. } => match objects.into_iter().next() {
                Some(object) => return self.replace(object),
                None => *self = Self::Absent,
            },
            Event::Applied(object) => return self.replace(object),
            Event::Deleted(object) => match self {
                Self::Object(known) if known.metadata.uid != object.metadata.uid => return false,
                _ => *self = Self::Absent,
            },
            // Somebody wrote something into it that we cannot even read: as good as an object that says nothing. Its
            // version is not known, so the patch that repairs it is not conditional.
            Event::Unreadable { .. } => *self = Self::Object(Arc::default()),
        }
        true
    }

    fn replace(&mut self, object: NodeResourceTopology) -> bool {
        if let Self::Object(known) = self
            && known.metadata.uid == object.metadata.uid
            && version(known) >= version(&object)
            && version(&object).is_some()
        {
            return false;
        }
        *self = Self::object(object);
        true
    }
}

/// Resource versions of one kind are comparable numbers in every Kubernetes we support.
fn version(object: &NodeResourceTopology) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, version: &str) -> NodeResourceTopology {
        let mut object = NodeResourceTopology::default();
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object.metadata.managed_fields = Some(vec![]);
        object
    }

    fn reset(objects: Vec<NodeResourceTopology>) -> Event<NodeResourceTopology> {
        Event::Reset { objects, vanished: vec![] }
    }

    /// `a@9` for uid a at version 9.
    fn show(held: &Held) -> String {
        match held {
            Held::Unknown => "unknown".to_owned(),
            Held::Absent => "absent".to_owned(),
            Held::Object(object) => {
                assert!(object.metadata.managed_fields.is_none());
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                format!("{}@{}", text(&object.metadata.uid), text(&object.metadata.resource_version))
            }
        }
    }

    #[test]
    fn a_watch_that_speaks_has_eyes_again() {
        let mut known = Known { held: Held::object(object("a", "9")), blind: true };
        assert!(known.take(reset(vec![object("a", "9")])), "that is news, even if the object is not");
        assert!(!known.blind);
        assert!(!known.take(reset(vec![object("a", "9")])));
    }

    #[test]
    fn what_the_watch_says_is_taken_unless_it_is_older_than_what_we_know() {
        use Event::{Applied, Deleted};
        let known = || Held::object(object("a", "9"));
        let unreadable = || {
            let text = |text: &str| text.to_owned().into_boxed_str();
            let key = runtime::watch::Key { namespace: text(""), name: text("n"), uid: text("a") };
            Event::Unreadable { key, reason: "zones: expected a list".to_owned() }
        };
        for (before, event, after, changed) in [
            (Held::Unknown, reset(vec![]), "absent", true),
            (Held::Unknown, reset(vec![object("a", "1")]), "a@1", true),
            (Held::Absent, Applied(object("a", "1")), "a@1", true),
            (known(), Applied(object("a", "10")), "a@10", true),
            (known(), Applied(object("a", "9")), "a@9", false),
            (known(), Applied(object("a", "8")), "a@9", false),
            (known(), Applied(object("b", "8")), "b@8", true),
            (known(), Deleted(object("a", "12")), "absent", true),
            (known(), Deleted(object("b", "12")), "a@9", false),
            (known(), reset(vec![object("a", "7")]), "a@9", false),
            (known(), reset(vec![]), "absent", true),
            (known(), unreadable(), "@", true),
        ] {
            let mut held = before.clone();
            let took = held.take(event.clone());
            assert_eq!((show(&held).as_str(), took), (after, changed), "{} and {event:?}", show(&before));
        }
    }
}
