//! The controller that distils the kubelets' configuration, pool by pool, for the exporters.
//!
//! In: [`World`]. Out: the exporters' configuration, and the ConfigMaps it is in. Never: a guess at what a kubelet was told.

use crate::desired::Desired;
use crate::world::World;

pub mod payload;

/// The text of an exporter's configuration file for a pool, and so of the key `config.yaml` of its ConfigMap; `None`: nothing is known
/// of the pool's kubelets and nothing is excluded, so there is no ConfigMap.
///
/// Both this controller and that of the exporters, whose pods have to be replaced when it changes, ask here; so the pods are
/// replaced once.
#[must_use]
pub fn config(_world: &World, _pool: &str) -> Option<String> {
    None
}

/// The ConfigMaps.
#[must_use]
pub fn desired(_world: &World) -> Desired {
    Desired::Keep
}
