//! The load of a driver on a node: as a DeviceConfig asks for it, as a Module states it, as KMM has configured it.
//!
//! In: a spec or a Module, and a kernel; an entry of a NodeModulesConfig. Out: [`Load`]s. While the load of a node
//! stays equal, KMM leaves the driver there alone. Never: fields without influence on a loaded driver, such as
//! accounts, secrets, builds.

use api::hardware::{self, DIR_NAME, PullPolicy, Spec};
use api::kmm::node::Entry;
use api::kmm::{KernelMapping, Modprobe, ModuleContainer};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kernel::{KernelSupport, TemplateNames, kernel_support};
use super::module::container::container;

/// The parameters with which a driver is loaded on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    image: String,
    pull: Option<PullPolicy>,
    insecure: bool,
    modprobe: Modprobe,
    /// Modules to unload before.
    in_tree: Vec<String>,
}

/// The loader of a Module, for all kernels.
#[derive(Clone, Debug)]
pub struct Loader {
    container: ModuleContainer,
    mappings: Vec<hardware::KernelMapping>,
}

impl Load {
    /// The load of an entry of a NodeModulesConfig. An unreadable entry equals no desired load.
    #[must_use]
    pub fn of_entry(entry: &Entry) -> Self {
        Self::read(entry).unwrap_or_default()
    }

    fn read(entry: &Entry) -> Option<Self> {
        let load = Self {
            image: entry.image().to_owned(),
            pull: field(entry, "imagePullPolicy")?,
            insecure: field(entry, "insecurePull")?,
            modprobe: field(entry, "modprobe")?,
            in_tree: field(entry, "inTreeModulesToRemove")?,
        };
        Some(load.with_defaults())
    }

    /// Fills in the defaults of KMM's definition; empty texts become absent.
    fn with_defaults(mut self) -> Self {
        let modprobe = &mut self.modprobe;
        for text in [&mut modprobe.module_name, &mut modprobe.dir_name, &mut modprobe.firmware_path] {
            text.take_if(|text| text.is_empty());
        }
        modprobe.dir_name.get_or_insert_with(|| DIR_NAME.to_owned());
        self.pull.get_or_insert(PullPolicy::IfNotPresent);
        self
    }
}

/// A field of an entry: empty if absent, `None` if unreadable.
fn field<T: DeserializeOwned + Default>(entry: &Entry, name: &str) -> Option<T> {
    match entry.config.get(name) {
        None | Some(Value::Null) => Some(T::default()),
        Some(value) => T::deserialize(value).ok(),
    }
}

impl Loader {
    /// The loader that a spec asks for.
    #[must_use]
    pub fn desired(spec: &Spec) -> Self {
        Self::new(container(spec))
    }

    /// The loader of a Module; `None`: absent or unreadable.
    #[must_use]
    pub fn of(module: &Value) -> Option<Self> {
        let container = module.pointer("/spec/moduleLoader/container")?.clone();
        serde_json::from_value(container).ok().map(Self::new)
    }

    fn new(container: ModuleContainer) -> Self {
        Self { mappings: container.kernel_mappings.iter().map(to_config_mapping).collect(), container }
    }

    /// The version. KMM applies the loader on nodes whose label names this version, and on no others.
    #[must_use]
    pub fn version(&self) -> &str {
        self.container.version.as_deref().unwrap_or_default()
    }

    /// The kernel mappings of the Module.
    #[must_use]
    pub fn kernel_mappings(&self) -> &[KernelMapping] {
        &self.container.kernel_mappings
    }

    /// The load on a node with this kernel; `None`: no mapping matches.
    #[must_use]
    pub fn load_for(&self, kernel: &str, names: TemplateNames<'_>) -> Option<Load> {
        let KernelSupport::Supported(source) = kernel_support(&self.mappings, kernel, names) else {
            return None;
        };
        let tls = source.registry_tls.or(self.container.registry_tls).unwrap_or_default();
        let own = source.in_tree_modules_to_remove;
        let load = Load {
            image: source.image,
            pull: self.container.image_pull_policy,
            insecure: tls.insecure || tls.insecure_skip_tls_verify,
            modprobe: self.container.modprobe.clone(),
            in_tree: if own.is_empty() { self.container.in_tree_modules_to_remove.clone() } else { own },
        };
        Some(load.with_defaults())
    }
}

