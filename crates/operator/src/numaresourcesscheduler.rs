//! The controller of the scheduler.
//!
//! In: [`World`]. Out: objects, status. Never: a call, nor a memory of what was asked for before: without the object that asks,
//! nothing is wanted, and what is no longer in it is as if it had never been.
//!
//! What cannot be made (an image that is not trusted, more replicas than nodes, a configuration the scheduler would not start with)
//! leaves the scheduler that is there as it is: it is better than none.

use api::numaresources::scheduler::{KIND, PLURAL, SchedulerInformer, Status};
use api::numaresources::{NamespacedName, NumaResourcesScheduler, ObjectReference, keys};
use deployer::install::ready::{self, Readiness};
use deployer::install::step::WaitState as Pending;
use k8s_openapi::api::apps::v1::Deployment;
use objects::ObjectKind;
use serde_json::Value;

use crate::condition::{self, Extra, State};
use crate::desired::Desired;
use crate::reconcile::Outcome;
use crate::reconcile::rules::{Rules, StatusUpdate, is_paused};
use crate::world::World;
use objects::ObjectKey;

pub mod access;
mod desired;
mod image;
mod informer;
mod replicas;
mod setup;

pub use image::{EMBEDDED_DIGESTS, TrustError, trust};
use setup::{Refused, Setup};

/// A condition: the Go plugin watches pods itself, besides the scheduler.
const DEDICATED_INFORMER: &str = "DedicatedInformerActive";
/// A reason: the object is not called as the only one is.
const WRONG_NAME: &str = "IncorrectNUMAResourcesSchedulerResourceName";
/// A reason: the Deployment does not run yet as it is asked to.
const UPDATING: &str = "DeploymentIsUpdating";
/// A reason: the Deployment has given up.
const STUCK: &str = "DeploymentIsStuck";

/// The rules of this controller.
pub const RULES: Rules = Rules {
    works_for: (KIND, keys::SCHEDULER),
    metadata: |world| world.schedulers.get(keys::SCHEDULER).map(|scheduler| &scheduler.metadata),
    desired,
    status: updates,
    warnings: |_| Vec::new(),
    reports_errors_of: &[],
};

/// What has to be there.
#[must_use]
pub fn desired(world: &World) -> Desired {
    let Some(scheduler) = world.schedulers.get(keys::SCHEDULER) else { return Desired::Nothing };
    if is_paused(&scheduler.metadata) || is_leaving(scheduler) {
        return Desired::Keep;
    }
    let wanted =
        Setup::of(world, scheduler).and_then(|setup| setup.objects(&world.place, world.tls.as_ref()));
    wanted.map_or(Desired::Keep, Desired::Objects)
}

/// The status of each NUMAResourcesScheduler, by name, after `done`; `now` is written where a condition has changed. None of one
/// that is paused, which keeps what it has.
#[must_use]
pub fn status(world: &World, done: &Outcome, now: jiff::Timestamp) -> Vec<(String, Status)> {
    let asked = world.schedulers.iter().filter(|(_, scheduler)| !is_leaving(scheduler));
    let status = asked.filter_map(|(name, scheduler)| {
        let (state, extra, status) = if name != keys::SCHEDULER {
            let message = format!("incorrect {KIND} resource name: {name}; it must be {}", keys::SCHEDULER);
            let status = scheduler.status.clone();
            (State::degraded(WRONG_NAME, message), Extra::unknown(DEDICATED_INFORMER), status)
        } else if is_paused(&scheduler.metadata) {
            return None;
        } else {
            let dedicated = informer::of(&world.place, &scheduler.spec) == SchedulerInformer::Dedicated;
            let extra = Extra::known(DEDICATED_INFORMER, dedicated, String::new());
            let (state, status) = how(world, scheduler, done);
            (state, extra, status)
        };
        let old = &scheduler.status.conditions;
        let generation = scheduler.metadata.generation;
        let conditions = condition::conditions(&state, &[extra], old, generation, now);
        Some((name.clone(), Status { conditions, ..status }))
    });
    status.collect()
}

