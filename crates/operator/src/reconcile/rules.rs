//! The pure side of a controller, as the engine calls it.
//!
//! In: a controller. Out: its functions, and the objects of users it works for. Never: a rule of its own.

use std::collections::BTreeSet;

use api::numaresources::{GROUP, VERSION, keys, operator, scheduler};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use runtime::events::Subject;
use serde_json::Value;

use super::Done;
use crate::desired::{Controller, Desired};
use crate::world::World;
use crate::{kubeletconfig, numaresourcesoperator, numaresourcesscheduler};

/// A controller without its I/O.
#[derive(Clone, Copy)]
pub struct Rules {
    /// What has to be there.
    pub desired: fn(&World) -> Desired,
    /// The status of objects of users, as they are and as they should be.
    pub status: fn(&World, &Done, Timestamp) -> Vec<Told>,
}

/// The status of one object of a user.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Whose.
    pub subject: Subject,
    /// Its resource name in paths.
    pub plural: &'static str,
    /// As it is.
    pub old: Value,
    /// As it should be.
    pub new: Value,
    /// Its conditions as they are.
    pub before: Vec<Condition>,
    /// Its conditions as they should be.
    pub conditions: Vec<Condition>,
}

impl Rules {
    /// Those of a controller.
    #[must_use]
    pub fn of(controller: Controller) -> Self {
        match controller {
            Controller::NumaResourcesOperator => {
                Self { desired: numaresourcesoperator::desired, status: operator_status }
            }
            Controller::NumaResourcesScheduler => {
                Self { desired: numaresourcesscheduler::desired, status: scheduler_status }
            }
            // What it cannot do is part of the status of the NUMAResourcesOperator.
            Controller::KubeletConfig => {
                Self { desired: kubeletconfig::desired, status: |_, _, _| Vec::new() }
            }
        }
    }
}

/// What a controller wants. If nobody can read what is asked of it, everything stays as it is.
#[must_use]
pub fn desired(rules: Rules, world: &World, controller: Controller) -> Desired {
    let (kind, name) = employment(controller);
    if world.unreadable.get(kind).is_some_and(|odd| odd.contains_key(name)) {
        return Desired::Keep;
    }
    (rules.desired)(world)
}

/// The kind and the name of the object that a controller works for.
fn employment(controller: Controller) -> (&'static str, &'static str) {
    match controller {
        Controller::NumaResourcesScheduler => (scheduler::KIND, keys::SCHEDULER),
        Controller::NumaResourcesOperator | Controller::KubeletConfig => (operator::KIND, keys::OPERATOR),
    }
}

/// The metadata of the object that a controller works for, if it is there.
#[must_use]
pub fn employer(world: &World, controller: Controller) -> Option<&ObjectMeta> {
    match controller {
        Controller::NumaResourcesScheduler => {
            world.schedulers.get(keys::SCHEDULER).map(|scheduler| &scheduler.metadata)
        }
        Controller::NumaResourcesOperator | Controller::KubeletConfig => {
            world.operators.get(keys::OPERATOR).map(|operator| &operator.metadata)
        }
    }
}

/// The same for those who tell of it.
#[must_use]
pub fn subject(world: &World, controller: Controller) -> Option<Subject> {
    let (kind, _) = employment(controller);
    employer(world, controller).map(|metadata| subject_of(kind, metadata))
}

/// Whether everything is to be left as it is.
#[must_use]
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    let pause = metadata.annotations.as_ref().and_then(|annotations| annotations.get(keys::PAUSE));
    pause.is_some_and(|pause| pause == keys::ENABLED)
}

/// The unique ids of all objects of users.
#[must_use]
pub fn owners(world: &World) -> BTreeSet<String> {
    let operators = world.operators.values().map(|operator| &operator.metadata);
    let schedulers = world.schedulers.values().map(|scheduler| &scheduler.metadata);
    let odd = world.unreadable.values().flat_map(|odd| odd.values()).map(|odd| odd.uid.clone());
    operators.chain(schedulers).filter_map(|metadata| metadata.uid.clone()).chain(odd).collect()
}

fn operator_status(world: &World, done: &Done, now: Timestamp) -> Vec<Told> {
    let told = numaresourcesoperator::status(world, done, now);
    let told = told.into_iter().filter_map(|(name, new)| {
        let operator = world.operators.get(&name).filter(|operator| !is_paused(&operator.metadata))?;
        Some(Told {
            subject: subject_of(operator::KIND, &operator.metadata),
            plural: operator::PLURAL,
            old: serde_json::to_value(&operator.status).ok()?,
            new: serde_json::to_value(&new).ok()?,
            before: operator.status.conditions.clone(),
            conditions: new.conditions,
        })
    });
    told.collect()
}

fn scheduler_status(world: &World, done: &Done, now: Timestamp) -> Vec<Told> {
    let told = numaresourcesscheduler::status(world, done, now);
    let told = told.into_iter().filter_map(|(name, new)| {
        let scheduler = world.schedulers.get(&name).filter(|scheduler| !is_paused(&scheduler.metadata))?;
        Some(Told {
            subject: subject_of(scheduler::KIND, &scheduler.metadata),
            plural: scheduler::PLURAL,
            old: serde_json::to_value(&scheduler.status).ok()?,
            new: serde_json::to_value(&new).ok()?,
            before: scheduler.status.conditions.clone(),
            conditions: new.conditions,
        })
    });
    told.collect()
}

fn subject_of(kind: &str, metadata: &ObjectMeta) -> Subject {
    Subject {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.to_owned(),
        namespace: String::new(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Unreadable;

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let options = crate::dialect::render::Options::default();
        let mut world =
            crate::dialect::render::world(deployer::platform::Platform::Kubernetes, None, &options);
        let odd = Unreadable { uid: "odd".to_owned(), reason: "spec".to_owned() };
        world.operators.clear();
        world.unreadable.insert(operator::KIND, [(keys::OPERATOR.to_owned(), odd)].into());
        let wants = |controller| {
            desired(Rules { desired: |_| Desired::Nothing, ..Rules::of(controller) }, &world, controller)
        };
        assert_eq!(wants(Controller::NumaResourcesOperator), Desired::Keep);
        assert_eq!(wants(Controller::KubeletConfig), Desired::Keep);
        assert_eq!(wants(Controller::NumaResourcesScheduler), Desired::Nothing);
        assert!(owners(&world).contains("odd"));
    }
}
