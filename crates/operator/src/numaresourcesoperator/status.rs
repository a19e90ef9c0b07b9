//! How it is with what a NUMAResourcesOperator asks for.
//!
//! In: what is asked for, what is there, what could not be done. Out: a status. Never: what was true once: each part of it is said anew.

use api::numaresources::operator::{NodeGroupStatus, Pool as PoolStatus, Status};
use api::numaresources::{NamespacedName, NumaResourcesOperator, ObjectReference};
use deployer::install::ready::{self, Readiness};
use deployer::platform::Platform;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::stage::{Stage, paused, stage};
use super::{
    Case, DAEMON_SET_UPDATING, INTERNAL_ERROR, INVALID_GROUPS, KUBELETS_CONFIGURED, POOL_PAUSED,
    POOL_UPDATING, Request, daemonset,
};
use crate::condition::{Extra, State, conditions};
use crate::desired::Controller;
use crate::kubeletconfig;
use crate::ownership::{Responsible, responsible};
use crate::reconcile::Outcome;
use crate::world::World;

/// The status of the one that counts; `None`: it is left as it is.
pub(super) fn of(
    world: &World,
    operator: &NumaResourcesOperator,
    case: Case<'_>,
    done: &Outcome,
    now: Timestamp,
) -> Option<Status> {
    match case {
        Case::Nobody | Case::Frozen => None,
        Case::Refused(state) => {
            let daemon_sets = sets_of_ours(world);
            let related_objects = related(world, daemon_sets.iter());
            let daemon_sets = daemon_sets.into_iter().filter(|set| is_ready(world, set)).collect();
            Some(Status { daemon_sets, related_objects, ..without_objects(operator, &state, now) })
        }
        Case::Wanted(request) => Some(wanted(&request, done, now)),
    }
}

/// The status of one whose wishes come to nothing.
pub(super) fn without_objects(operator: &NumaResourcesOperator, state: &State, now: Timestamp) -> Status {
    Status { conditions: told(operator, state, &[Extra::unknown(POOL_PAUSED)], now), ..Status::default() }
}

fn told(operator: &NumaResourcesOperator, state: &State, extras: &[Extra], now: Timestamp) -> Vec<Condition> {
    conditions(state, extras, &operator.status.conditions, operator.metadata.generation, now)
}

fn wanted(request: &Request<'_>, done: &Outcome, now: Timestamp) -> Status {
    let world = request.world;
    let openshift = world.place.platform == Platform::OpenShift;
    let mut status = Status::default();
    let mut there = Vec::new();
    for (group, pool) in request.groups.pools() {
        if let Some(machine) = pool.machine_config_pool.filter(|_| openshift) {
            let forwarded = world.place.forward_pool_conditions;
            status.pools.push(PoolStatus {
                name: pool.name.to_owned(),
                conditions: if forwarded { machine.conditions.clone() } else { Vec::new() },
                config: Some(group.config.clone()),
            });
        }
        let key = daemonset::key(request, pool.name);
        let Some(live) = world.live.get(&key) else { continue };
        let namespace = key.namespace.clone().unwrap_or_default();
        let set = NamespacedName { namespace, name: key.name };
        status.node_groups.push(NodeGroupStatus {
            daemon_set: set.clone(),
            config: group.config.clone(),
            selector: pool.name.to_owned(),
        });
        if matches!(ready::daemon_set(live), Readiness::Ready(_)) {
            status.daemon_sets.push(set.clone());
        }
        there.push(set);
    }
    status.related_objects = related(world, there.iter());
    let state = state(request, done, &status.daemon_sets);
    status.conditions = told(request.operator, &state, &[paused_pools(request), kubelets(request)], now);
    status
}

/// How it is, as one word: what cannot be done comes before what is not done yet, and that before what is merely not as it should be.
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
            sets.push(format!("{}/{} is updating", request.world.place.namespace, key.name));
        }
    }
    for list in [&mut errors, &mut pools, &mut sets] {
        list.sort();
        list.dedup();
    }
    if !errors.is_empty() {
        return State::degraded(INTERNAL_ERROR, errors.join("\n"));
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
    if request.world.place.platform != Platform::OpenShift {
        return Extra::unknown(POOL_PAUSED);
    }
    let paused = paused(request);
    let message = format!("detected paused MCPs: {}", paused.join(", "));
    Extra::known(POOL_PAUSED, !paused.is_empty(), if paused.is_empty() { String::new() } else { message })
}

/// Whether the kubelets of all pools are as they should be, as far as that is known.
fn kubelets(request: &Request<'_>) -> Extra {
    let told = |pool: &str| kubeletconfig::source::told(request.world, request.operator, pool);
    let told: Vec<_> = request.groups.pools().map(|(_, pool)| told(pool.name)).collect();
    let warnings = told.iter().flat_map(|told| &told.warnings);
    let mut lines: Vec<&str> = warnings.map(|warning| warning.message.as_str()).collect();
    lines.sort_unstable();
    if lines.is_empty() && told.iter().any(|told| told.awaited) {
        return Extra::unknown(KUBELETS_CONFIGURED);
    }
    Extra::known(KUBELETS_CONFIGURED, lines.is_empty(), lines.join("\n"))
}

/// DaemonSets that an earlier wish left.
fn sets_of_ours(world: &World) -> Vec<NamespacedName> {
    let ours = world.live.iter().filter(|(key, live)| {
        key.kind.kind == "DaemonSet"
            && responsible(key, live) == Responsible::Controller(Controller::NumaResourcesOperator)
    });
    ours.map(|(key, _)| NamespacedName {
        namespace: key.namespace.clone().unwrap_or_default(),
        name: key.name.clone(),
    })
    .collect()
}

fn is_ready(world: &World, set: &NamespacedName) -> bool {
    let found = world.live.iter().find(|(key, _)| {
        key.kind.kind == "DaemonSet" && key.name == set.name && key.namespace.as_ref() == Some(&set.namespace)
    });
    found.is_some_and(|(_, live): (_, &Value)| matches!(ready::daemon_set(live), Readiness::Ready(_)))
}

/// What tools should collect.
fn related<'a>(world: &World, sets: impl Iterator<Item = &'a NamespacedName>) -> Vec<ObjectReference> {
    const MACHINE: &str = "machineconfiguration.openshift.io";
    let place = &world.place;
    let named = |group: &str, resource: &str, namespace: &str, name: &str| {
        let [group, resource, namespace, name] = [group, resource, namespace, name].map(str::to_owned);
        ObjectReference { group, resource, namespace, name }
    };
    let mut all = vec![named("", "namespaces", "", &place.namespace)];
    if place.platform.is_openshift() {
        all.push(named(MACHINE, "kubeletconfigs", "", ""));
        all.push(named(MACHINE, "machineconfigs", "", ""));
    }
    all.push(named(api::nrt::GROUP, api::nrt::PLURAL, "", ""));
    all.extend(sets.map(|set| named("apps", "daemonsets", &set.namespace, &set.name)));
    all
}
