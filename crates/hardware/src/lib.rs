//! The controller of DeviceConfigs: brings drivers of special hardware to nodes, with one KMM Module each.
//!
//! In: DeviceConfigs, nodes, KMM's reports, pods that use the devices and their resource claims. Out: Modules and their
//! dependencies, claims and versions on nodes, status, events. Never: a node in two Modules; a driver unloaded under a
//! pod unless that was asked for; a write where nothing differs.
//!
//! | module | concern |
//! |---|---|
//! | [`cluster_state`] | everything observed; pure |
//! | [`claim`] | the owner of each node; pure |
//! | [`validate`] | what a DeviceConfig must not say; pure |
//! | [`kernel`], [`loader`], [`nmc`] | the image for a kernel, how a driver is loaded, what KMM reports of it; pure |
//! | [`module`] | the Module and its dependencies; pure |
//! | [`device_names`], [`claims_in_use`] | which pods use the devices; pure |
//! | [`node_states`], [`taints`] | the state of each node; pure |
//! | [`rollout`], [`precondition`] | which node gets which version now, and what must hold first; pure |
//! | [`plan`] | all actions for a DeviceConfig; pure |
//! | [`status`], [`reasons`] | conditions, problems and events; pure |
//! | [`watch`], [`shared`] | watches that feed the cluster state |
//! | [`worker`], [`execute`] | reconciles by key, and the writes |
//! | [`permissions`], [`rbac`] | what the account may do |
//! | [`manifests`], [`process`], [`metrics`], [`cli`] | installation, start, metrics, `tholepin hardware` |

pub mod claim;
pub mod claims_in_use;
pub mod cli;
pub mod cluster_state;
pub mod device_names;
pub mod execute;
pub mod kernel;
pub mod loader;
pub mod manifests;
pub mod metrics;
pub mod module;
pub mod nmc;
pub mod node_states;
pub mod permissions;
pub mod plan;
pub mod precondition;
pub mod process;
pub mod rbac;
pub mod reasons;
pub mod rollout;
pub mod shared;
pub mod status;
pub mod taints;
pub mod validate;
pub mod watch;
mod wire;
pub mod worker;

/// The kind of DeviceConfigs.
fn config_kind() -> objects::ObjectKind {
    use api::hardware::{GROUP, KIND, PLURAL, VERSION};
    objects::ObjectKind::new(GROUP, VERSION, KIND, PLURAL)
}
