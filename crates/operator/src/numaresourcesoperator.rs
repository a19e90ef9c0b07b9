//! The controller of the exporters and of the API they publish with.
//!
//! In: [`World`]. Out: objects, status. Never: a call.

use std::collections::BTreeSet;

use api::numaresources::operator::Status;

use crate::desired::Desired;
use crate::reconcile::Done;
use crate::world::World;

/// What has to be there.
#[must_use]
pub fn desired(_world: &World) -> Desired {
    Desired::Keep
}

/// The status of each NUMAResourcesOperator, by name, after `done`; `now` is written where a condition has changed.
#[must_use]
pub fn status(_world: &World, _done: &Done, _now: jiff::Timestamp) -> Vec<(String, Status)> {
    Vec::new()
}

/// The nodes on which exporters are wanted, by name: their reports are to go with the NUMAResourcesOperator. `None`: that cannot be told, or
/// nothing is to be touched.
#[must_use]
pub fn reporting(_world: &World) -> Option<BTreeSet<String>> {
    None
}
