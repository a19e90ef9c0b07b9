//! Our answer to a case: the core with the same objects.

use anyhow::{Context as _, bail};
use api::schedulerconfig::SchedulerConfig;
use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use scheduler::budget::BudgetView;
use scheduler::config;
use scheduler::core::{Core, Decision, Event};
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use scheduler::volumes::Change;
use scheduler::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};
use serde_json::Value;

use crate::scheduler::case::Case;

/// What our core does with the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It goes to this node.
    Node(String),
    /// It fits no node, with the message; and perhaps preemption frees one.
    Refused(String, Option<Eviction>),
}

/// A preemption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The nominated node.
    pub node: String,
    /// Pods to delete, as `namespace/name`, sorted. Those that are being deleted are not among them.
    pub victims: Vec<String>,
}

/// The time of a case, in milliseconds.
const NOW_MS: u64 = 1_800_000_000_000;

/// Places the pod of a case. Cost: that of reading the objects, and of one cycle.
///
/// # Errors
/// When the configuration or an object cannot be read, or the pod is not decided about.
pub fn place(case: &Case, seed: u64) -> anyhow::Result<Placement> {
    let file = SchedulerConfig::parse(&case.configuration.to_string()).context("configuration")?;
    let settings = config::settings(&file, seed).context("configuration")?;
    let mut core = Core::new(settings);
    for node in &case.nodes {
        let node: wire::Node = read(node).context("node")?;
        core.handle(Event::Node(NodeView::read(&node)), NOW_MS);
    }
    for budget in &case.pod_disruption_budgets {
        let budget: PodDisruptionBudget = read(budget).context("podDisruptionBudget")?;
        core.handle(Event::Budget(BudgetView::read(&budget)), NOW_MS);
    }
    for pod in case.pods.iter().chain([&case.pod]) {
        let pod: wire::Pod = read(pod).context("pod")?;
        core.handle(Event::Pod(PodView::read(&pod)), NOW_MS);
    }
    for change in changes(case)? {
        core.handle(Event::Volumes(change), NOW_MS);
    }
    match core.next(NOW_MS) {
        Some(Decision::Bind(binding)) => Ok(Placement::Node(binding.node.to_string())),
        Some(Decision::BindVolumes(bind)) => Ok(Placement::Node(bind.binding.node.to_string())),
        Some(Decision::FailVolumes(failed)) => bail!("{}", failed.message),
        Some(Decision::Refuse(refused)) => Ok(Placement::Refused(refused.message, None)),
        Some(Decision::Preempt(preemption)) => {
            let victims = preemption.victims.iter().filter(|pod| !pod.progress.deleting);
            let mut victims: Vec<String> = victims.map(PodView::key).collect();
            victims.sort();
            let eviction = Eviction { node: preemption.node.to_string(), victims };
            Ok(Placement::Refused(preemption.refused.message, Some(eviction)))
        }
        None => bail!("no decision about the pod"),
    }
}

/// The objects of storage.
fn changes(case: &Case) -> anyhow::Result<Vec<Change>> {
    fn all<T: serde::de::DeserializeOwned>(
        objects: &[Value],
        change: impl Fn(&T) -> Change,
    ) -> anyhow::Result<Vec<Change>> {
        objects.iter().map(|object| Ok(change(&read(object).context("storage")?))).collect()
    }
    let storage = &case.storage;
    let kinds = [
        all(&storage.persistent_volumes, |it| Change::Volume(Box::new(VolumeView::read(it)))),
        all(&storage.persistent_volume_claims, |it| Change::Claim(ClaimView::read(it))),
        all(&storage.storage_classes, |it| Change::Class(ClassView::read(it))),
        all(&storage.csi_nodes, |it| Change::CsiNode(CsiNodeView::read(it))),
        all(&storage.csi_drivers, |it| Change::Driver(DriverView::read(it))),
        all(&storage.csi_storage_capacities, |it| Change::Capacity(CapacityView::read(it))),
        all(&storage.volume_attachments, |it| Change::Attachment(AttachmentView::read(it))),
    ];
    Ok(kinds.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> anyhow::Result<T> {
    Ok(T::deserialize(value)?)
}
