//! The run: specs one after the other, and everything before and after them.
//!
//! In: a client, the chosen specs. Out: how each ended, and what is wrong with the run as a whole. Never: an object
//! left behind, also after an interruption; the next run takes away what a killed one has left.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, NAMESPACE, Settings};
use crate::diagnosis;
use crate::facts::Facts;
use crate::fixture::{Fixture, sweep};
use crate::need::Need;
use crate::observed::{Observed, Observer};
use crate::pods::{PodPlan, RUN_LABEL};
use crate::report::{Case, Ending};
use crate::settled;
use crate::spec::{Body, Run, Skip, Spec};
use crate::undo::{Target, Undo};
use crate::verdict::Verdict;
use crate::{devices, fixture, placement};

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the suite behaves.
    pub settings: Settings,
    /// The scheduler under test; `None`: the one that the operator names, else ours.
    pub scheduler: Option<String>,
    /// The longest time of a spec, the clean-up not included.
    pub limit: Duration,
    /// Whether specs go on after a failure.
    pub keep_going: bool,
    /// Whether the suite's devices stay.
    pub keep_devices: bool,
    /// The root directory of the kubelets.
    pub kubelet_root: String,
}

/// What a run tells while it goes on.
pub trait Progress: Send + Sync {
    /// A step before or after the specs.
    fn step(&self, text: &str);
    /// A spec begins: its number among how many.
    fn begins(&self, spec: &Spec, number: usize, of: usize);
    /// A spec has ended.
    fn ended(&self, case: &Case);
}

/// A run.
pub struct Runner {
    cluster: Arc<Cluster>,
    plan: Plan,
    verdict: Verdict,
    token: CancellationToken,
}

/// The scheduler of ours, where nothing names another.
const OURS: &str = "topo-aware-scheduler";
/// The scheduler of every cluster.
const DEFAULT: &str = "default-scheduler";
/// The wait for a scheduler that may not be there.
const PROBE: Duration = Duration::from_secs(15);

impl Runner {
    /// Prepares the cluster, with a client for watches and one for requests: takes away what an earlier run has left,
    /// looks at what the cluster can do, deploys devices.
    ///
    /// # Errors
    /// When the cluster cannot be tested at all, in one line.
    pub async fn prepare(
        (watches, client): (Client, Client),
        plan: Plan,
        token: CancellationToken,
        progress: &dyn Progress,
    ) -> anyhow::Result<Self> {
        let patience = plan.settings.patience;
        progress.step("looking at the cluster");
        let observer = Observer::start(&watches);
        let kinds = Facts::kinds(&client).await?;
        observer.synced(patience).await?;
        namespace(&client, patience).await?;
        let undo = Arc::new(Undo::open(&client, NAMESPACE).await?);
        let settings = plan.settings.clone();
        let facts = Facts::new(kinds);
        let mut cluster = Cluster { client, observer, facts, settings, undo };
        clean(&cluster, progress).await?;
        cluster.facts = Facts::gather(&cluster.client, &cluster.observer, patience).await?;
        if cluster.facts.nodes.is_empty() {
            let unused = cluster.facts.unused.iter().map(|(node, reason)| format!("{node}: {reason}"));
            bail!("no node can be used: {}", unused.collect::<Vec<_>>().join("; "));
        }
        let verdict = Verdict::begin(&cluster).await?;
        progress.step("deploying devices that pin pods to zones");
        let deployed = deploy_devices(&mut cluster, &plan).await;
        cluster.facts.devices = deployed.map_err(|error| format!("{error:#}"));
        probe(&mut cluster, &plan).await?;
        Ok(Self { cluster: Arc::new(cluster), plan, verdict, token })
    }

    /// Why a spec would be skipped, as far as can be told before it is tried.
    #[must_use]
    pub fn skips(&self, spec: &Spec) -> Option<String> {
        if let Run::Absent(reason) = spec.run {
            return Some(reason.to_owned());
        }
        let facts = &self.cluster.facts;
        let nodes = Need::nodes(&spec.needs, facts);
        spec.needs.iter().find_map(|need| need.missing(&nodes, facts))
    }

    /// Runs specs in their order, then takes everything away. Returns how each ended, and what is wrong as a whole.
    ///
    /// # Errors
    /// When the clean-up fails.
    pub async fn run(
        self,
        specs: &[Spec],
        progress: &dyn Progress,
    ) -> anyhow::Result<(Vec<Case>, Vec<String>)> {
        let mut cases = Vec::with_capacity(specs.len());
        for (at, spec) in specs.iter().enumerate() {
            if self.token.is_cancelled() {
                break;
            }
            progress.begins(spec, at + 1, specs.len());
            let case = self.one(spec).await;
            progress.ended(&case);
            let failed = matches!(case.ending, Ending::Failed { .. });
            cases.push(case);
            if failed && !self.plan.keep_going {
                break;
            }
        }
        let verdicts = self.finish(progress).await?;
        Ok((cases, verdicts))
    }

