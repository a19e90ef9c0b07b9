//! The controller of the scheduler.
//!
//! In: [`World`]. Out: objects, status. Never: a call.

use api::numaresources::scheduler::Status;

use crate::desired::Desired;
use crate::reconcile::Done;
use crate::world::World;

/// What has to be there.
#[must_use]
pub fn desired(_world: &World) -> Desired {
    Desired::Keep
}

/// The status of each NUMAResourcesScheduler, by name, after `done`; `now` is written where a condition has changed.
#[must_use]
pub fn status(_world: &World, _done: &Done, _now: jiff::Timestamp) -> Vec<(String, Status)> {
    Vec::new()
}
