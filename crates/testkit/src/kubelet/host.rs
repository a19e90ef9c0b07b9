//! What a kubelet and its containers take for their machine.
//!
//! In: a [`Machine`], and a network if the node shall have an address of its own. Out: a folder with the node's
//! files, and namespaces in which the machine's files lie over those of the host, as do stand-ins for the
//! sysctls that a kubelet would set and for the folders whose paths it has built in. Nothing of the real host
//! changes.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::mount::{MountFlags, mount, mount_bind};

use crate::machine::{Layout, Machine, Tree};
use crate::namespace::Namespaces;
use crate::net::Network;

/// Where containers, manifests and device plugins expect the kubelet's root folder.
const KUBELET: &str = "/var/lib/kubelet";

/// What a kubelet sets at its start unless it finds it so (kubelet, `setupKernelTunables`).
const SYSCTLS: [(&str, &str); 6] = [
    ("proc/sys/vm/overcommit_memory", "1"),
    ("proc/sys/vm/panic_on_oom", "0"),
    ("proc/sys/kernel/panic", "10"),
    ("proc/sys/kernel/panic_on_oops", "1"),
    ("proc/sys/kernel/keys/root_maxkeys", "1000000"),
    ("proc/sys/kernel/keys/root_maxbytes", "25000000"),
];

/// A machine with a name.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    dir: PathBuf,
    layout: Layout,
    tree: Tree,
    namespaces: Namespaces,
    address: Option<Ipv4Addr>,
}

impl Host {
    /// Makes the files below `dir`, an existing folder. With a network it gets that address there, else it shares the
    /// caller's network.
    ///
    /// # Errors
    /// When the machine cannot exist, its files cannot be written, or the kernel does not allow it (not root).
    pub fn new(
        dir: &Path,
        name: &str,
        machine: &Machine,
        network: Option<(&Network, Ipv4Addr)>,
    ) -> anyhow::Result<Self> {
        Self::with_layout(dir, name, machine.layout()?, network)
    }

    /// As [`Host::new`], with a machine that was worked out already.
    ///
    /// # Errors
    /// When the machine's files cannot be written, or the kernel does not allow it (not root).
    pub fn with_layout(
        dir: &Path,
        name: &str,
        layout: Layout,
        network: Option<(&Network, Ipv4Addr)>,
    ) -> anyhow::Result<Self> {
        let tree = layout.write_to(&dir.join("machine")).with_context(|| format!("machine of {name}"))?;
        let root = dir.join("kubelet");
        fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
        let over = stand_ins(&tree)?;
        let own = Namespaces::default()
            .with_mounts(|| cover(&over, &root, network.is_some()))
            .with_context(|| format!("mounts of {name}"))?;
        let (namespaces, address) = match network {
            Some((network, address)) => (network.attach(&own, address)?, Some(address)),
            None => (own, None),
        };
        Ok(Self { name: name.to_owned(), dir: dir.to_owned(), layout, tree, namespaces, address })
    }

    /// Name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder of everything about this node.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kubelet's root folder; in the node's own mounts it is `/var/lib/kubelet` too.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.dir.join("kubelet")
    }

    /// What the kubelet itself takes for its root folder. Where containers have mounts, those that it makes
    /// later shall be below the path by which they know it.
    pub(super) fn seen_root(&self) -> PathBuf {
        if self.address.is_some() { PathBuf::from(KUBELET) } else { self.root() }
    }

    /// The machine's files; their `sys` is what a node agent takes for `/sys`.
    #[must_use]
    pub fn machine(&self) -> &Tree {
        &self.tree
    }

    /// What the machine is made of.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What a process on this node sees.
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Its address in the cluster's network, if it is not simply the caller's machine.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// Where its servers are reached from the cluster's control plane.
    #[must_use]
    pub fn reached_at(&self) -> IpAddr {
        self.address.unwrap_or(Ipv4Addr::LOCALHOST).into()
    }
}

/// `(stand-in, real)`: the machine's files, and sysctls that already have the values a kubelet wants.
fn stand_ins(tree: &Tree) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mut all = tree.mounts();
    // A kernel without huge pages has no such folder, and a kubelet does without.
    all.retain(|(_, real)| !real.ends_with("hugepages") || real.exists());
    for (path, value) in SYSCTLS {
        let (over, real) = (tree.root().join(path), Path::new("/").join(path));
        if real.exists() {
            fs::create_dir_all(over.parent().unwrap_or(tree.root()))?;
            fs::write(&over, format!("{value}\n"))?;
            all.push((over, real));
        }
    }
    Ok(all)
}

/// Runs in the new mount namespace. The folder of device plugins is built into kubelets at [`KUBELET`], that of
/// the links to container logs in `/var/log`; in `/run` real containers may make folders.
fn cover(over: &[(PathBuf, PathBuf)], root: &Path, containers: bool) -> anyhow::Result<()> {
    for (over, real) in over {
        mount_bind(over, real)
            .with_context(|| format!("mounting {} over {}", over.display(), real.display()))?;
    }
    // It may be below one of the folders that are covered next.
    let root = File::open(root).with_context(|| format!("opening {}", root.display()))?;
    let run = if containers { Some("/run") } else { None };
    for empty in ["/var/log", "/var/lib"].into_iter().chain(run) {
        mount("tmpfs", empty, "tmpfs", MountFlags::empty(), None)
            .with_context(|| format!("covering {empty}"))?;
    }
    fs::create_dir(KUBELET)?;
    mount_bind(format!("/proc/self/fd/{}", root.as_raw_fd()), KUBELET)
        .with_context(|| format!("mounting {KUBELET}"))
}
