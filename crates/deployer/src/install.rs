//! Putting parts into a cluster and taking them away.

pub mod outcome;
pub mod progress;
pub mod settings;

pub use outcome::{Error, Outcome, Removal};
pub use settings::{DryRun, Settings};
