//! Names of objects created for a DeviceConfig.
//!
//! In: its namespace and name. Out: names within KMM's limits. Never: one name for two DeviceConfigs of a namespace,
//! except for a collision of 32 bits, which the operator reports as a Module of another owner.

use topology::fingerprint::PodHash;

use super::{MAX_NAMES, MAX_NAMESPACE};

const SUFFIX: &str = "-module";
/// `-` and eight hexadecimal digits.
const HASH: usize = 9;

/// The name of a DeviceConfig's Module: `<name>-module` within KMM's limit, else the beginning of the name and a hash
/// of all of it. `None` in a namespace whose name is longer than [`MAX_NAMESPACE`].
#[must_use]
pub fn module_name(namespace: &str, name: &str) -> Option<String> {
    if namespace.len() > MAX_NAMESPACE {
        return None;
    }
    let room = MAX_NAMES - namespace.len();
    // KMM reads a dot in labels as the end of the namespace.
    if name.len() + SUFFIX.len() <= room && !name.contains('.') {
        return Some(format!("{name}{SUFFIX}"));
    }
    let plain: String = name.chars().map(|c| if c == '.' { '-' } else { c }).take(room - HASH).collect();
    let hash = PodHash::of(namespace, name).0 >> 32;
    Some(format!("{}-{hash:08x}", plain.trim_end_matches('-')))
}

/// The value of [`super::keys::LABEL_DRIVER`] on the nodes of a Module: at most 42 characters.
#[must_use]
pub fn claim(namespace: &str, module: &str) -> String {
    format!("{namespace}.{module}")
}

/// The service account of the pods that load a Module.
#[must_use]
pub fn loader_account(module: &str) -> String {
    format!("{module}-loader")
}

/// The service account of a Module's device plugin.
#[must_use]
pub fn plugin_account(module: &str) -> String {
    format!("{module}-plugin")
}

/// The ConfigMap with the configuration of a Module's device plugin.
#[must_use]
pub fn plugin_config_map(module: &str) -> String {
    format!("{module}-plugin")
}
