//! The device plugin against real kubelets.
//!
//! Needs the rig; where its parts are missing, each test is skipped with a warning.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/alignment.rs"]
mod alignment;
#[path = "it/dra.rs"]
mod dra;
#[path = "it/faults.rs"]
mod faults;
#[path = "it/kills.rs"]
mod kills;
#[path = "it/rig.rs"]
mod rig;
#[path = "it/variables.rs"]
mod variables;
#[path = "it/watcher.rs"]
mod watcher;
