//! From nothing to NUMA-aware scheduling and back: what has to be in a cluster, as values; putting it there, taking it
//! away, and telling what is wrong with it.
//!
//! In: options, a cluster. Out: objects ([`object`]) in parts ([`part`]), applied or removed; findings. Never: text templates: an
//! object is a typed value until it is written.

pub mod cli;
pub mod detect;
pub mod dialect;
pub mod images;
pub mod install;
pub mod manifests;
pub mod options;
pub mod part;
pub mod platform;
pub mod tell;
pub mod validate;
