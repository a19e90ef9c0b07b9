//! The operator: keeps NUMA-aware scheduling as NUMAResourcesOperator and NUMAResourcesScheduler objects describe it.
//!
//! In: those objects, and the cluster's state ([`cluster_state`]). Out: desired objects ([`desired`], [`plan`]),
//! conditions, events. Never: a change of other programs' objects, or a write where nothing differs.
//!
//! Each controller of NUMA resources is a module with pure functions from the [`cluster_state::ClusterState`] to
//! objects and status: [`numaresourcesoperator`], [`numaresourcesscheduler`], [`kubeletconfig`]. They are keys of the
//! controller runtime in [`objects::controller`]; [`reconcile`] connects the two. DeviceConfig is the crate `hardware`;
//! [`process`] starts it.

pub mod cli;
pub mod cluster_state;
pub mod compat;
pub mod condition;
pub mod desired;
pub mod environment;
pub mod group;
pub mod kubeletconfig;
pub mod manifests;
pub mod numaresourcesoperator;
pub mod numaresourcesscheduler;
pub mod ownership;
pub mod plan;
pub mod process;
pub mod rbac;
pub mod reconcile;
pub mod tls;
pub mod watch;
