//! A plan carried out, move by move.
//!
//! In: a plan, a cluster. Out: evictions, one after the other, and where pods run again. Never: a move that the plan of
//! this moment does not have; a node that stays cordoned in the end.
//!
//! The node that a pod leaves, and the one that room is made on, are cordoned until the pod runs again, so that neither
//! it nor another takes the room ([`nodes_to_close`]). An annotation marks nodes that are cordoned here: a run that was killed leaves some,
//! and the next run opens them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use runtime::client::{self, Connection};
use runtime::stderr;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::cli::{Args, planned};
use super::rehearsal::nodes_to_close;
use super::{Plan, PlannedMove, Room};

/// The annotation of nodes that are cordoned here.
const CLOSED_BY: &str = "tholepin.dev/cordoned-by";
/// Its value.
const DEFRAG: &str = "defrag";
/// The time between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(500);

/// What was done.
pub(super) struct Applied {
    /// Number of moves.
    pub(super) moves: usize,
}

/// The cluster, and the nodes that are cordoned by this run.
pub(super) struct Applier {
    client: Client,
    closed: BTreeSet<String>,
}

/// The controller's uid, and the pods that it has already.
struct Before {
    controller: String,
    pods: BTreeSet<String>,
}

impl Applier {
    /// Connects to the cluster, and opens the nodes that a killed run has left cordoned.
    pub(super) async fn open(args: &Args) -> anyhow::Result<Self> {
        let connection = Connection::open(&args.input.connection.options("defrag")).await?;
        let timeout = args.input.connection.request_timeout.unwrap_or(Duration::from_secs(30));
        let mut applier = Self { client: connection.client_with_timeout(timeout)?, closed: BTreeSet::new() };
        let nodes: Api<Node> = Api::all(applier.client.clone());
        for node in nodes.list_metadata(&ListParams::default()).await.context("listing nodes")? {
            let annotations = node.metadata.annotations.unwrap_or_default();
            if annotations.get(CLOSED_BY).is_some_and(|by| by == DEFRAG) {
                applier.closed.extend(node.metadata.name);
            }
        }
        for node in &applier.closed {
            stderr::line(format_args!("node {node} was left cordoned by a run before, and is opened"));
        }
        applier.open_all().await?;
        Ok(applier)
    }

    /// Carries a plan out. However it ends, all nodes are open again.
    pub(super) async fn run(
        &mut self,
        args: &Args,
        plan: Plan,
        token: &CancellationToken,
    ) -> anyhow::Result<Applied> {
        let result = tokio::select! {
            result = self.moves(args, plan) => result,
            () = token.cancelled() => Err(anyhow::anyhow!("interrupted")),
        };
        let opened = self.open_all().await;
        if let (Err(_), Err(error)) = (&result, &opened) {
            stderr::line(format_args!("{error:#}; the next run with --apply opens it"));
        }
        let applied = result?;
        opened.map(|()| applied)
    }

    async fn moves(&mut self, args: &Args, mut plan: Plan) -> anyhow::Result<Applied> {
        let pause = Duration::from_secs(60) / args.rate;
        let (all, mut done) = (plan.moves, 0);
        let mut next_at = Instant::now();
        while let Some((room, step)) = plan.rooms.iter().find_map(|room| Some((room, room.moves.first()?))) {
            tokio::time::sleep_until(next_at).await;
            next_at = Instant::now() + pause;
            let nodes = nodes_to_close((&step.from, &step.to), &room.node);
            self.close_only(&nodes.map(|node| &**node).collect::<Vec<_>>()).await?;
            let node = self.relocate(step, args.patience).await?;
            done += 1;
            stderr::line(format_args!(
                "{done}/{all}: {} left {} and runs on {node} again",
                step.pod, step.from
            ));
            let (pod, left) = (room.pod.clone(), (plan.without_room.len(), all.saturating_sub(done)));
            plan = self.planned_again(args, left).await?;
            let is_done = |room: &Room| room.pod != pod || room.moves.is_empty();
            if plan.rooms.iter().all(is_done) {
                // Further moves count on its pod being there.
                self.open_all().await?;
                self.bound(&pod, args.patience).await?;
                plan = self.planned_again(args, left).await?;
            }
        }
        Ok(Applied { moves: done })
    }

