//! The rig: real Kubernetes parts on synthetic machines, for tests and benchmarks. Never a dependency of shipped code.
//!
//! [`env`](mod@env) finds the programs, [`machine`] makes the machines, [`controlplane`] and [`kubelet`] run them in a
//! [`nest`] that leaves nothing behind, [`cluster`] puts it together, [`device_plugin`] gives it devices, [`account`] gives
//! somebody rights, [`openshift`] makes it look like a distribution, [`kmm`] loads kernel modules that do not exist, and [`load`] brings
//! pods. In a network of its own
//! ([`net`]) containers are real processes, [`audit`] tells what was asked, and
//! [`dump`](mod@dump) what is there; [`rest`](mod@rest) waits until nothing changes. What real parts cannot be made to do wrong,
//! [`proxy`] and [`podresources`] do.

pub mod account;
pub mod audit;
pub mod cluster;
pub mod controlplane;
pub mod cri;
pub mod device_plugin;
pub mod dump;
pub mod env;
pub mod golden;
pub mod kmm;
pub mod kubelet;
pub mod load;
pub mod machine;
pub mod namespace;
pub mod nest;
pub mod net;
pub mod openshift;
pub mod podresources;
pub mod port;
pub mod proxy;
pub mod rest;
mod schema;
mod serving;
