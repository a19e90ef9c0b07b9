//! What a NUMA node is, what fits on it, and why not.
//!
//! In: quantities, a node's zones and a pod's requests, as values. Out: whether the kubelet would admit the pod,
//! where it would put it, how good that is, and the reasons as data. Never: I/O, async, a clock, or a Kubernetes
//! client. Everything that decides or explains a placement in tholepin (scheduler, simulator, exporter, tests)
//! calls this crate, so a behaviour of the kubelet is described exactly once.

pub mod admit;
pub mod cpuset;
pub mod fingerprint;
pub mod placement;
pub mod policy;
pub mod quantity;
pub mod reason;
pub mod request;
pub mod resource;
pub mod score;
pub mod zone;
