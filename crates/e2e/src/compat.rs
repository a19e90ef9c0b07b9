//! Variables of the Go suite.
//!
//! In: the environment. Out: a line for each variable that is set and means nothing here, with the flag that does what
//! it did. Never: a variable that is ignored silently.

use std::env::var_os;

/// Variables that have no effect, and what takes their place.
const UNUSED: [(&str, &str); 10] = [
    ("E2E_NROP_INSTALL_SKIP_KC", "the suite changes no KubeletConfig but in specs about it, which undo that"),
    ("E2E_NROP_MCP_UPDATE_INTERVAL", "waits are watches"),
    ("E2E_NROP_COOLDOWN_THRESHOLD", "a report is settled when its fingerprint is that of the node's pods"),
    ("E2E_NROP_TEST_SETTLE_INTERVAL", "waits are watches"),
    ("E2E_NROP_TEST_SETTLE_TIMEOUT", "--patience limits waits"),
    ("E2E_NROP_TEST_COOLDOWN", "a spec ends when the reports are as before"),
    ("E2E_NROP_TEST_TEARDOWN", "--patience limits waits"),
    ("E2E_NROP_DEVICE_TYPE_1", "the suite brings its own devices"),
    ("E2E_NROP_URL_NUMACELL_DEVICE_PLUGIN", "--image has the device plugin too"),
    ("E2E_NUMACELL_DEVICE_PLUGIN_URL", "--image has the device plugin too"),
];

/// A line for each variable that is set and has no effect.
pub fn unused() -> impl Iterator<Item = String> {
    let set = UNUSED.iter().filter(|(name, _)| var_os(name).is_some());
    set.map(|(name, instead)| format!("{name} has no effect: {instead}"))
}

/// Whether a variable asks to run no spec.
#[must_use]
pub fn runs_no_tests() -> bool {
    std::env::var("RUN_TESTS").is_ok_and(|value| is_no(&value))
}

/// A word that says no.
fn is_no(word: &str) -> bool {
    ["0", "f", "false", "n", "no", "off"].contains(&word.to_ascii_lowercase().as_str())
}

/// Whether a variable asks to leave the devices, whatever its value.
#[must_use]
pub fn keeps_devices() -> bool {
    ["E2E_NROP_INFRA_TEARDOWN_SKIP", "E2E_INFRA_NO_TEARDOWN"].iter().any(|name| var_os(name).is_some())
}
