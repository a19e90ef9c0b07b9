//! Fakes of operators and distributions, on a real API server. For tests only: nothing shipped depends on this crate.
//!
//! [`kmm`] writes what the Kernel Module Management operator writes, without a kernel. [`openshift`] makes a
//! control plane look like OpenShift or HyperShift, and [`openshift::mco`] rolls out MachineConfigs. Each fake
//! follows a script that a test may change at any time, faults included.

pub mod kmm;
pub mod openshift;
mod schema;
