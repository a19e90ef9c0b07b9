//! The double at work: by itself, or a step at a time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::decide::next;
use super::told::Told;
use super::world::{Kind, World, events};
use super::write::Write;

/// How long to wait before what was refused is tried again, when nothing happens meanwhile.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The double. Dropping it ends it, and objects stay as they are.
pub struct Kmm {
    client: Client,
    told: watch::Sender<Told>,
    notes: Arc<Mutex<Notes>>,
    task: Option<JoinHandle<()>>,
}

/// What it did so far.
#[derive(Debug, Default)]
struct Notes {
    writes: Vec<String>,
    pulled: Vec<String>,
}

impl Kmm {
    /// One that works by itself, as far as it is told; at first it is told to do everything well.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        Self::start_with(client, Told::default())
    }

    /// One that works by itself, told so from the beginning.
    #[must_use]
    pub fn start_with(client: &Client, told: Told) -> Self {
        let mut double = Self::held(client);
        let _ = double.told.send_replace(told);
        let (told, notes) = (double.told.subscribe(), Arc::clone(&double.notes));
        double.task = Some(tokio::spawn(run(client.clone(), told, notes)));
        double
    }

    /// One that does nothing but what [`Kmm::step`] asks for.
    #[must_use]
    pub fn held(client: &Client) -> Self {
        let told = watch::Sender::new(Told::default());
        Self { client: client.clone(), told, notes: Arc::default(), task: None }
    }

    /// Changes what it is told.
    pub fn tell(&self, change: impl FnOnce(&mut Told)) {
        self.told.send_modify(change);
    }

    /// Does the next thing there is to do, if there is one; says what it was.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses it.
    pub async fn step(&self) -> anyhow::Result<Option<String>> {
        let world = World::list(&self.client).await?;
        let told = self.told.borrow().clone();
        let Some(write) = next(&world, &told).into_iter().next() else { return Ok(None) };
        write.run(&self.client).await?;
        note(&self.notes, &write);
        Ok(Some(write.to_string()))
    }

    /// Waits until nothing is left to be done, as it was told.
    ///
    /// # Errors
    /// When `within` has passed without, or the API server does not answer.
    pub async fn settled(&self, within: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let told = self.told.borrow().clone();
            let left = next(&World::list(&self.client).await?, &told);
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

    /// Each time a module was unloaded under a pod that had one of the [devices](Told::devices) on the same node.
    #[must_use]
    pub fn pulled(&self) -> Vec<String> {
        lock(&self.notes).pulled.clone()
    }
}

impl fmt::Debug for Kmm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kmm").field("told", &*self.told.borrow()).finish_non_exhaustive()
    }
}

impl Drop for Kmm {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn run(client: Client, mut told: watch::Receiver<Told>, notes: Arc<Mutex<Notes>>) {
    let mut events = events(&client);
    let mut world = World::default();
    loop {
        // What has happened is heard before anything is decided.
        while let Some(event) = events.next().now_or_never() {
            let Some(event) = event else { return };
            hear(&mut world, event);
        }
        let is_refused = world.is_whole() && !work(&client, &mut world, &mut told, &notes).await;
        tokio::select! {
            event = events.next() => match event {
                Some(event) => hear(&mut world, event),
                None => return,
            },
            changed = told.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN_AFTER), if is_refused => {}
        }
    }
}

fn hear(world: &mut World, (kind, event): (Kind, watcher::Result<Event<DynamicObject>>)) {
    match event {
        Ok(event) => world.note(kind, event),
        Err(error) if is_absent(&error) => world.forget(kind),
        Err(error) => tracing::warn!(?kind, %error, "the double of KMM cannot watch"),
    }
}

/// Does what is due now; says whether all of it went through.
async fn work(
    client: &Client,
    world: &mut World,
    told: &mut watch::Receiver<Told>,
    notes: &Mutex<Notes>,
) -> bool {
    let told = told.borrow_and_update().clone();
    let mut all = true;
    for write in next(world, &told) {
        match write.run(client).await {
            Ok(object) => {
                note(notes, &write);
                if let Some(object) = object {
                    world.put(write.kind, object);
                }
            }
            Err(error) => {
                // Somebody else was first, or it is gone.
                tracing::debug!(%error, "the double of KMM could not write");
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

fn note(notes: &Mutex<Notes>, write: &Write) {
    let mut notes = lock(notes);
    notes.writes.push(write.to_string());
    notes.pulled.extend(write.pulled.iter().cloned());
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}
