//! The rules of the controllers, as the runtime calls them.
//!
//! In: a controller. Out: its functions, and the user's object that it works for. Never: a rule of its own.

use std::collections::BTreeSet;

use api::numaresources::{GROUP, VERSION, keys};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use runtime::events::Subject;
use serde::Serialize;
use serde_json::Value;

use super::Outcome;
use crate::desired::{Controller, Desired};
use crate::kubeletconfig::Warning;
use crate::world::World;
use crate::{kubeletconfig, numaresourcesoperator, numaresourcesscheduler};

/// A controller without its I/O.
#[derive(Clone, Copy)]
pub struct Rules {
    /// The kind and the name of the user's object that it works for.
    pub works_for: (&'static str, &'static str),
    /// The metadata of that object, if it exists.
    pub metadata: fn(&World) -> Option<&ObjectMeta>,
    /// The desired objects.
    pub desired: fn(&World) -> Desired,
    /// The status of users' objects, as it is and as it should be.
    pub status: fn(&World, &Outcome, Timestamp) -> Vec<StatusUpdate>,
    /// What people should be warned of.
    pub warnings: fn(&World) -> Vec<Warning>,
    /// Controllers whose failures stand in this one's status.
    pub reports_errors_of: &'static [Controller],
}

/// The status of one user's object.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    /// The object.
    pub subject: Subject,
    /// Its resource name in paths.
    pub plural: &'static str,
    /// The status as it is.
    pub old: Value,
    /// The status as it should be.
    pub new: Value,
    /// The conditions as they are.
    pub old_conditions: Vec<Condition>,
    /// The conditions as they should be.
    pub conditions: Vec<Condition>,
}

impl Rules {
    /// The rules of a controller.
    #[must_use]
    pub fn of(controller: Controller) -> Self {
        match controller {
            Controller::NumaResourcesOperator => numaresourcesoperator::RULES,
            Controller::NumaResourcesScheduler => numaresourcesscheduler::RULES,
            Controller::KubeletConfig => kubeletconfig::RULES,
        }
    }

    /// The desired objects. An unreadable request leaves everything as it is.
    #[must_use]
    pub fn desired(&self, world: &World) -> Desired {
        let (kind, name) = self.works_for;
        if world.unreadable.get(kind).is_some_and(|all| all.contains_key(name)) {
            return Desired::Keep;
        }
        (self.desired)(world)
    }

    /// The user's object that the controller works for, for events.
    #[must_use]
    pub fn subject(&self, world: &World) -> Option<Subject> {
        (self.metadata)(world).map(|metadata| subject_of(self.works_for.0, metadata))
    }
}

impl StatusUpdate {
    /// The update of an object's status from `old` to `new`; `None` for a paused object.
    pub fn new<S: Serialize>(
        (kind, plural): (&str, &'static str),
        metadata: &ObjectMeta,
        (old, old_conditions): (&S, &[Condition]),
        (new, conditions): (&S, &[Condition]),
    ) -> Option<Self> {
        if is_paused(metadata) {
            return None;
        }
        Some(Self {
            subject: subject_of(kind, metadata),
            plural,
            old: serde_json::to_value(old).ok()?,
            new: serde_json::to_value(new).ok()?,
            old_conditions: old_conditions.to_vec(),
            conditions: conditions.to_vec(),
        })
    }
}

/// Whether a user's object is paused: everything is left as it is.
#[must_use]
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    let pause = metadata.annotations.as_ref().and_then(|annotations| annotations.get(keys::PAUSE));
    pause.is_some_and(|pause| pause == keys::ENABLED)
}

/// The UIDs of all users' objects.
#[must_use]
pub fn owners(world: &World) -> BTreeSet<String> {
    let operators = world.operators.values().map(|operator| &operator.metadata);
    let schedulers = world.schedulers.values().map(|scheduler| &scheduler.metadata);
    let unreadable = world.unreadable.values().flat_map(|all| all.values()).map(|one| one.uid.clone());
    operators.chain(schedulers).filter_map(|metadata| metadata.uid.clone()).chain(unreadable).collect()
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
    use api::numaresources::operator;

    use super::*;
    use crate::world::Unreadable;

    #[test]
    fn an_unreadable_request_changes_nothing() {
        let options = crate::dialect::render::Options::default();
        let mut world =
            crate::dialect::render::world(deployer::platform::Platform::Kubernetes, None, &options);
        let odd = Unreadable { uid: "odd".to_owned(), reason: "spec".to_owned() };
        world.operators.clear();
        world.unreadable.insert(operator::KIND, [(keys::OPERATOR.to_owned(), odd)].into());
        let wants =
            |controller| Rules { desired: |_| Desired::Nothing, ..Rules::of(controller) }.desired(&world);
        assert_eq!(wants(Controller::NumaResourcesOperator), Desired::Keep);
        assert_eq!(wants(Controller::KubeletConfig), Desired::Keep);
        assert_eq!(wants(Controller::NumaResourcesScheduler), Desired::Nothing);
        assert!(owners(&world).contains("odd"));
    }
}
