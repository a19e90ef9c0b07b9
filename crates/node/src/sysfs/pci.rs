//! Functions on the PCI bus, with the zones they are close to and their device nodes.
//!
//! In: sysfs. Out: functions, ascending by address; a device node's zone. The kernel's zone -1 means "none".

use std::path::{Path, PathBuf};

use super::{Error, Sysfs, content};
use crate::file;

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// `0000:3b:00.0`: domain, bus, device, function.
    pub address: String,
    /// The id of the vendor.
    pub vendor: u16,
    /// The id of the device.
    pub device: u16,
    /// Class, subclass and programming interface: 24 bits.
    pub class: u32,
    /// The zone it is close to, if the kernel knows one.
    pub zone: Option<u32>,
    /// Its driver, if it has one.
    pub driver: Option<String>,
    /// The group of functions that cannot be isolated from each other, where there is an IOMMU.
    pub iommu_group: Option<u32>,
    /// Device nodes, `/dev/...`, sorted.
    pub nodes: Vec<PathBuf>,
}

/// The limit of device nodes of one function; a device has fewer.
const MAX_NODES: usize = 64;

/// Whether the text is a complete address of a function: `0000:3b:00.0`.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let hex = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = text.splitn(3, ':');
    let (Some(domain), Some(bus), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Some((device, function)) = rest.split_once('.') else { return false };
    hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2) && hex(function, 1..=1)
}

impl Sysfs {
    /// Reads the functions on the PCI bus, about ten small files for each; empty on a machine without such a bus.
    ///
    /// # Errors
    /// When a file is missing, unreadable or invalid; see [`Error`]. A function that disappears meanwhile is left out.
    /// Without any bus the directory is not a sysfs mount.
    pub fn pci(&self) -> Result<Vec<Function>, Error> {
        let devices = self.root.join("bus/pci/devices");
        let mut functions = Vec::new();
        let Some(addresses) = file::list_if_there(&devices)? else {
            file::entries(&self.root.join("bus"))?;
            return Ok(functions);
        };
        for address in addresses {
            let dir = devices.join(&address);
            match function(&dir, address) {
                Ok(function) => functions.push(function),
                Err(_) if !dir.exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(functions)
    }

    /// The zone of the device behind a device node, given the node's number: the zone of the device, or of the nearest
    /// bus above it for which the kernel knows one.
    #[must_use]
    pub fn zone_of_node(&self, rdev: u64, block: bool) -> Option<u32> {
        let kind = if block { "block" } else { "char" };
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let link = self.root.join(format!("dev/{kind}/{major}:{minor}"));
        let real = std::fs::canonicalize(link).ok()?;
        let root = std::fs::canonicalize(&self.root).ok()?;
        let above = real.ancestors().take_while(|dir| dir.starts_with(&root) && **dir != root);
        above.map(|dir| dir.join("numa_node")).find_map(|path| zone(&path).ok().flatten())
    }
}

fn function(dir: &Path, address: String) -> Result<Function, Error> {
    let number = |name: &str, bits: u32| {
        let path = dir.join(name);
        let text = file::read(&path)?;
        let digits = text.trim().trim_start_matches("0x");
        let value = u32::from_str_radix(digits, 16).ok().filter(|value| value.checked_shr(bits) == Some(0));
        value.ok_or_else(|| {
            content(path, format!("{:?} is not a hexadecimal number of {bits} bits", text.trim()))
        })
    };
    let link = |name: &str| {
        let target = std::fs::read_link(dir.join(name)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    };
    Ok(Function {
        vendor: u16::try_from(number("vendor", 16)?).unwrap_or_default(),
        device: u16::try_from(number("device", 16)?).unwrap_or_default(),
        class: number("class", 24)?,
        zone: zone(&dir.join("numa_node"))?,
        driver: link("driver"),
        iommu_group: link("iommu_group").and_then(|group| group.parse().ok()),
        nodes: nodes(dir)?,
        address,
    })
}

/// The zone in a file `numa_node`; `None` when it contains -1 or does not exist.
fn zone(path: &Path) -> Result<Option<u32>, Error> {
    let Some(text) = file::read_if_there(path)? else { return Ok(None) };
    match text.trim() {
        "-1" => Ok(None),
        text => match text.parse() {
            Ok(zone) => Ok(Some(zone)),
            Err(_) => Err(content(path.to_owned(), format!("{text:?} is not a NUMA node or -1"))),
        },
    }
}

/// Device nodes of a function: `<subsystem>/<name>/uevent` names its file in `/dev`. Buses behind the function have
/// nodes further down, which belong to other devices.
fn nodes(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for subsystem in folders(dir) {
        for name in folders(&subsystem) {
            let Some(text) = file::read_if_there(&name.join("uevent")).ok().flatten() else { continue };
            let Some(node) = text.lines().find_map(|line| line.strip_prefix("DEVNAME=")) else { continue };
            let plain =
                !node.is_empty() && !node.starts_with('/') && !node.split('/').any(|part| part == "..");
            if plain && found.len() < MAX_NODES {
                found.push(Path::new("/dev").join(node));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Folders in a folder, without links: those lead elsewhere on the bus.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = file::entries(dir).unwrap_or_default();
    let folders = entries.into_iter().filter(|(_, kind)| *kind == file::Kind::Directory);
    folders.map(|(name, _)| dir.join(name)).collect()
}
