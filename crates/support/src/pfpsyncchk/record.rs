//! Records of a node's fingerprints.
//!
//! In: a status file of an exporter or a scheduler, ours or the Go one: a JSON array of records, or a single record.
//! Out: records. Never: a file above the size limit, or an order other than the file's.

use std::path::Path;

use api::null::null_as_default;
use jiff::Timestamp;
use runtime::yaml;
use serde::Deserialize;

/// Largest file, far above ten records of a node full of pods.
const LIMIT_BYTES: u64 = 64 << 20;

/// One fingerprint and its pods. Missing fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// The exporter's fingerprint; in records of schedulers only.
    pub fingerprint_expected: String,
    /// The fingerprint computed from the pods.
    pub fingerprint_computed: String,
    /// The pods counted.
    #[serde(deserialize_with = "null_as_default")]
    pub pods: Vec<Pod>,
    /// Name of the node.
    pub node_name: String,
    /// Time of the record.
    pub record_time: Option<Timestamp>,
}

/// A pod's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Pod {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Many(Vec<Record>),
    One(Box<Record>),
}

/// Parses records; the list may be empty.
///
/// # Errors
/// When the text is not JSON, or has another shape.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    // In two steps: errors of untagged enums have no reason.
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match serde_json::from_value(value) {
        Ok(File::Many(records)) => Ok(records),
        Ok(File::One(record)) => Ok(vec![*record]),
        Err(_) => Err("not a list of fingerprint records".to_owned()),
    }
}

/// Reads a file.
///
/// # Errors
/// When the file cannot be read, or as [`parse`].
pub(super) fn read(file: &Path) -> Result<Vec<Record>, String> {
    let text = yaml::read_text(file, LIMIT_BYTES).map_err(|error| error.to_string())?;
    parse(&text).map_err(|reason| format!("{}: {reason}", file.display()))
}
