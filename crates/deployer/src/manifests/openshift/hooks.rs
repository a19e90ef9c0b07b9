//! The hook with which the container runtime notifies resource-topology-exporter of started and stopped containers.
//!
//! In: nothing. Out: an OCI hook and its script, as files of a node. Never: a notification about Burstable and
//! BestEffort pods, which have no exclusive resources.

use serde_json::{Value, json};

use super::file;

/// The path of the script.
const SCRIPT: &str = "/usr/local/bin/rte-notifier.sh";
/// The file that RTE watches.
const NOTIFY: &str = "/run/rte/notify";

/// The hook and its script.
pub(super) fn files() -> [Value; 2] {
    let hook = json!({
        "version": "1.0.0",
        "hook": { "path": SCRIPT, "args": ["rte-notifier.sh", NOTIFY] },
        "when": { "always": true },
        "stages": ["poststart", "poststop"],
    });
    [
        file("/etc/containers/oci/hooks.d/rte-notifier.json", 0o644, &format!("{hook:#}\n")),
        file(SCRIPT, 0o755, TEXT),
    ]
}

/// Reads the container's state on standard input and touches the file named by its first argument.
///
/// The quality of service of a pod is in the path of its cgroup: `kubepods-burstable-pod...slice:...` (systemd) or
/// `/kubepods/burstable/pod...` (cgroupfs). The script never fails: a failing hook would stop the container.
const TEXT: &str = r#"#!/bin/bash
# Wakes resource-topology-exporter when a container of a Guaranteed pod has started or stopped.
bundle=$(/usr/bin/jq -r '.bundle // empty') || exit 0
cgroup=$(/usr/bin/jq -r '.linux.cgroupsPath // empty' "$bundle/config.json") || exit 0
case "$cgroup" in
*kubepods[-/]burstable* | *kubepods[-/]besteffort* | *kubepods.slice/kubepods-burstable* | *kubepods.slice/kubepods-besteffort*)
	exit 0
	;;
esac
touch "$1" || true
exit 0
"#;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Whether the script, run as the hook of a container with this cgroup, touches the file.
    fn touches(cgroup: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        // Stands in for jq: prints the bundle from standard input, then the cgroup from a file.
        let jq = "#!/bin/bash\nif [ $# -eq 3 ]; then cat \"$3\"; else cat; fi\n";
        std::fs::write(path("jq"), jq).unwrap();
        std::fs::write(path("config.json"), cgroup).unwrap();
        let script = TEXT.replace("/usr/bin/jq", &format!("bash {}", path("jq").display()));
        std::fs::write(path("script"), script).unwrap();
        let mut command = Command::new("bash");
        command.arg(path("script")).arg(path("notify")).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let bundle = dir.path().display().to_string();
        child.stdin.take().unwrap().write_all(bundle.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{cgroup}");
        path("notify").exists()
    }

    #[test]
    fn only_guaranteed_pods_wake_the_exporter() {
        for (cgroup, wanted) in [
            ("kubepods-burstable-pod0f.slice:crio:1", false),
            ("kubepods-besteffort-pod0f.slice:crio:1", false),
            ("/kubepods/burstable/pod0f/1", false),
            ("/kubepods/besteffort/pod0f/1", false),
            ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f.slice/crio-1.scope", false),
            ("kubepods-pod0f.slice:crio:1", true),
            ("/kubepods/pod0f/1", true),
            ("/kubepods.slice/kubepods-pod0f.slice/crio-1.scope", true),
        ] {
            assert_eq!(touches(cgroup), wanted, "{cgroup}");
        }
    }
}
