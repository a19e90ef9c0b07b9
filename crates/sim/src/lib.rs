//! Clusters in virtual time: the real scheduler core and the real model of the kubelet, without a cluster.
//!
//! In: machines, a workload, delays. Out: the fate of the pods under each scheduler; the same seed gives the same
//! bytes. Never: a placement decision (crate `scheduler`) or an admission decision (crate `topology`) of its own, a
//! clock, or threads.

pub mod admit;
pub mod chart;
pub mod cli;
pub mod comparison;
#[cfg(test)]
mod fuzz;
pub mod kubelet;
pub mod latency;
pub mod machine;
mod plural;
pub mod preset;
pub mod record;
pub mod report;
pub mod simulation;
pub mod spread;
pub mod table;
pub mod workload;

pub use comparison::ideal;
