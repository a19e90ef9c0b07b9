//! The operator: keeps NUMA-aware scheduling as NUMAResourcesOperator and NUMAResourcesScheduler objects ask for it.
//!
//! In: those objects, and the cluster's state ([`world`]). Out: objects as desired ([`desired`], [`plan`]), conditions, events.
//! Never: a change of what others made, nor a write where nothing differs.
//!
//! Each NUMA controller is a module with pure functions from the [`world::World`] to objects and status:
//! [`numaresourcesoperator`], [`numaresourcesscheduler`], [`kubeletconfig`]. They are keys of the controller runtime in
//! [`objects::controller`]; [`reconcile`] connects the two. DeviceConfig is the crate `hardware`, wired in by [`process`].

pub mod cli;
pub mod condition;
pub mod desired;
pub mod dialect;
pub mod group;
pub mod kubeletconfig;
pub mod manifests;
pub mod numaresourcesoperator;
pub mod numaresourcesscheduler;
pub mod ownership;
pub mod place;
pub mod plan;
pub mod process;
pub mod rbac;
pub mod reconcile;
pub mod tls;
pub mod watch;
pub mod world;
