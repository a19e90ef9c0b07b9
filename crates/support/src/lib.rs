//! Tools for people and scripts around the stack, under the names of the Go operator's tools, and the collector for
//! support cases.
//!
//! In: a command line of the Go tool ([`Tool`]) or of ours ([`mustgather`]), standard input, a cluster. Out: results on
//! standard output, messages on standard error, an exit code. Never: a write to a cluster.
//!
//! Each tool is a module; shared parts are in [`call`].

pub mod buildhelper;
pub mod call;
pub mod commit;
pub mod container_tools;
pub mod digests;
pub mod envsubst;
pub mod job;
pub mod kubeletconf;
pub mod mustgather;
pub mod nrtattr;
pub mod pfpsyncchk;
pub mod platform;
pub mod schedlogs;
pub mod tool;
pub mod topics;

pub use tool::Tool;
