//! A device plugin for a kubelet: devices of the node, with their NUMA zones and their health.
//!
//! In: a configuration, the node's files. Out: the kubelet knows the devices, hands them out, and containers can use them. Never: a device
//! handed out that is unknown or not healthy, or an opinion about who gets one.

pub mod inventory;
