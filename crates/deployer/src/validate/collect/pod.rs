//! Pods, reduced to the fields that checks read.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as Wire, PodSpec};

use super::role;
use crate::validate::evidence::{Pod, Role, Workload};

/// Reads a pod. For a scheduler without a controller (a static pod) also the workload with its spec.
pub(super) fn read(wire: Wire) -> (Pod, Option<(Workload, PodSpec)>) {
    let request = api::convert::pod_request(&wire).map_err(|error| error.to_string());
    let meta = wire.metadata;
    let spec = wire.spec.unwrap_or_default();
    let status = wire.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |name: &str| conditions.iter().find(|condition| condition.type_ == name);
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let times = conditions.iter().filter_map(|condition| Some(condition.last_transition_time.as_ref()?.0));
    let started = status.start_time.as_ref().map(|time| time.0);
    let changed: Option<Timestamp> = times.chain(started).max();
    let pod = Pod {
        namespace: meta.namespace.unwrap_or_default(),
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        node: spec.node_name.clone().filter(|node| !node.is_empty()),
        scheduler: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned()),
        phase: status.phase.unwrap_or_default(),
        reason: status.reason.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        ready: condition("Ready").is_some_and(|condition| condition.status == "True"),
        created: meta.creation_timestamp.map(|time| time.0),
        started,
        changed,
        owner: owner.map(|owner| (owner.kind.clone(), owner.name.clone())),
        role: role::of(&spec),
        request,
    };
    let alone = pod.owner.as_ref().is_none_or(|(kind, _)| kind == "Node");
    let scheduler = match pod.role {
        Some(role @ Role::Scheduler { .. }) if alone && !pod.is_over() => Some(Workload {
            kind: "Pod",
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            role,
            desired: 1,
            ready: i64::from(pod.ready),
            scheduler: None,
        }),
        _ => None,
    };
    (pod, scheduler.map(|workload| (workload, spec)))
}
