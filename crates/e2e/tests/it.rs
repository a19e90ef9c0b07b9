//! The suite on real kubelets, against our own stack.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/bad_cluster.rs"]
mod bad_cluster;
#[path = "it/contexts.rs"]
mod contexts;
#[path = "it/defects.rs"]
mod defects;
#[path = "it/interrupted.rs"]
mod interrupted;
#[path = "it/page.rs"]
mod page;
#[path = "it/results.rs"]
mod results;
#[path = "it/rig.rs"]
mod rig;
#[path = "it/suite.rs"]
mod suite;
