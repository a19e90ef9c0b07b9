//! Our scheduling core beside kube-scheduler's own plugins: the same clusters, configurations and pods.
//!
//! In: a seed, or a file of a former difference. Out: how often which plugin decided what, and each difference, made as
//! small as it gets. Never: a rule of scheduling; those are `scheduler`'s and kube-scheduler's.

pub mod case;
pub mod compare;
pub mod generate;
pub mod minimise;
pub mod placement;
pub mod search;
pub mod tally;

#[cfg(test)]
mod tests;