fn updates(world: &World, outcome: &Outcome, now: jiff::Timestamp) -> Vec<StatusUpdate> {
    let update = |(name, new): (String, Status)| {
        let NumaResourcesScheduler { metadata, status: old, .. } = world.schedulers.get(&name)?;
        StatusUpdate::new((KIND, PLURAL), metadata, (old, &old.conditions), (&new, &new.conditions))
    };
    status(world, outcome, now).into_iter().filter_map(update).collect()
}

/// How it is with the one that counts, and its status but for the conditions.
fn how(world: &World, scheduler: &NumaResourcesScheduler, done: &Outcome) -> (State, Status) {
    // What is there stays, and so does what is said of it.
    let as_before = || scheduler.status.clone();
    let setup = match Setup::of(world, scheduler) {
        Ok(setup) => setup,
        Err(Refused { reason, message }) => return (State::degraded(reason, message), as_before()),
    };
    if !done.errors.is_empty() {
        let mut errors = done.errors.clone();
        errors.sort();
        return (State::degraded(condition::INTERNAL_ERROR, errors.join("\n")), as_before());
    }
    let namespace = world.place.namespace.clone();
    let name = desired::DEPLOYMENT.to_owned();
    let key = ObjectKey {
        kind: ObjectKind::of::<Deployment>(),
        namespace: Some(namespace.clone()),
        name: name.clone(),
    };
    let state = rollout(&format!("{namespace}/{name}"), world.live.get(&key));
    let status = Status {
        deployment: Some(NamespacedName { namespace: namespace.clone(), name: name.clone() }),
        scheduler_name: setup.profile,
        cache_resync_period: Some(setup.resync),
        conditions: Vec::new(),
        related_objects: related(namespace, name),
    };
    (state, status)
}

/// How far the Deployment is. Once nothing is replaced any more its own judgement counts, which allows a replica to be missing (as
/// while a node restarts): the others do the work.
fn rollout(name: &str, live: Option<&Value>) -> State {
    let Some(live) = live else { return State::progressing(UPDATING, format!("{name} is not there yet")) };
    let condition = |kind: &str| {
        let conditions = live["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        conditions.iter().find(|condition| condition["type"] == kind)
    };
    match ready::deployment(live) {
        Readiness::Ready(_) => State::Available,
        Readiness::Pending(Pending::Deployment { replicas, updated, available }) => {
            let counts = format!("{updated} of {replicas} replicas are up to date, {available} available");
            let settled = updated >= replicas && live["status"]["replicas"] == updated;
            let serves = condition("Available").is_some_and(|condition| condition["status"] == "True");
            let gave_up = condition("Progressing")
                .is_some_and(|condition| condition["reason"] == "ProgressDeadlineExceeded");
            match (settled && serves && available > 0, gave_up) {
                (true, _) => State::Available,
                (false, true) => State::degraded(STUCK, format!("{name} does not get on: {counts}")),
                (false, false) => State::progressing(UPDATING, format!("{name} is updating: {counts}")),
            }
        }
        Readiness::Pending(_) => State::progressing(UPDATING, format!("{name} is updating")),
        Readiness::Never(reason) => State::degraded(STUCK, format!("{name}: {reason}")),
    }
}

/// For tools that collect what there is.
fn related(namespace: String, deployment: String) -> Vec<ObjectReference> {
    let of = |group: &str, resource: &str, namespace: String, name: String| ObjectReference {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace,
        name,
    };
    vec![
        of("", "namespaces", String::new(), namespace.clone()),
        of("apps", "deployments", namespace, deployment),
    ]
}

/// Whether it is being deleted: what is its own goes with it, and must not be made again.
fn is_leaving(scheduler: &NumaResourcesScheduler) -> bool {
    scheduler.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests;
