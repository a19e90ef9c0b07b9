//! The rules for a resource of the configuration, beyond its shape.
//!
//! In: a resource. Out: the first wrong field, by its path within the resource, and what is allowed. Never: a look at
//! the node.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::{Container, Directory, Discovery, MAX_DEVICES, Pci, PreStart, Resource};

/// A field within the resource, and what is wrong with it.
type FieldError = (&'static str, String);

/// The shortest and the longest time between scans.
const CHECK_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));
/// The largest number of filters of one kind.
const MAX_FILTERS: usize = 64;
/// The kubelet's own time limit.
const PRE_START_AT_MOST: Duration = Duration::from_secs(30);

pub(super) fn resource(resource: &Resource) -> Result<(), FieldError> {
    resource_name(&resource.name).map_err(|reason| ("name", reason))?;
    discovery(&resource.discovery)?;
    let every = resource.health.check_every;
    if every < CHECK_EVERY.0 || every > CHECK_EVERY.1 {
        return Err(("health.checkEvery", format!("{every:?}: allowed are 100ms to 1h")));
    }
    if resource.health.recover_at_most < resource.health.recover_after {
        let after = resource.health.recover_after;
        return Err((
            "health.recoverAtMost",
            format!("less than recoverAfter: allowed are {after:?} and more"),
        ));
    }
    if let Some(sharing) = resource.sharing {
        let most = MAX_DEVICES;
        if sharing.replicas < 2 || sharing.replicas as usize > most {
            return Err(("sharing.replicas", format!("{}: allowed are 2 to {most}", sharing.replicas)));
        }
    }
    container(&resource.container)?;
    resource.pre_start.as_ref().map_or(Ok(()), pre_start)
}

/// Whether a name can be that of an extended resource: the kubelet's rule.
///
/// # Errors
/// Names what is wrong and what is allowed.
pub fn resource_name(name: &str) -> Result<(), String> {
    let wrong = |reason: &str| {
        Err(format!(
            "{name:?} {reason}: allowed are names like vendor.example/device (a DNS subdomain, a slash, at most 63 \
             letters, digits, - _ .)"
        ))
    };
    let Some((domain, base)) = name.split_once('/') else { return wrong("has no slash") };
    let label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // The quota of a resource has its name with `requests.` before it, which has to be a name too.
    if domain.len() > 253 - "requests.".len() || !domain.split('.').all(label) {
        return wrong("has no domain before the slash");
    }
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.starts_with("requests.") {
        return wrong("is in a domain reserved by Kubernetes");
    }
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = base.as_bytes();
    let good =
        bytes.len() <= 63 && bytes.iter().copied().all(inside) && ends(bytes.first()) && ends(bytes.last());
    if good { Ok(()) } else { wrong("has no name after the slash") }
}

fn discovery(discovery: &Discovery) -> Result<(), FieldError> {
    let Discovery { list, file, pci, directory } = discovery;
    let given = [list.is_some(), file.is_some(), pci.is_some(), directory.is_some()];
    let given = given.into_iter().filter(|given| *given).count();
    if given != 1 {
        return Err((
            "discovery",
            format!("{given} kinds: allowed is exactly one of list, file, pci, directory"),
        ));
    }
    if let Some(devices) = list {
        devices.check().map_err(|reason| ("discovery.list", reason))?;
    }
    if let Some(file) = file {
        absolute(&file.path).map_err(|reason| ("discovery.file.path", reason))?;
    }
    pci.as_ref().map_or(Ok(()), filters)?;
    directory.as_ref().map_or(Ok(()), folder)
}

