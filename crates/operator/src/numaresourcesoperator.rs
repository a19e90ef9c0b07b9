//! The controller of the exporters and of the API they publish with.
//!
//! In: [`World`]. Out: objects, status. Never: a call, nor a memory of what was before: the same world gives the same objects.
//!
//! Each pool of each node group gets a DaemonSet. What keeps one pool from having its exporters (`stage`) keeps no other.

use api::numaresources::keys::{ENABLED, OPERATOR, PAUSE};
use api::numaresources::operator::{KIND, PLURAL, Status};
use api::numaresources::{NumaResourcesOperator, VERSION};

use crate::condition::{INTERNAL_ERROR, State};
use crate::desired::{Controller, Desired, Owner};
use crate::group::Groups;
use crate::reconcile::Outcome;
use crate::reconcile::rules::{Rules, StatusUpdate};
use crate::world::{Image, World};

mod args;
mod daemonset;
mod desired;
mod stage;
mod status;

/// A reason: there is something wrong with the node groups.
pub const INVALID_GROUPS: &str = "ValidationErrorUnderNodeGroups";
/// A reason: the exporters' image must not be chosen.
pub const CUSTOM_IMAGE: &str = "CustomUserImage";
/// A reason: the object's name is another than the one that counts.
pub const INCORRECT_NAME: &str = "IncorrectNUMAResourcesOperatorResourceName";
/// A reason: MachineConfigPools roll out what exporters need, or no longer need.
pub const POOL_UPDATING: &str = "MachineConfigPoolIsUpdating";
/// A reason: exporters are started or replaced.
pub const DAEMON_SET_UPDATING: &str = "DaemonSetIsUpdating";
/// A condition: some of the pools roll nothing out.
pub const POOL_PAUSED: &str = "MachineConfigPoolPaused";
/// A condition: it is known of every pool what its kubelets were told, and they align pods. If not, exporters run all the same; but the
/// scheduler has nothing to go by.
pub const KUBELETS_CONFIGURED: &str = "KubeletsConfigured";

/// The rules of this controller. It also tells what the exporters' configuration could not do.
pub const RULES: Rules = Rules {
    works_for: (KIND, OPERATOR),
    metadata: |world| world.operators.get(OPERATOR).map(|operator| &operator.metadata),
    desired,
    status: updates,
    warnings: |_| Vec::new(),
    reports_errors_of: &[Controller::KubeletConfig],
};

/// What is asked for.
pub(crate) enum Case<'a> {
    /// Nobody asks.
    Nobody,
    /// Nothing is to be touched: that was asked for, or nobody can read what was, or who asks is going away and takes all that is
    /// his own along.
    Frozen,
    /// What is asked for makes no sense.
    Refused(State),
    /// Exporters.
    Wanted(Request<'a>),
}

/// Exporters that are asked for.
pub(crate) struct Request<'a> {
    world: &'a World,
    pub(crate) operator: &'a NumaResourcesOperator,
    pub(crate) groups: Groups<'a>,
}

/// The exporters' image.
struct Choice {
    image: Image,
    /// Whether our exporter is in it. Another is given what the Go one needs.
    own: bool,
}

/// What has to be there.
#[must_use]
pub fn desired(world: &World) -> Desired {
    match Case::of(world) {
        Case::Nobody => Desired::Nothing,
        Case::Frozen | Case::Refused(_) => Desired::Keep,
        Case::Wanted(request) => match desired::objects(&request) {
            Ok(wanted) => Desired::Objects(wanted),
            Err(_) => Desired::Keep,
        },
    }
}

/// The status of each NUMAResourcesOperator, by name, after `done`; `now` is written where a condition has changed.
#[must_use]
pub fn status(world: &World, done: &Outcome, now: jiff::Timestamp) -> Vec<(String, Status)> {
    let status = |(name, operator): (&String, &NumaResourcesOperator)| {
        let status = if name == OPERATOR {
            status::of(world, operator, Case::of(world), done, now)?
        } else {
            let message = format!(
                "incorrect NUMAResourcesOperator resource name: {name}; the only one that counts is {OPERATOR}"
            );
            status::without_objects(operator, &State::degraded(INCORRECT_NAME, message), now)
        };
        Some((name.clone(), status))
    };
    world.operators.iter().filter_map(status).collect()
}

fn updates(world: &World, outcome: &Outcome, now: jiff::Timestamp) -> Vec<StatusUpdate> {
    let update = |(name, new): (String, Status)| {
        let NumaResourcesOperator { metadata, status: old, .. } = world.operators.get(&name)?;
        StatusUpdate::new((KIND, PLURAL), metadata, (old, &old.conditions), (&new, &new.conditions))
    };
    status(world, outcome, now).into_iter().filter_map(update).collect()
}

impl<'a> Case<'a> {
    /// What the world says of it.
    pub(crate) fn of(world: &'a World) -> Self {
        let Some(operator) = world.operators.get(OPERATOR) else {
            let unreadable = world.unreadable.get(KIND).is_some_and(|all| all.contains_key(OPERATOR));
            return if unreadable { Self::Frozen } else { Self::Nobody };
        };
        let annotation = |key: &str| operator.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        if annotation(PAUSE) == Some(ENABLED) || operator.metadata.deletion_timestamp.is_some() {
            return Self::Frozen;
        }
        let image = &operator.spec.image_spec;
        if !image.is_empty() && world.place.exporter_image_restricted {
            let message = format!("custom operand image is not supported: {image}");
            return Self::Refused(State::degraded(CUSTOM_IMAGE, message));
        }
        match Groups::new(world, operator) {
            Ok(groups) => Self::Wanted(Request { world, operator, groups }),
            Err(mistakes) => Self::Refused(State::degraded(INVALID_GROUPS, mistakes)),
        }
    }
}

impl Request<'_> {
    /// Whose the objects are.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            api_version: format!("{}/{VERSION}", api::numaresources::GROUP),
            kind: KIND.to_owned(),
            name: OPERATOR.to_owned(),
            uid: self.operator.metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// What the exporters run.
    fn image(&self) -> Choice {
        let (asked, place) = (&self.operator.spec.image_spec, &self.world.place);
        let image = if asked.is_empty() {
            place.image.clone()
        } else {
            Image { name: asked.clone(), pull_policy: String::new() }
        };
        Choice { own: image.name == place.own.name, image }
    }
}

/// The name of a pool's DaemonSet and of its configuration.
#[must_use]
pub fn set_name(pool: &str) -> String {
    format!("{OPERATOR}-{pool}")
}

#[cfg(test)]
mod tests;
