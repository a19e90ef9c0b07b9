//! The controller of DeviceConfigs: loads drivers of special hardware on nodes, by one KMM Module each.
//!
//! In: DeviceConfigs, nodes, KMM's reports, pods that use the devices and their resource claims. Out: Modules and their
//! dependencies, claims and versions on nodes, status, events. Never: a node in two Modules; a driver unloaded under a
//! pod unless the policy says so; a write without a difference.
//!
//! | module | concern |
//! |---|---|
//! | [`cluster_state`] | everything observed; pure |
//! | [`claim`] | the owner of each node; pure |
//! | [`validate`] | problems of a DeviceConfig; pure |
//! | [`kernel`], [`loader`], [`nmc`] | the image for a kernel, the load of a driver, the reports of KMM; pure |
//! | [`module`] | the Module and its dependencies; pure |
//! | [`device_names`], [`claims_in_use`] | names and claims of devices, by which pods use them; pure |
//! | [`node_states`], [`taints`] | the state of each node; pure |
//! | [`rollout`], [`precondition`] | the next versions of nodes, and their preconditions; pure |
//! | [`plan`] | all actions for a DeviceConfig; pure |
//! | [`status`], [`reasons`] | conditions, problems and events; pure |
//! | [`watch`], [`shared`] | watches that feed the cluster state |
//! | [`worker`], [`execute`] | reconciles by key, and the writes |
//! | [`permissions`], [`rbac`] | rights of the service account |
//! | [`manifests`], [`process`], [`metrics`], [`cli`] | installation, start, metrics, `tholepin hardware` |

pub mod claim;
pub mod claims_in_use;
pub mod cli;
pub mod cluster_state;
pub mod device_names;
pub mod execute;
mod index;
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
