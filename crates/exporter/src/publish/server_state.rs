//! The object as the server holds it, as far as known: from the watch, and from the answers to our own writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::nrt::NodeResourceTopology;
use runtime::random::Random;
use runtime::watch::Event;
use tokio::sync::watch;

/// The known state of the object on the server, and whether a watch keeps it up to date.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerState {
    /// Our object.
    pub stored: StoredObject,
    /// The object may not be watched: its state is the one of the last read or write.
    pub unwatched: bool,
    /// How often the watch has reported a change.
    pub(super) watch_changes: u64,
}

/// Our object on the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StoredObject {
    /// Not read yet, or the last answer is too old.
    #[default]
    Unknown,
    /// There is no such object, or no such kind.
    Absent,
    /// The object.
    Object(Arc<NodeResourceTopology>),
}

/// The publisher's view of the shared state: the state at the start of the present attempt, and when to read again.
pub(super) struct ServerView {
    known: Arc<watch::Sender<ServerState>>,
    before: ServerState,
    reread: Duration,
    reread_at: Instant,
    random: Random,
}

impl ServerView {
    /// A view that reads again after `reread`, give or take a tenth, while the object may not be watched.
    pub(super) fn new(known: Arc<watch::Sender<ServerState>>, reread: Duration) -> Self {
        let random = Random::from_entropy();
        Self { known, before: ServerState::default(), reread, reread_at: Instant::now(), random }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<ServerState> {
        self.known.subscribe()
    }

    /// Starts an attempt with this state.
    pub(super) fn begin(&mut self, state: &ServerState) {
        self.before.clone_from(state);
    }

    /// When the state is too old, if no watch reports changes.
    pub(super) fn reread_at(&self) -> Instant {
        self.reread_at
    }

    /// Takes over the server's answer, unless the watch has reported something newer meanwhile.
    pub(super) fn record(&mut self, stored: StoredObject) {
        self.reread_at = Instant::now() + jittered(self.reread, &mut self.random);
        self.known.send_modify(|known| known.learn(stored, &self.before));
    }
}

/// `span`, give or take a tenth: thousands of exporters that start together must not stay in step.
pub(super) fn jittered(span: Duration, random: &mut Random) -> Duration {
    span.mul_f64(0.9 + 0.2 * random.fraction())
}

impl ServerState {
    /// Takes over an event of the watch, as [`StoredObject::take`] does. True if something changed.
    pub fn take(&mut self, event: Event<NodeResourceTopology>) -> bool {
        let watched_again = std::mem::replace(&mut self.unwatched, false);
        let new = self.stored.take(event);
        self.watch_changes += u64::from(new);
        new || watched_again
    }

    /// Takes over the server's answer to a request that was made in the state `before`.
    ///
    /// If the watch has reported nothing since, the answer is the newest, also with an older version: a server may have
    /// been restored from a copy. Else the newer of the two is unknown, unless both are about the same object. Its
    /// deletion, or a later write of another client, may have overtaken our answer, and is reported only once. Then the
    /// watch counts. Should it be older after all, the next write is refused with a conflict.
    pub fn learn(&mut self, answer: StoredObject, before: &Self) {
        let overtaken = match (&self.stored, &answer) {
            (StoredObject::Object(known), StoredObject::Object(answer))
                if known.metadata.uid == answer.metadata.uid =>
            {
                self.watch_changes != before.watch_changes && is_as_new(known, answer)
            }
            _ => self.watch_changes != before.watch_changes,
        };
        if !overtaken {
            self.stored = answer;
        }
    }
}

impl StoredObject {
    /// An object without the fields that are never read here.
    #[must_use]
    pub fn present(mut object: NodeResourceTopology) -> Self {
        object.metadata.managed_fields = None;
        Self::Object(Arc::new(object))
    }

    /// Takes over an event of the watch. Events may be older than the answer to our last write: an older version of the
    /// same object, or the deletion of an object that has been replaced since, changes nothing. True if something
    /// changed.
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
            // Another client wrote content that cannot be parsed: the object is treated as empty. Its version is
            // unknown, so the patch that repairs it is not conditional.
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
        *self = Self::present(object);
        true
    }
}

