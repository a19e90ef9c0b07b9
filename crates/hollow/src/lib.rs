//! Hollow nodes: nodes of a real API server whose kubelets are the model of the kubelet, thousands in one process.
//!
//! In: descriptions of nodes ([`node_group`]), the pods that are bound to them. Out: Node objects with leases, the
//! statuses that a kubelet writes, and one NodeResourceTopology object per node. Never: a container, an admission rule
//! of its own (that is `topology::kubelet`), or a report of its own (that is `exporter`).
//!
//! The core is pure: [`fleet`] takes pods and moments and answers with writes. The [`shell`] watches and writes.
//! [`rbac`] lists the permissions.

pub mod args;
pub mod checkpoint;
pub mod fleet;
pub mod heartbeat;
pub mod machine;
pub mod metrics;
pub mod node;
pub mod node_group;
pub mod pod;
pub mod rbac;
pub mod shell;
pub mod status;

pub use args::Args;
