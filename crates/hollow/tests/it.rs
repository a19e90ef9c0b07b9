//! Hollow nodes on a real API server, with our scheduler.
//!
//! Needs the rig; without its parts the tests are skipped with a warning.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/cluster.rs"]
mod cluster;
#[path = "it/core_cluster.rs"]
mod core_cluster;
#[path = "it/cost.rs"]
mod cost;
#[path = "it/defrag.rs"]
mod defrag;
#[path = "it/explain.rs"]
mod explain;
#[path = "it/placement.rs"]
mod placement;
#[path = "it/preemption.rs"]
mod preemption;
#[path = "it/withdrawal.rs"]
mod withdrawal;