fn filters(pci: &Pci) -> Result<(), FieldError> {
    let Pci { vendors, devices, classes, drivers, addresses, .. } = pci;
    if [vendors, devices, classes, drivers, addresses].into_iter().all(Vec::is_empty) {
        let reason = "has no filter and would match every function: at least one of vendors, devices, classes, \
                      drivers, addresses is required";
        return Err(("discovery.pci", reason.to_owned()));
    }
    if [vendors, devices, classes, drivers, addresses].into_iter().any(|filter| filter.len() > MAX_FILTERS) {
        return Err((
            "discovery.pci",
            format!("a filter of more than {MAX_FILTERS} values: allowed are {MAX_FILTERS}"),
        ));
    }
    let hex = |text: &String, lengths: &[usize]| {
        lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    for (field, values, lengths) in [
        ("discovery.pci.vendors", vendors, [4].as_slice()),
        ("discovery.pci.devices", devices, &[4]),
        ("discovery.pci.classes", classes, &[2, 4, 6]),
    ] {
        if let Some(value) = values.iter().find(|value| !hex(value, lengths)) {
            let lengths: Vec<_> = lengths.iter().map(ToString::to_string).collect();
            let lengths = lengths.join(" or ");
            return Err((field, format!("{value:?}: allowed are {lengths} hexadecimal digits, in quotes")));
        }
    }
    if let Some(address) = addresses.iter().find(|address| !node::sysfs::pci::is_address(address)) {
        return Err((
            "discovery.pci.addresses",
            format!("{address:?}: allowed are addresses like 0000:3b:00.0"),
        ));
    }
    Ok(())
}

fn folder(directory: &Directory) -> Result<(), FieldError> {
    absolute(&directory.path).map_err(|reason| ("discovery.directory.path", reason))?;
    if directory.prefix.is_empty() && directory.path == Path::new("/dev") {
        let reason = "is required for /dev: without it, every device node of the machine would be a device";
        return Err(("discovery.directory.prefix", reason.to_owned()));
    }
    if directory.prefix.contains('/') {
        let reason = format!("{:?}: allowed are beginnings of file names", directory.prefix);
        return Err(("discovery.directory.prefix", reason));
    }
    Ok(())
}

fn container(container: &Container) -> Result<(), FieldError> {
    if let Some(given) = &container.permissions {
        permissions(given).map_err(|reason| ("container.permissions", reason))?;
    }
    for path in &container.device_nodes {
        absolute(path).map_err(|reason| ("container.deviceNodes", reason))?;
    }
    for mount in &container.mounts {
        absolute(&mount.host_path).map_err(|reason| ("container.mounts.hostPath", reason))?;
        let path = mount.container_path.as_ref().unwrap_or(&mount.host_path);
        absolute(path).map_err(|reason| ("container.mounts.containerPath", reason))?;
    }
    variables(&container.envs).map_err(|reason| ("container.envs", reason))
}

/// Checks the names of environment variables.
pub(super) fn variables(envs: &BTreeMap<String, String>) -> Result<(), String> {
    match envs.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        Some(name) => Err(format!("variable {name:?}: allowed are names without =")),
        None => Ok(()),
    }
}

fn pre_start(pre_start: &PreStart) -> Result<(), FieldError> {
    if pre_start.command.is_empty() == pre_start.reset.is_none() {
        return Err(("preStart", "allowed is exactly one of command, reset".to_owned()));
    }
    if pre_start.timeout > PRE_START_AT_MOST || pre_start.timeout.is_zero() {
        let reason = format!("{:?}: allowed are more than 0s and at most 30s", pre_start.timeout);
        return Err(("preStart.timeout", reason));
    }
    for path in pre_start.command.first().into_iter().chain(&pre_start.reset) {
        absolute(Path::new(path)).map_err(|reason| ("preStart", reason))?;
    }
    Ok(())
}

/// Checks permissions: some of `r`, `w`, `m`, each once.
fn permissions(text: &str) -> Result<(), String> {
    let good = !text.is_empty()
        && text.chars().enumerate().all(|(at, c)| "rwm".contains(c) && !text[..at].contains(c));
    if good { Ok(()) } else { Err(format!("{text:?}: allowed are some of r, w, m, each once")) }
}

/// Checks that a path is absolute, without `..`, and UTF-8.
pub(super) fn absolute(path: &Path) -> Result<(), String> {
    let back = path.components().any(|part| part == std::path::Component::ParentDir);
    if path.is_absolute() && !back && path.to_str().is_some() {
        Ok(())
    } else {
        Err(format!("{:?}: allowed are absolute paths without ..", path.display().to_string()))
    }
}
