//! Regular expressions of the rules for DeviceConfigs, in the syntax that RE2 and regex-lite share.
//!
//! In and out: patterns without anchors, unless said otherwise. `schema` puts them into rules for the API server, `check`
//! matches them itself.

use super::PLUGIN_CONFIG;

/// What a label's value is, and the part of its key behind the slash.
pub(super) const LABEL: &str = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?";
/// A kernel module's name.
pub(super) const MODULE: &str = "[A-Za-z0-9_-]{1,55}";
/// A part of a lower case domain.
pub(super) const DNS: &str = "[a-z0-9]([a-z0-9-]*[a-z0-9])?";

/// A repository without tag and digest.
pub(super) fn repository() -> String {
    let part = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*";
    let label = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?";
    format!(r"({label}(\.{label})*(:[0-9]+)?/)?{part}(/{part})*")
}

/// An extended resource, which may not be one of Kubernetes' own.
pub(super) fn resource() -> String {
    format!(r"{DNS}(\.{DNS})*/{LABEL}")
}

/// A driver of resource claims: a domain in letters of any size, as the API server has it.
pub(super) fn driver() -> String {
    let part = DNS.replace("a-z", "A-Za-z");
    format!(r"{part}(\.{part})*")
}

/// The version of a kernel.
pub(super) const KERNEL: &str = "[A-Za-z0-9._~-]+";
/// An image in full.
pub(super) const TEMPLATE: &str = "[^@ ]+(:[^/ ]+|@[^/ ]+)";
/// A folder, which may not have `..` in it.
pub(super) const FOLDER: &str = "(/[^/]+)+";
/// A way up.
pub(super) const UP: &str = "/[.][.](/|$)";
/// What KMM lets a device plugin see of a node.
pub(super) const HOST_PATH: &str = "^/(dev|sys|var|opt|run)(/|$)";
/// Resources of Kubernetes itself.
pub(super) const NATIVE: &str = "^([^/]*[.])?kubernetes[.]io/";
/// A share of the nodes.
pub(super) const PERCENT: &str = "(100|[1-9][0-9]?)%";
/// A tag at a repository.
pub(super) const TAG: &str = ":[^/]*$";

/// The pattern of a label's key, but for the length of what is before its slash: [`PREFIX`].
pub(super) fn label_key() -> String {
    format!(r"({DNS}(\.{DNS})*/)?{LABEL}")
}

/// The most characters before the slash of a label's key.
pub(super) const PREFIX: usize = 253;

/// Where nothing but our device plugin's configuration is mounted.
pub(super) fn reserved() -> String {
    format!("^{PLUGIN_CONFIG}(/|$)")
}
