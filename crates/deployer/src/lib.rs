//! Installing NUMA-aware scheduling in a cluster, removing it, and checking a cluster for it.
//!
//! In: options, a cluster. Out: the objects of each component ([`part`]), applied or removed; findings. Never: a text
//! template; an object is a typed value until it is written.

pub mod cli;
pub mod compat;
pub mod detect;
pub mod docs;
pub mod first_pod;
pub mod images;
pub mod install;
pub mod manifests;
pub mod options;
pub mod part;
pub mod platform;
mod progress;
mod session;
pub mod status;
pub mod validate;
pub mod version;
