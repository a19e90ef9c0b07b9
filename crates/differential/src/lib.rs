//! Our models beside what they model: that of the kubelet's admission beside kubelets, and the scheduling core beside
//! kube-scheduler. The same machines or clusters, configurations and pods, compared answer by answer.
//!
//! In: a seed, or a file of a former difference. Out: how often what was compared, and each difference, made as small
//! as it gets. Never: a rule of admission; those are `topology::kubelet`'s and the kubelet's.

pub mod case;
pub mod compare;
pub mod generate;
pub mod kubelets;
pub mod minimise;
pub mod respondent;
pub mod scheduler;
pub mod search;
pub mod tally;

#[cfg(test)]
mod tests;
