//! What is wrong with a specification.
//!
//! In: a specification. Out: all findings, in the order of the fields. Never: a look at the machine; whether a path
//! exists is known when a container starts.
//!
//! An *error* is what the library that runtimes are built with refuses, so that the devices of the file do not exist. A
//! *warning* is what it accepts although the specification's text forbids it, or what no runtime can make a container
//! with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::name::{self, Kind};
use crate::spec::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, NetDevice, Spec};
use crate::version::Version;

/// The points in a container's life at which hooks run.
pub const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// The largest size of all annotations of a file or device together, in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The longest file name, plus one: classes of service are folders in resctrl.
const MAX_CLASS_OF_SERVICE: usize = 4096;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Runtimes refuse the file, or cannot resolve the device.
    Error,
    /// Runtimes accept the file.
    Warning,
}

/// One problem of a specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// The field, such as `devices[0].containerEdits.env[1]`; empty for the file as a whole.
    pub field: String,
    /// The problem, with the values that are allowed.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.problem)
        } else {
            write!(f, "{}: {}", self.field, self.problem)
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// Checks a specification; the findings are in the order of the fields. Cost: grows with the devices and their edits.
#[must_use]
pub fn check(spec: &Spec) -> Vec<Finding> {
    let mut notes = Notes::default();
    version(&mut notes, spec);
    kind(&mut notes, &spec.kind);
    annotations(&mut notes, "annotations", &spec.annotations);
    if spec.devices.is_empty() {
        notes.error("devices", "is empty; at least one is required");
    }
    let mut names = BTreeSet::new();
    for (index, device) in spec.devices.iter().enumerate() {
        let at = format!("devices[{index}]");
        check_device(&mut notes, &at, device);
        if !names.insert(&device.name) {
            notes.error(
                &format!("{at}.name"),
                &format!("\"{}\" is also the name of another device", device.name),
            );
        }
    }
    edits(&mut notes, "containerEdits", &spec.container_edits);
    notes.0
}

/// The errors of a specification as one line; none when runtimes accept it.
#[must_use]
pub fn refusal(spec: &Spec) -> Option<String> {
    let errors: Vec<_> =
        check(spec).into_iter().filter(|finding| finding.severity == Severity::Error).collect();
    let first = errors.first()?;
    Some(match errors.len() - 1 {
        0 => first.to_string(),
        more => format!("{first} (and {more} more)"),
    })
}

/// Checks edits alone, such as those of a plugin's configuration; `at` is the field they are in.
#[must_use]
pub fn check_edits(at: &str, container_edits: &ContainerEdits) -> Vec<Finding> {
    let mut notes = Notes::default();
    edits(&mut notes, at, container_edits);
    notes.0
}

/// The findings so far.
#[derive(Default)]
struct Notes(Vec<Finding>);

impl Notes {
    fn error(&mut self, field: &str, problem: &str) {
        self.add(Severity::Error, field, problem);
    }

    fn warning(&mut self, field: &str, problem: &str) {
        self.add(Severity::Warning, field, problem);
    }

    fn add(&mut self, severity: Severity, field: &str, problem: &str) {
        self.0.push(Finding { severity, field: field.to_owned(), problem: problem.to_owned() });
    }

    /// Reports an empty text; true if it is not empty.
    fn given(&mut self, field: &str, text: &str) -> bool {
        if text.is_empty() {
            self.error(field, "must be given");
        }
        !text.is_empty()
    }

    /// Reports an empty path as an error, and one that is not absolute as a warning: no runtime can use that.
    fn path(&mut self, field: &str, path: &str) {
        if self.given(field, path) && !path.starts_with('/') {
            self.warning(field, &format!("\"{path}\" must be absolute"));
        }
    }
}

fn version(notes: &mut Notes, spec: &Spec) {
    match spec.cdi_version.parse::<Version>() {
        Err(error) => notes.error("cdiVersion", &error.to_string()),
        Ok(version) => {
            let minimum = Version::minimum(spec);
            if version < minimum {
                notes.error(
                    "cdiVersion",
                    &format!("{version} is too low: the fields in use need {minimum} or higher"),
                );
            }
        }
    }
}

fn kind(notes: &mut Notes, kind: &str) {
    match kind.parse::<Kind>() {
        Err(error) => notes.error("kind", &error.to_string()),
        Ok(kind) => {
            if let Some(departs) = name::strict_kind(&kind) {
                notes.warning("kind", &departs);
            }
        }
    }
}

fn annotations(notes: &mut Notes, at: &str, annotations: &BTreeMap<String, String>) {
    for key in annotations.keys().filter(|key| !is_annotation_key(key)) {
        notes.warning(
            &format!("{at}[{key:?}]"),
            "is not a key: allowed are <name> and <DNS subdomain>/<name>, names of at most 63 letters, digits, _ - .",
        );
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATIONS {
        notes.warning(at, &format!("{size} bytes together; at most {MAX_ANNOTATIONS} are allowed"));
    }
}

/// Kubernetes' rule for annotation keys, which ignores case.
fn is_annotation_key(key: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let part = |text: &str, extra: &[char]| {
        text.starts_with(ends) && text.ends_with(ends) && text.chars().all(|c| ends(c) || extra.contains(&c))
    };
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix =
        prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(|label| part(label, &['-'])));
    prefix && name.len() <= 63 && part(name, &['_', '-', '.'])
}

fn check_device(notes: &mut Notes, at: &str, device: &Device) {
    let field = format!("{at}.name");
    if let Err(error) = name::check_device(&device.name) {
        notes.error(&field, &error.to_string());
    } else if let Some(departs) = name::strict_device(&device.name) {
        notes.warning(&field, &departs);
    }
    annotations(notes, &format!("{at}.annotations"), &device.annotations);
    let field = format!("{at}.containerEdits");
    if device.container_edits.is_empty() {
        let problem = "is empty: one of env, deviceNodes, netDevices, hooks, mounts, intelRdt, additionalGids must be \
                       given";
        notes.error(&field, problem);
    }
    edits(notes, &field, &device.container_edits);
}

fn edits(notes: &mut Notes, at: &str, edits: &ContainerEdits) {
    env(notes, &format!("{at}.env"), &edits.env);
    for (index, node) in edits.device_nodes.iter().enumerate() {
        device_node(notes, &format!("{at}.deviceNodes[{index}]"), node);
    }
    net_devices(notes, &format!("{at}.netDevices"), &edits.net_devices);
    for (index, one) in edits.hooks.iter().enumerate() {
        hook(notes, &format!("{at}.hooks[{index}]"), one);
    }
    for (index, mount) in edits.mounts.iter().enumerate() {
        let at = format!("{at}.mounts[{index}]");
        // The source of a file system such as tmpfs is a word, not a path.
        notes.given(&format!("{at}.hostPath"), &mount.host_path);
        notes.path(&format!("{at}.containerPath"), &mount.container_path);
    }
    if let Some(rdt) = &edits.intel_rdt {
        intel_rdt(notes, &format!("{at}.intelRdt"), rdt);
    }
}

fn env(notes: &mut Notes, at: &str, env: &[String]) {
    for (index, variable) in env.iter().enumerate() {
        if variable.find('=').is_none_or(|position| position == 0) {
            notes.error(&format!("{at}[{index}]"), &format!("{variable:?} must be NAME=value"));
        }
    }
}

fn device_node(notes: &mut Notes, at: &str, node: &DeviceNode) {
    notes.path(&format!("{at}.path"), &node.path);
    if !node.host_path.is_empty() {
        notes.path(&format!("{at}.hostPath"), &node.host_path);
    }
    if !matches!(&*node.r#type, "" | "b" | "c" | "u" | "p") {
        notes.error(
            &format!("{at}.type"),
            &format!("{:?} is none of b (block), c, u (character), p (FIFO)", node.r#type),
        );
    }
    let permissions = &*node.permissions;
    if permissions != "none" && !permissions.chars().all(|c| matches!(c, 'r' | 'w' | 'm')) {
        notes.error(
            &format!("{at}.permissions"),
            &format!("{permissions:?} must have only r, w, m, or be \"none\"; empty means rwm"),
        );
    }
    for (field, number) in [("major", node.major), ("minor", node.minor)] {
        if let Some(number) = number.filter(|number| *number < 0) {
            notes.warning(&format!("{at}.{field}"), &format!("{number} must not be negative"));
        }
    }
}

fn net_devices(notes: &mut Notes, at: &str, devices: &[NetDevice]) {
    let (mut on_host, mut inside) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in devices.iter().enumerate() {
        for (field, name, seen) in [
            ("hostInterfaceName", &device.host_interface_name, &mut on_host),
            ("name", &device.name, &mut inside),
        ] {
            let field = format!("{at}[{index}].{field}");
            if notes.given(&field, name) && !seen.insert(name) {
                notes.error(&field, &format!("\"{name}\" is also in another entry"));
            }
        }
    }
}

fn hook(notes: &mut Notes, at: &str, hook: &Hook) {
    if !HOOKS.contains(&&*hook.hook_name) {
        let allowed = HOOKS.join(", ");
        notes.error(&format!("{at}.hookName"), &format!("{:?} is none of {allowed}", hook.hook_name));
    }
    notes.path(&format!("{at}.path"), &hook.path);
    env(notes, &format!("{at}.env"), &hook.env);
    if let Some(timeout) = hook.timeout.filter(|timeout| *timeout <= 0) {
        notes.warning(&format!("{at}.timeout"), &format!("{timeout} must be more than 0 seconds"));
    }
}

fn intel_rdt(notes: &mut Notes, at: &str, rdt: &IntelRdt) {
    let id = &*rdt.clos_id;
    let is_name =
        id == "/" || id.len() < MAX_CLASS_OF_SERVICE && id != "." && id != ".." && !id.contains(['/', '\n']);
    if !is_name {
        notes.error(
            &format!("{at}.closID"),
            "must be a file name (no /, no line break), or / for the root class",
        );
    }
}

#[cfg(test)]
mod tests;
