//! Files and systemd units of a MachineConfig: Ignition 3.2.0.
//!
//! In: paths and texts. Out: the object's body. Never: an empty field.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

/// A file on a node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct File {
    path: &'static str,
    mode: u32,
    overwrite: bool,
    contents: Contents,
}

#[derive(Clone, Debug, Serialize)]
struct Contents {
    source: String,
}

/// A systemd unit on a node.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Unit {
    name: &'static str,
    enabled: bool,
    contents: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct MachineConfig {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Debug, Serialize)]
struct Spec {
    config: Config,
}

#[derive(Debug, Serialize)]
struct Config {
    ignition: Ignition,
    storage: Storage,
    systemd: Systemd,
}

#[derive(Debug, Serialize)]
struct Ignition {
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct Storage {
    files: Vec<File>,
}

#[derive(Debug, Serialize)]
struct Systemd {
    units: Vec<Unit>,
}

impl File {
    /// A file of root with this text; `mode` as in `chmod`.
    pub(super) fn new(path: &'static str, mode: u32, text: &str) -> Self {
        // The JSON form of a ByteString is always a string in base64.
        let encoded = serde_json::to_value(ByteString(text.as_bytes().to_vec()));
        let encoded = encoded.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        let source = format!("data:text/plain;charset=utf-8;base64,{encoded}");
        Self { path, mode, overwrite: true, contents: Contents { source } }
    }
}

impl Unit {
    /// A unit that starts with the node.
    pub(super) fn enabled(name: &'static str, contents: &'static str) -> Self {
        Self { name, enabled: true, contents }
    }
}

/// The object without its kind.
pub(super) fn machine_config(metadata: ObjectMeta, files: Vec<File>, units: Vec<Unit>) -> MachineConfig {
    let config = Config {
        ignition: Ignition { version: "3.2.0" },
        storage: Storage { files },
        systemd: Systemd { units },
    };
    MachineConfig { metadata, spec: Spec { config } }
}
