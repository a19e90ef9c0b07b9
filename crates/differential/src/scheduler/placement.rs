//! Our answer to a case: the core with the same objects.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use api::schedulerconfig::SchedulerConfig;
use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::AllocationResult;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use scheduler::budget::BudgetView;
use scheduler::config;
use scheduler::core::{Binding, Core, Decision, Event};
use scheduler::default_selector::{SelectingKey, SelectingKind, SelectingView};
use scheduler::devices::Change as DeviceChange;
use scheduler::devices::views::claim::ClaimView as DeviceClaimView;
use scheduler::devices::views::{ClassView as DeviceClassView, SliceView};
use scheduler::namespace::NamespaceView;
use scheduler::node::NodeView;
use scheduler::pod::PodView;
use scheduler::volumes::Change;
use scheduler::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};
use serde_json::Value;

use crate::scheduler::case::Case;

/// What our core does with the pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// It goes to this node, by these total scores of the nodes that fit, and its claims get these devices.
    Node(String, BTreeMap<String, i64>, BTreeMap<String, AllocationResult>),
    /// It fits no node, with the message; and perhaps preemption frees one, and a claim gives its devices back.
    Refused(String, Option<Eviction>, Option<String>),
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
    for namespace in &case.namespaces {
        let namespace: wire::Namespace = read(namespace).context("namespace")?;
        core.handle(Event::Namespace(NamespaceView::read(&namespace)), NOW_MS);
    }
    for (kind, objects) in [
        (SelectingKind::Service, &case.services),
        (SelectingKind::ReplicationController, &case.replication_controllers),
        (SelectingKind::ReplicaSet, &case.replica_sets),
        (SelectingKind::StatefulSet, &case.stateful_sets),
    ] {
        for object in objects {
            core.handle(Event::Selecting(selecting(kind, object)?), NOW_MS);
        }
    }
    for budget in &case.pod_disruption_budgets {
        let budget: PodDisruptionBudget = read(budget).context("podDisruptionBudget")?;
        core.handle(Event::Budget(BudgetView::read(&budget)), NOW_MS);
    }
    for pod in case.pods.iter().chain([&case.pod]) {
        let pod: wire::Pod = read(pod).context("pod")?;
        core.handle(Event::Pod(PodView::read(&pod)), NOW_MS);
    }
    for change in device_changes(case)? {
        core.handle(Event::Devices(change), NOW_MS);
    }
    for change in changes(case)? {
        core.handle(Event::Volumes(change), NOW_MS);
    }
    let uid = case.pod["metadata"]["uid"].as_str().unwrap_or_default();
    let mut decision = core.next(NOW_MS);
    // Others that wait for a nominated node are refused first, and go on waiting for it.
    while let Some(Decision::Refuse(refused)) = &decision
        && &*refused.pod.uid != uid
        && refused.nominated.is_some()
    {
        decision = core.next(NOW_MS);
    }
    match decision {
        Some(Decision::Bind(binding)) if &*binding.pod.uid == uid => Ok(on_node(&core, &binding)),
        Some(Decision::ReserveClaims(reserve)) if &*reserve.binding.pod.uid == uid => {
            Ok(on_node(&core, &reserve.binding))
        }
        Some(Decision::BindVolumes(bind)) if &*bind.binding.pod.uid == uid => {
            Ok(on_node(&core, &bind.binding))
        }
        Some(Decision::FailVolumes(failed)) => bail!("{}", failed.message),
        Some(Decision::Refuse(refused)) if &*refused.pod.uid == uid => {
            let claim = refused.deallocation.map(|claim| claim.key.to_string());
            Ok(Placement::Refused(refused.message, None, claim))
        }
        Some(Decision::Preempt(preemption)) if &*preemption.refused.pod.uid == uid => {
            let victims = preemption.victims.iter().filter(|pod| !pod.progress.deleting);
            let mut victims: Vec<String> = victims.map(PodView::key).collect();
            victims.sort();
            let eviction = Eviction { node: preemption.node.to_string(), victims };
            let claim = preemption.refused.deallocation.map(|claim| claim.key.to_string());
            Ok(Placement::Refused(preemption.refused.message, Some(eviction), claim))
        }
        other => bail!("no decision about the pod: {other:?}"),
    }
}

/// The node of a pod, with the scores of all nodes that fit.
fn on_node(core: &Core, binding: &Binding) -> Placement {
    let scores = core.last_scores().map(|(node, score)| (node.to_string(), score)).collect();
    let claims = core.pending_claims(binding.id);
    let claims = claims.map(|(key, allocation)| (key.to_string(), allocation.wire.clone())).collect();
    Placement::Node(binding.node.to_string(), scores, claims)
}

/// An object that selects pods.
fn selecting(kind: SelectingKind, object: &Value) -> anyhow::Result<SelectingView> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().into();
    let key = SelectingKey { kind, namespace: text("namespace"), name: text("name") };
    let stated = &object["spec"]["selector"];
    let selector = match kind {
        SelectingKind::Service | SelectingKind::ReplicationController => {
            let match_labels: Option<BTreeMap<String, String>> = read(stated).context("selector")?;
            match_labels
                .map(|labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() })
        }
        SelectingKind::ReplicaSet | SelectingKind::StatefulSet => read(stated).context("selector")?,
    };
    Ok(SelectingView::new(key, selector))
}

/// Devices and claims for them.
fn device_changes(case: &Case) -> anyhow::Result<Vec<DeviceChange>> {
    let devices = &case.devices;
    let kinds = [
        all(&devices.device_classes, |it| DeviceChange::Class(Box::new(DeviceClassView::read(it)))),
        all(&devices.resource_slices, |it| DeviceChange::Slice(Box::new(SliceView::read(it)))),
        all(&devices.resource_claims, |it| DeviceChange::Claim(Box::new(DeviceClaimView::read(it)))),
    ];
    Ok(kinds.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
}

fn all<T: serde::de::DeserializeOwned, C>(
    objects: &[Value],
    change: impl Fn(&T) -> C,
) -> anyhow::Result<Vec<C>> {
    objects.iter().map(|object| Ok(change(&read(object).context("object")?))).collect()
}

/// The objects of storage.
fn changes(case: &Case) -> anyhow::Result<Vec<Change>> {
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
