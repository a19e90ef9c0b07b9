//! A plan carried out, move by move.
//!
//! In: a plan that was agreed to, a cluster. Out: evictions, one after the other, and where pods run again. Never: a
//! move that the plan of this moment does not have, or one for a pod that the first plan was not about.
//!
//! The node that a pod leaves, and the one that room is made on, are cordoned until the pod runs again, so that neither
//! it nor another takes the room ([`nodes_to_cordon`]). An annotation with the time marks nodes that are cordoned here.
//! A run that was killed leaves some; a later run uncordons those that no living run can have.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use runtime::client::{self, Connection};
use runtime::stderr;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::cli::{Args, PlanRequest, interruptible};
use super::rehearsal::nodes_to_cordon;
use super::{Plan, PlannedMove};

/// The annotation of nodes that are cordoned here: since when.
const CORDONED: &str = "tholepin.dev/cordoned-by-defrag";
/// The time between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(500);
/// The time between two plans while one is waited for. Each lists the whole cluster.
const REPLAN: Duration = Duration::from_secs(2);
/// How long it is tried to uncordon a node.
const UNCORDONING: Duration = Duration::from_secs(60);

/// The cluster, and the nodes that are cordoned by this run.
pub(super) struct Applier {
    client: Client,
    patience: Duration,
    cordoned: BTreeSet<String>,
}

/// The controller's uid, and the pods that it has already.
struct PodsBefore {
    controller: String,
    pods: BTreeSet<String>,
}

