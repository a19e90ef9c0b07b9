//! Reports of KMM: the modules of each node, the images of each Module.
//!
//! In: NodeModulesConfigs and ModuleImagesConfigs. Out: [`Nmc`], [`Images`], reduced to the fields that are read.
//! Never: a decision about a node; [`super::node_states`] makes those.

use std::collections::{BTreeMap, BTreeSet};

use api::kmm::image::EXISTS;
use api::kmm::node::Entry;
use api::kmm::{ModuleImagesConfig, NodeModulesConfig};

use super::claim::Id;
use super::loader::Load;

/// The modules of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nmc {
    /// The modules, by the names of their Modules.
    pub modules: BTreeMap<Id, NodeModule>,
}

/// A module of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeModule {
    /// The configured load; `None`: the module is to be unloaded.
    pub wanted: Option<Load>,
    /// The loaded module, as of KMM's last report.
    pub loaded: Option<Loaded>,
    /// The module is loaded as configured.
    pub as_configured: bool,
    /// Service accounts of the pods that load and unload the module.
    pub accounts: BTreeSet<String>,
}

/// A loaded module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The version.
    pub version: Option<String>,
    /// The boot ID of the machine when it was loaded.
    pub boot: String,
    /// The load.
    pub load: Load,
}

/// The images of a Module that KMM has not found, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// Images with KMM's state; an empty state: the search is under way.
    pub missing: BTreeMap<String, String>,
}

/// The parts before and after namespace and name in the label for a Module that is on a node or about to come.
const IN_USE: (&str, &str) = ("beta.kmm.node.kubernetes.io/", ".module-in-use");

impl Nmc {
    /// The modules of a NodeModulesConfig.
    #[must_use]
    pub fn of(object: &NodeModulesConfig) -> Self {
        let mut modules = BTreeMap::<Id, NodeModule>::new();
        for key in object.metadata.labels.iter().flatten().map(|(key, _)| key) {
            let named = key.strip_prefix(IN_USE.0).and_then(|key| key.strip_suffix(IN_USE.1));
            if let Some((namespace, name)) = named.and_then(|named| named.split_once('.')) {
                modules.entry(Id::new(namespace, name)).or_default();
            }
        }
        let id = |entry: &Entry| Id::new(&entry.namespace, &entry.name);
        for entry in &object.spec.modules {
            let slot = modules.entry(id(entry)).or_default();
            slot.wanted = Some(Load::of_entry(entry));
            slot.accounts.extend(entry.service_account_name.clone());
        }
        for entry in &object.status.modules {
            let wanted = object.spec.of(&entry.namespace, &entry.name);
            let slot = modules.entry(id(entry)).or_default();
            slot.accounts.extend(entry.service_account_name.clone());
            slot.loaded = Some(Loaded {
                version: entry.version.clone(),
                boot: entry.boot_id.clone().unwrap_or_default(),
                load: Load::of_entry(entry),
            });
            slot.as_configured = wanted.is_some_and(|wanted| wanted.config == entry.config);
        }
        Self { modules }
    }
}

impl Images {
    /// The missing images of a ModuleImagesConfig.
    #[must_use]
    pub fn of(object: &ModuleImagesConfig) -> Self {
        let states = object.spec.images.iter().map(|image| {
            let state = object.state(&image.image).unwrap_or_default();
            (image.image.clone(), state.to_owned())
        });
        Self { missing: states.filter(|(_, state)| state != EXISTS).collect() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_modules_of_a_node_are_read() {
        let entry = |name: &str, image: &str, boot: Value| {
            json!({ "namespace": "hw", "name": name, "version": "1", "bootId": boot,
                    "config": { "containerImage": image, "modprobe": {}, "odd": 1 } })
        };
        let object = json!({
            "metadata": { "name": "n1", "labels": {
                "beta.kmm.node.kubernetes.io/hw.late.module-in-use": "",
                "beta.kmm.node.kubernetes.io/hw.a.module-configured": "",
                "other": "",
            } },
            "spec": { "modules": [entry("a", "x", Value::Null), entry("b", "x", Value::Null), entry("c", "x", Value::Null)] },
            "status": { "modules": [entry("a", "x", json!("boot")), entry("b", "y", json!("boot")), entry("d", "x", json!("boot"))] },
        });
        let nmc = Nmc::of(&serde_json::from_value(object).unwrap());
        let shown: Vec<_> = nmc
            .modules
            .iter()
            .map(|(id, slot)| {
                (id.name.as_str(), slot.wanted.is_some(), slot.loaded.is_some(), slot.as_configured)
            })
            .collect();
        let wanted = [
            ("a", true, true, true),
            ("b", true, true, false),
            ("c", true, false, false),
            ("d", false, true, false),
            ("late", false, false, false),
        ];
        assert_eq!(shown, wanted);
        assert_eq!(nmc.modules[&Id::new("hw", "a")].loaded.as_ref().unwrap().boot, "boot");
    }

    #[test]
    fn missing_images_have_their_state() {
        let object = json!({
            "metadata": { "name": "m", "namespace": "hw" },
            "spec": { "images": [{ "image": "a" }, { "image": "b" }, { "image": "c" }] },
            "status": { "imagesStates": [{ "image": "a", "status": "Exists" }, { "image": "b", "status": "DoesNotExist" }] },
        });
        let images = Images::of(&serde_json::from_value(object).unwrap());
        let missing: Vec<_> =
            images.missing.iter().map(|(image, state)| (image.as_str(), state.as_str())).collect();
        assert_eq!(missing, [("b", "DoesNotExist"), ("c", "")]);
    }
}
