//! Brings drivers of special hardware to nodes, as DeviceConfigs ask for it: one KMM Module each.
//!
//! In: DeviceConfigs, nodes, what KMM says, pods that use the devices and their resource claims. Out: Modules and what they stand on, claims and versions on nodes,
//! status, events. Never: a node in two Modules; a driver pulled from under a pod unless that was asked for; a write where nothing differs.
//!
//! Pure: [`claim`] (who has which node), [`kernel`] (which image a kernel needs), [`load`] (how it is loaded), [`sound`] (what cannot be done), [`module`] (what is made),
//! [`offered`] (whose pods use it), [`held`] (who has devices by resource claims), [`rollout`] (which node gets which version now), [`unused`] (what has to hold before),
//! [`plan`] (what there is to do, from the [`world`] by way of [`facts`]), [`status`] (what is told, in [`words`] that the docs explain). Around them [`watch`] keeps the world true, [`work`] does what is
//! planned, one DeviceConfig independent of the other, and [`process`] starts both.

pub mod act;
pub mod claim;
pub mod cli;
pub mod facts;
pub mod held;
pub mod kernel;
pub mod load;
pub mod manifests;
pub mod metrics;
pub mod module;
pub mod nmc;
pub mod offered;
pub mod plan;
pub mod process;
pub mod rbac;
pub mod rights;
pub mod rollout;
pub mod shared;
pub mod sound;
pub mod status;
pub mod taints;
pub mod unused;
pub mod watch;
mod wire;
pub mod words;
pub mod work;
pub mod world;
