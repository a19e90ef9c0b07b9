//! The configuration as YAML, for `--dump-config`.
//!
//! In: a [`Config`]. Out: text with RTE's names, keys in order, that is a valid daemon file. Never: a zero that is also
//! the built-in value. Zeros that override a built-in value are written, so that reading the dump restores them (RTE
//! leaves them out, so that its defaults come back).

use runtime::yaml;
use serde_json::{Map, Value as Yaml, json};

use super::config::{Config, Value};
use super::table::{Kind, SETTINGS, Setting};
use crate::settings::PodPattern;

/// The dump as a tree. A map of `serde_json` keeps its keys in order.
pub(super) fn tree(config: &Config) -> Yaml {
    let mut tree = Map::new();
    for setting in SETTINGS {
        let value = config.value(setting.key);
        let zero = value.is_zero();
        let built_in_zero = Value::of_text(setting.kind, setting.default).is_ok_and(|value| value.is_zero());
        if !(zero && built_in_zero) || setting.path == "global.verbose" {
            put(&mut tree, setting.path, written(setting, value));
        }
    }
    if let Some(excludes) = &config.extra.resources {
        put(&mut tree, "resourceMonitor.resourceExclude", json!(excludes));
    }
    if let Some(patterns) = &config.extra.pods {
        let pattern = |pattern: &PodPattern| json!({ "namePattern": pattern.name, "namespacePattern": pattern.namespace });
        put(&mut tree, "resourceMonitor.podExclude", patterns.iter().map(pattern).collect());
    }
    Yaml::Object(tree)
}

/// The dump as text.
///
/// # Errors
/// Those of the YAML library; none is known.
pub(super) fn text(config: &Config) -> Result<String, yaml::Error> {
    yaml::write(&tree(config))
}

fn written(setting: &Setting, value: Value) -> Yaml {
    match value {
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Duration(value) => json!(value.0),
        Value::Text(text) if setting.kind == Kind::Container => {
            let mut parts = text.splitn(3, '/').map(str::to_owned);
            let mut part = || parts.next().unwrap_or_default();
            json!({ "namespace": part(), "podName": part(), "containerName": part() })
        }
        Value::Text(text) => json!(text),
    }
}

/// Puts a value at a dotted path.
fn put(tree: &mut Map<String, Yaml>, path: &str, value: Yaml) {
    match path.split_once('.') {
        None => {
            tree.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let below = tree.entry(first).or_insert_with(|| Yaml::Object(Map::new()));
            if let Yaml::Object(below) = below {
                put(below, rest, value);
            }
        }
    }
}
