//! The fake itself: it runs on its own, or a step at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster_state::{ClusterState, Kind, events};
use super::decide::next;
use super::script::Script;
use super::write::{InUse, Write};

/// How long to wait before what was refused is tried again, when nothing happens meanwhile.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The fake. Dropping it ends it, and objects stay as they are.
pub struct Kmm {
    client: Client,
    script: watch::Sender<Script>,
    notes: Arc<Mutex<Notes>>,
    task: Option<JoinHandle<()>>,
}

/// What it did so far.
#[derive(Debug, Default)]
struct Notes {
    writes: Vec<String>,
    unloaded_in_use: Vec<String>,
}

impl Kmm {
    /// A fake that runs on its own, without faults until its script is changed.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        Self::start_with(client, Script::default())
    }

    /// A fake that runs on its own by this script.
    #[must_use]
    pub fn start_with(client: &Client, script: Script) -> Self {
        let mut fake = Self::paused(client);
        let _ = fake.script.send_replace(script);
        let (script, notes) = (fake.script.subscribe(), Arc::clone(&fake.notes));
        fake.task = Some(tokio::spawn(run(client.clone(), script, notes)));
        fake
    }

    /// A fake that does nothing but what [`Kmm::step`] asks for.
    #[must_use]
    pub fn paused(client: &Client) -> Self {
        let script = watch::Sender::new(Script::default());
        Self { client: client.clone(), script, notes: Arc::default(), task: None }
    }

    /// Changes the script.
    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        self.script.send_modify(change);
    }

    /// Does the next thing there is to do, if there is one; says what it was.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses it.
    pub async fn step(&self) -> anyhow::Result<Option<String>> {
        let state = ClusterState::list(&self.client).await?;
        let script = self.script.borrow().clone();
        let Some(write) = next(&state, &script).into_iter().next() else { return Ok(None) };
        let in_use = write.pods_in_use(&self.client).await?;
        write.run(&self.client).await?;
        note(&self.notes, &write, &in_use);
        Ok(Some(write.to_string()))
    }

    /// Waits until nothing is left to do by the script.
    ///
    /// # Errors
    /// When `within` has passed without, or the API server does not answer.
    pub async fn settled(&self, within: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let script = self.script.borrow().clone();
            let left = next(&ClusterState::list(&self.client).await?, &script);
            let Some(first) = left.first() else { return Ok(()) };
            anyhow::ensure!(began.elapsed() < within, "{} things are left to do, first: {first}", left.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What it has done so far, a line for each write.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        lock(&self.notes).writes.clone()
    }

    /// Each time a module was unloaded under a pod that had one of the [devices](Script::devices) on the same node.
    #[must_use]
    pub fn unloaded_in_use(&self) -> Vec<String> {
        lock(&self.notes).unloaded_in_use.clone()
    }
}

impl fmt::Debug for Kmm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kmm").field("script", &*self.script.borrow()).finish_non_exhaustive()
    }
}

impl Drop for Kmm {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn run(client: Client, mut script: watch::Receiver<Script>, notes: Arc<Mutex<Notes>>) {
    let mut events = events(&client);
    let mut state = ClusterState::default();
    loop {
        // All events that are there are read before anything is decided.
        while let Some(event) = events.next().now_or_never() {
            let Some(event) = event else { return };
            apply_event(&mut state, event);
        }
        let is_refused = state.is_whole() && !write_due(&client, &mut state, &mut script, &notes).await;
        tokio::select! {
            event = events.next() => match event {
                Some(event) => apply_event(&mut state, event),
                None => return,
            },
            changed = script.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN_AFTER), if is_refused => {}
        }
    }
}

fn apply_event(state: &mut ClusterState, (kind, event): (Kind, watcher::Result<Event<DynamicObject>>)) {
    match event {
        Ok(event) => state.note(kind, event),
        Err(error) if is_absent(&error) => state.forget(kind),
        Err(error) => tracing::warn!(?kind, %error, "the fake of KMM cannot watch"),
    }
}

/// Does what is due now; says whether all of it went through.
async fn write_due(
    client: &Client,
    state: &mut ClusterState,
    script: &mut watch::Receiver<Script>,
    notes: &Mutex<Notes>,
) -> bool {
    let script = script.borrow_and_update().clone();
    let mut all = true;
    for write in next(state, &script) {
        let in_use = write.pods_in_use(client).await.unwrap_or_else(|_| write.unloaded_in_use.clone());
        match write.run(client).await {
            Ok(object) => {
                note(notes, &write, &in_use);
                if let Some(object) = object {
                    state.put(write.kind, object);
                }
            }
            Err(error) => {
                // Another writer was first, or the object is gone.
                tracing::debug!(%error, "the fake of KMM could not write");
                all = false;
            }
        }
    }
    all
}

fn is_absent(error: &watcher::Error) -> bool {
    let of = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => of(error),
        watcher::Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}

fn note(notes: &Mutex<Notes>, write: &Write, in_use: &[InUse]) {
    let mut notes = lock(notes);
    notes.writes.push(write.to_string());
    notes.unloaded_in_use.extend(in_use.iter().map(ToString::to_string));
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}
