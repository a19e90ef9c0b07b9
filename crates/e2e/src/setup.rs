//! What is there before the first spec, and goes after the last: namespace, lease, devices.
//!
//! In: a client. Out: an empty namespace of the suite that no other run uses, devices in the reports, the schedulers
//! that bind pods. Never: something of an earlier run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, NAMESPACE, Settings};
use crate::facts::{DEFAULT_SCHEDULER, Facts};
use crate::fixture::{gone_already, sweep};
use crate::lock::Lock;
use crate::observed::{Observed, Observer};
use crate::pods::{PodPlan, RUN_LABEL, SPEC_LABEL};
use crate::runner::{Devices, Plan, Progress};
use crate::undo::{Target, Undo};
use crate::verdict::Verdict;
use crate::{devices, fixture, machines, object, operator, placement, rights, settled};

/// The scheduler of ours, where nothing names another.
const OURS: &str = "topo-aware-scheduler";
/// The wait for a scheduler that may not be there.
const PROBE: Duration = Duration::from_secs(15);

/// A cluster that no other run uses.
pub struct Session {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The lease.
    pub lock: Lock,
}

impl Session {
    /// Begins to watch a cluster with these kinds, and takes the suite's namespace. Clients: one for watches, one for
    /// requests.
    ///
    /// # Errors
    /// When nothing can be done: missing rights, another run.
    pub async fn open(
        (watches, client): (Client, Client),
        (settings, kinds): (&Settings, BTreeSet<String>),
        token: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let settings = settings.clone();
        rights::require(&client).await?;
        let observer = Observer::start(&watches);
        // Reports are not listed before their kind is there.
        if Facts::require_reports(&kinds).is_ok() {
            observer.synced(settings.patience).await?;
        }
        let lock = enter((&watches, &client), &observer, settings.patience, token).await?;
        let undo = Arc::new(Undo::open(&client, NAMESPACE).await?);
        let cluster = Cluster { client, watches, observer, facts: Facts::new(kinds), settings, undo };
        Ok(Self { cluster: Arc::new(cluster), lock })
    }

    /// Makes the cluster ready, and remembers it as it was.
    ///
    /// # Errors
    /// When no node can be used, or the scheduler that the plan names binds no pod.
    pub async fn prepare(&mut self, plan: &Plan, progress: &dyn Progress) -> anyhow::Result<Verdict> {
        let undone = self.clean(progress).await?;
        let cluster = Arc::get_mut(&mut self.cluster).context("the cluster is in use already")?;
        cluster.facts = Facts::gather(&cluster.client, &cluster.observer, cluster.settings.patience).await?;
        if undone > 0 {
            operator::settle(cluster).await;
        }
        cluster.facts.require_nodes()?;
        progress.step(&cluster.facts.nodes_line());
        let verdict = Verdict::begin(cluster).await?;
        if plan.devices != Devices::Absent {
            progress.step("deploying devices that pin pods to zones");
            let deployed = deploy_devices(cluster, plan).await;
            cluster.facts.devices = deployed.map_err(|error| format!("{error:#}"));
        }
        probe(cluster, plan).await?;
        Ok(verdict)
    }

    /// Takes away what the suite has made, and undoes what it has changed; says how many changes.
    ///
    /// # Errors
    /// When something stays.
    pub async fn clean(&self, progress: &dyn Progress) -> anyhow::Result<usize> {
        let cluster = &self.cluster;
        let left = cluster.undo.pending().await;
        if left > 0 {
            progress.step(&format!("undoing {left} changes"));
        }
        let all = format!("{RUN_LABEL}=e2e");
        sweep(cluster, &all).await?;
        cluster.undo.all().await?;
        machines::sweep(cluster, &all).await?;
        Ok(left)
    }

    /// Lets go of the cluster; the namespace with all that is in it stays.
    pub async fn leave(self) {
        self.lock.release().await;
    }

    /// Takes everything away: what specs have left, the namespace, the lease.
    ///
    /// # Errors
    /// When something stays.
    pub async fn close(self, progress: &dyn Progress) -> anyhow::Result<()> {
        self.clean(progress).await?;
        let Self { cluster, lock } = self;
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        gone_already(namespaces.delete(NAMESPACE, &DeleteParams::default()).await)?;
        lock.release().await;
        until_not_vanishing(&cluster.watches, &cluster.observer, cluster.settings.patience).await
    }
}

