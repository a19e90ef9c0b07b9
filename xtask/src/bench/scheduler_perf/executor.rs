//! Runs the operations of a workload on a control plane with one scheduler.
//!
//! In: a plan. Out: a measurement for each operation or stretch that collects metrics. Waits, names and their order
//! are those of upstream's `scheduler_perf`; nodes are made several at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::Client;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::process_group::Process;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::config::Plan;
use super::objects::{self, BoundVolume, Template, Templates};
use super::operations::{
    Barrier, Churn, ChurnMode, CreateAny, CreateNamespaces, CreateNodes, CreatePods, CreateResourceDriver,
    DeletePods, Operation, Stage, UpdateAny,
};
use super::pods::{Measurement, Pods, Selector};
use super::server::{Place, Server, calls};
use super::template::Position;
use crate::bench::schedule::cpu_s;

/// How often upstream looks whether pods have been scheduled. A measurement ends with such a look.
const LOOK: Duration = Duration::from_secs(1);
/// How long no pod may be scheduled before a wait gives up.
const STALLED: Duration = Duration::from_secs(60);
/// The interval of a churn that names none.
const CHURN: Duration = Duration::from_millis(500);

/// A measurement and what the scheduler spent meanwhile.
pub(super) struct Result {
    pub(super) measurement: Measurement,
    /// Seconds of the processor.
    pub(super) cpu_s: f64,
}

/// The state of a workload.
struct Executor<'a> {
    server: Server,
    scheduler: &'a Process,
    templates: Templates,
    default_pod: Template,
    pods: Pods,
    /// Pods that a barrier waits for, by namespace; every namespace that was made is there.
    expected: BTreeMap<String, usize>,
    nodes: usize,
    /// Ends with the workload.
    background: JoinSet<anyhow::Result<()>>,
    cpu_before: f64,
    results: Vec<Result>,
}

/// Runs a plan.
pub(super) async fn execute(plan: &Plan, client: Client, scheduler: &Process) -> anyhow::Result<Vec<Result>> {
    let mut templates = Templates::of(plan.folder.clone());
    let default_pod = match &plan.default_pod_template {
        Some(path) => templates.get(path)?,
        None => objects::base_pod(),
    };
    let mut executor = Executor {
        pods: Pods::watch(&client),
        server: Server::new(client),
        scheduler,
        templates,
        default_pod,
        expected: BTreeMap::new(),
        nodes: 0,
        background: JoinSet::new(),
        cpu_before: 0.0,
        results: Vec::new(),
    };
    for (number, operation) in plan.operations.iter().enumerate() {
        executor.run(number, operation).await.with_context(|| format!("operation {number}"))?;
        while let Some(ended) = executor.background.try_join_next() {
            ended?.context("in the background")?;
        }
    }
    Ok(executor.results)
}

