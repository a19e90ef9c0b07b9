//! `tholepin admit`: what would this kubelet do with these pods?
//!
//! In: a machine, a kubelet's configuration, devices and pods, from files. Out: for each pod, in order, whether the
//! kubelet admits it, with the CPUs, memory and devices of each container, or the reason. Never: a cluster, or an
//! admission rule; those are `topology::kubelet`'s.

pub mod cli;
pub mod model;
pub mod session;
pub mod verdict;

#[cfg(test)]
mod tests;
