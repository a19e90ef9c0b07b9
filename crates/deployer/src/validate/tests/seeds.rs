//! What can be wrong, one thing at a time.

use super::fixture::ClusterFixture;
use crate::validate::finding::Severity;

mod cluster;
mod kubelets;
mod options;
mod pods;
mod reports;
mod reserved;
mod workloads;

/// Something wrong, and what has to be said about it.
pub(super) struct Seed {
    pub(super) id: &'static str,
    pub(super) severity: Severity,
    pub(super) object: &'static str,
    /// Part of the text.
    pub(super) what: &'static str,
    /// Other checks that see it too.
    pub(super) also: &'static [&'static str],
    pub(super) plant: fn(&mut ClusterFixture),
}

type Plant = fn(&mut ClusterFixture);

const fn seed(
    id: &'static str,
    severity: Severity,
    object: &'static str,
    what: &'static str,
    plant: Plant,
) -> Seed {
    Seed { id, severity, object, what, also: &[], plant }
}

const fn also(mut seed: Seed, also: &'static [&'static str]) -> Seed {
    seed.also = also;
    seed
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Seed> {
    let lists = [
        cluster::CLUSTER,
        kubelets::KUBELETS,
        reserved::RESERVED,
        options::OPTIONS,
        reports::REPORTS,
        reports::MORE_REPORTS,
        workloads::EXPORTERS,
        workloads::SCHEDULERS,
        pods::PODS,
        pods::QOS,
    ];
    lists.into_iter().flatten()
}