/// Makes the suite's namespace, and takes its lease. Fails when another run is under way, or the namespace of an
/// earlier one does not vanish.
async fn enter(
    (watches, client): (&Client, &Client),
    observer: &Observer,
    patience: Duration,
    token: &CancellationToken,
) -> anyhow::Result<Lock> {
    loop {
        until_not_vanishing(watches, observer, patience).await?;
        namespace(client).await?;
        let lock = Lock::take(client, token).await?;
        // A run that ends deletes the namespace and then lets go of the lease in it.
        match state(client).await? {
            State::Usable => return Ok(lock),
            State::Vanishing | State::Absent => lock.release().await,
        }
    }
}

/// How far the suite's namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Usable,
    Vanishing,
}

impl State {
    fn of(found: &impl ResourceExt) -> Self {
        if found.meta().deletion_timestamp.is_some() { Self::Vanishing } else { Self::Usable }
    }
}

async fn state(client: &Client) -> kube::Result<State> {
    let found = Api::<Namespace>::all(client.clone()).get_opt(NAMESPACE).await?;
    Ok(found.as_ref().map_or(State::Absent, State::of))
}

async fn until_not_vanishing(
    watches: &Client,
    observer: &Observer,
    patience: Duration,
) -> anyhow::Result<()> {
    let target = Target::new(("v1", "Namespace", "namespaces"), "", NAMESPACE);
    let what = format!("namespace {NAMESPACE} is gone");
    let test = |found: Option<&DynamicObject>| match found.map(State::of) {
        Some(State::Vanishing) => Err("it is being deleted".to_owned()),
        _ => Ok(()),
    };
    Ok(object::until_by(watches, observer.waits(), &target, (&what, patience), test).await?)
}

/// Makes the suite's namespace.
async fn namespace(client: &Client) -> anyhow::Result<()> {
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
    match Api::all(client.clone()).create(&PostParams::default(), &object).await {
        Err(error) if !runtime::client::is_already_exists(&error) => {
            Err(error).with_context(|| format!("creating namespace {NAMESPACE}"))
        }
        _ => Ok(()),
    }
}

/// Deploys the devices, and waits until the reports show them.
async fn deploy_devices(cluster: &mut Cluster, plan: &Plan) -> anyhow::Result<[String; 3]> {
    let nodes = cluster.facts.nodes.clone();
    let platform = cluster.facts.platform;
    for object in devices::objects(&nodes, &cluster.settings.images, &plan.kubelet_root, platform) {
        let kind = match object["kind"].as_str() {
            Some("RoleBinding") => ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
            Some("ConfigMap") => ("v1", "ConfigMap", "configmaps"),
            _ => ("apps/v1", "DaemonSet", "daemonsets"),
        };
        let api = Target::new(kind, NAMESPACE, devices::NAME).api(&cluster.client);
        let object: DynamicObject = serde_json::from_value(object)?;
        // One of an earlier run may list other nodes.
        gone_already(api.delete(devices::NAME, &DeleteParams::default()).await)?;
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating the devices' {}", kind.1))?;
    }
    for node in &mut cluster.facts.nodes {
        let what = format!("the report of node {} shows the suite's devices", node.name);
        let topology = cluster.observer.until(&what, cluster.settings.patience, |state| {
            let topology = settled::settled(state, &node.name)?;
            match devices::missing(&topology) {
                Some(missing) => Err(format!("{missing}; {}", plugin_on(state, &node.name))),
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
        tokio::try_join!(binds(cluster, &tested, "tested"), binds(cluster, DEFAULT_SCHEDULER, "default"))?;
    if plan.scheduler.is_some() && !tested_binds {
        bail!("scheduler {tested} has not bound a pod in {} s", PROBE.as_secs());
    }
    cluster.facts.scheduler = tested_binds.then_some(tested);
    cluster.facts.default_scheduler = default_binds;
    sweep(cluster, &format!("{SPEC_LABEL}=probe")).await
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
