//! Reads and serves the interfaces of a node: the kubelet's podresources and device plugin sockets, sysfs, the
//! kubelet's configuration, and changes of these files.
//!
//! In: paths and sockets of one machine, all injectable. Out: checked values, or one error that
//! names the file or field. Never: the Kubernetes API, a write (except to sockets of our own), or a decision about
//! placement.

pub mod deviceplugin;
pub mod draplugin;
pub mod kubelet;
pub mod pluginwatcher;
pub mod podresources;
pub mod socket;
pub mod sysfs;
pub mod watch;

mod file;
mod json;
mod pause;
