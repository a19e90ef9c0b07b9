//! The words on the wire: what other programs write and read, as types.
//!
//! In: JSON and YAML of Kubernetes objects and configuration files. Out: typed values, `topology`'s values where a
//! placement depends on them, and the CustomResourceDefinitions. Never: I/O, or logic beyond conversion and validation.
//! Bad input ends in an error that names the field's path and what is allowed there.

pub mod convert;
pub mod crd;
pub mod features;
pub mod goduration;
pub mod hardware;
pub mod keys;
mod kind;
pub mod kmm;
pub mod nrt;
pub mod null;
pub mod numaresources;
pub mod own_node;
pub mod rbac;
pub mod schedulerconfig;
