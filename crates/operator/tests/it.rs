//! The operator on real clusters.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests"
)]

#[path = "it/chaos.rs"]
mod chaos;
#[path = "it/defects.rs"]
mod defects;
#[path = "it/deviceconfig.rs"]
mod deviceconfig;
#[path = "it/drill.rs"]
mod drill;
#[path = "it/elsewhere.rs"]
mod elsewhere;
#[path = "it/engine.rs"]
mod engine;
#[path = "it/go_operator.rs"]
mod go_operator;
#[path = "it/hardware.rs"]
mod hardware;
#[path = "it/killed.rs"]
mod killed;
#[path = "it/layouts.rs"]
mod layouts;
#[path = "it/machines.rs"]
mod machines;
#[path = "it/openshift.rs"]
mod openshift;
#[path = "it/own_node.rs"]
mod own_node;
#[path = "it/parity.rs"]
mod parity;
#[path = "it/process.rs"]
mod process;
#[path = "it/rig.rs"]
mod rig;
#[path = "it/scenario.rs"]
mod scenario;
#[path = "it/seen.rs"]
mod seen;
#[path = "it/upgrade.rs"]
mod upgrade;
#[path = "it/whole.rs"]
mod whole;
#[path = "it/within_rights.rs"]
mod within_rights;
#[path = "it/workloads.rs"]
mod workloads;
