//! Validation of a DeviceConfig.
//!
//! In: an object. Out: a line for each problem, with its field. Never: a parser of its own for the configuration of our
//! device plugin: a configuration that is accepted here starts on the nodes.

use api::hardware::{self, DeviceConfig};
use deviceplugin::config::{Config, Error};
use serde_json::{Map, Value};

/// The field with the configuration of our device plugin.
const CONFIG: &str = "spec.devicePlugin.config";

/// The problems of an object; the plugin's configuration is checked once the rest has none.
#[must_use]
pub fn problems(object: &DeviceConfig) -> Vec<String> {
    let found: Vec<String> = hardware::check(object).iter().map(ToString::to_string).collect();
    let config = object.spec.device_plugin.as_ref().and_then(|plugin| plugin.config.as_ref());
    match config.filter(|_| found.is_empty()) {
        Some(config) => config_error(config).into_iter().collect(),
        None => found,
    }
}

/// The error with which the device plugin would not start.
fn config_error(config: &Map<String, Value>) -> Option<String> {
    let value = Value::Object(config.clone());
    let error = Config::parse(CONFIG, &value.to_string()).err()?;
    Some(match error {
        Error::Field { field, reason, .. } => format!("{CONFIG}.{field}: {reason}"),
        // The lines of generated text mean nothing to a user; the field does.
        Error::Yaml(error) => match serde_path_to_error::deserialize::<_, Config>(&value) {
            Err(shape) => format!("{CONFIG}.{}: {}", shape.path(), shape.inner()),
            Ok(_) => error.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_configuration_is_checked_by_the_plugins_parser() {
        let of = |more: Value| {
            let mut resource = json!({ "name": "example.com/acc", "discovery": { "directory": { "path": "/dev", "prefix": "acc" } } });
            json_patch::merge(&mut resource, &more);
            let config = json!({ "version": "v1alpha1", "resources": [resource] });
            let spec = json!({
                "driverImage": "r.example/acc", "driverVersion": "1", "allNodes": true, "devicePlugin": { "config": config },
            });
            let read = json!({ "metadata": { "name": "a", "namespace": "hw" }, "spec": spec });
            problems(&serde_json::from_value(read).unwrap()).join("; ")
        };
        assert_eq!(of(json!({})), "");
        let at = "spec.devicePlugin.config";
        for (more, wanted) in [
            (json!({ "name": "x" }), "spec.devicePlugin.config.resources: "),
            (json!({ "discovery": null }), ".resources[0]: missing field `discovery`"),
            (json!({ "sharing": 3 }), ".resources[0].sharing: invalid type"),
            (json!({ "discovery": { "pci": {} } }), ".resources[0].discovery: "),
            (json!({ "sharing": { "replicas": 1 } }), ".resources[0].sharing.replicas: 1: allowed are 2 to "),
            (json!({ "shared": 1 }), ": unknown field \"resources.0.shared\""),
        ] {
            let error = of(more.clone());
            assert!(error.starts_with(at) && error.contains(wanted), "{more}: {error}");
        }
    }
}
