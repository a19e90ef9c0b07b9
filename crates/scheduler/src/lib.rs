//! The scheduler: NRT objects, pods and nodes in; bindings out.
//!
//! The core ([`core`]) is a state machine without I/O or a clock: events go in, decisions come out. The same core runs
//! against an API server ([`shell`]) and in virtual time (crate `sim`).

pub mod affinity;
pub mod args;
pub mod budget;
pub mod capacity;
pub mod cluster_input;
pub mod compat;
pub mod config;
pub mod configz;
pub mod core;
pub mod cycle;
pub mod default_selector;
pub mod defrag;
pub mod devices;
pub mod explain;
pub mod extender;
mod interner;
pub mod ledger;
pub mod metrics;
pub mod namespace;
pub mod node;
pub mod over_reserve;
pub mod plugins;
pub mod pod;
pub mod pod_group;
pub mod queue;
pub mod rbac;
pub mod reason;
pub mod selection;
pub mod shell;
#[cfg(test)]
mod vectors;
pub mod volumes;