    /// Waits until a pod that waits has its node.
    async fn bound(&self, pod: &str, patience: Duration) -> anyhow::Result<()> {
        let (namespace, name) = pod.split_once('/').context("a pod without a namespace")?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let ends = Instant::now() + patience;
        loop {
            // One that does not exist yet takes its room later.
            let Some(found) = api.get_opt(name).await.with_context(|| format!("reading {pod}"))? else {
                return Ok(());
            };
            if found.spec.is_some_and(|spec| spec.node_name.is_some()) {
                return Ok(());
            }
            ensure!(Instant::now() < ends, "{pod} has room by now, and no scheduler has placed it");
            sleep(LOOK).await;
        }
    }

    /// The plan as it is by now, once it leaves no more pods without room, and takes no more moves than are left. Pods
    /// that waited may have their room by now. Reports of nodes that pods have left come late.
    async fn planned_again(
        &self,
        args: &Args,
        (without_room, moves): (usize, usize),
    ) -> anyhow::Result<Plan> {
        let ends = Instant::now() + args.patience;
        loop {
            let plan = planned(args, &self.closed, false).await?;
            if plan.without_room.len() <= without_room && plan.moves <= moves {
                return Ok(plan);
            }
            if Instant::now() > ends {
                bail!(
                    "the cluster has changed: {moves} more moves were to leave {without_room} pods without room, and by \
                     now {} moves leave {}",
                    plan.moves,
                    plan.without_room.len()
                );
            }
            sleep(LOOK).await;
        }
    }

    /// Evicts a pod and waits until another of its controller is ready; the node of that.
    async fn relocate(&self, step: &PlannedMove, patience: Duration) -> anyhow::Result<String> {
        let (namespace, name) = step.pod.split_once('/').context("a pod without a namespace")?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let ends = Instant::now() + patience;
        let before = before(&api, step).await?;
        let uid = Some(step.uid.to_string());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let delete_options = Some(DeleteParams { preconditions, ..DeleteParams::default() });
        let params = EvictParams { delete_options, ..EvictParams::default() };
        loop {
            match api.evict(name, &params).await {
                Ok(_) => break,
                // A budget allows no disruption at this moment.
                Err(error) if client::code(&error) == Some(429) && Instant::now() < ends => sleep(LOOK).await,
                Err(error) => bail!("evicting {}: {}", step.pod, client::brief(&error)),
            }
        }
        loop {
            let (mut is_gone, mut node) = (true, None);
            for pod in api.list(&ListParams::default()).await.context("listing pods")? {
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

    /// Cordons these nodes, and opens all others that are cordoned here.
    async fn close_only(&mut self, nodes: &[&str]) -> anyhow::Result<()> {
        let others: Vec<String> =
            self.closed.iter().filter(|node| !nodes.contains(&node.as_str())).cloned().collect();
        for node in others {
            self.set(&node, false).await?;
        }
        for node in nodes {
            if !self.closed.contains(*node) {
                self.closed.insert((*node).to_owned());
                self.set(node, true).await?;
            }
        }
        Ok(())
    }

    async fn open_all(&mut self) -> anyhow::Result<()> {
        for node in self.closed.clone() {
            self.set(&node, false).await?;
        }
        Ok(())
    }

    async fn set(&mut self, node: &str, closed: bool) -> anyhow::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let (unschedulable, by) = if closed { (Some(true), Some(DEFRAG)) } else { (None, None) };
        let patch = json!({
            "metadata": {"annotations": {CLOSED_BY: by}}, "spec": {"unschedulable": unschedulable},
        });
        match api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !client::is_not_found(&error) => {
                let verb = if closed { "cordoning" } else { "opening" };
                bail!("{verb} node {node}: {}", client::brief(&error));
            }
            Ok(_) | Err(_) => {}
        }
        if !closed {
            self.closed.remove(node);
        }
        Ok(())
    }
}

async fn before(api: &Api<Pod>, step: &PlannedMove) -> anyhow::Result<Before> {
    let pods = api.list(&ListParams::default()).await.context("listing pods")?;
    let uid_of = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let pod = pods.iter().find(|pod| uid_of(pod) == *step.uid);
    let controller = pod.and_then(controller).with_context(|| format!("{} is gone", step.pod))?;
    Ok(Before { controller, pods: pods.iter().map(uid_of).collect() })
}

/// The uid of a pod's controller.
fn controller(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// Whether a pod is new, and of the controller.
fn is_again(pod: &Pod, before: &Before) -> bool {
    let is_new = pod.metadata.uid.as_ref().is_some_and(|uid| !before.pods.contains(uid));
    is_new && controller(pod).is_some_and(|uid| uid == before.controller)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
