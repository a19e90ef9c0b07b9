//! The status of a NUMAResourcesOperator.
//!
//! In: its request, the observed objects, failures. Out: a status. Never: a part of a former status.

use api::numaresources::operator::{NodeGroupStatus, Pool as PoolStatus, Status};
use api::numaresources::{NamespacedName, NumaResourcesOperator, ObjectReference};
use deployer::install::ready::{self, Readiness};
use deployer::platform::Platform;
use jiff::Timestamp;
use serde_json::Value;

use super::stage::{Stage, paused, stage};
use super::{
    Case, DAEMON_SET_UPDATING, INTERNAL_ERROR, INVALID_GROUPS, KUBELETS_CONFIGURED, PASSED_OVER, POOL_EMPTY,
    POOL_PAUSED, POOL_UPDATING, Request, daemonset,
};
use crate::cluster_state::ClusterState;
use crate::condition::{Extra, State, conditions};
use crate::desired::Controller;
use crate::group::choice::Choice;
use crate::group::passed_over::passed_over;
use crate::kubeletconfig::source;
use crate::ownership::{Responsible, responsible};
use crate::reconcile::Outcome;
use crate::reconcile::status::{elsewhere, related_object};

/// The number of nodes that a message names.
const SHOWN_NODES: usize = 5;

/// The status of the accepted object; `None`: it stays as it is.
pub(super) fn of(
    cluster: &ClusterState,
    operator: &NumaResourcesOperator,
    case: Case<'_>,
    done: &Outcome,
    now: Timestamp,
) -> Option<Status> {
    match case {
        Case::Absent | Case::Frozen => None,
        Case::Refused(state) => {
            let sets = existing_sets(cluster);
            let related_objects = related(cluster, sets.iter().map(|(set, _)| set));
            let daemon_sets = sets.into_iter().filter(|(_, ready)| *ready).map(|(set, _)| set).collect();
            Some(Status { daemon_sets, related_objects, ..without_objects(operator, &state, now) })
        }
        Case::Wanted(request) => Some(wanted(&request, done, now)),
    }
}

/// The status of an invalid request.
pub(super) fn without_objects(operator: &NumaResourcesOperator, state: &State, now: Timestamp) -> Status {
    let old = &operator.status.conditions;
    Status {
        conditions: conditions(state, &[Extra::unknown(POOL_PAUSED)], old, operator.metadata.generation, now),
        ..Status::default()
    }
}

fn wanted(request: &Request<'_>, done: &Outcome, now: Timestamp) -> Status {
    let cluster = request.cluster;
    let openshift = cluster.environment.platform == Platform::OpenShift;
    let mut status = Status::default();
    let mut there = Vec::new();
    for (group, pool) in request.groups.pools() {
        if let Some(machine) = pool.machine_config_pool.filter(|_| openshift) {
            let forwarded = cluster.environment.forward_pool_conditions;
            status.pools.push(PoolStatus {
                name: pool.name.to_owned(),
                conditions: if forwarded { machine.conditions.clone() } else { Vec::new() },
                config: Some(group.config.clone()),
            });
        }
        let key = daemonset::key(request, pool.name);
        let Some(observed) = cluster.observed.get(&key) else { continue };
        let namespace = key.namespace.clone().unwrap_or_default();
        let set = NamespacedName { namespace, name: key.name };
        status.node_groups.push(NodeGroupStatus {
            daemon_set: set.clone(),
            config: group.config.clone(),
            selector: pool.name.to_owned(),
        });
        if is_ready(observed) {
            status.daemon_sets.push(set.clone());
        }
        there.push(set);
    }
    status.related_objects = related(cluster, there.iter());
    let state = state(request, done, &status.daemon_sets);
    let NumaResourcesOperator { metadata, status: old, .. } = request.operator;
    let extras =
        [paused_pools(request), kubelets(request), empty_pools(request), nodes_of_other_pools(request)];
    status.conditions = conditions(&state, &extras, &old.conditions, metadata.generation, now);
    status
}

/// The state: failures come before unfinished changes, and those before objections.
fn state(request: &Request<'_>, done: &Outcome, ready: &[NamespacedName]) -> State {
    let mut errors = done.errors.clone();
    let (mut pools, mut sets) = (Vec::new(), Vec::new());
    for (group, pool) in request.groups.pools() {
        let stage = stage(request, group, pool);
        match &stage {
            Stage::Impossible(reason) => errors.push(reason.clone()),
            Stage::Arriving | Stage::Leaving => pools.push(format!("{} is updating", pool.name)),
            Stage::Ready | Stage::Asking => {}
        }
        let key = daemonset::key(request, pool.name);
        if (stage == Stage::Asking || !stage.holds()) && !ready.iter().any(|set| set.name == key.name) {
            sets.push(format!("{}/{} is updating", request.cluster.environment.namespace, key.name));
        }
    }
    for list in [&mut errors, &mut pools, &mut sets] {
        list.sort();
        list.dedup();
    }
    if !errors.is_empty() {
        return State::degraded(INTERNAL_ERROR, errors.join("\n"));
    }
    if let Some(state) = elsewhere(request.cluster, "DaemonSet") {
        return state;
    }
    if !pools.is_empty() {
        return State::progressing(POOL_UPDATING, [pools, sets].concat().join(", "));
    }
    if !sets.is_empty() {
        return State::progressing(DAEMON_SET_UPDATING, sets.join(", "));
    }
    match &request.groups.objection {
        Some(objection) => State::degraded(INVALID_GROUPS, objection),
        None => State::Available,
    }
}

