//! A DeviceConfig as it is on the API server.
//!
//! In: JSON. Out: [`Config`], with the problems of its spec. Never: a decision.

use std::collections::BTreeSet;

use api::hardware::{self, DeviceConfig};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::claim::{Claimant, Id, Selector};
use crate::validate::problems;

/// A DeviceConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The object, without managed fields.
    pub object: DeviceConfig,
    /// The name of the Module; `None`: the namespace is too long for one.
    pub module: Option<String>,
    /// The error of an object that cannot be read; its spec is the last readable one.
    pub unreadable: Option<String>,
    /// Problems of the spec, one line each.
    pub problems: Vec<String>,
}

impl Config {
    /// The config of a readable object.
    #[must_use]
    pub fn of(mut object: DeviceConfig) -> Self {
        object.metadata.managed_fields = None;
        let id = id_of(&object);
        let module = hardware::module_name(&id.namespace, &id.name);
        let problems = problems(&object);
        Self { object, module, unreadable: None, problems }
    }

    /// The config of JSON. Unreadable parts are empty, so that a deletion is noticed in any case.
    #[must_use]
    pub fn read(body: &Value) -> Self {
        let error = match serde_path_to_error::deserialize(body) {
            Ok(object) => return Self::of(object),
            Err(error) => error,
        };
        let object = DeviceConfig {
            metadata: part(body, "metadata"),
            spec: hardware::Spec::default(),
            status: part(body, "status"),
        };
        Self { unreadable: Some(error.to_string()), ..Self::of(object) }
    }

    /// Namespace and name.
    #[must_use]
    pub fn id(&self) -> Id {
        id_of(&self.object)
    }

    /// Whether deletion has begun.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// The value of the claim label on its nodes.
    #[must_use]
    pub fn claim(&self) -> String {
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        self.module.as_deref().map(|module| hardware::claim(namespace, module)).unwrap_or_default()
    }

    /// The names under which devices are offered: of resources, and of drivers of resource claims.
    #[must_use]
    pub fn device_names(&self) -> BTreeSet<String> {
        let spec = &self.object.spec;
        let driver = spec.dra.iter().map(|driver| driver.driver_name.clone());
        let Some(plugin) = &spec.device_plugin else { return driver.collect() };
        let named = plugin.resource_names.iter().chain(&plugin.driver_names).map(String::as_str);
        // The configuration and arguments of a vendor's plugin cannot be read.
        let Some(config) = &plugin.config else { return named.map(str::to_owned).collect() };
        let resources = config.get("resources").and_then(Value::as_array).into_iter().flatten();
        let resources = resources.filter_map(|resource| resource["name"].as_str());
        resources.chain(driver_args(&plugin.args)).chain(named).map(str::to_owned).collect()
    }

    /// The claimant. A config with problems asks for no more nodes.
    pub(super) fn claimant(&self) -> Claimant {
        let spec = &self.object.spec;
        let is_valid = self.unreadable.is_none() && self.module.is_some() && self.problems.is_empty();
        let selector = match &spec.node_selector {
            _ if !is_valid => Selector::None,
            Some(labels) if !labels.is_empty() => Selector::Labels(labels.clone()),
            _ if spec.all_nodes => Selector::All,
            _ => Selector::None,
        };
        let created = self.object.metadata.creation_timestamp.as_ref();
        Claimant {
            id: self.id(),
            claim: self.claim(),
            created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            selector,
            deleting: self.is_terminating(),
        }
    }
}

fn id_of(object: &DeviceConfig) -> Id {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Id { namespace: text(&object.metadata.namespace), name: text(&object.metadata.name) }
}

/// Drivers of resource claims in the arguments of the device plugin: `--dra=NAME` or `--dra NAME`.
fn driver_args(args: &[String]) -> impl Iterator<Item = &str> {
    let apart = args.windows(2).filter(|pair| pair[0] == "--dra").map(|pair| pair[1].as_str());
    args.iter().filter_map(|word| word.strip_prefix("--dra=")).chain(apart)
}

/// A part of an object; empty if it cannot be read.
fn part<T: DeserializeOwned + Default>(body: &Value, field: &str) -> T {
    body.get(field).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}