/// A kernel mapping of a Module as a DeviceConfig has it.
fn to_config_mapping(mapping: &KernelMapping) -> hardware::KernelMapping {
    let mapping = mapping.clone();
    hardware::KernelMapping {
        literal: mapping.literal,
        regexp: mapping.regexp,
        image: Some(mapping.container_image),
        build: mapping.build,
        sign: mapping.sign,
        registry_tls: mapping.registry_tls,
        in_tree_modules_to_remove: mapping.in_tree_modules_to_remove,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KERNEL: &str = "6.1.0";
    const NAMES: TemplateNames<'_> = TemplateNames { name: "acc", namespace: "hw" };

    fn desired(more: &Value) -> Option<Load> {
        let mut spec = json!({ "driverImage": "r.example/acc", "driverVersion": "1.0" });
        json_patch::merge(&mut spec, more);
        Loader::desired(&serde_json::from_value(spec).unwrap()).load_for(KERNEL, NAMES)
    }

    fn configured(more: &Value) -> Load {
        let mut config = json!({
            "kernelVersion": KERNEL, "containerImage": "r.example/acc:1.0-6.1.0", "imagePullPolicy": "IfNotPresent",
            "insecurePull": false, "modprobe": { "moduleName": "acc", "dirName": "/opt" },
        });
        json_patch::merge(&mut config, more);
        Load::of_entry(&serde_json::from_value(json!({ "config": config })).unwrap())
    }

    #[test]
    fn the_configured_load_is_compared_with_the_desired_one() {
        let check = |spec: Value, config: Value, same: bool| {
            assert_eq!(desired(&spec) == Some(configured(&config)), same, "{spec} {config}");
        };
        check(json!({}), json!({}), true);
        check(json!({}), json!({ "containerImage": "r.example/acc:0.9-6.1.0" }), false);
        // KMM loads a driver anew when one of these fields differs.
        check(json!({}), json!({ "imagePullPolicy": "Always" }), false);
        check(json!({ "imagePullPolicy": "Always" }), json!({ "imagePullPolicy": "Always" }), true);
        check(json!({}), json!({ "imagePullPolicy": "Odd" }), false);
        check(json!({}), json!({ "insecurePull": true }), false);
        check(
            json!({ "registryTLS": { "insecureSkipTLSVerify": true } }),
            json!({ "insecurePull": true }),
            true,
        );
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
        assert_eq!(configured(&json!({ "modprobe": "odd" })), Load::default());
        assert_eq!(desired(&json!({ "kernelMappings": [{ "regexp": "el8" }] })), None);
    }

    #[test]
    fn a_mapping_overrides_the_spec() {
        let mapping = |own: Value| {
            let mut mapping = json!({ "regexp": "^.+$" });
            json_patch::merge(&mut mapping, &own);
            json!({
                "inTreeModulesToRemove": ["all"], "registryTLS": { "insecure": true }, "kernelMappings": [mapping],
            })
        };
        let all = configured(&json!({ "inTreeModulesToRemove": ["all"], "insecurePull": true }));
        assert_eq!(desired(&mapping(json!({}))), Some(all));
        let own = json!({ "inTreeModulesToRemove": ["own"], "registryTLS": {} });
        assert_eq!(desired(&mapping(own)), Some(configured(&json!({ "inTreeModulesToRemove": ["own"] }))));
    }

    #[test]
    fn the_loader_of_a_module_equals_that_of_its_spec() {
        let spec: Spec =
            serde_json::from_value(json!({ "driverImage": "r/acc", "driverVersion": "1" })).unwrap();
        let module = json!({ "spec": { "moduleLoader": { "container": container(&spec) } } });
        let loader = Loader::of(&module).unwrap();
        assert_eq!(
            (loader.version(), loader.load_for(KERNEL, NAMES)),
            ("1", Loader::desired(&spec).load_for(KERNEL, NAMES))
        );
        assert!(Loader::of(&json!({})).is_none());
    }
}
