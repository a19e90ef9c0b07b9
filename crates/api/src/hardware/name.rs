//! What things made for a DeviceConfig are called.
//!
//! In: its namespace and name. Out: names that are within KMM's limits. Never: two DeviceConfigs of a namespace with one name, but for a
//! collision of 32 bits, which is then told of as a Module that is somebody else's.

use topology::fingerprint::PodHash;

use super::{MAX_NAMES, MAX_NAMESPACE};

const SUFFIX: &str = "-module";
/// `-` and eight hexadecimal digits.
const HASH: usize = 9;

/// The name of the Module of a DeviceConfig: `<name>-module` if KMM takes it, else the beginning of the name and a hash of the whole. None in a
/// namespace whose name is too long for any.
#[must_use]
pub fn module_name(namespace: &str, name: &str) -> Option<String> {
    if namespace.len() > MAX_NAMESPACE {
        return None;
    }
    let room = MAX_NAMES - namespace.len();
    // A dot would be taken for the end of the namespace in labels.
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
