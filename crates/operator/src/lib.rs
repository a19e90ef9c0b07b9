//! Keeps a cluster's NUMA-aware scheduling as its users asked for, in NUMAResourcesOperator and NUMAResourcesScheduler objects.
//!
//! In: those objects, and what the cluster says ([`world`]). Out: objects that are as they should be ([`desired`] says how, [`change`]
//! what to do about it, [`apply`] does it), and conditions that say how it is. Never: a change of what others made, nor a write where
//! nothing differs.
//!
//! Each controller is a module with pure functions from the [`world::World`] to objects and status: [`numaresourcesoperator`],
//! [`numaresourcesscheduler`], [`kubeletconfig`]. [`reconcile`] is what they have in common.

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
