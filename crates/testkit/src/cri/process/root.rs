//! A container's root folder: in go an image, the mounts and devices of a container, out comes a calling thread
//! whose `/` is made of nothing else. What of the host is not named there cannot be reached.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use super::super::api::{ContainerConfig, DnsConfig, Mount, MountPropagation};
use super::super::images::Image;
use crate::namespace::set_propagation;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
];

/// What the root folder of a container is made from.
pub(super) struct Root<'a> {
    /// An existing folder to build it in.
    pub(super) at: &'a Path,
    pub(super) image: &'a Image,
    pub(super) config: &'a ContainerConfig,
    pub(super) hostname: &'a str,
    pub(super) dns: Option<&'a DnsConfig>,
}

impl Root<'_> {
    /// Moves the calling thread into it, for good. It needs a mount namespace of its own.
    pub(super) fn enter(&self) -> anyhow::Result<()> {
        // Later mounts of the node propagate where a mount asks for it; nothing goes the other way.
        set_propagation("/", MountPropagationFlags::DOWNSTREAM)?;
        mount("tmpfs", self.at, "tmpfs", MountFlags::empty(), Some(c"mode=755"))
            .context("mounting a root folder")?;
        for (on_host, inside) in &self.image.files {
            self.bind(on_host, inside, true)?;
        }
        self.furnish()?;
        let mut mounts: Vec<&Mount> = self.config.mounts.iter().collect();
        // A folder comes before what is mounted in it.
        mounts.sort_by_key(|mount| Path::new(&mount.container_path).components().count());
        for mount in mounts {
            self.mount(mount)?;
        }
        for device in &self.config.devices {
            // Devices of made-up device plugins are only words.
            if Path::new(&device.host_path).exists() {
                self.bind(Path::new(&device.host_path), Path::new(&device.container_path), false)?;
            }
        }
        chdir(self.at)?;
        pivot_root(".", ".").context("changing the root folder")?;
        unmount(".", UnmountFlags::DETACH).context("leaving the old root folder")?;
        chdir("/")?;
        Ok(())
    }

    /// What every container has.
    fn furnish(&self) -> anyhow::Result<()> {
        for folder in ["proc", "dev/shm", "etc", "tmp"] {
            fs::create_dir_all(self.at.join(folder))?;
        }
        for (folder, mode) in [("tmp", 0o1777), ("dev/shm", 0o1777)] {
            fs::set_permissions(self.at.join(folder), fs::Permissions::from_mode(mode))?;
        }
        let sys = self.bind(Path::new("/sys"), Path::new("/sys"), true)?;
        let cgroups = sys.join("fs/cgroup");
        if cgroups.is_dir() {
            // Those of the machine, where containers have none.
            mount("tmpfs", &cgroups, "tmpfs", MountFlags::RDONLY, None).context("hiding cgroups")?;
        }
        for device in DEVICES {
            let path = Path::new("/dev").join(device);
            if path.exists() {
                self.bind(&path, &path, false)?;
            }
        }
        for (to, link) in LINKS {
            symlink(to, self.at.join(link))?;
        }
        fs::write(self.at.join("etc/hostname"), format!("{}\n", self.hostname))?;
        fs::write(self.at.join("etc/resolv.conf"), resolv_conf(self.dns))?;
        Ok(())
    }

    fn mount(&self, mount: &Mount) -> anyhow::Result<()> {
        let how = match mount.propagation() {
            MountPropagation::PropagationPrivate => MountPropagationFlags::PRIVATE,
            MountPropagation::PropagationHostToContainer => MountPropagationFlags::DOWNSTREAM,
            MountPropagation::PropagationBidirectional => {
                bail!("{}: mounts are never passed to the host here", mount.container_path)
            }
        };
        let target =
            self.bind(Path::new(&mount.host_path), Path::new(&mount.container_path), mount.readonly)?;
        mount_change(&target, how | MountPropagationFlags::REC).context("setting a mount's propagation")
    }

    /// Shows a file or folder of the node, with all that is mounted in it.
    fn bind(&self, from: &Path, inside: &Path, read_only: bool) -> anyhow::Result<PathBuf> {
        let what = || format!("mounting {} at {}", from.display(), inside.display());
        let target = below(self.at, inside)?;
        if !target.exists() {
            if fs::metadata(from).with_context(what)?.is_dir() {
                fs::create_dir_all(&target).with_context(what)?;
            } else {
                fs::create_dir_all(target.parent().unwrap_or(self.at)).with_context(what)?;
                File::create(&target).with_context(what)?;
            }
        }
        mount_bind_recursive(from, &target).with_context(what)?;
        if read_only {
            mount_remount(&target, MountFlags::BIND | MountFlags::RDONLY, c"").with_context(what)?;
        }
        Ok(target)
    }
}

/// Makes the calling process's `/` read-only; what is mounted in it is not.
pub(super) fn make_read_only() -> std::io::Result<()> {
    Ok(mount_remount(c"/", MountFlags::BIND | MountFlags::RDONLY, c"")?)
}

/// Shows the processes of the calling process's namespace, which a thread that made it is not in.
pub(super) fn mount_proc() -> std::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount(c"proc", c"/proc", c"proc", flags, None)?)
}

/// A path in a container as one of the node.
fn below(root: &Path, inside: &Path) -> anyhow::Result<PathBuf> {
    let mut path = root.to_owned();
    for part in inside.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::ParentDir | Component::Prefix(_) => bail!("{}: `..` in a mount", inside.display()),
        }
    }
    Ok(path)
}

fn resolv_conf(dns: Option<&DnsConfig>) -> String {
    let Some(dns) = dns else { return String::new() };
    let mut text = String::new();
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    for (key, words) in [("search", &dns.searches), ("options", &dns.options)] {
        if !words.is_empty() {
            text += &format!("{key} {}\n", words.join(" "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_in_the_container() {
        let check = |inside: &str, expected: Option<&str>| {
            let path = below(Path::new("/r"), Path::new(inside)).ok();
            assert_eq!(path.as_deref(), expected.map(Path::new), "{inside}");
        };
        check("/etc/hosts", Some("/r/etc/hosts"));
        check("etc//./hosts", Some("/r/etc/hosts"));
        check("/", Some("/r"));
        check("/a/../../b", None);
    }

    #[test]
    fn names_are_looked_up_as_the_pod_says() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let dns = DnsConfig {
            servers: words("1.1.1.1 2.2.2.2"),
            searches: words("a b"),
            options: words("ndots:5"),
        };
        assert_eq!(
            resolv_conf(Some(&dns)),
            "nameserver 1.1.1.1\nnameserver 2.2.2.2\nsearch a b\noptions ndots:5\n"
        );
        assert_eq!(resolv_conf(None), "");
    }
}
