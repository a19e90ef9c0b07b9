//! How a driver is loaded on a node: as a DeviceConfig asks for it, and as KMM was told.
//!
//! In: a DeviceConfig's spec, an entry of a NodeModulesConfig. Out: [`Load`]s, which are equal if they load the same in the same way. Never:
//! how an image is pulled, which changes nothing that is loaded.

use api::hardware::{DIR_NAME, Spec};
use api::kmm::Modprobe;
use api::kmm::node::Entry;
use serde::Deserialize as _;

use super::kernel::Source;
use super::module;

/// How a driver is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    image: String,
    modprobe: Modprobe,
    /// What is unloaded before.
    in_tree: Vec<String>,
}

impl Load {
    /// As it is asked for, for a kernel with this source.
    #[must_use]
    pub fn asked(spec: &Spec, source: &Source) -> Self {
        let own = &source.in_tree_modules_to_remove;
        let in_tree = if own.is_empty() { &spec.in_tree_modules_to_remove } else { own };
        Self {
            image: source.image.clone(),
            modprobe: filled(module::modprobe(spec)),
            in_tree: in_tree.clone(),
        }
    }

    /// As KMM was told; `None`: nobody can read it.
    #[must_use]
    pub fn told(entry: &Entry) -> Option<Self> {
        let none = serde_json::Value::Null;
        let field = |name: &str| entry.config.get(name).unwrap_or(&none);
        Some(Self {
            image: entry.image().to_owned(),
            modprobe: filled(Modprobe::deserialize(field("modprobe")).ok()?),
            in_tree: Option::deserialize(field("inTreeModulesToRemove")).ok()?.unwrap_or_default(),
        })
    }
}

/// With what KMM's definition fills in, and nothing where it says nothing.
fn filled(mut modprobe: Modprobe) -> Modprobe {
    for text in [&mut modprobe.module_name, &mut modprobe.dir_name, &mut modprobe.firmware_path] {
        text.take_if(|text| text.is_empty());
    }
    modprobe.dir_name.get_or_insert_with(|| DIR_NAME.to_owned());
    modprobe
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(more: &Value) -> Load {
        let mut spec = json!({ "driverImage": "r.example/acc", "driverVersion": "1.0" });
        json_patch::merge(&mut spec, more);
        let source = Source { image: "r.example/acc:1.0-6".to_owned(), ..Source::default() };
        Load::asked(&serde_json::from_value(spec).unwrap(), &source)
    }

    fn told(more: &Value) -> Option<Load> {
        let mut config = json!({
            "kernelVersion": "6", "containerImage": "r.example/acc:1.0-6", "imagePullPolicy": "IfNotPresent",
            "insecurePull": false, "modprobe": { "moduleName": "acc", "dirName": "/opt" },
        });
        json_patch::merge(&mut config, more);
        Load::told(&serde_json::from_value(json!({ "config": config })).unwrap())
    }

    #[test]
    fn what_kmm_was_told_is_compared_with_what_is_asked_for() {
        let check = |spec: Value, config: Value, same: bool| {
            assert_eq!(Some(asked(&spec)) == told(&config), same, "{spec} {config}");
        };
        check(json!({}), json!({}), true);
        check(json!({}), json!({ "containerImage": "r.example/acc:0.9-6" }), false);
        check(json!({}), json!({ "imagePullPolicy": "Always" }), true);
        check(json!({}), json!({ "inTreeModulesToRemove": [] }), true);
        check(json!({ "inTreeModulesToRemove": ["old"] }), json!({}), false);
        check(json!({ "inTreeModulesToRemove": ["old"] }), json!({ "inTreeModulesToRemove": ["old"] }), true);
        let parameters = json!({ "modprobe": { "parameters": ["x=1"] } });
        check(parameters.clone(), json!({}), false);
        check(parameters.clone(), parameters.clone(), true);
        check(json!({}), parameters, false);
        check(
            json!({ "modprobe": { "dirName": "/opt" } }),
            json!({ "modprobe": { "firmwarePath": "" } }),
            true,
        );
        let raw = json!({ "modprobe": { "rawArgs": { "load": ["a"], "unload": ["-r", "a"] } } });
        check(
            raw.clone(),
            json!({ "modprobe": { "moduleName": "", "rawArgs": raw["modprobe"]["rawArgs"] } }),
            true,
        );
        assert_eq!(told(&json!({ "modprobe": "odd" })), None);
    }

    #[test]
    fn a_mapping_has_the_last_word_on_what_is_unloaded_before() {
        let spec = json!({ "driverImage": "r/acc", "driverVersion": "1", "inTreeModulesToRemove": ["all"] });
        let spec: Spec = serde_json::from_value(spec).unwrap();
        let in_tree = |own: &[&str]| {
            let own = own.iter().map(|name| (*name).to_owned()).collect();
            Load::asked(&spec, &Source { in_tree_modules_to_remove: own, ..Source::default() }).in_tree
        };
        assert_eq!((in_tree(&[]), in_tree(&["own"])), (vec!["all".to_owned()], vec!["own".to_owned()]));
    }
}
