//! kube-scheduler's plugins, one module each.

pub mod inter_pod_affinity;
pub mod pod_topology_spread;
