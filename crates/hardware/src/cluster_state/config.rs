//! A DeviceConfig as it is on the API server.
//!
//! In: JSON. Out: [`Config`], with what cannot be read or done of it. Never: a decision.

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
    /// As its user wrote it.
    pub object: DeviceConfig,
    /// The name of its Module, if its namespace lets there be one.
    pub module: Option<String>,
    /// What cannot be read of it; its spec is what it said before.
    pub unreadable: Option<String>,
    /// What of it cannot be done.
    pub problems: Vec<String>,
}

impl Config {
    /// The object, read; what is not needed of it is left out.
    #[must_use]
    pub fn of(mut object: DeviceConfig) -> Self {
        object.metadata.managed_fields = None;
        let id = Self::id_of(&object);
        let module = hardware::module_name(&id.namespace, &id.name);
        let problems = problems(&object);
        Self { object, module, unreadable: None, problems }
    }

    /// What the API server has. What of it cannot be read is as if it were not there, but that it is being deleted can
    /// always be read.
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

    /// Its name.
    #[must_use]
    pub fn id(&self) -> Id {
        Self::id_of(&self.object)
    }

    fn id_of(object: &DeviceConfig) -> Id {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Id { namespace: text(&object.metadata.namespace), name: text(&object.metadata.name) }
    }

    /// It is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// What its claims on nodes say.
    #[must_use]
    pub fn claim(&self) -> String {
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        self.module.as_deref().map(|module| hardware::claim(namespace, module)).unwrap_or_default()
    }

    /// The names under which its device plugin offers devices: of resources, and of drivers of resource claims.
    #[must_use]
    pub fn device_names(&self) -> BTreeSet<String> {
        let Some(plugin) = &self.object.spec.device_plugin else { return BTreeSet::new() };
        let named = plugin.resource_names.iter().chain(&plugin.driver_names).map(String::as_str);
        // What the words of a vendor's plugin mean is not known.
        let Some(config) = &plugin.config else { return named.map(str::to_owned).collect() };
        let listed = config.get("resources").and_then(Value::as_array).into_iter().flatten();
        let ours = listed.filter_map(|one| one["name"].as_str());
        ours.chain(told_drivers(&plugin.args)).chain(named).map(str::to_owned).collect()
    }

    /// As claims see it. What cannot be followed asks for no more nodes.
    pub(super) fn claimant(&self) -> Claimant {
        let spec = &self.object.spec;
        let sound = self.unreadable.is_none() && self.module.is_some() && self.problems.is_empty();
        let selector = match &spec.node_selector {
            _ if !sound => Selector::None,
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
            leaving: self.is_leaving(),
        }
    }
}

/// As which driver of resource claims our device plugin is told to offer devices: `--dra=NAME` or `--dra NAME`.
fn told_drivers(args: &[String]) -> impl Iterator<Item = &str> {
    let apart = args.windows(2).filter(|pair| pair[0] == "--dra").map(|pair| pair[1].as_str());
    args.iter().filter_map(|word| word.strip_prefix("--dra=")).chain(apart)
}

/// A part of an object; one that cannot be read is empty.
fn part<T: DeserializeOwned + Default>(body: &Value, field: &str) -> T {
    body.get(field).and_then(|part| T::deserialize(part).ok()).unwrap_or_default()
}
