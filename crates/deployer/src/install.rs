//! Putting parts into a cluster and taking them away.
//!
//! In: parts, a client. Out: a cluster that has exactly them; [`progress`] on the way. Never: the change of an object that is
//! somebody else's, unless asked for.
//!
//! Ours is what has our mark (`app.kubernetes.io/managed-by`), whoever applied it. Everything is written by server-side apply with one
//! field manager, so that the same call again changes nothing, an interrupted one is completed by the next, and fields of others that
//! we do not state stay theirs. `decide.rs` has the rules, and no I/O.

mod decide;
mod deploy;
mod diff;
mod inventory;
mod journal;
pub mod outcome;
pub mod progress;
pub mod ready;
mod remove;
mod run;
pub mod settings;
mod sorts;
mod trouble;
mod wait;

pub use deploy::deploy;
pub use diff::{Difference, diff};
pub use outcome::{Error, Outcome, Removal};
pub use remove::remove;
pub use settings::{DryRun, Settings};