/// Whether one state of an object is known to be at least as new as another one.
fn is_as_new(this: &NodeResourceTopology, other: &NodeResourceTopology) -> bool {
    version(other).is_some() && version(this) >= version(other)
}

/// The resource version. Versions of one kind are comparable numbers in every supported Kubernetes.
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
        Event::Reset { objects, vanished: vec![], served: true }
    }

    /// `a@9` is uid a at version 9.
    fn show(stored: &StoredObject) -> String {
        match stored {
            StoredObject::Unknown => "unknown".to_owned(),
            StoredObject::Absent => "absent".to_owned(),
            StoredObject::Object(object) => {
                assert!(object.metadata.managed_fields.is_none());
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                format!("{}@{}", text(&object.metadata.uid), text(&object.metadata.resource_version))
            }
        }
    }

    #[test]
    fn an_event_of_the_watch_ends_the_unwatched_state() {
        let mut known = ServerState {
            stored: StoredObject::present(object("a", "9")),
            unwatched: true,
            watch_changes: 0,
        };
        assert!(
            known.take(reset(vec![object("a", "9")])),
            "the watch is back, although the object is the same"
        );
        assert!(!known.unwatched);
        assert!(!known.take(reset(vec![object("a", "9")])));
    }

    #[test]
    fn watch_events_during_a_request_are_kept() {
        use Event::{Applied, Deleted};
        let at = |uid: &str, version: &str| StoredObject::present(object(uid, version));
        let (deleted, edited) = (|| Deleted(object("a", "7")), || Applied(object("a", "7")));
        for (before, told, answer, after) in [
            (at("a", "5"), vec![], at("a", "6"), "a@6"),
            (at("a", "5"), vec![Applied(object("a", "6"))], at("a", "6"), "a@6"),
            (at("a", "4"), vec![Applied(object("a", "5"))], at("a", "6"), "a@6"),
            (at("a", "9"), vec![], at("a", "6"), "a@6"),
            (at("a", "5"), vec![edited()], at("a", "6"), "a@7"),
            (at("a", "5"), vec![deleted()], at("a", "6"), "absent"),
            (at("a", "5"), vec![reset(vec![])], at("a", "6"), "absent"),
            (at("a", "5"), vec![deleted(), Applied(object("b", "8"))], at("a", "6"), "b@8"),
            (at("a", "5"), vec![], at("b", "8"), "b@8"),
            (at("a", "5"), vec![], StoredObject::Absent, "absent"),
            (at("a", "5"), vec![edited()], StoredObject::Absent, "a@7"),
            (StoredObject::Absent, vec![], at("a", "6"), "a@6"),
            (StoredObject::Absent, vec![Applied(object("a", "6"))], at("a", "6"), "a@6"),
            (StoredObject::Absent, vec![Applied(object("a", "6")), deleted()], at("a", "6"), "absent"),
            (StoredObject::Unknown, vec![], at("a", "6"), "a@6"),
        ] {
            let before = ServerState { stored: before, ..ServerState::default() };
            let mut known = before.clone();
            for event in &told {
                known.take(event.clone());
            }
            known.learn(answer.clone(), &before);
            assert_eq!(show(&known.stored), after, "{} {told:?} {}", show(&before.stored), show(&answer));
        }
    }

    #[test]
    fn watch_events_are_taken_unless_they_are_older() {
        use Event::{Applied, Deleted};
        let known = || StoredObject::present(object("a", "9"));
        let unreadable = || {
            let text = |text: &str| text.to_owned().into_boxed_str();
            let key = runtime::watch::Key { namespace: text(""), name: text("n"), uid: text("a") };
            Event::Unreadable { key, reason: "zones: expected a list".to_owned() }
        };
        for (before, event, after, changed) in [
            (StoredObject::Unknown, reset(vec![]), "absent", true),
            (StoredObject::Unknown, reset(vec![object("a", "1")]), "a@1", true),
            (StoredObject::Absent, Applied(object("a", "1")), "a@1", true),
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
            let mut stored = before.clone();
            let took = stored.take(event.clone());
            assert_eq!((show(&stored).as_str(), took), (after, changed), "{} and {event:?}", show(&before));
        }
    }
}
