//! The controller runtime: what every controller does besides its own rules.
//!
//! In: keys of what changed, a [`Reconciler`]. Out: reconciles, one at a time for each key, again when their requeue
//! says so. Never: a rule of one controller.
//!
//! | module | concern |
//! |---|---|
//! | [`queue`] | keys in, reconciles out: [`Queue`], [`run`], [`Requeue`] |
//! | [`state`] | the observed state between watches and reconciles: [`SharedState`] |
//! | [`table`] | watch events into tables |
//! | [`retry`] | actions that failed, each with a retry slot of its own |
//! | [`status`] | status patches, condition transitions as events |
//! | [`leader`] | waiting for the lease and for all watches |

pub mod leader;
pub mod queue;
pub mod retry;
pub mod state;
pub mod status;
pub mod table;

pub use queue::{Options, Queue, Reason, Reconciler, Requeue, run};
pub use retry::{Retry, RetryState};
pub use state::SharedState;
pub use status::Transition;
