//! What one spec works with.
//!
//! In: the cluster, the nodes that the spec may use. Out: pods, controllers, padding; at the end everything is as
//! before. Never: an object without the label of the spec, or a pod on a node that is not the spec's.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy};
use serde_json::Value;
use tokio::sync::Mutex;
use topology::policy::Scope;
use topology::resource::ResourceName;
use topology::zone::Free;

use crate::amounts::Amounts;
use crate::cluster::{Cluster, NAMESPACE};
use crate::facts::{Facts, NodeFacts};
use crate::machines::{self, Reach, Snapshot};
use crate::observed::Observed;
use crate::operator::Stack;
use crate::pods::{PodPlan, RUN_LABEL, SPEC_LABEL};
use crate::settled;
use crate::spec::{Result, Skip, Spec};
use crate::undo::{Changes, Target};

/// Kinds that specs make in the suite's namespace, as group and version, kind and plural. Owners come first.
const KINDS: [(&str, &str, &str); 6] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("batch/v1", "Job", "jobs"),
    ("v1", "Pod", "pods"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
];
/// Cluster-scoped kinds that specs make. [`machines::sweep`] has those that machines depend on.
const CLUSTER_KINDS: [(&str, &str, &str); 3] = [
    ("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
    ("node.k8s.io/v1", "RuntimeClass", "runtimeclasses"),
    ("nodetopology.openshift.io/v1", "NUMAResourcesScheduler", "numaresourcesschedulers"),
];

/// What one spec works with; clones share it.
#[derive(Clone)]
pub struct Fixture(Arc<Inner>);

struct Inner {
    cluster: Arc<Cluster>,
    spec: String,
    nodes: Vec<NodeFacts>,
    /// What is free on each node while nothing of the spec runs.
    before: BTreeMap<String, Free>,
    stack: Stack,
    machines: Snapshot,
    numbers: Mutex<u32>,
    began: Timestamp,
}

/// A pod that was created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// The name, in the suite's namespace.
    pub name: String,
    /// The UID.
    pub uid: String,
}

impl Fixture {
    /// Begins a spec on these nodes: waits until their reports are settled.
    ///
    /// # Errors
    /// When one is not in time.
    pub async fn begin(cluster: &Arc<Cluster>, spec: &Spec, nodes: Vec<NodeFacts>) -> Result<Self> {
        let mut before = BTreeMap::new();
        for node in &nodes {
            before.insert(node.name.clone(), free(cluster, &node.name).await?);
        }
        let reach = match spec.is_alone() {
            true => Reach::Cluster,
            false => Reach::Nodes(before.keys().cloned().collect()),
        };
        let stack = Stack::reached(cluster, &reach).await?;
        let machines = Snapshot::take(cluster, &reach).await?;
        let (cluster, spec) = (Arc::clone(cluster), slug(&spec.id));
        let (numbers, began) = (Mutex::new(0), Timestamp::now());
        Ok(Self(Arc::new(Inner { cluster, spec, nodes, before, stack, machines, numbers, began })))
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    /// The spec, as names of its objects begin.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.spec
    }

    /// When the spec began.
    #[must_use]
    pub fn began(&self) -> Timestamp {
        self.0.began
    }