    /// Takes everything away, and says what is wrong as a whole.
    async fn finish(self, progress: &dyn Progress) -> anyhow::Result<Vec<String>> {
        progress.step("taking everything away");
        let cluster = &self.cluster;
        if !self.plan.keep_devices {
            clean(cluster, progress).await?;
            let namespaces = Api::<Namespace>::all(cluster.client.clone());
            match namespaces.delete(NAMESPACE, &DeleteParams::default()).await {
                Err(error) if !runtime::client::is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
            gone(cluster).await?;
        }
        Ok(self.verdict.end(cluster).await)
    }

    async fn one(&self, spec: &Spec) -> Case {
        let began = Instant::now();
        let ending = match &spec.run {
            Run::Absent(reason) => Ending::Skipped { reason: (*reason).to_owned() },
            Run::Test(body) => self.attempt(spec, body).await,
        };
        Case {
            id: spec.id.clone(),
            title: spec.title.clone(),
            feature: spec.feature.to_owned(),
            ending,
            took: began.elapsed(),
        }
    }

    async fn attempt(&self, spec: &Spec, body: &Body) -> Ending {
        if let Some(reason) = self.skips(spec) {
            return Ending::Skipped { reason };
        }
        let nodes = Need::nodes(&spec.needs, &self.cluster.facts).into_iter();
        let mut nodes: Vec<_> = nodes.cloned().collect();
        let preferred = self.cluster.settings.target_node.as_deref();
        nodes.sort_by_key(|node| Some(&*node.name) != preferred);
        let fixture = match Fixture::begin(&self.cluster, &spec.id, nodes).await {
            Ok(fixture) => fixture,
            Err(error) => return failed(format!("before the spec: {error:#}"), String::new()),
        };
        let result = tokio::select! {
            biased;
            () = self.token.cancelled() => Err(Skip("no interruption".to_owned()).into()),
            result = tokio::time::timeout(self.plan.limit, body(fixture.clone())) => {
                result.unwrap_or_else(|_| bail!("longer than {} s", self.plan.limit.as_secs()))
            }
        };
        // Before the objects are gone.
        let diagnosis = match &result {
            Err(error) if !error.is::<Skip>() => diagnosis::of(&fixture),
            _ => String::new(),
        };
        let end = fixture.end().await;
        match (result, end) {
            (Ok(()), Ok(())) => Ending::Passed,
            (Err(error), Ok(())) => match error.downcast::<Skip>() {
                Ok(Skip(reason)) => Ending::Skipped { reason },
                Err(error) => failed(format!("{error:#}"), diagnosis),
            },
            (Ok(()), Err(error)) => failed(format!("after the spec: {error:#}"), diagnosis),
            (Err(error), Err(end)) => failed(format!("{error:#}; after the spec: {end:#}"), diagnosis),
        }
    }
}

fn failed(reason: String, diagnosis: String) -> Ending {
    Ending::Failed { reason, diagnosis }
}

/// Makes the suite's namespace. One that is being deleted is waited for.
async fn namespace(client: &Client, patience: Duration) -> anyhow::Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": {
            // The device plugins have to reach the kubelets' sockets.
            "pod-security.kubernetes.io/enforce": "privileged",
            "pod-security.kubernetes.io/warn": "privileged",
            "pod-security.kubernetes.io/audit": "privileged",
        } },
    });
    let object: Namespace = serde_json::from_value(object)?;
    let ends = Instant::now() + patience;
    loop {
        match namespaces.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            Err(error) if !runtime::client::is_already_exists(&error) => {
                return Err(error).context("creating the suite's namespace");
            }
            Err(_) => {}
        }
        let found = namespaces.get_opt(NAMESPACE).await?;
        match found {
            Some(found) if found.metadata.deletion_timestamp.is_none() => return Ok(()),
            _ if Instant::now() > ends => bail!("namespace {NAMESPACE} of an earlier run does not vanish"),
            // No watch tells when a name is free again; the namespace controller takes seconds.
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Takes away what the suite has made, and undoes what it has changed.
async fn clean(cluster: &Cluster, progress: &dyn Progress) -> anyhow::Result<()> {
    let left = cluster.undo.pending().await;
    if left > 0 {
        progress.step(&format!("undoing {left} changes"));
    }
    sweep(cluster, &format!("{RUN_LABEL}=e2e")).await?;
    cluster.undo.all().await
}

/// Waits until the suite's namespace is gone.
async fn gone(cluster: &Cluster) -> anyhow::Result<()> {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let ends = Instant::now() + cluster.settings.patience;
    while namespaces.get_opt(NAMESPACE).await?.is_some() {
        if Instant::now() > ends {
            bail!("namespace {NAMESPACE} does not vanish");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Deploys the devices, and waits until the reports show them.
async fn deploy_devices(cluster: &mut Cluster, plan: &Plan) -> anyhow::Result<[String; 3]> {
    let nodes = cluster.facts.nodes.clone();
    for object in devices::objects(&nodes, &cluster.settings.images, &plan.kubelet_root) {
        let (kind, plural) = match object["kind"].as_str() {
            Some("ConfigMap") => ("ConfigMap", "configmaps"),
            _ => ("DaemonSet", "daemonsets"),
        };
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let target = Target {
            api_version,
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: devices::NAME.to_owned(),
        };
        let api = target.api(&cluster.client);
        let object: DynamicObject = serde_json::from_value(object)?;
        // One of an earlier run may list other nodes.
        match api.delete(devices::NAME, &DeleteParams::default()).await {
            Err(error) if !runtime::client::is_not_found(&error) => return Err(error.into()),
            _ => {}
        }
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating the devices' {kind}"))?;
    }
    for node in &mut cluster.facts.nodes {
        let expected = devices::resources(std::slice::from_ref(node));
        let what = format!("the report of node {} shows the suite's devices", node.name);
        let topology = cluster.observer.until(&what, cluster.settings.patience, |state| {
            let topology = settled::settled(state, &node.name)?;
            let names = topology.allocatable().layout().resources().to_vec();
            let missing = expected.iter().find(|wanted| names.iter().all(|name| name.as_str() != **wanted));
            match missing {
                Some(missing) => Err(format!("{missing} is missing; {}", plugin_on(state, &node.name))),
                None => Ok((topology, crate::facts::requested(state, &node.name))),
            }
        });
        (node.topology, node.base_load) = topology.await?;
    }
    Ok(devices::SAMPLES.map(str::to_owned))
}

/// How far the device plugin of a node is.
fn plugin_on(state: &Observed, node: &str) -> String {
    let mut pods = placement::labelled(state, "app", devices::NAME).into_iter();
    let pod = pods.find_map(|pod| {
        let found = pod.find(state)?;
        (found.spec.as_ref()?.node_name.as_deref() == Some(node)).then(|| placement::state_of(found))
    });
    pod.map_or_else(
        || "there is no device plugin".to_owned(),
        |state| format!("the device plugin is {state}"),
    )
}

/// Finds out which schedulers bind pods: sends each one.
async fn probe(cluster: &mut Cluster, plan: &Plan) -> anyhow::Result<()> {
    let stated = cluster.facts.stated_scheduler();
    let tested = plan.scheduler.clone().or(stated).unwrap_or_else(|| OURS.to_owned());
    let (tested_binds, default_binds) =
        tokio::try_join!(binds(cluster, &tested, "tested"), binds(cluster, DEFAULT, "default"))?;
    if plan.scheduler.is_some() && !tested_binds {
        bail!("scheduler {tested} has not bound a pod in {} s", PROBE.as_secs());
    }
    cluster.facts.scheduler = tested_binds.then_some(tested);
    cluster.facts.default_scheduler = default_binds;
    sweep(cluster, &format!("{}=probe", crate::pods::SPEC_LABEL)).await
}

async fn binds(cluster: &Cluster, scheduler: &str, name: &str) -> anyhow::Result<bool> {
    let plan =
        PodPlan::new(&format!("probe-{name}"), scheduler, &cluster.settings.images, fixture::labels("probe"));
    let nodes: Vec<&str> = cluster.facts.nodes.iter().map(|node| &*node.name).collect();
    let pod = plan.best_effort().among(&nodes).pod();
    let pods = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let made = pods.create(&PostParams::default(), &pod).await.context("creating a pod")?;
    let uid = made.metadata.uid;
    let bound = cluster.observer.until("a node", PROBE, |state| {
        let found = state.pods.values().find(|pod| pod.metadata.uid == uid).ok_or("no pod")?;
        found.spec.as_ref().and_then(|spec| spec.node_name.clone()).ok_or_else(|| "no node".to_owned())
    });
    Ok(bound.await.is_ok())
}
