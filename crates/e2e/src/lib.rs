//! End-to-end tests of NUMA-aware scheduling, for any cluster and any stack.
//!
//! In: a cluster, a selection of specs. Out: what passed, was skipped for want of a capability, or failed, with the
//! reason. Never: a fixed size (sizes come from the reports), a wait for time where a condition can be watched, or an
//! object left behind.

pub mod junit;
pub mod label_filter;
pub mod observed;
pub mod settled;