impl Executor<'_> {
    async fn run(&mut self, number: usize, operation: &Operation) -> anyhow::Result<()> {
        match operation {
            Operation::CreateNodes(nodes) => self.create_nodes(number, nodes).await,
            Operation::CreateNamespaces(namespaces) => self.create_namespaces(namespaces).await,
            Operation::CreatePods(pods) => self.create_pods(number, pods).await,
            Operation::CreatePodSets(_) => bail!("createPodSets was not resolved"),
            Operation::DeletePods(pods) => self.delete_pods(pods).await,
            Operation::CreateAny(any) => self.create_any(any).await,
            Operation::UpdateAny(any) => self.update_any(any).await,
            Operation::CreateResourceDriver(driver) => self.create_resource_driver(driver).await,
            Operation::Churn(churn) => self.churn(number, churn).await,
            Operation::Barrier(barrier) => self.barrier(barrier).await,
            Operation::Sleep(sleep) => {
                tokio::time::sleep(sleep.duration).await;
                Ok(())
            }
            Operation::StartCollectingMetrics(start) => {
                self.measure(&start.name, start.namespaces.clone(), start.label_selector.clone())
            }
            Operation::StopCollectingMetrics {} => self.measured(),
        }
    }

    async fn create_nodes(&mut self, number: usize, operation: &CreateNodes) -> anyhow::Result<()> {
        let template = match &operation.node_template_path {
            Some(path) => self.templates.get(path)?,
            None => objects::base_node(&format!("node-{number}-")),
        };
        let (server, first, count) = (&self.server, self.nodes, operation.count);
        calls(count, |index| {
            let made = objects::node(&template, operation, first + index, Position { index, count });
            async move {
                let (name, node) = made?;
                server.create(&node, "").await?;
                if let Some(csi_node) = objects::csi_node(operation, &name) {
                    server.create(&csi_node, "").await?;
                }
                Ok(())
            }
        })
        .await?;
        self.nodes += count;
        Ok(())
    }

    async fn create_namespaces(&mut self, operation: &CreateNamespaces) -> anyhow::Result<()> {
        let template = match &operation.namespace_template_path {
            Some(path) => self.templates.get(path)?.object(Position { index: 0, count: 1 })?,
            None => json!({}),
        };
        for at in 0..operation.count {
            let name = format!("{}-{at}", operation.prefix);
            self.server.create_namespace(&name, template.clone()).await?;
            self.expected.entry(name).or_insert(0);
        }
        Ok(())
    }

    async fn need_namespace(&mut self, name: &str) -> anyhow::Result<()> {
        if !self.expected.contains_key(name) {
            self.server.create_namespace(name, json!({})).await?;
            self.expected.insert(name.to_owned(), 0);
        }
        Ok(())
    }

    async fn create_pods(&mut self, number: usize, operation: &CreatePods) -> anyhow::Result<()> {
        let namespace = operation.namespace.clone().unwrap_or_else(|| format!("namespace-{number}"));
        self.need_namespace(&namespace).await?;
        let batch = self.batch(&namespace, operation)?;
        if operation.collect_metrics {
            self.measure(&namespace, vec![namespace.clone()], Selector::new())?;
        }
        if operation.steady_state {
            self.create_pods_steadily(&batch, operation).await?;
        } else {
            batch.create(&self.server).await?;
            if operation.skip_wait_to_completion {
                *self.expected.entry(namespace).or_insert(0) += operation.count;
            } else {
                let all = Selector::new();
                self.wait(&namespace, &all, operation.count, Stage::Scheduled).await?;
            }
        }
        if operation.collect_metrics { self.measured() } else { Ok(()) }
    }

    fn batch(&mut self, namespace: &str, operation: &CreatePods) -> anyhow::Result<Batch> {
        let pod = match &operation.pod_template_path {
            Some(path) => self.templates.get(path)?,
            None => self.default_pod.clone(),
        };
        let volume = match &operation.persistent_volume_claim_template_path {
            Some(claim) => {
                let volume = operation.persistent_volume_template_path.as_ref();
                let volume = volume.context("a claim without a volume")?;
                Some((self.templates.get(volume)?, self.templates.get(claim)?))
            }
            None => None,
        };
        Ok(Batch { namespace: namespace.to_owned(), count: operation.count, pod, volume })
    }

    /// Makes a batch whenever the former has been scheduled, and deletes that, until the time is over.
    async fn create_pods_steadily(&self, batch: &Batch, operation: &CreatePods) -> anyhow::Result<()> {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod" });
        let place = self.server.place(&pod, &batch.namespace).await?;
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::background() };
        let steadily = async {
            loop {
                batch.create(&self.server).await?;
                let all = Selector::new();
                while self.pods.count(&batch.namespace, &all, Stage::Scheduled) < batch.count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                self.server.delete_all(&place, "", &now).await?;
                while !self.pods.names(&batch.namespace, &all).is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::time::timeout(operation.duration, steadily).await.unwrap_or(Ok(()))
    }

    async fn delete_pods(&mut self, operation: &DeletePods) -> anyhow::Result<()> {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod" });
        let place = self.server.place(&pod, &operation.namespace).await?;
        let names = self.pods.names(&operation.namespace, &operation.label_selector);
        let (server, selector) = (self.server.clone(), operation.label_selector.clone());
        let per_second = operation.delete_pods_per_second;
        let delete = async move {
            if per_second == 0 {
                let labels: Vec<String> =
                    selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
                return server.delete_all(&place, &labels.join(","), &DeleteParams::default()).await;
            }
            let mut ticks = ticks(Duration::from_secs(1) / per_second).await;
            for name in names {
                ticks.tick().await;
                server.delete(&place, &name).await?;
            }
            Ok(())
        };
        if operation.skip_wait_to_completion {
            self.background.spawn(delete);
            return Ok(());
        }
        delete.await
    }

    async fn create_any(&mut self, operation: &CreateAny) -> anyhow::Result<()> {
        let namespace = operation.namespace.clone().unwrap_or_default();
        if !namespace.is_empty() {
            self.need_namespace(&namespace).await?;
        }
        let template = self.templates.get(&operation.template_path)?;
        let (server, count) = (&self.server, operation.count);
        calls(count, |index| {
            let (object, namespace) = (any(&template, Position { index, count }), &namespace);
            async move { server.create(&object?, namespace).await.map(drop) }
        })
        .await
    }

    async fn update_any(&mut self, operation: &UpdateAny) -> anyhow::Result<()> {
        let namespace = operation.namespace.clone().unwrap_or_default();
        let template = self.templates.get(&operation.template_path)?;
        let count = operation.count;
        let mut ticks = match operation.update_per_second {
            0 => None,
            rate => Some(ticks(Duration::from_secs(1) / rate).await),
        };
        for index in 0..count {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            let object = any(&template, Position { index, count })?;
            let part = operation.subresources.first().map(String::as_str);
            self.server.replace(&object, &namespace, part).await?;
            self.server.replace(&object, &namespace, Some("status")).await?;
        }
        Ok(())
    }

    async fn create_resource_driver(&self, operation: &CreateResourceDriver) -> anyhow::Result<()> {
        let node = json!({ "apiVersion": "v1", "kind": "Node" });
        let mut nodes = self.server.names(&self.server.place(&node, "").await?).await?;
        nodes.retain(|node| objects::name_matches(&operation.nodes, node));
        let (server, nodes) = (&self.server, &nodes);
        calls(nodes.len(), |at| async move {
            let node = nodes.get(at).context("no node")?;
            let slice = objects::resource_slice(&operation.driver_name, node, operation.max_claims_per_node);
            server.create(&slice, "").await.map(drop)
        })
        .await
    }

    async fn churn(&mut self, number: usize, operation: &Churn) -> anyhow::Result<()> {
        let namespace = operation.namespace.clone().unwrap_or_else(|| format!("namespace-{number}"));
        self.server.create_namespace(&namespace, json!({})).await?;
        let mut churned = Vec::new();
        for path in &operation.template_paths {
            let template = self.templates.get(path)?;
            let object = any(&template, Position { index: 0, count: 1 })?;
            churned.push((self.server.place(&object, &namespace).await?, object));
        }
        let server = self.server.clone();
        let (mode, number) = (operation.mode, operation.number);
        anyhow::ensure!(mode == ChurnMode::Create || number > 0, "a churn that recreates needs a number");
        let every = match operation.interval_milliseconds {
            0 => CHURN,
            interval => Duration::from_millis(interval),
        };
        self.background.spawn(async move {
            let mut ticks = ticks(every).await;
            match mode {
                ChurnMode::Create => create_for_ever(&server, &namespace, &churned, number, &mut ticks).await,
                ChurnMode::Recreate => recreate(&server, &namespace, &churned, number, &mut ticks).await,
            }
        });
        Ok(())
    }

    async fn barrier(&mut self, operation: &Barrier) -> anyhow::Result<()> {
        let namespaces = if operation.namespaces.is_empty() {
            self.expected.keys().cloned().collect()
        } else {
            operation.namespaces.clone()
        };
        for namespace in &namespaces {
            let count =
                *self.expected.get(namespace).with_context(|| format!("unknown namespace {namespace}"))?;
            self.wait(namespace, &operation.label_selector, count, operation.stage_requirement).await?;
        }
        if operation.stage_requirement == Stage::Scheduled {
            self.expected.retain(|namespace, _| !namespaces.contains(namespace));
        }
        Ok(())
    }

    /// Looks each second until so many pods of a namespace have reached a stage.
    async fn wait(
        &self,
        namespace: &str,
        selector: &Selector,
        count: usize,
        stage: Stage,
    ) -> anyhow::Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let reached = self.pods.count(namespace, selector, stage);
            if reached >= count {
                return Ok(());
            }
            if reached > last {
                (last, since) = (reached, Instant::now());
            }
            anyhow::ensure!(
                since.elapsed() < STALLED,
                "{reached} of {count} pods in {namespace} are {stage:?}, and none more for {} s",
                STALLED.as_secs()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    fn measure(&mut self, name: &str, namespaces: Vec<String>, selector: Selector) -> anyhow::Result<()> {
        self.cpu_before = cpu_s(self.scheduler)?;
        self.pods.measure(name, namespaces, selector)
    }

    fn measured(&mut self) -> anyhow::Result<()> {
        let measurement = self.pods.measured()?;
        let cpu_s = cpu_s(self.scheduler)? - self.cpu_before;
        self.results.push(Result { measurement, cpu_s });
        Ok(())
    }
}

/// Pods that are made together.
struct Batch {
    namespace: String,
    count: usize,
    pod: Template,
    /// Templates of a volume and its claim for each pod.
    volume: Option<(Template, Template)>,
}

impl Batch {
    async fn create(&self, server: &Server) -> anyhow::Result<()> {
        calls(self.count, |index| self.create_one(server, index)).await
    }

    async fn create_one(&self, server: &Server, index: usize) -> anyhow::Result<()> {
        let position = Position { index, count: self.count };
        let mut pod = objects::pod(self.pod.object_of("Pod", position)?)?;
        if let Some((volume, claim)) = &self.volume {
            let volume = volume.object_of("PersistentVolume", position)?;
            let claim = claim.object_of("PersistentVolumeClaim", position)?;
            let bound = BoundVolume::new(volume, claim, &self.namespace, index)?;
            let BoundVolume { claim, claim_name, volume, volume_name } = &bound;
            server.create(claim, &self.namespace).await?;
            server.set_phase(claim, &self.namespace, claim_name, "Bound").await?;
            server.create(volume, "").await?;
            server.set_phase(volume, "", volume_name, "Bound").await?;
            pod = bound.mount(pod)?;
        }
        server.create(&pod, &self.namespace).await.map(drop)
    }
}

/// An object of a template.
fn any(template: &Template, position: Position) -> anyhow::Result<Value> {
    let object = template.object(position)?;
    match object.get("kind").and_then(Value::as_str) {
        Some("Pod") => objects::pod(object),
        _ => Ok(object),
    }
}

/// Ticks, the first of which is an interval away.
async fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks.tick().await;
    ticks
}

/// Makes objects at each tick, so many times; without a number until the workload ends.
async fn create_for_ever(
    server: &Server,
    namespace: &str,
    objects: &[(Place, Value)],
    number: usize,
    ticks: &mut tokio::time::Interval,
) -> anyhow::Result<()> {
    let mut rounds = 0;
    while number == 0 || rounds < number {
        ticks.tick().await;
        for (_, object) in objects {
            // Upstream does not mind what is refused.
            let _ = server.create(object, namespace).await;
        }
        rounds += 1;
    }
    Ok(())
}

/// Makes objects at `number` ticks, deletes them at as many, and so on.
async fn recreate(
    server: &Server,
    namespace: &str,
    objects: &[(Place, Value)],
    number: usize,
    ticks: &mut tokio::time::Interval,
) -> anyhow::Result<()> {
    let mut made: Vec<Vec<Option<String>>> = vec![vec![None; objects.len()]; number];
    loop {
        for round in &mut made {
            ticks.tick().await;
            for (name, (place, object)) in round.iter_mut().zip(objects) {
                match name.take() {
                    Some(name) => server.delete(place, &name).await?,
                    None => *name = server.create(object, namespace).await.ok(),
                }
            }
        }
    }
}
