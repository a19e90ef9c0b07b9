//! Checking a cluster for NUMA-aware scheduling.
//!
//! In: [`Evidence`] from an API server ([`source`]) or from files ([`dump`]). Out: a [`Validation`] with findings and
//! checks that were not done. Never: a change of the cluster, or a finding without evidence; a check without evidence
//! is not done.
//!
//! [`check`] lists every check; each is one function from evidence to findings. The peers' command lines ([`compat`])
//! print the same findings in the peers' words.

pub mod check;
pub mod cli;
pub mod collect;
pub mod compat;
pub mod dump;
pub mod evidence;
pub mod finding;
pub mod print;
pub mod source;

#[cfg(test)]
pub(crate) mod tests;

pub use check::{Selection, examine};
pub use evidence::Evidence;
pub use finding::{Finding, Severity, Validation};