impl Applier {
    /// Connects to the cluster, and uncordons the nodes that a killed run has left cordoned. Returns these too: the
    /// node controller takes their taint away a moment later.
    ///
    /// # Errors
    /// When another run is under way.
    pub(super) async fn open(args: &Args) -> anyhow::Result<(Self, BTreeSet<String>)> {
        let connection = Connection::open(&args.input.connection.options("defrag")).await?;
        let timeout = args.input.connection.request_timeout.unwrap_or(Duration::from_secs(30));
        let client = connection.client_with_timeout(timeout)?;
        let mut applier = Self { client, patience: args.patience, cordoned: BTreeSet::new() };
        // A living run cordons anew with each move: a plan, an eviction and a start later, and a pause of a minute.
        let longest = SignedDuration::try_from(3 * args.patience + Duration::from_secs(60))?;
        for node in applier.nodes().list_metadata(&ListParams::default()).await.context("listing nodes")? {
            let name = node.metadata.name.unwrap_or_default();
            let annotations = node.metadata.annotations.unwrap_or_default();
            let Some(since) = annotations.get(CORDONED) else { continue };
            let age =
                since.parse().map_or(SignedDuration::MAX, |since| Timestamp::now().duration_since(since));
            ensure!(
                age > longest,
                "node {name} was cordoned by another run at {since}; if that was killed, kubectl uncordon {name} and \
                 kubectl annotate node {name} {CORDONED}-"
            );
            stderr::line(format_args!("node {name} was left cordoned by a run before, and is opened"));
            applier.cordoned.insert(name);
        }
        let opened = applier.cordoned.clone();
        applier.uncordon_all().await?;
        Ok((applier, opened))
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Carries a plan out, and returns the number of moves. In the end no node is cordoned here.
    ///
    /// # Errors
    /// The move that failed, or the node that could not be uncordoned.
    pub(super) async fn run(
        &mut self,
        request: &PlanRequest,
        plan: &Plan,
        token: &CancellationToken,
    ) -> anyhow::Result<usize> {
        let result = interruptible(self.moves(request, plan), token).await;
        let uncordoned = self.uncordon_all().await;
        if let (Err(_), Err(error)) = (&result, &uncordoned) {
            stderr::line(format_args!("{error:#}; a later run with --apply opens it"));
        }
        let moves = result?;
        uncordoned.map(|()| moves)
    }

    async fn moves(&mut self, request: &PlanRequest, agreed: &Plan) -> anyhow::Result<usize> {
        let pause = Duration::from_secs(60) / request.args.rate;
        let (all, mut done) = (agreed.moves, 0);
        let mut next_at = Instant::now();
        loop {
            sleep_until(next_at).await;
            next_at = Instant::now() + pause;
            let plan = self.plan(request, agreed, all.saturating_sub(done)).await?;
            let next = plan.rooms.iter().find_map(|room| Some((room, room.moves.first()?)));
            let Some((room, step)) = next else { return Ok(done) };
            let nodes = nodes_to_cordon((&step.from, &step.to), &room.node);
            self.cordon_only(&nodes.map(|node| &**node).collect::<Vec<_>>()).await?;
            let node = self.relocate(step).await?;
            done += 1;
            let (pod, from) = (&step.pod, &step.from);
            stderr::line(format_args!("{done}/{all}: {pod} left {from} and runs on {node} again"));
            if room.moves.len() == 1 {
                // Further moves count on its pod being there.
                self.uncordon_all().await?;
                self.bound(&room.pod).await?;
            }
        }
    }

    /// The plan as it is by now for the pods of the first one, once it leaves no more of them without room, and takes
    /// no more moves than are left. Pods that waited may have their room by now. Reports of nodes that pods have left
    /// come late.
    async fn plan(&self, request: &PlanRequest, agreed: &Plan, left: usize) -> anyhow::Result<Plan> {
        let (ends, uids) = (Instant::now() + self.patience, agreed.uids());
        let without_room = agreed.without_room.len();
        loop {
            match request.plan(&self.cordoned, Some(&uids)).await {
                Ok(plan) if plan.without_room.len() <= without_room && plan.moves <= left => return Ok(plan),
                Ok(plan) => ensure!(
                    Instant::now() < ends,
                    "the cluster has changed: {left} more moves were to leave {without_room} pods without room, and by \
                     now {} moves leave {}",
                    plan.moves,
                    plan.without_room.len()
                ),
                Err(error) if Instant::now() > ends => return Err(error),
                Err(_) => {}
            }
            sleep(REPLAN).await;
        }
    }

    /// Waits until a pod that waits has its node.
    async fn bound(&self, pod: &str) -> anyhow::Result<()> {
        let (namespace, name) = pod.split_once('/').context("a pod without a namespace")?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let ends = Instant::now() + self.patience;
        loop {
            // One that does not exist yet takes its room later.
            let Some(found) = patiently(ends, || api.get_opt(name)).await? else { return Ok(()) };
            if found.spec.is_some_and(|spec| spec.node_name.is_some()) {
                return Ok(());
            }
            ensure!(
                Instant::now() < ends,
                "{pod} still waits for a node; another pod may have taken its room"
            );
            sleep(LOOK).await;
        }
    }

    /// Evicts a pod and waits until another of its controller is ready; the node of that.
    async fn relocate(&self, step: &PlannedMove) -> anyhow::Result<String> {
        let (namespace, name) = step.pod.split_once('/').context("a pod without a namespace")?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let before = self.before(&api, step).await?;
        self.evict(&api, name, step).await?;
        let ends = Instant::now() + self.patience;
        loop {
            let (mut is_gone, mut node) = (true, None);
            for pod in patiently(ends, || async { api.list(&ListParams::default()).await }).await? {
                is_gone &= pod.metadata.uid.as_deref() != Some(&*step.uid);
                if is_again(&pod, &before) && is_ready(&pod) {
                    node = pod.spec.and_then(|spec| spec.node_name);
                }
            }
            match node {
                Some(node) if is_gone => return Ok(node),
                _ if Instant::now() < ends => sleep(LOOK).await,
                _ => bail!(
                    "{} was evicted from {}, and no pod of its controller is ready again",
                    step.pod,
                    step.from
                ),
            }
        }
    }

    /// Evicts a pod, once its budget allows it.
    async fn evict(&self, api: &Api<Pod>, name: &str, step: &PlannedMove) -> anyhow::Result<()> {
        let uid = Some(step.uid.to_string());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let delete_options = Some(DeleteParams { preconditions, ..DeleteParams::default() });
        let params = EvictParams { delete_options, ..EvictParams::default() };
        let ends = Instant::now() + self.patience;
        loop {
            match api.evict(name, &params).await {
                Ok(_) => return Ok(()),
                Err(error) if client::is_retryable(&error) && Instant::now() < ends => sleep(LOOK).await,
                Err(error) => bail!("evicting {}: {}", step.pod, client::brief(&error)),
            }
        }
    }

    async fn before(&self, api: &Api<Pod>, step: &PlannedMove) -> anyhow::Result<PodsBefore> {
        let ends = Instant::now() + self.patience;
        let pods = patiently(ends, || async { api.list(&ListParams::default()).await }).await?;
        let uid_of = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        let pod = pods.iter().find(|pod| uid_of(pod) == *step.uid);
        let controller = pod.and_then(controller).with_context(|| format!("{} is gone", step.pod))?;
        Ok(PodsBefore { controller, pods: pods.iter().map(uid_of).collect() })
    }

    /// Cordons these nodes, and uncordons all others that are cordoned here.
    async fn cordon_only(&mut self, nodes: &[&str]) -> anyhow::Result<()> {
        let others: Vec<String> =
            self.cordoned.iter().filter(|node| !nodes.contains(&node.as_str())).cloned().collect();
        for node in others {
            self.uncordon(&node).await?;
        }
        for node in nodes {
            self.cordon(node).await?;
        }
        Ok(())
    }

    /// Cordons a node, or says anew that it is cordoned here.
    ///
    /// # Errors
    /// When it is cordoned already, by others: it is not ours to uncordon.
    async fn cordon(&mut self, name: &str) -> anyhow::Result<()> {
        let ends = Instant::now() + UNCORDONING;
        let nodes = self.nodes();
        loop {
            let node = patiently(ends, || nodes.get(name)).await?;
            let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
            ensure!(
                !is_cordoned || self.cordoned.contains(name),
                "node {name} was cordoned meanwhile: nothing more is done"
            );
            let patch = json!({
                "metadata": {
                    "resourceVersion": node.metadata.resource_version,
                    "annotations": {CORDONED: Timestamp::now().to_string()},
                },
                "spec": {"unschedulable": true},
            });
            // An answer that is lost may stand for a change that was made.
            self.cordoned.insert(name.to_owned());
            match nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => return Ok(()),
                // Changed in between: it is looked at again.
                Err(error) if client::is_conflict(&error) && Instant::now() < ends => {
                    self.cordoned.remove(name);
                }
                Err(error) if client::is_retryable(&error) && Instant::now() < ends => sleep(LOOK).await,
                Err(error) => bail!("cordoning node {name}: {}", client::brief(&error)),
            }
        }
    }

