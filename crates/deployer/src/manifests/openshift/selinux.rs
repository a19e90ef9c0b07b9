//! The SELinux policy for resource-topology-exporter on OpenShift, in CIL.
//!
//! In: OpenShift's version. Out: a module that defines the type `rte.process`. Never: a rule that this version does not
//! need.
//!
//! Up to 4.10 the kubelet has the SELinux type of the container runtime. Since 4.11 it has its own type, and since 4.18
//! its directory has too.

use std::fmt::Write as _;

use crate::platform::Version;

/// Releases with the same policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    /// Until 4.10.
    First,
    /// 4.11 to 4.17.
    KubeletType,
    /// Since 4.18.
    KubeletDirectory,
}

/// The attributes of a container's type.
const ATTRIBUTES: [&str; 5] =
    ["domain", "container_domain", "container_net_domain", "svirt_sandbox_domain", "sandbox_net_domain"];
/// The permissions to connect to a socket.
const SOCKET: &str = "(sock_file (open getattr read write ioctl lock append))";

/// The policy for a version; `None` is the newest.
///
/// A release candidate has the policy of its release.
#[must_use]
pub fn policy(version: Option<&Version>) -> String {
    let at_least = |minor: u64| version.is_none_or(|version| version.at_least(&[4, minor]));
    let era = match (at_least(18), at_least(11)) {
        (true, _) => Era::KubeletDirectory,
        (false, true) => Era::KubeletType,
        (false, false) => Era::First,
    };
    write(era)
}

fn write(era: Era) -> String {
    let mut text = "(block rte\n    (type process)\n    (roletype system_r process)\n".to_owned();
    let confined = (era != Era::First).then_some("mcs_constrained_type");
    for attribute in ATTRIBUTES.into_iter().chain(confined) {
        let _ = writeln!(text, "    (typeattributeset {attribute} (process))");
    }
    let kubelet = if era == Era::First { "container_runtime_t" } else { "kubelet_t" };
    let mut rules = Vec::new();
    if era != Era::First {
        rules.push(("proc_type", "(file (open read))"));
    }
    rules.push(("container_var_run_t", "(dir (add_name write))"));
    rules.push(("container_var_run_t", "(file (create read write open))"));
    rules.push(("container_var_lib_t", SOCKET));
    if era == Era::KubeletDirectory {
        rules.push(("kubelet_var_lib_t", SOCKET));
    }
    rules.push((kubelet, "(unix_stream_socket (connectto))"));
    for (object, permissions) in rules {
        let _ = writeln!(text, "    (allow process {object} {permissions})");
    }
    text + ")\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_the_policy_of_their_era() {
        for (version, era) in [
            ("v3.11", Era::First),
            ("4.10.47", Era::First),
            ("v4.11", Era::KubeletType),
            ("4.17.9", Era::KubeletType),
            ("4.18.0-rc.1", Era::KubeletDirectory),
            ("v4.18", Era::KubeletDirectory),
            ("v4.99", Era::KubeletDirectory),
        ] {
            assert_eq!(policy(Some(&version.parse().unwrap())), write(era), "{version}");
        }
        assert_eq!(policy(None), write(Era::KubeletDirectory));
    }

    #[test]
    fn each_era_has_its_rules() {
        let table = [
            (Era::First, "mcs_constrained_type", false),
            (Era::First, "proc_type", false),
            (Era::First, "(allow process container_runtime_t (unix_stream_socket (connectto)))", true),
            (Era::KubeletType, "(typeattributeset mcs_constrained_type (process))", true),
            (Era::KubeletType, "kubelet_var_lib_t", false),
            (Era::KubeletType, "(allow process kubelet_t (unix_stream_socket (connectto)))", true),
            (Era::KubeletDirectory, "(allow process kubelet_var_lib_t (sock_file ", true),
            (Era::KubeletDirectory, "(allow process proc_type (file (open read)))", true),
        ];
        for (era, text, wanted) in table {
            let policy = write(era);
            assert_eq!(policy.contains(text), wanted, "{era:?}: {text}\n{policy}");
            let count = |sign| policy.matches(sign).count();
            assert_eq!(count('('), count(')'), "{policy}");
        }
    }
}
