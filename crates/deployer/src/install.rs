//! Installing components in a cluster, and removing them.
//!
//! In: parts, a client. Out: a cluster that has exactly these objects; progress as [`step`]s. Never: a change of an
//! object of others, unless adoption is asked for.
//!
//! An object is ours if it has our label (`app.kubernetes.io/managed-by`). Objects are written by server-side apply
//! with one field manager. So a second run changes nothing, a run after an interruption completes the first one, and
//! fields that we do not state stay with their owners. `decide.rs` has the rules, without I/O.

mod decide;
mod deploy;
mod diagnosis;
mod diff;
mod inventory;
mod kinds;
pub mod outcome;
pub mod ready;
mod remove;
mod rollback;
mod run;
pub mod settings;
pub mod step;
mod wait;

pub use deploy::deploy;
pub use diff::diff;
pub use outcome::{Error, Outcome, Removal};
pub use remove::remove;
pub use settings::{DryRun, Settings};
