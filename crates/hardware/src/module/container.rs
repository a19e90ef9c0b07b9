//! The container of a Module: the images of the driver, and the parameters of its load.
//!
//! In: the specification of a DeviceConfig. Out: KMM's `moduleLoader.container`. Never: a name of the Module.

use api::hardware::Spec;
use api::kmm;

/// The container for a spec.
#[must_use]
pub fn container(spec: &Spec) -> kmm::ModuleContainer {
    let mappings = spec.mappings().into_iter().map(|mapping| kmm::KernelMapping {
        container_image: mapping.image.unwrap_or_default(),
        literal: mapping.literal,
        regexp: mapping.regexp,
        build: mapping.build,
        sign: mapping.sign,
        registry_tls: mapping.registry_tls,
        in_tree_modules_to_remove: mapping.in_tree_modules_to_remove,
    });
    kmm::ModuleContainer {
        kernel_mappings: mappings.collect(),
        modprobe: modprobe(spec),
        container_image: None,
        image_pull_policy: spec.image_pull_policy,
        version: Some(spec.driver_version.clone()),
        registry_tls: spec.registry_tls,
        build: spec.build.clone(),
        sign: spec.sign.clone(),
        in_tree_modules_to_remove: spec.in_tree_modules_to_remove.clone(),
    }
}

fn modprobe(spec: &Spec) -> kmm::Modprobe {
    let given = spec.modprobe.clone().unwrap_or_default();
    kmm::Modprobe {
        module_name: spec.kernel_module().map(std::borrow::Cow::into_owned),
        parameters: given.parameters,
        dir_name: given.dir_name,
        args: given.args,
        raw_args: given.raw_args,
        firmware_path: given.firmware_path,
        modules_loading_order: given.modules_loading_order,
    }
}
