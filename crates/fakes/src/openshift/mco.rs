//! A fake of the Machine Config Operator, which rolls out when and as far as a test wants.
//!
//! In: the nodes, MachineConfigPools, MachineConfigs and KubeletConfigs of an API server, its APIServer and Scheduler
//! objects, and a behaviour for each pool. Out: pools whose `spec.configuration` names all that their machines shall
//! have; nodes that get it, a few at a time, with their annotations; the status of pools and KubeletConfigs. With
//! [`Machines`] nodes are cordoned, drained and rebooted, and their kubelets run with what KubeletConfigs and TLS
//! profile say. Never: a wait: the next step comes as soon as the last one is seen, unless the pool is held.

mod daemon;
mod kubelet_config;
mod machine;
mod machine_pool;
mod machines;
mod plan;
mod rendered;
#[cfg(test)]
mod tests;
mod tls;
mod world;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use futures::stream::{SelectAll, select_all};
use jiff::Timestamp;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use self::daemon::Daemon;
pub use self::machines::Machines;
use self::plan::{Memory, Step, Write, steps};
use self::rendered::Rendered;
use self::world::{Kind, World};

/// Who writes.
const MANAGER: &str = "machine-config-controller";

/// How long it waits after something that the API server refused.
const AGAIN: Duration = Duration::from_millis(50);

/// The fake operator; dropping it ends it, and pools and machines stay as they are.
pub struct Mco {
    client: Client,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// How the fake treats a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolBehaviour {
    /// What its machines shall have is rolled out, unless it is paused.
    #[default]
    RollOut,
    /// It is updating, and stays so.
    Hold,
    /// One of its machines fails; nothing goes on.
    Degrade,
}

/// What the task and its owner share.
#[derive(Debug, Default)]
struct Shared {
    memory: Mutex<Memory>,
    told: Notify,
}

type Events = BoxStream<'static, (Kind, watcher::Result<Event<DynamicObject>>)>;

/// The task.
struct Controller {
    client: Client,
    machines: Option<Arc<dyn Machines>>,
    shared: Arc<Shared>,
    world: World,
    daemons: JoinSet<(String, Option<DynamicObject>, bool)>,
}

impl Mco {
    /// Starts it where nodes have no machines of the test's: only objects change. Every pool is rolled out until its
    /// behaviour is changed.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        Self::begin(client, None)
    }

    /// Starts it where it changes machines too: the kubelets of a [`testkit::cluster::Cluster`], for instance. Nodes
    /// reboot once at the beginning, all together: they get the TLS profile and what KubeletConfigs say.
    #[must_use]
    pub fn start_with(client: &Client, machines: Arc<dyn Machines>) -> Self {
        Self::begin(client, Some(machines))
    }

    fn begin(client: &Client, machines: Option<Arc<dyn Machines>>) -> Self {
        let shared = Arc::new(Shared::default());
        let controller = Controller {
            client: client.clone(),
            machines,
            shared: shared.clone(),
            world: World::default(),
            daemons: JoinSet::new(),
        };
        Self { client: client.clone(), shared, task: tokio::spawn(controller.run()) }
    }

    /// Sets the behaviour of a pool from now on.
    pub fn set_behaviour(&self, pool: &str, behaviour: PoolBehaviour) {
        self.shared.memory().behaviour.insert(pool.to_owned(), behaviour);
        self.shared.told.notify_one();
    }

    /// Waits until nothing is left to do for the behaviours that are set.
    ///
    /// # Errors
    /// When `within` has passed without, or the API server does not answer.
    pub async fn settled(&self, within: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let world = World::list(&self.client).await?;
            // The task's own may know more by now than this list.
            let mut memory = self.shared.memory().clone();
            let left = steps(&world, &mut memory, Timestamp::now());
            if left.is_empty() && memory.at_work.is_empty() {
                return Ok(());
            }
            let at_work = &memory.at_work;
            anyhow::ensure!(began.elapsed() < within, "at work is still {at_work:?}, and left {left:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl fmt::Debug for Mco {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mco").field("memory", &*self.shared.memory()).finish_non_exhaustive()
    }
}

impl Drop for Mco {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller {
    async fn run(mut self) {
        let mut events = watch(&self.client);
        let (mut is_whole, mut again) = (false, false);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some((kind, Ok(event))) => is_whole = self.world.note(kind, event),
                    Some((kind, Err(error))) => {
                        tracing::warn!(?kind, %error, "the fake MCO cannot watch");
                        tokio::time::sleep(AGAIN).await;
                    }
                    None => return,
                },
                Some(daemon) = self.daemons.join_next() => match daemon {
                    Ok((node, object, is_done)) => self.end(&node, object, is_done),
                    Err(error) => tracing::warn!(%error, "a node of the fake MCO is lost"),
                },
                () = self.shared.told.notified() => {}
                () = tokio::time::sleep(AGAIN), if again => {}
            }
            if is_whole {
                again = self.act().await;
            }
        }
    }

    /// Takes all steps that can be taken now; says whether one was refused.
    async fn act(&mut self) -> bool {
        loop {
            let steps = steps(&self.world, &mut self.shared.memory(), Timestamp::now());
            let mut is_new = false;
            for step in steps {
                match step {
                    Step::Configure { node, config } => self.configure(node, config),
                    Step::Write(write) => match self.write(&write).await {
                        Ok(object) => self.world.put(write.kind, object),
                        Err(error) => {
                            tracing::debug!(?write, %error, "the fake MCO could not write");
                            return true;
                        }
                    },
                }
                is_new = true;
            }
            if !is_new {
                return false;
            }
        }
    }

    async fn write(&self, write: &Write) -> kube::Result<DynamicObject> {
        let api = write.kind.api(&self.client);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(&write.patch);
        match write.is_status {
            true => api.patch_status(&write.name, &params, &patch).await,
            false => api.patch(&write.name, &params, &patch).await,
        }
    }

    fn configure(&mut self, node: String, config: Rendered) {
        self.shared.memory().at_work.insert(node.clone(), config.name.clone());
        let daemon = Daemon { client: self.client.clone(), machines: self.machines.clone(), node };
        self.daemons.spawn(async move {
            let (object, done) = daemon.configure(&config).await;
            if let Err(error) = &done {
                tracing::warn!(node = daemon.node, error = format!("{error:#}"), "a node is degraded");
            }
            (daemon.node, object, done.is_ok())
        });
    }

    /// A node has what it was to get, or cannot have it.
    fn end(&mut self, node: &str, object: Option<DynamicObject>, is_done: bool) {
        if let Some(object) = object {
            self.world.put(Kind::Node, object);
        }
        let mut memory = self.shared.memory();
        if let Some(config) = memory.at_work.remove(node).filter(|_| !is_done) {
            memory.failed.insert(node.to_owned(), config);
        } else {
            memory.failed.remove(node);
        }
    }
}

/// All events of all kinds.
fn watch(client: &Client) -> SelectAll<Events> {
    let of = |kind: Kind| {
        watcher(kind.api(client), watcher::Config::default()).map(move |event| (kind, event)).boxed()
    };
    select_all(Kind::ALL.map(of))
}
