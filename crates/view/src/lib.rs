//! NUMA seen at a glance: a cluster, its nodes and its pods, for people.
//!
//! In: the scheduler's core, which follows a cluster or has the objects of a dump. Out: one read model ([`cluster`],
//! [`node`], [`totals`]) as JSON, a page in a browser ([`web`]), a screen in a terminal ([`top`]), and a report in one
//! file ([`report`]). Never: a write to the cluster, or an opinion that the scheduler does not have: free amounts,
//! places and verdicts are its own.

pub mod cluster;
pub mod node;
mod page;
pub mod rbac;
pub mod report;
pub mod top;
pub mod totals;
pub mod web;
