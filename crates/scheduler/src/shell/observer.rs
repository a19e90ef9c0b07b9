//! A core that follows a cluster, or has the objects of a dump, and answers questions.
//!
//! In: an API server's objects by watches, or a dump; questions. Out: answers, also those of `explain` and `capacity`.
//! Never: a decision, a write to the cluster, an answer before all first lists.
//!
//! The thread that owns the core answers one question after the other; objects that came before a question count.

use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use runtime::client::{self, Connection};
use runtime::page_reclaim;
use runtime::ready::Readiness;
use runtime::shutdown::Tasks;
use runtime::watch;
use serde_json::Value;
use tokio::sync::oneshot;

use super::event_loop::{CoreCall, EventLoop, Input};
use super::intake::Intake;
use super::snapshot::Snapshot;
use super::watches::Watches;
use crate::capacity::{self, Capacity};
use crate::core::{Core, Settings};
use crate::explain::target_pod::TargetPod;
use crate::explain::{self, Explanation};
use crate::metrics::Metrics;

/// The most pods of a shape that are counted on a node.
pub const MAX_COUNTED: usize = 10_000;
/// The time limit for reading a pod.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The watches of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedKinds {
    /// Pods, nodes and reports.
    Zones,
    /// All that a scheduler follows.
    All,
}

/// A core that can be asked. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Observer {
    inputs: Sender<Input>,
    synced: Readiness,
    settings: Arc<Settings>,
    objects: PodObjects,
}

/// Where the objects of pods are, of which the core has only what counts.
#[derive(Clone)]
enum PodObjects {
    /// At the API server.
    Cluster(Client),
    /// Those without a node, by namespace and name.
    Dump(Arc<BTreeMap<(String, String), Value>>),
}

impl Debug for PodObjects {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("PodObjects")
    }
}

impl Observer {
    /// Follows a cluster as long as the tasks run.
    ///
    /// # Errors
    /// When a watch or the thread cannot be started.
    pub fn of_cluster(
        settings: Settings,
        kinds: WatchedKinds,
        connection: &Connection,
        (tasks, registry): (&mut Tasks, &mut Registry),
    ) -> anyhow::Result<Self> {
        let metrics = Metrics::register(registry);
        let watch_metrics = watch::Metrics::register(registry);
        let synced = Readiness::default();
        let gate = synced.gate("watches");
        let (inputs, receiver) = std::sync::mpsc::channel();
        let watches = Watches::new(tasks, connection, &watch_metrics, &inputs);
        let watches = match kinds {
            WatchedKinds::Zones => watches.spawn_for_zones(&metrics)?,
            WatchedKinds::All => watches.spawn(&metrics, settings.places_gangs())?,
        };
        let objects = PodObjects::Cluster(connection.client_with_timeout(READ_TIMEOUT)?);
        let core = Core::new(settings.clone());
        let event_loop = EventLoop::observing(core, Intake::new(watches), metrics);
        super::spawn_waker(tasks, None, inputs.clone());
        let token = tasks.token().clone();
        let ended = super::spawn_thread(event_loop, receiver, None, gate, token)?;
        tasks.spawn_draining("core", ended);
        Ok(Self { inputs, synced, settings: Arc::new(settings), objects })
    }

    /// Has the objects of a dump, as if it had been taken at this time.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn of_snapshot(
        settings: Settings,
        mut snapshot: Snapshot,
        now_ms: u64,
    ) -> anyhow::Result<Self> {
        let (inputs, receiver) = std::sync::mpsc::channel();
        let objects = PodObjects::Dump(Arc::new(std::mem::take(&mut snapshot.waiting)));
        let known = settings.clone();
        let answer = move || {
            let mut core = snapshot.into_core(known, now_ms);
            // What was read is far more than what is kept.
            page_reclaim::trim_heap();
            for input in receiver {
                if let Input::Call(call) = input {
                    call.run(&mut core, now_ms);
                }
            }
        };
        let thread = std::thread::Builder::new().name("core".to_owned()).stack_size(super::STACK);
        thread.spawn(answer).context("starting a thread")?;
        Ok(Self { inputs, synced: Readiness::default(), settings: Arc::new(settings), objects })
    }

    /// Whether all first lists are there.
    ///
    /// # Errors
    /// The watches that have not delivered yet.
    pub fn check(&self) -> Result<(), String> {
        self.synced.check()
    }

    /// Asks the core, with the time in milliseconds since the epoch.
    ///
    /// # Errors
    /// While first lists are missing, and at the end of the process.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core, u64) -> T + Send + 'static,
    ) -> Result<T, String> {
        self.check()?;
        let (sender, answer) = oneshot::channel();
        let call = move |core: &mut Core, now_ms| drop(sender.send(question(core, now_ms)));
        let gone = |_| "the process is ending".to_owned();
        self.inputs.send(Input::Call(CoreCall::from(Box::new(call)))).map_err(|_| gone(()))?;
        answer.await.map_err(|_| gone(()))
    }

    /// Whether the API server answers; a dump always does. Takes no right but that to ask for the version, which all
    /// have.
    ///
    /// # Errors
    /// Why not.
    pub async fn ping(&self) -> Result<(), String> {
        match &self.objects {
            PodObjects::Dump(_) => Ok(()),
            PodObjects::Cluster(client) => {
                client.apiserver_version().await.map(drop).map_err(|error| client::brief(&error))
            }
        }
    }

    /// What a scheduler would say about a pod that waits.
    ///
    /// # Errors
    /// When there is no such pod, or it cannot be asked about.
    pub async fn explain(&self, namespace: &str, name: &str) -> anyhow::Result<Explanation> {
        let object = match &self.objects {
            PodObjects::Dump(pods) => pods.get(&(namespace.to_owned(), name.to_owned())).cloned(),
            PodObjects::Cluster(client) => {
                let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
                let pod = pods.get_opt(name).await.map_err(|error| anyhow!(client::brief(&error)))?;
                pod.map(|pod| serde_json::to_value(&pod)).transpose()?
            }
        };
        let object = object.with_context(|| format!("there is no pod {namespace}/{name} that waits"))?;
        let mut target = TargetPod::of_cluster(object).map_err(anyhow::Error::msg)?;
        let profile = target.choose_profile(&self.settings)?;
        let question = |core: &mut Core, now_ms| explain::ask(core, profile, target, now_ms);
        let answer = self.ask(question).await.map_err(anyhow::Error::msg)?;
        answer.map(|(explanation, _)| explanation)
    }

    /// How many more pods of a shape such as `cpu=4,memory=8Gi` fit, at most [`MAX_COUNTED`] on a node.
    ///
    /// # Errors
    /// The part of the shape that is wrong.
    pub async fn capacity(&self, shape: String) -> anyhow::Result<Capacity> {
        let first = self.settings.profiles.first().context("the configuration has no profile")?;
        let scheduler = Arc::clone(&first.name);
        let question =
            move |core: &mut Core, now_ms| capacity::of_shape(core, &shape, &scheduler, MAX_COUNTED, now_ms);
        self.ask(question).await.map_err(anyhow::Error::msg)?
    }
}
