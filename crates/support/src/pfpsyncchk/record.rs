//! What a program has written down about the fingerprints of a node.
//!
//! In: a file as exporters and schedulers, ours and the Go ones, dump it: a JSON array of records, or one alone. Out: records. Never: more than a file's
//! size allows, or an order other than the file's.

use std::io::Read as _;
use std::path::Path;

use api::null::null_as_default;
use jiff::Timestamp;
use serde::Deserialize;

/// Far above ten records of a node full of pods.
const LIMIT_BYTES: u64 = 64 << 20;

/// One fingerprint and what went into it. What is absent is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// What the exporter said; only schedulers know it.
    pub fingerprint_expected: String,
    /// What was computed of the pods.
    pub fingerprint_computed: String,
    /// The pods.
    #[serde(deserialize_with = "null_as_default")]
    pub pods: Vec<Pod>,
    /// The node.
    pub node_name: String,
    /// When.
    pub record_time: Option<Timestamp>,
}

/// A pod's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Many(Vec<Record>),
    One(Box<Record>),
}

/// Reads records; an empty list is none.
///
/// # Errors
/// When it is no JSON, or of another shape.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    // For the reason: an untagged value has none.
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
/// When it cannot be read, or as [`parse`].
pub(super) fn read(file: &Path) -> Result<Vec<Record>, String> {
    let told = |reason: String| format!("{}: {reason}", file.display());
    let open = std::fs::File::open(file).map_err(|error| told(error.to_string()))?;
    let mut text = String::new();
    let read = open.take(LIMIT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| told(error.to_string()))?;
    if text.len() as u64 > LIMIT_BYTES {
        return Err(told(format!("larger than {LIMIT_BYTES} bytes")));
    }
    parse(&text).map_err(told)
}