fn paused_pools(request: &Request<'_>) -> Extra {
    if request.cluster.environment.platform != Platform::OpenShift {
        return Extra::unknown(POOL_PAUSED);
    }
    let paused = paused(request);
    let message = format!("detected paused MCPs: {}", paused.join(", "));
    Extra::known(POOL_PAUSED, !paused.is_empty(), if paused.is_empty() { String::new() } else { message })
}

/// The pools without a node. A DaemonSet of no pods counts as ready, so nothing else would say so.
fn empty_pools(request: &Request<'_>) -> Extra {
    let has_node =
        |choice: &Choice| request.cluster.nodes.values().any(|node| choice.holds(|key| node.label(key)));
    let pools = request.groups.pools().map(|(_, pool)| pool);
    let empty = pools.filter(|pool| pool.nodes.as_ref().is_ok_and(|choice| !has_node(choice)));
    let mut names: Vec<&str> = empty.map(|pool| pool.name).collect();
    names.sort_unstable();
    let message =
        format!("no node is in: {}; check the groups' selectors and the nodes' labels", names.join(", "));
    Extra::known(POOL_EMPTY, !names.is_empty(), if names.is_empty() { String::new() } else { message })
}

/// The nodes that a group's pool selects and a pool without a group has.
fn nodes_of_other_pools(request: &Request<'_>) -> Extra {
    let nodes = passed_over(request.cluster, &request.groups);
    let shown = nodes.iter().take(SHOWN_NODES);
    let shown: Vec<String> =
        shown.map(|one| format!("{} (in {}, selected by {})", one.node, one.pool, one.selected_by)).collect();
    let more = match nodes.len().saturating_sub(SHOWN_NODES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!(
        "no exporter runs on nodes of pools without a group: {}{more}; add a group for their pool",
        shown.join(", ")
    );
    Extra::known(PASSED_OVER, !nodes.is_empty(), if nodes.is_empty() { String::new() } else { message })
}

/// Whether the settings of all pools' kubelets are known and have no warnings.
fn kubelets(request: &Request<'_>) -> Extra {
    let pools = request.groups.pools();
    let settings: Vec<_> = pools.map(|(_, pool)| source::pool_settings(request.cluster, pool.name)).collect();
    let warnings = || settings.iter().flat_map(|settings| &settings.warnings);
    let mut lines: Vec<&str> = warnings().map(|warning| warning.message.as_str()).collect();
    lines.sort_unstable();
    if lines.is_empty() && settings.iter().any(|settings| settings.pending) {
        return Extra::unknown(KUBELETS_CONFIGURED);
    }
    // Our exporters and nfd-topology-updater read their own node's configuration, so only the operator does not know.
    let only_silent =
        warnings().next().is_some() && warnings().all(|warning| warning.reason == source::SILENT);
    if only_silent && (request.image().own || request.has_nfd()) {
        return Extra { name: KUBELETS_CONFIGURED, holds: None, message: lines.join("\n") };
    }
    Extra::known(KUBELETS_CONFIGURED, lines.is_empty(), lines.join("\n"))
}

/// The existing DaemonSets of this controller, each with whether it is ready.
fn existing_sets(cluster: &ClusterState) -> Vec<(NamespacedName, bool)> {
    let ours = cluster.observed.iter().filter(|(key, observed)| {
        key.kind.kind == "DaemonSet"
            && responsible(key, observed) == Responsible::Controller(Controller::NumaResourcesOperator)
    });
    ours.map(|(key, observed)| {
        let namespace = key.namespace.clone().unwrap_or_default();
        (NamespacedName { namespace, name: key.name.clone() }, is_ready(observed))
    })
    .collect()
}

fn is_ready(set: &Value) -> bool {
    matches!(ready::daemon_set(set), Readiness::Ready(_))
}

/// The objects that tools should collect.
fn related<'a>(
    cluster: &ClusterState,
    sets: impl Iterator<Item = &'a NamespacedName>,
) -> Vec<ObjectReference> {
    const MACHINE: &str = "machineconfiguration.openshift.io";
    let environment = &cluster.environment;
    let mut all = vec![related_object("", "namespaces", "", &environment.namespace)];
    if environment.platform.is_openshift() {
        all.extend(
            ["kubeletconfigs", "machineconfigs"].map(|plural| related_object(MACHINE, plural, "", "")),
        );
    }
    all.push(related_object(api::nrt::GROUP, api::nrt::PLURAL, "", ""));
    all.extend(sets.map(|set| related_object("apps", "daemonsets", &set.namespace, &set.name)));
    all
}
