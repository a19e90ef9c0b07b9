//! Devices on the PCI bus, as sysfs shows them.
//!
//! In: filters, sysfs. Out: one device for each function that matches, with its zone, its driver's device nodes, and
//! its address. Never: a function that is opened or bound.

use std::path::Path;
use std::sync::Arc;

use node::sysfs::Sysfs;
use node::sysfs::pci::Function;

use super::{Error, FoundDevice, Scan};
use crate::config::{Nodes, Pci};
use crate::inventory::{self, Hardware, Injection};

/// The driver that gives a function to programs in user space.
const VFIO: &str = "vfio-pci";

/// Scans all PCI functions. Cost: a few small reads per function of the machine.
///
/// # Errors
/// When sysfs cannot be read.
pub fn scan(filter: &Pci, sysfs: &Path) -> Result<Scan, Error> {
    let functions = Sysfs::new(sysfs).pci().map_err(|error| Error::new(chain(&error)))?;
    let matching = functions.into_iter().filter(|function| matches(filter, function));
    let devices =
        matching.map(|function| (function.address.as_str().into(), found(filter, function))).collect();
    Ok(Scan { devices, volatile: true })
}

fn matches(filter: &Pci, function: &Function) -> bool {
    let one = |values: &[String], is: &dyn Fn(&str) -> bool| {
        values.is_empty() || values.iter().any(|value| is(value))
    };
    let hex = |number: u16| format!("{number:04x}");
    one(&filter.vendors, &|value| value.eq_ignore_ascii_case(&hex(function.vendor)))
        && one(&filter.devices, &|value| value.eq_ignore_ascii_case(&hex(function.device)))
        && one(&filter.classes, &|value| {
            format!("{:06x}", function.class).starts_with(&value.to_ascii_lowercase())
        })
        && one(&filter.drivers, &|value| function.driver.as_deref() == Some(value))
        && one(&filter.addresses, &|value| function.address.eq_ignore_ascii_case(value))
}

fn found(filter: &Pci, function: Function) -> FoundDevice {
    let mut nodes = Vec::new();
    let mut problem = None;
    if filter.nodes == Nodes::Auto {
        if function.driver.as_deref() == Some(VFIO) {
            match function.iommu_group {
                Some(group) => {
                    nodes.push(super::node(Path::new("/dev/vfio/vfio")));
                    nodes.push(super::node(&Path::new("/dev/vfio").join(group.to_string())));
                }
                None => {
                    problem = Some(format!("{} has the driver {VFIO} and no IOMMU group", function.address))
                }
            }
        } else {
            nodes.extend(function.nodes.iter().map(|path| super::node(path)));
        }
    }
    let pci = inventory::Pci {
        address: function.address,
        vendor: format!("{:04x}", function.vendor),
        device: format!("{:04x}", function.device),
    };
    let injection = Injection { nodes, ..Injection::default() };
    let hardware = Hardware { zones: Vec::from_iter(function.zone), injection, pci: Some(Box::new(pci)) };
    FoundDevice { hardware: Arc::new(hardware), problem, ..FoundDevice::default() }
}

/// An error with its cause, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
