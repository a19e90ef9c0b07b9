//! What the peers' own end-to-end suites ask of an exporter, asked of ours started with the peers' command lines.
//!
//! Each test has a node of its own in one cluster that those which run at the same time share. What each line of those
//! suites is here: the tests' names. What needs a control plane of its own stands elsewhere: conditions when the kind
//! goes away in `readiness`, rights in `access`, ways to write in `modes`, policies in `policies`.

#[path = "parity/nfd.rs"]
mod nfd;
#[path = "parity/rte.rs"]
mod rte;
#[path = "parity/seat.rs"]
mod seat;

use super::*;
