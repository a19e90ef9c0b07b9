//! Merges the configuration file and its drop-in files, as the kubelet does.
//!
//! In: paths, or text. Out: a tree, and the file that each field comes from. Never: a check of values.
//!
//! Behaviour of the kubelet 1.36.3 (`cmd/kubelet/app/server.go`, `mergeKubeletConfigurations`), followed here:
//! - The main file is decoded to its structure: unknown fields and other spellings of names are dropped, of repeated
//!   keys the last one counts, defaults are filled in.
//! - The directory is walked with its subdirectories, names in the order of their bytes within each, as
//!   `filepath.WalkDir` does. Files whose name ends in `.conf` count. A symbolic link to a file counts as a file, one
//!   to a directory is not followed (and with a name in `.conf` an error); so is the directory itself, without a slash
//!   at its end.
//! - Each must say its `apiVersion` and `kind` and repeat no key. It is a JSON merge patch (RFC 7396) of what is there:
//!   maps are merged, lists and all else replaced, `null` removes.
//! - The result is decoded by Go's `encoding/json`, to which upper and lower case of names are one (see `json`), and
//!   defaults are filled in once more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

use super::{DEFAULTS, Error, FIELDS, Files};
use crate::file::{self, Kind};
use crate::json::{Field, Mismatch};

pub(super) const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub(super) const KIND: &str = "KubeletConfiguration";
/// The limit of files.
const MAX_FILES: usize = 1_000;
/// The limit of nested directories.
const MAX_DEPTH: usize = 16;
/// The limit of values that aliases may add to a file.
const MAX_REPLAYED: usize = 10_000;

/// The merged configuration, with the origin of each field.
#[derive(Debug)]
pub(super) struct Document {
    value: Value,
    main: PathBuf,
    /// By the top-level field's name in lower case: the last drop-in that sets it.
    origins: BTreeMap<String, PathBuf>,
}

impl Document {
    /// A top-level field, or its default when absent.
    pub(super) fn field<'a, T: Default>(
        &'a self,
        name: &str,
        read: impl FnOnce(&Field<'a>) -> Result<T, Mismatch>,
    ) -> Result<T, Error> {
        Field::root(&self.value).get(name, read).map_err(|error| Error::Value {
            path: self.origin(&error.field).to_owned(),
            field: error.field,
            value: error.found,
            allowed: error.expected,
        })
    }

    /// The file that a field comes from, given its path.
    pub(super) fn origin(&self, field: &str) -> &Path {
        let top = field.split(['.', '[']).next().unwrap_or_default().to_ascii_lowercase();
        self.origins.get(&top).unwrap_or(&self.main)
    }

    fn merge(&mut self, patch: Map<String, Value>, path: &Path) {
        for name in patch.keys() {
            self.origins.insert(name.to_ascii_lowercase(), path.to_owned());
        }
        merge(&mut self.value, Value::Object(patch));
    }
}

/// The main file with the drop-ins over it.
pub(super) fn read(files: &Files) -> Result<Document, Error> {
    let mut document = main(&file::read(&files.file)?, &files.file)?;
    let Some(dir) = &files.drop_ins else { return Ok(document) };
    // The kubelet merges into a configuration with defaults; this matters for a drop-in with an odd spelling.
    if let Value::Object(fields) = &mut document.value {
        for (name, default) in DEFAULTS {
            let value = fields.entry(name).or_insert(Value::Null);
            if value.is_null() || value == "" {
                *value = default.into();
            }
        }
    }
    let mut paths = Vec::new();
    walk(dir, file::kind(dir)?, 0, &mut paths)?;
    for path in paths {
        let patch = parse(&file::read(&path)?, &path, DuplicateKeyPolicy::Error)?;
        identify(&patch, &path, true)?;
        document.merge(patch, &path);
    }
    Ok(document)
}

/// The main file alone.
pub(super) fn main(text: &str, path: &Path) -> Result<Document, Error> {
    let mut fields = parse(text, path, DuplicateKeyPolicy::LastWins)?;
    identify(&fields, path, false)?;
    fields.retain(|name, _| FIELDS.contains(&name.as_str()));
    Ok(Document { value: Value::Object(fields), main: path.to_owned(), origins: BTreeMap::new() })
}

/// A part of a configuration, which may lack its kind and most fields.
pub(super) fn part(part: &Value, name: &Path) -> Result<Document, Error> {
    if !part.is_object() {
        let reason = "it is not a map of fields".to_owned();
        return Err(Error::Syntax { path: name.to_owned(), reason });
    }
    Ok(Document { value: part.clone(), main: name.to_owned(), origins: BTreeMap::new() })
}

/// The answer of `/configz`.
pub(super) fn configz(text: &str, name: &Path) -> Result<Document, Error> {
    let syntax = |reason| Error::Syntax { path: name.to_owned(), reason };
    let mut answer: Value = serde_json::from_str(text).map_err(|error| syntax(error.to_string()))?;
    match answer.get_mut("kubeletconfig").map(Value::take) {
        Some(value @ Value::Object(_)) => {
            Ok(Document { value, main: name.to_owned(), origins: BTreeMap::new() })
        }
        _ => Err(syntax("has no object \"kubeletconfig\"".to_owned())),
    }
}

/// Collects the drop-in files below `path`, in the kubelet's order.
fn walk(path: &Path, kind: Kind, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if kind != Kind::Directory {
        if path.as_os_str().as_encoded_bytes().ends_with(b".conf") {
            found.push(path.to_owned());
        }
        return Ok(());
    }
    for (limit, reached) in [(MAX_FILES, found.len()), (MAX_DEPTH, depth)] {
        if reached >= limit {
            return Err(Error::TooMuch { path: path.to_owned(), limit });
        }
    }
    for (name, kind) in file::entries(path)? {
        walk(&path.join(name), kind, depth + 1, found)?;
    }
    if found.len() > MAX_FILES {
        return Err(Error::TooMuch { path: path.to_owned(), limit: MAX_FILES });
    }
    Ok(())
}

/// The first document of a YAML text, JSON included; the kubelet's parser ignores what follows it.
fn parse(text: &str, path: &Path, duplicate_keys: DuplicateKeyPolicy) -> Result<Map<String, Value>, Error> {
    let syntax = |reason: String| Error::Syntax { path: path.to_owned(), reason };
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
        duplicate_keys: duplicate_keys,
        with_snippet: false,
    };
    let mut bytes = text.as_bytes();
    let first = serde_saphyr::read_with_options::<_, Value>(&mut bytes, options).next();
    match first {
        Some(Ok(Value::Object(fields))) => Ok(fields),
        Some(Ok(_)) => Err(syntax("it is not a map of fields".to_owned())),
        Some(Err(error)) => {
            Err(syntax(first_line(&error.render_with_formatter(&serde_saphyr::UserMessageFormatter))))
        }
        None => Err(syntax("it is empty".to_owned())),
    }
}

/// Checks the kind of a file. The kubelet requires it in the main file as well; the peers read the file without.
fn identify(fields: &Map<String, Value>, path: &Path, needed: bool) -> Result<(), Error> {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = match fields.get(field) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        if found != expected && (needed || !found.is_empty()) {
            let found = found.chars().take(60).collect();
            return Err(Error::Identity { path: path.to_owned(), field, found, expected });
        }
    }
    Ok(())
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// The first line, which is enough for a log.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}
