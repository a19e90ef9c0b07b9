//! Variables of the Go suite.
//!
//! In: the environment. Out: a line for each variable that is set and means nothing here, with the flag that does what
//! it did. Never: a variable that is ignored silently.

use std::env::var_os;

/// Variables that have no effect, and what takes their place.
const UNUSED: &[(&str, &str)] = &[
    ("E2E_NROP_INSTALL_SKIP_KC", "the suite changes no KubeletConfig but in specs about it, which undo that"),
    ("E2E_NROP_MCP_UPDATE_INTERVAL", "waits are watches"),
    ("E2E_NROP_COOLDOWN_THRESHOLD", "a report is settled when its fingerprint is that of the node's pods"),
    ("E2E_NROP_TEST_SETTLE_INTERVAL", "waits are watches"),
    ("E2E_NROP_TEST_SETTLE_TIMEOUT", "--patience limits waits"),
    ("E2E_NROP_TEST_COOLDOWN", "a spec ends when the reports are as before"),
    ("E2E_NROP_TEST_TEARDOWN", "--patience limits waits"),
    ("E2E_NROP_DEVICE_TYPE_1", "the suite brings its own devices"),
    ("E2E_NROP_DEVICE_TYPE_2", "the suite brings its own devices"),
    ("E2E_NROP_DEVICE_TYPE_3", "the suite brings its own devices"),
    ("E2E_NROP_PLATFORM", "the platform is what the API server's kinds say"),
    ("E2E_NROP_PLATFORM_VERSION", "no spec depends on a version"),
    ("E2E_NROP_DUMP_EVENTS", "the events of a pod stand beside each failure"),
    ("E2E_NROP_VERBOSE", "--verbose says what is waited for from the first moment"),
    ("E2E_NROP_BUILDINFO", "the operator's program is asked for its version"),
    ("E2E_NROP_INFRA_SETUP_SKIP", "the stack is made only with --setup"),
    ("E2E_NROP_MUSTGATHER_IMAGE", MUST_GATHER),
    ("E2E_NROP_MUSTGATHER_TAG", MUST_GATHER),
    ("E2E_NROP_MUSTGATHER_IMAGE_REF", MUST_GATHER),
    ("E2E_NROP_MUSTGATHER_CLEANUP_SKIP", "what was collected is deleted; `tholepin must-gather` keeps it"),
    ("E2E_WORKER_NODE_NAME", "--target-node is preferred"),
    ("E2E_NAMESPACE_NAME", "the suite has a namespace of its own"),
    ("E2E_TOPOLOGY_MANAGER_POLICY", RULES),
    ("E2E_TOPOLOGY_MANAGER_SCOPE", RULES),
    ("E2E_DEVICE_NAME", "the suite brings its own devices"),
    ("RTE_POLL_INTERVAL", "waits are watches"),
    ("RTE_METRICS_MODE", "metrics are tried with TLS and without"),
    (
        "E2E_VALIDATE_SCHEDULER_IMAGE",
        "the operator's validation of images stays as it is but in specs about it, which undo that",
    ),
    (
        "E2E_OPERATOR_SUBSCRIPTION_NAME",
        "no Subscription is changed; specs about the operator's environment are skipped where OLM keeps it",
    ),
    ("E2E_NROP_URL_NUMACELL_DEVICE_PLUGIN", "--image has the device plugin too"),
    ("E2E_NUMACELL_DEVICE_PLUGIN_URL", "--image has the device plugin too"),
];

/// What takes the place of a policy or scope that is told.
const RULES: &str = "reports say how kubelets align";
/// What takes the place of an image that collects data.
const MUST_GATHER: &str = "this program collects the data";

/// A line for each variable that is set and has no effect.
pub fn unused() -> impl Iterator<Item = String> {
    let set = UNUSED.iter().filter(|(name, _)| var_os(name).is_some());
    set.map(|(name, instead)| format!("{name} has no effect: {instead}"))
}

/// The image of pods that only wait, by its old variable; the flag's own variable is the newer one.
#[must_use]
pub fn pause_image() -> Option<String> {
    std::env::var("E2E_PAUSE_IMAGE_URL").ok().filter(|image| !image.is_empty())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::UNUSED;

    #[test]
    fn each_variable_has_one_line() {
        let names: BTreeSet<&str> = UNUSED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), UNUSED.len());
        assert!(UNUSED.iter().all(|(_, instead)| !instead.is_empty() && !instead.ends_with('.')));
    }
}
