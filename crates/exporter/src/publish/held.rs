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
    /// How often the watch has told something new.
    pub(super) told: u64,
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
        let new = self.held.take(event);
        self.told += u64::from(new);
        new || sees_again
    }

    /// Takes in what the server answered, to somebody who asked when he knew `before`.
    ///
    /// If the watch has told something since, nobody can say which is newer, unless it is about the same object: its
    /// deletion, or what somebody wrote next, may have overtaken our answer and is told only once. Then what was told
    /// counts. Should that be the older one after all, the next write will be refused and say so.
    pub fn learn(&mut self, answer: Held, before: &Self) {
        let overtaken = match (&self.held, &answer) {
            (Held::Object(known), Held::Object(answer)) if known.metadata.uid == answer.metadata.uid => {
                is_as_new(known, answer)
            }
            _ => self.told != before.told,
        };
        if !overtaken {
            self.held = answer;
        }
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
            && is_as_new(known, &object)
        {
            return false;
        }
        *self = Self::object(object);
        true
    }
}

/// Whether one state of an object is known to be as new as another one.
fn is_as_new(this: &NodeResourceTopology, other: &NodeResourceTopology) -> bool {
    version(other).is_some() && version(this) >= version(other)
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
        let mut known = Known { held: Held::object(object("a", "9")), blind: true, told: 0 };
        assert!(known.take(reset(vec![object("a", "9")])), "that is news, even if the object is not");
        assert!(!known.blind);
        assert!(!known.take(reset(vec![object("a", "9")])));
    }

    #[test]
    fn what_the_watch_told_while_we_waited_for_an_answer_is_not_forgotten() {
        use Event::{Applied, Deleted};
        let at = |uid: &str, version: &str| Held::object(object(uid, version));
        let (deleted, edited) = (|| Deleted(object("a", "7")), || Applied(object("a", "7")));
        for (before, told, answer, after) in [
            (at("a", "5"), vec![], at("a", "6"), "a@6"),
            (at("a", "5"), vec![Applied(object("a", "6"))], at("a", "6"), "a@6"),
            (at("a", "4"), vec![Applied(object("a", "5"))], at("a", "6"), "a@6"),
            (at("a", "5"), vec![edited()], at("a", "6"), "a@7"),
            (at("a", "5"), vec![deleted()], at("a", "6"), "absent"),
            (at("a", "5"), vec![reset(vec![])], at("a", "6"), "absent"),
            (at("a", "5"), vec![deleted(), Applied(object("b", "8"))], at("a", "6"), "b@8"),
            (at("a", "5"), vec![], at("b", "8"), "b@8"),
            (at("a", "5"), vec![], Held::Absent, "absent"),
            (at("a", "5"), vec![edited()], Held::Absent, "a@7"),
            (Held::Absent, vec![], at("a", "6"), "a@6"),
            (Held::Absent, vec![Applied(object("a", "6"))], at("a", "6"), "a@6"),
            (Held::Absent, vec![Applied(object("a", "6")), deleted()], at("a", "6"), "absent"),
            (Held::Unknown, vec![], at("a", "6"), "a@6"),
        ] {
            let before = Known { held: before, ..Known::default() };
            let mut known = before.clone();
            for event in &told {
                known.take(event.clone());
            }
            known.learn(answer.clone(), &before);
            assert_eq!(show(&known.held), after, "{} {told:?} {}", show(&before.held), show(&answer));
        }
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
