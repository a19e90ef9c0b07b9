//! Regular expressions of the rules for DeviceConfigs, in the syntax that RE2 and regex-lite share.
//!
//! In and out: patterns without anchors, unless said otherwise. `schema` puts them into rules for the API server,
//! `check` matches them itself.

use super::PLUGIN_CONFIG;

/// The value of a label, and the part of its key after the slash.
pub(super) const LABEL: &str = "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?";
/// The name of a kernel module.
pub(super) const MODULE: &str = "[A-Za-z0-9_-]{1,55}";
/// A part of a domain in lower case.
pub(super) const DNS: &str = "[a-z0-9]([a-z0-9-]*[a-z0-9])?";

/// A repository without tag and digest.
pub(super) fn repository() -> String {
    let part = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*";
    let label = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?";
    format!(r"({label}(\.{label})*(:[0-9]+)?/)?{part}(/{part})*")
}

/// An extended resource; [`NATIVE`] excludes Kubernetes' own.
pub(super) fn resource() -> String {
    format!(r"{DNS}(\.{DNS})*/{LABEL}")
}

/// A DNS subdomain.
pub(super) fn subdomain() -> String {
    format!(r"{DNS}(\.{DNS})*")
}

/// A driver of resource claims: a domain in any letter case, as the API server accepts it.
pub(super) fn driver() -> String {
    let part = DNS.replace("a-z", "A-Za-z");
    format!(r"{part}(\.{part})*")
}

/// The version of a kernel.
pub(super) const KERNEL: &str = "[A-Za-z0-9._~-]+";
/// An image with tag or digest.
pub(super) const TEMPLATE: &str = "[^@ ]+(:[^/ ]+|@[^/ ]+)";
/// An absolute directory; [`UP`] excludes `..`.
pub(super) const FOLDER: &str = "(/[^/]+)+";
/// A `..` in a path, without anchors.
pub(super) const UP: &str = "/[.][.](/|$)";
/// The directories of a node that KMM lets a device plugin mount, with anchors.
pub(super) const HOST_PATH: &str = "^/(dev|sys|var|opt|run)(/|$)";
/// Resources of Kubernetes itself, with anchors.
pub(super) const NATIVE: &str = "^([^/]*[.])?kubernetes[.]io/";
/// A percentage of the nodes.
pub(super) const PERCENT: &str = "(100|[1-9][0-9]?)%";
/// The tag after a repository.
pub(super) const TAG: &str = ":[^/]*$";

/// The key of a label; [`PREFIX`] limits the part before its slash.
pub(super) fn label_key() -> String {
    format!(r"({DNS}(\.{DNS})*/)?{LABEL}")
}

/// The limit for the part of a label's key before the slash, in characters.
pub(super) const PREFIX: usize = 253;

/// The mount path of the device plugin's configuration and everything below it, with anchors.
pub(super) fn reserved() -> String {
    format!("^{PLUGIN_CONFIG}(/|$)")
}
