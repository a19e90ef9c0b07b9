//! Which features of the Go operator there are, as its test suites ask for them.
//!
//! In: nothing. Out: JSON. Never: a feature that is not there.

use serde_json::json;

/// The topics, in the peer's order.
pub const TOPICS: [&str; 26] = [
    "config",
    "nonreg",
    "hostlevel",
    "resacct",
    "cache",
    "stall",
    "schedrst",
    "rtetols",
    "overhead",
    "wlplacement",
    "unsched",
    "nonrt",
    "taint",
    "nodelabel",
    "byres",
    "tmpol",
    "schedattrwatch",
    "ngpoolname",
    "nganns",
    "metrics",
    "nrtcrdanns",
    "netpols",
    "introspection",
    "mgselinuxcollect",
    "tlscompliance",
    "preemption",
];

/// As `-inspect-features` prints them. Unlike the peer's, with the version, which its readers require.
#[must_use]
pub fn json() -> String {
    json!({ "metadata": { "version": env!("CARGO_PKG_VERSION") }, "active": TOPICS }).to_string()
}
