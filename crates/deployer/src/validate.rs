//! Telling what is wrong with a cluster, as far as NUMA-aware scheduling goes.
//!
//! In: [`Evidence`], gathered from an API server ([`source`]) or from files ([`dump`]). Out: a [`Report`]: findings, and what
//! could not be looked at. Never: a change of anything, or a finding that rests on something that was not seen: a check
//! whose evidence is missing is reported as not done.
//!
//! [`check`] lists every check; each is one small function from evidence to findings. The command lines of the peers
//! ([`dialect`]) print the same findings in their own words.

pub mod check;
pub mod cli;
pub mod collect;
pub mod dialect;
pub mod dump;
pub mod evidence;
pub mod finding;
pub mod print;
pub mod source;

#[cfg(test)]
mod tests;

pub use check::{Selection, examine};
pub use evidence::Evidence;
pub use finding::{Finding, Report, Severity};