    /// Uncordons all nodes that are cordoned here; tried for a while.
    async fn uncordon_all(&mut self) -> anyhow::Result<()> {
        let mut failure = None;
        for node in self.cordoned.clone() {
            if let Err(error) = self.uncordon(&node).await {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn uncordon(&mut self, node: &str) -> anyhow::Result<()> {
        let patch = json!({"metadata": {"annotations": {CORDONED: null}}, "spec": {"unschedulable": null}});
        let (nodes, patch) = (self.nodes(), Patch::Merge(patch));
        let ends = Instant::now() + UNCORDONING;
        loop {
            match nodes.patch(node, &PatchParams::default(), &patch).await {
                Err(error) if client::is_retryable(&error) && Instant::now() < ends => sleep(LOOK).await,
                Err(error) if !client::is_not_found(&error) => {
                    bail!("opening node {node}: {}", client::brief(&error));
                }
                Ok(_) | Err(_) => break,
            }
        }
        self.cordoned.remove(node);
        Ok(())
    }
}

/// The answer to a call, which is repeated until `ends` while it fails for a reason that passes.
async fn patiently<T, F: Future<Output = Result<T, kube::Error>>>(
    ends: Instant,
    call: impl Fn() -> F,
) -> anyhow::Result<T> {
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(error) if client::is_retryable(&error) && Instant::now() < ends => sleep(LOOK).await,
            Err(error) => bail!("{}", client::brief(&error)),
        }
    }
}

/// The uid of a pod's controller.
fn controller(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Whether a pod is new, and of the controller.
fn is_again(pod: &Pod, before: &PodsBefore) -> bool {
    let is_new = pod.metadata.uid.as_ref().is_some_and(|uid| !before.pods.contains(uid));
    is_new && controller(pod).is_some_and(|uid| uid == before.controller)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
