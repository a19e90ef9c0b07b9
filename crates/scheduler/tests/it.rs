//! The scheduler against a real API server, and with real kubelets and the exporter: the whole loop.
//!
//! Needs the rig; without its parts the tests are skipped with a warning.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/claims.rs"]
mod claims;
#[path = "it/cluster.rs"]
mod cluster;
#[path = "it/departures.rs"]
mod departures;
#[path = "it/extender_server.rs"]
mod extender_server;
#[path = "it/extenders.rs"]
mod extenders;
#[path = "it/faults.rs"]
mod faults;
#[path = "it/gangs.rs"]
mod gangs;
#[path = "it/garbage.rs"]
mod garbage;
#[path = "it/hand_over.rs"]
mod hand_over;
#[path = "it/in_its_place.rs"]
mod in_its_place;
#[path = "it/model.rs"]
mod model;
#[path = "it/preemption.rs"]
mod preemption;
#[path = "it/rejected.rs"]
mod rejected;
#[path = "it/secure_port.rs"]
mod secure_port;
#[path = "it/static_pods.rs"]
mod static_pods;
#[path = "it/tenant.rs"]
mod tenant;
#[path = "it/volumes.rs"]
mod volumes;
#[path = "it/whole_loop.rs"]
mod whole_loop;
