//! End-to-end tests of NUMA-aware scheduling, for any cluster and any stack.
//!
//! In: a cluster, a selection of specs. Out: what passed, was skipped for want of a capability, or failed, with the
//! reason. Never: a fixed size (sizes come from the reports), a wait for time where a condition can be watched, or an
//! object left behind.

pub mod amounts;
pub mod catalogue;
pub mod cli;
pub mod cluster;
pub mod compat;
pub mod controllers;
pub mod devices;
pub mod diagnosis;
pub mod dial;
pub mod facts;
pub mod fixture;
pub mod installation;
pub mod label_filter;
pub mod lanes;
pub mod lock;
pub mod logs;
pub mod machines;
pub mod need;
pub mod object;
pub mod observed;
pub mod operator;
pub mod padding;
pub mod payload;
pub mod placement;
pub mod platform;
pub mod pods;
pub mod quick;
pub mod report;
pub mod rights;
pub mod runner;
pub mod selection;
pub mod settled;
pub mod setup;
pub mod spec;
pub mod tls;
pub mod tool;
pub mod undo;
pub mod verdict;
pub mod waits;
