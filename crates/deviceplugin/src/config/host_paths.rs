//! Paths of the host that give a container the whole node.
//!
//! In: a resource, or a path of a device. Out: the first such path, and why it is refused. Never: a look at the node,
//! so links are not followed.

use std::path::Path;

use super::Resource;

/// Directories with the files of other programs. A mount of a directory below them is the vendor's business.
const SHARED: [&str; 13] = [
    "/", "/boot", "/dev", "/etc", "/home", "/opt", "/run", "/srv", "/usr", "/var", "/var/lib", "/var/log",
    "/var/run",
];

/// Files and directories with credentials, sockets of container runtimes, memory or processes.
const WHOLE_NODE: [&str; 16] = [
    "/dev/kmem",
    "/dev/mem",
    "/dev/port",
    "/etc/kubernetes",
    "/etc/shadow",
    "/etc/ssh",
    "/proc",
    "/root",
    "/run/containerd",
    "/run/crio",
    "/run/docker.sock",
    "/run/dockershim.sock",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/etcd",
    "/var/lib/kubelet",
];

/// The field with which a container of the resource has the whole node, and why its path is refused.
pub(super) fn of_whole_node(resource: &Resource) -> Option<(&'static str, String)> {
    let container = &resource.container;
    let nodes = container.device_nodes.iter().map(|path| ("container.deviceNodes", path.as_path()));
    let mounts =
        container.mounts.iter().map(|mount| ("container.mounts.hostPath", mount.host_path.as_path()));
    let lists = resource.discovery.list.iter().flat_map(|list| list.devices.values().flatten());
    let listed = lists.flat_map(|device| device.device_nodes.iter());
    let listed = listed.map(|path| ("discovery.list", path.as_path()));
    nodes.chain(mounts).chain(listed).find_map(|(field, path)| Some((field, refusal(path)?)))
}

/// Why a path is refused that gives a container the whole node; `None`: it does not.
pub(crate) fn refusal(path: &Path) -> Option<String> {
    let reason = || format!("{path:?} gives each container the whole node: allowed with --allow-host-paths");
    gives_whole_node(path).then(reason)
}

/// Comparison is by components, so doubled slashes and dots count for nothing.
fn gives_whole_node(path: &Path) -> bool {
    let run = path.strip_prefix("/var/run").map(|rest| Path::new("/run").join(rest));
    let path = run.as_deref().unwrap_or(path);
    SHARED.iter().any(|shared| path == Path::new(shared))
        || WHOLE_NODE.iter().any(|whole| path.starts_with(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_give_the_whole_node_are_known() {
        for (path, wanted) in [
            ("/", true),
            ("//", true),
            ("/./etc/", true),
            ("/etc/shadow", true),
            ("/etc/kubernetes/pki", true),
            ("/dev", true),
            ("/dev/mem", true),
            ("/dev/memory", false),
            ("/dev/vfio/1", false),
            ("/etc/vendor.conf", false),
            ("/opt/vendor", false),
            ("/proc/1/root", true),
            ("/var/run/docker.sock", true),
            ("/var/run", true),
            ("/run/vendor", false),
            ("/var/lib/kubelet/pods", true),
            ("/var/lib/vendor", false),
            ("/sys/class/net", false),
        ] {
            assert_eq!(gives_whole_node(Path::new(path)), wanted, "{path}");
        }
    }
}
