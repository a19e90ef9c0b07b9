//! Flags that must not be ignored, and have no effect here.
//!
//! In: parsed flags. Out: a text that names the alternative. Never: a refusal of a value that means the same here.

use runtime::goflag::Parsed;

/// The version whose decisions this scheduler makes.
const VERSION: &str = "1.36";

/// Refuses values that would be ignored.
pub(super) fn check(parsed: &Parsed) -> Result<(), String> {
    let text = |name: &str| parsed.text(name).unwrap_or_default();
    let given = |name: &'static str| !text(name).is_empty();
    for (name, alternative) in [
        ("master", "name the API server in --kubeconfig"),
        ("tls-sni-cert-key", "one certificate serves all names; give it to --tls-cert-file"),
        ("tls-curve-preferences", "leave it out; X25519, P-256 and P-384 are offered"),
    ] {
        if given(name) {
            return Err(format!("--{name} is not supported: {alternative}"));
        }
    }
    if given("leader-elect-resource-lock") && text("leader-elect-resource-lock") != "leases" {
        return Err("--leader-elect-resource-lock: the lock is always a lease; it must be leases".to_owned());
    }
    if parsed.bool("permit-port-sharing") == Some(true) {
        return Err(
            "--permit-port-sharing is not supported: give each process a --secure-port of its own".to_owned()
        );
    }
    let version = text("emulated-version");
    let is_ours = |stated: &str| stated.strip_prefix("kube=").unwrap_or(stated) == VERSION;
    if given("emulated-version") && !version.split(',').all(is_ours) {
        return Err(format!("--emulated-version: {version} is not supported; it must be {VERSION}"));
    }
    Ok(())
}
