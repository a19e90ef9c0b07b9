//! Clusters in virtual time: the same scheduler and the same model of the kubelet, no cluster needed.
//!
//! In: machines, pods to come, delays. Out: what became of the pods under one scheduler or another, the same for the same
//! seed to the byte. Never: a decision about placement (crate `scheduler`) or admission (crate `topology`) of its own, a
//! clock, or threads.

pub mod chart;
pub mod cli;
pub mod comparison;
pub mod kubelet;
pub mod latency;
pub mod machine;
pub mod random;
pub mod record;
pub mod table;
pub mod workload;
pub mod world;

pub use comparison::ideal;
