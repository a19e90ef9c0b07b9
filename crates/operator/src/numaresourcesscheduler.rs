//! The controller of the scheduler.
//!
//! In: [`ClusterState`]. Out: objects, status. Never: a call, or a memory of former requests: what is no longer
//! requested is not desired.
//!
//! An invalid request (an image that is not trusted, more replicas than nodes, a configuration the scheduler would not
//! start with) leaves the existing scheduler as it is: that is better than none. Available stays true while it works.

use api::numaresources::scheduler::{KIND, SchedulerInformer, Status};
use api::numaresources::{NamespacedName, NumaResourcesScheduler, keys};
use deployer::install::ready::{self, Readiness};
use deployer::install::step::WaitState as Pending;
use k8s_openapi::api::apps::v1::Deployment;
use objects::ObjectKey;
use runtime::events::Subject;
use serde_json::Value;

use crate::cluster_state::ClusterState;
use crate::condition::{self, Extra, State};
use crate::desired::Desired;
use crate::reconcile::Outcome;
use crate::reconcile::rules::{Rules, StatusUpdate, is_paused};
use crate::reconcile::status::{elsewhere, related_object};

mod desired;
mod image;
mod informer;
mod replicas;
mod setup;

pub(crate) use desired::{cluster_rules, lease_rules};
pub use image::{EMBEDDED_DIGESTS, trust};
pub(crate) use replicas::WORKER;
use setup::Setup;

/// A condition: the Go plugin has its own watch of pods, besides the scheduler's.
const DEDICATED_INFORMER: &str = "DedicatedInformerActive";
/// A reason: the object has another name than the accepted one.
const WRONG_NAME: &str = "IncorrectNUMAResourcesSchedulerResourceName";
/// A reason: the Deployment is being rolled out.
const UPDATING: &str = "DeploymentIsUpdating";
/// A reason: the rollout of the Deployment failed.
const STUCK: &str = "DeploymentIsStuck";

/// The rules of this controller.
pub const RULES: Rules = Rules {
    works_for: (KIND, keys::SCHEDULER),
    subject: |cluster| cluster.schedulers.get(keys::SCHEDULER).map(Subject::of),
    is_paused: |cluster| cluster.schedulers.get(keys::SCHEDULER).is_some_and(is_paused),
    desired,
    status: |cluster, done, now| {
        StatusUpdate::all(&cluster.schedulers, |one| &one.status, status(cluster, done, now))
    },
    warnings: |_| Vec::new(),
    reports_errors_of: &[],
};

/// The desired objects.
#[must_use]
pub fn desired(cluster: &ClusterState) -> Desired {
    let Some(scheduler) = cluster.schedulers.get(keys::SCHEDULER) else { return Desired::Nothing };
    if is_paused(scheduler) || is_leaving(scheduler) {
        return Desired::Keep;
    }
    let Ok(setup) = Setup::of(cluster, scheduler) else { return Desired::Keep };
    Desired::Objects(setup.objects(cluster))
}

/// The status of each NUMAResourcesScheduler, by name, after a reconcile with this outcome. `now` becomes the
/// transition time of conditions that changed. A paused object has none: it keeps its status.
#[must_use]
pub fn status(cluster: &ClusterState, done: &Outcome, now: jiff::Timestamp) -> Vec<(String, Status)> {
    let asked = cluster.schedulers.iter().filter(|(_, scheduler)| !is_leaving(scheduler));
    let status = asked.filter_map(|(name, scheduler)| {
        let (state, extra, status) = if name != keys::SCHEDULER {
            let message = format!("incorrect {KIND} resource name: {name}; it must be {}", keys::SCHEDULER);
            let status = scheduler.status.clone();
            (State::degraded(WRONG_NAME, message), Extra::unknown(DEDICATED_INFORMER), status)
        } else if is_paused(scheduler) {
            return None;
        } else {
            let dedicated =
                informer::of(&cluster.environment, &scheduler.spec) == SchedulerInformer::Dedicated;
            let extra = Extra::known(DEDICATED_INFORMER, dedicated, String::new());
            let (state, status) = accepted_status(cluster, scheduler, done);
            (state, extra, status)
        };
        let old = &scheduler.status.conditions;
        let generation = scheduler.metadata.generation;
        let conditions = condition::conditions(&state, &[extra], old, generation, now);
        Some((name.clone(), Status { conditions, ..status }))
    });
    status.collect()
}

/// The state of the accepted object, and its status without conditions.
fn accepted_status(
    cluster: &ClusterState,
    scheduler: &NumaResourcesScheduler,
    done: &Outcome,
) -> (State, Status) {
    // The existing scheduler stays, and so does its status.
    let unchanged = || scheduler.status.clone();
    let (namespace, name) = (cluster.environment.namespace.as_str(), desired::DEPLOYMENT);
    let key = ObjectKey::of::<Deployment>(Some(namespace), name);
    let state = rollout(&format!("{namespace}/{name}"), cluster.observed.get(&key));
    let setup = match Setup::of(cluster, scheduler) {
        Ok(setup) => setup,
        Err(refused) if state == State::Available => return (refused.while_earlier_works(), unchanged()),
        Err(refused) => return (refused, unchanged()),
    };
    if !done.errors.is_empty() {
        let mut errors = done.errors.clone();
        errors.sort();
        return (State::degraded(condition::INTERNAL_ERROR, errors.join("\n")), unchanged());
    }
    let state = elsewhere(cluster, &key.kind.kind).unwrap_or(state);
    let status = Status {
        deployment: Some(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }),
        scheduler_name: setup.profile,
        cache_resync_period: Some(setup.resync),
        conditions: Vec::new(),
        related_objects: vec![
            related_object("", "namespaces", "", namespace),
            related_object("apps", "deployments", namespace, name),
        ],
    };
    (state, status)
}

/// The state of the Deployment. After the rollout its own condition counts, which allows a missing replica (as while a
/// node restarts): the others do the work.
fn rollout(name: &str, observed: Option<&Value>) -> State {
    let Some(observed) = observed else {
        return State::progressing(UPDATING, format!("{name} is not there yet"));
    };
    let condition = |kind: &str| {
        let conditions = observed["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        conditions.iter().find(|condition| condition["type"] == kind)
    };
    match ready::deployment(observed) {
        Readiness::Ready(_) => State::Available,
        Readiness::Pending(Pending::Deployment { replicas, updated, available }) => {
            let counts = format!("{updated} of {replicas} replicas are up to date, {available} available");
            let settled = updated >= replicas && observed["status"]["replicas"] == updated;
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

/// Whether it is being deleted, together with what it owns, which must not be made again.
fn is_leaving(scheduler: &NumaResourcesScheduler) -> bool {
    scheduler.metadata.deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests;