    /// What the cluster can do.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.0.cluster.facts
    }

    /// Changes of objects that were there before, which [`Fixture::end`] undoes.
    #[must_use]
    pub fn changes(&self) -> Changes<'_> {
        self.0.cluster.undo.by(&self.0.spec)
    }

    /// The nodes of the spec, the preferred one first.
    #[must_use]
    pub fn nodes(&self) -> &[NodeFacts] {
        &self.0.nodes
    }

    /// The node on which the spec wants its pods.
    ///
    /// # Errors
    /// When the spec has no nodes.
    pub fn target(&self) -> Result<&NodeFacts> {
        self.0.nodes.first().context("the spec has no nodes: it needs Need::Aligning")
    }

    /// All nodes but the target.
    #[must_use]
    pub fn others(&self) -> &[NodeFacts] {
        self.0.nodes.get(1..).unwrap_or_default()
    }

    /// The scope of the spec's nodes.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.0.nodes.first().map_or(Scope::Container, |node| node.rules().scope)
    }

    /// The scheduler under test.
    #[must_use]
    pub fn scheduler(&self) -> &str {
        self.facts().scheduler.as_deref().unwrap_or_default()
    }

    /// Amounts in the units of tables.
    ///
    /// # Errors
    /// The word that is no amount.
    pub fn amounts(&self, text: &str) -> Result<Amounts> {
        Amounts::parse(text, &self.facts().scale()).map_err(anyhow::Error::msg)
    }

    /// What is free on a node while nothing of the spec runs.
    ///
    /// # Errors
    /// When the node is not the spec's.
    pub fn before(&self, node: &str) -> Result<&Free> {
        self.0.before.get(node).with_context(|| format!("node {node} is not one of the spec's"))
    }

    /// Skips the spec unless every zone of its nodes has these amounts free.
    ///
    /// # Errors
    /// [`Skip`].
    pub fn require_zones(&self, amounts: &Amounts) -> Result {
        for node in self.nodes() {
            let smallest = node.smallest_zone();
            if let Some((name, there)) = amounts.more_than(&smallest) {
                let wanted = api::convert::quantity(name, amounts.get(name));
                let there = api::convert::quantity(name, there);
                let text =
                    format!("zones with {wanted} of {name} free; a zone of node {} has {there}", node.name);
                return Err(Skip(text).into());
            }
        }
        Ok(())
    }

    /// A pod of the spec, for the scheduler under test, on any of the spec's nodes.
    #[must_use]
    pub fn pod(&self, name: &str) -> PodPlan {
        let nodes: Vec<&str> = self.nodes().iter().map(|node| &*node.name).collect();
        let plan = PodPlan::new(
            &format!("{}-{name}", self.0.spec),
            self.scheduler(),
            &self.cluster().settings.images,
            self.labels(),
        );
        plan.among(&nodes)
    }

    /// A number that no other of this spec has, for names.
    pub async fn number(&self) -> u32 {
        let mut number = self.0.numbers.lock().await;
        *number += 1;
        *number
    }

    /// The labels of all objects of the spec.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        labels(&self.0.spec)
    }

    /// Creates a pod.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create(&self, plan: PodPlan) -> Result<PodRef> {
        let pod = plan.pod();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let made = self.pods().create(&PostParams::default(), &pod).await;
        let made = made.with_context(|| format!("creating pod {name}"))?;
        Ok(PodRef { name, uid: made.metadata.uid.unwrap_or_default() })
    }

    /// Creates any other object: in the suite's namespace, or one of a cluster-scoped kind. Labels are added.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn make(&self, target: &Target, mut object: Value) -> Result<DynamicObject> {
        object["metadata"]["name"] = target.name.clone().into();
        let labels = &mut object["metadata"]["labels"];
        for (key, value) in self.labels() {
            labels[key] = value.into();
        }
        object["apiVersion"] = target.api_version.clone().into();
        object["kind"] = target.kind.clone().into();
        let object: DynamicObject = serde_json::from_value(object)?;
        let made = target.api(&self.cluster().client).create(&PostParams::default(), &object).await;
        made.with_context(|| format!("creating {} {}", target.kind, target.name))
    }

    /// Deletes a pod and waits until it is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn delete(&self, pod: &PodRef) -> Result {
        gone_already(self.pods().delete(&pod.name, &DeleteParams::default()).await)?;
        let key = (NAMESPACE.to_owned(), pod.name.clone());
        let uid = Some(pod.uid.clone());
        self.until(&format!("pod {} is gone", pod.name), |state| match state.pods.get(&key) {
            Some(found) if found.metadata.uid == uid => Err("it is still there".to_owned()),
            _ => Ok(()),
        })
        .await
    }

    /// The pods of the suite's namespace.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster().client.clone(), NAMESPACE)
    }

    /// Waits until `test` finds what it looks for; its error says why not yet.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn until<T>(
        &self,
        what: &str,
        test: impl FnMut(&Observed) -> std::result::Result<T, String>,
    ) -> Result<T> {
        Ok(self.cluster().observer.until(what, self.cluster().settings.patience, test).await?)
    }

    /// What is free on a node, once its report is settled.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn free(&self, node: &str) -> Result<Free> {
        free(&self.0.cluster, node).await
    }

    /// Deletes all objects of the spec, undoes its changes, and waits until stack and reports are as before.
    ///
    /// # Errors
    /// When something stays; the report that differs, with zone and resource.
    pub async fn end(&self) -> Result {
        let own = format!("{SPEC_LABEL}={}", self.0.spec);
        sweep(self.cluster(), &own).await?;
        self.changes().undo().await?;
        self.0.machines.restored(self.cluster()).await?;
        machines::sweep(self.cluster(), &own).await?;
        self.0.stack.restored(self.cluster()).await?;
        for (node, before) in &self.0.before {
            self.restored(node, before).await?;
        }
        Ok(())
    }

    /// Waits until as much is free on a node as in `before`.
    ///
    /// # Errors
    /// When it is not in time: zone and resource that differ.
    pub async fn restored(&self, node: &str, before: &Free) -> Result {
        self.until(&format!("the report of node {node} is as before"), |state| {
            let now = settled::settled(state, node)?.available();
            difference(before, &now).map_or(Ok(()), Err)
        })
        .await
    }
}

