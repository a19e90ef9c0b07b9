//! The tools that people and scripts use around the stack, under the names of the Go operator's tools, and the collector for
//! support cases.
//!
//! In: a command line as the Go tool takes it ([`Tool`]), or as ours ([`mustgather`]); standard input; a cluster. Out: text on standard
//! output, what is said about it on standard error, an exit code. Never: a write to a cluster.
//!
//! One module for each tool; what they share is in [`tool`].

pub mod buildhelper;
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
