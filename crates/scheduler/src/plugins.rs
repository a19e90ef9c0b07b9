//! kube-scheduler's plugins, one module each.

pub mod inter_pod_affinity;
pub mod node_ports;
pub mod pod_topology_spread;