/// The labels of the objects of a spec.
pub(crate) fn labels(spec: &str) -> BTreeMap<String, String> {
    [(RUN_LABEL, "e2e"), (SPEC_LABEL, spec)].map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Letters, digits and dashes of an id, as names and labels allow.
fn slug(id: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    format!("s{}", id.chars().map(allowed).collect::<String>())
}

async fn free(cluster: &Cluster, node: &str) -> Result<Free> {
    let what = format!("the report of node {node} is settled");
    let settled = cluster
        .observer
        .until(&what, cluster.settings.patience, |state| settled::settled(state, node))
        .await?;
    Ok(settled.available())
}

/// The first cell in which two tables differ, in words. Zones and resources are compared by name: one that has gone
/// counts as 0.
pub(crate) fn difference(before: &Free, now: &Free) -> Option<String> {
    difference_of(before, now, |_| true)
}

/// The first cell of the resources that `is_compared` chooses.
pub(crate) fn difference_of(
    before: &Free,
    now: &Free,
    is_compared: impl Fn(ResourceName) -> bool,
) -> Option<String> {
    let zones = before.layout().zones().iter().chain(now.layout().zones());
    let all = || before.layout().resources().iter().chain(now.layout().resources());
    let names = || all().filter(|name| is_compared(**name));
    let mut cells = zones.flat_map(|zone| names().map(move |name| (*zone, *name)));
    let (zone, name) = cells.find(|(zone, name)| before.amount(*zone, *name) != now.amount(*zone, *name))?;
    let text = |free: &Free| api::convert::quantity(name, free.amount(zone, name));
    Some(format!("zone {}: {name}: {} free, expected {}", zone.0, text(now), text(before)))
}

/// Takes the answer to a deletion: an object that is not there is as good as a deleted one.
///
/// # Errors
/// Any other error.
pub(crate) fn gone_already<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(error) if !runtime::client::is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Deletes everything that a selector names, and waits until no pod of it is left.
///
/// # Errors
/// When something cannot be deleted, or stays.
pub(crate) async fn sweep(cluster: &Cluster, selector: &str) -> Result {
    let chosen = ListParams::default().labels(selector);
    let deletion =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    let namespaced = KINDS.iter().map(|kind| (kind, NAMESPACE));
    let of_cluster = CLUSTER_KINDS.iter().map(|kind| (kind, ""));
    for (kind, namespace) in namespaced.chain(of_cluster) {
        let target = Target::new(*kind, namespace, "");
        if !cluster.facts.has(&target) {
            continue;
        }
        let deleted = target.api(&cluster.client).delete_collection(&deletion, &chosen).await;
        match deleted {
            Err(error)
                if !runtime::client::is_not_found(&error) && !runtime::client::is_forbidden(&error) =>
            {
                return Err(error).with_context(|| format!("deleting {}", target.plural));
            }
            _ => {}
        }
    }
    let (key, value) = selector.split_once('=').context("a selector of one label")?;
    let is_chosen = |pod: &Pod| pod.metadata.labels.iter().flatten().any(|(k, v)| k == key && v == value);
    let gone = cluster.observer.until("the pods of the spec are gone", cluster.settings.patience, |state| {
        let left = state.pods.values().find(|pod| is_chosen(pod));
        left.map_or(Ok(()), |pod| Err(format!("pod {:?} is there", pod.metadata.name)))
    });
    Ok(gone.await?)
}
