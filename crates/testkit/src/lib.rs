//! The rig: real Kubernetes parts on synthetic machines, for tests and benchmarks. Never a dependency of shipped code.
//!
//! [`env`](mod@env) finds the programs, [`machine`] describes the machines, [`controlplane`] and [`kubelet`]
//! run on them in a [`process_group`] that leaves nothing behind, and [`cluster`] puts all of it together.
//! [`device_plugin`] adds devices, [`account`] grants rights, [`load`] brings pods. In a network of its own
//! ([`net`]) containers are real processes, and network policies hold if asked for.
//! [`audit`] lists the requests, [`exposition`] the metrics, [`dump`](mod@dump) the objects, and
//! [`quiescence`] waits until nothing changes. [`proxy`] and [`podresources`] inject the faults that real parts
//! cannot be made to have, [`attack`] plays hostile clients, [`wall_clock`] jumps. [`oracle`] asks the kubelet's
//! managers without a kubelet. Fakes of other operators are in the crate `fakes`.

pub mod account;
pub mod attack;
pub mod audit;
pub mod cluster;
pub mod controlplane;
pub mod cri;
pub mod device_plugin;
pub mod dump;
pub mod env;
pub mod exposition;
pub mod golden;
pub mod kubelet;
pub mod load;
pub mod machine;
pub mod manifests;
pub mod namespace;
pub mod net;
mod networkpolicy;
pub mod oracle;
pub mod podresources;
pub mod port;
pub mod process_group;
pub mod proxy;
pub mod quiescence;
mod serving;
pub mod wall_clock;
