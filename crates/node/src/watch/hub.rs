//! File events for many tasks from one inotify instance, of which each user has few (`fs.inotify.max_user_instances`).
//!
//! In: directories, from each subscriber. Out: a wake-up for each subscriber whose directories changed. Never: an
//! instance for each subscriber, or a wait for ever where the kernel gives no events: such a subscriber looks each
//! second.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::warn;

use super::{Counts, Target, Watcher};

/// Time between looks when file events are unavailable.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Hands file events to subscribers. Clones share one inotify instance.
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<State>>);

/// The part of one task: its directories, and the changes in them.
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    id: u64,
    woken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` while nothing is watched, or the kernel has no instance left.
    watcher: Option<Watcher<u64>>,
    /// The task that waits for events of that watcher.
    task: Option<AbortHandle>,
    subscribers: BTreeMap<u64, Subscriber>,
    next: u64,
}

#[derive(Debug)]
struct Subscriber {
    woken: Arc<Notify>,
    /// Whether the kernel watches its directories.
    watched: bool,
}

impl Hub {
    /// Watches these directories until the subscription is dropped. If the kernel refuses, that is said once, and
    /// [`Subscription::changed`] returns each second. Must be called inside a tokio runtime.
    #[must_use]
    pub fn subscribe(&self, targets: Vec<Target<()>>) -> Subscription {
        let place = targets.first().map(|target| target.dir.display().to_string()).unwrap_or_default();
        let mut state = self.lock();
        let (id, woken) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        let watched = self.watch(&mut state, id, targets);
        if let Err(error) = &watched {
            state.forget(id);
            warn!(place, %error, "no file events (see fs.inotify.max_user_instances, max_user_watches); looking each second");
        }
        let subscriber = Subscriber { woken: Arc::clone(&woken), watched: watched.is_ok() };
        state.subscribers.insert(id, subscriber);
        drop(state);
        Subscription { hub: self.clone(), id, woken }
    }

    fn watch(&self, state: &mut State, id: u64, targets: Vec<Target<()>>) -> io::Result<()> {
        if state.watcher.is_none() {
            state.watcher = Some(Watcher::new(Vec::new())?);
            let task = tokio::spawn(events(Arc::downgrade(&self.0)));
            state.task = Some(task.abort_handle());
        }
        let Some(watcher) = &mut state.watcher else { return Ok(()) };
        let targets =
            targets.into_iter().map(|Target { dir, names, tag: () }| Target { dir, names, tag: id });
        targets.into_iter().try_for_each(|target| watcher.add(target))
    }

    /// A poisoned lock guards nothing half-done: each change of the state is one call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Waits for an event for at most `patience`; callers look up the change themselves. Without file events this
    /// returns after at most a second, so that callers poll. Dropping the future loses nothing.
    pub async fn changed(&mut self, patience: Duration) {
        let watched = self.hub.lock().subscribers.get(&self.id).is_some_and(|one| one.watched);
        let patience = if watched { patience } else { patience.min(POLL_INTERVAL) };
        let woken = tokio::time::timeout(patience, self.woken.notified()).await;
        if woken.is_err() && watched {
            self.hub.lock().recheck();
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        state.subscribers.remove(&self.id);
        state.forget(self.id);
        // The instance goes with the last subscriber, so that the kernel queues no events in vain.
        if state.subscribers.is_empty() {
            state.close();
        }
    }
}

impl State {
    fn forget(&mut self, id: u64) {
        if let Some(watcher) = &mut self.watcher {
            watcher.remove(id);
        }
    }

    /// Finds directories that were replaced without an event.
    fn recheck(&mut self) {
        if let Some(changes) = self.watcher.as_mut().map(Watcher::recheck) {
            self.wake(changes);
        }
    }

    /// Wakes the subscribers of these changes; all of them when events are lost from now on.
    fn wake(&mut self, changes: io::Result<Counts<u64>>) {
        match changes {
            Ok(changes) => {
                let woken = changes.keys().filter_map(|id| self.subscribers.get(id));
                woken.for_each(|one| one.woken.notify_one());
            }
            Err(error) => {
                warn!(%error, "file events are lost; looking each second");
                self.close();
                for one in self.subscribers.values_mut() {
                    one.watched = false;
                    one.woken.notify_one();
                }
            }
        }
    }

    fn close(&mut self) {
        self.watcher = None;
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Hands on the events of the hub's watcher until the hub has none any more.
async fn events(hub: Weak<Mutex<State>>) {
    loop {
        let more = poll_fn(|context| {
            let Some(hub) = hub.upgrade().map(Hub) else { return Poll::Ready(false) };
            let mut state = hub.lock();
            let Some(watcher) = &mut state.watcher else { return Poll::Ready(false) };
            // The lock is held for a poll, not for the wait. Nothing is lost with the future.
            let changes = std::task::ready!(pin!(watcher.changed()).poll(context));
            state.wake(changes);
            Poll::Ready(state.watcher.is_some())
        });
        if !more.await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::Names;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn target(dir: &Path, names: Names) -> Target<()> {
        Target { dir: dir.to_owned(), names, tag: () }
    }

    /// The inotify instances of this process that watch a directory.
    fn instances(dir: &Path) -> usize {
        use std::os::unix::fs::MetadataExt as _;
        let inode = format!(" ino:{:x} ", fs::metadata(dir).unwrap().ino());
        let infos = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
        let texts = infos.filter_map(|info| fs::read_to_string(info.path()).ok());
        texts.filter(|text| text.contains("inotify wd:") && text.contains(&inode)).count()
    }

    #[tokio::test]
    async fn one_instance_serves_all_and_wakes_whom_it_concerns() {
        let (shared, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hub = Hub::default();
        let mut subscriptions: Vec<Subscription> =
            (0..5).map(|_| hub.subscribe(vec![target(shared.path(), Names::All)])).collect();
        let named = vec![target(shared.path(), Names::Is("x".to_owned())), target(own.path(), Names::All)];
        let mut alone = hub.subscribe(named);
        assert_eq!((instances(shared.path()), instances(own.path())), (1, 1));
        fs::write(shared.path().join("a"), "").unwrap();
        for subscription in &mut subscriptions {
            tokio::time::timeout(PATIENCE, subscription.changed(Duration::MAX)).await.expect("an event");
        }
        // The file is none of its own; the next one is.
        {
            let mut early = pin!(alone.changed(Duration::MAX));
            assert!(futures::poll!(&mut early).is_pending());
            fs::write(own.path().join("b"), "").unwrap();
            tokio::time::timeout(PATIENCE, early).await.expect("an event");
        }
        drop(subscriptions);
        assert_eq!(instances(own.path()), 1);
        fs::write(own.path().join("c"), "").unwrap();
        tokio::time::timeout(PATIENCE, alone.changed(Duration::MAX)).await.expect("an event");
        drop(alone);
        assert_eq!((instances(shared.path()), instances(own.path())), (0, 0));
        // A subscriber that comes after all have gone gets events again.
        let mut late = hub.subscribe(vec![target(own.path(), Names::All)]);
        fs::write(own.path().join("d"), "").unwrap();
        tokio::time::timeout(PATIENCE, late.changed(Duration::MAX)).await.expect("an event");
    }

    /// A directory that cannot be watched, here because of an impossible name, is polled, and keeps events from no
    /// other.
    #[tokio::test]
    async fn without_events_there_is_a_look_each_second() {
        let hub = Hub::default();
        let folder = tempfile::tempdir().unwrap();
        let mut polled = hub.subscribe(vec![target(&Path::new("/").join("x".repeat(300)), Names::All)]);
        let mut watched = hub.subscribe(vec![target(folder.path(), Names::All)]);
        let looks = tokio::time::timeout(PATIENCE, polled.changed(Duration::MAX)).await;
        assert!(looks.is_ok(), "it does not wait for ever");
        fs::write(folder.path().join("a"), "").unwrap();
        tokio::time::timeout(PATIENCE, watched.changed(Duration::MAX)).await.expect("an event");
    }
}
