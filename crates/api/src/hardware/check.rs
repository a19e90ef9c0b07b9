//! Validation of a DeviceConfig, for files and for API servers without CEL rules (before Kubernetes 1.29).
//!
//! In: an object. Out: problems with field and fix, in the order of the fields. Never: a rule that the CRD does not
//! have, except that regular expressions must be valid here too. The schema limits lengths and numbers.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Toleration, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use regex_lite::Regex;
use serde_json::{Map, Value};

use super::{
    CDI_VOLUME, DeviceConfig, DevicePlugin, Dra, KernelMapping, MAX_NAMESPACE, Modprobe,
    PLUGIN_CONFIG_VERSION, PodsUsingDevices, Sign, Spec, patterns, rules,
};

/// An invalid field, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The path of the field, such as `spec.kernelMappings[1].regexp`.
    pub field: String,
    /// The allowed values, as an instruction.
    pub fix: String,
}

impl fmt::Display for Problem {
    /// `field: fix`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.fix)
    }
}

/// The problems found so far.
struct Found(Vec<Problem>);

impl Found {
    /// Adds a problem with a field, unless it is `right`.
    fn unless(&mut self, right: bool, field: impl Into<String>, fix: impl Into<String>) {
        if !right {
            self.0.push(Problem { field: field.into(), fix: fix.into() });
        }
    }
}

/// All problems of an object; empty for a valid one.
#[must_use]
pub fn check(object: &DeviceConfig) -> Vec<Problem> {
    let mut found = Found(Vec::new());
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    found.unless(namespace.len() <= MAX_NAMESPACE, "metadata.namespace", rules::NAMESPACE);
    found.unless(name.len() <= 63, "metadata.name", rules::NAME);
    driver(&object.spec, &mut found);
    selection(&object.spec, &mut found);
    module(&object.spec, &mut found);
    for (index, mapping) in object.spec.kernel_mappings.iter().enumerate() {
        kernel_mapping(&object.spec, mapping, &format!("spec.kernelMappings[{index}]"), &mut found);
    }
    if let Some(sign) = &object.spec.sign {
        found.unless(
            sign.unsigned_image.is_some() || object.spec.build.is_some(),
            "spec.sign.unsignedImage",
            rules::SIGN_IMAGE,
        );
        signing(&object.spec, sign, "spec.sign", &mut found);
    }
    if let Some(build) = &object.spec.build {
        labels(&build.selector, "spec.build.selector", &mut found);
    }
    for (index, toleration) in object.spec.tolerations.iter().enumerate() {
        tolerated(toleration, &format!("spec.tolerations[{index}]"), &mut found);
    }
    if let Some(plugin) = &object.spec.device_plugin {
        device_plugin(plugin, &mut found);
        let named = !plugin.resource_names.is_empty() || !plugin.driver_names.is_empty();
        let known = plugin.config.is_some() || plugin.image.is_none() || named;
        let ignored = object.spec.pods_using_devices() == PodsUsingDevices::Ignore;
        found.unless(known || ignored, "spec.devicePlugin.resourceNames", rules::NAMES_NEEDED);
    }
    if let Some(driver) = &object.spec.dra {
        found.unless(object.spec.device_plugin.is_none(), "spec.dra", rules::DRA_ALONE);
        dra(driver, &mut found);
    }
    let most = object.spec.upgrade_policy.as_ref().and_then(|policy| policy.max_unavailable.as_ref());
    let right = match most {
        None => true,
        Some(IntOrString::Int(number)) => *number >= 1,
        Some(IntOrString::String(text)) => is(text, patterns::PERCENT),
    };
    found.unless(right, "spec.upgradePolicy.maxUnavailable", rules::MAX_UNAVAILABLE);
    found.0
}

/// Whether the whole text matches.
fn is(text: &str, pattern: &str) -> bool {
    finds(text, &format!("^({pattern})$"))
}

/// Whether the text contains a match.
fn finds(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

fn driver(spec: &Spec, found: &mut Found) {
    let image = &spec.driver_image;
    let digest = image.contains('@');
    let tag = !digest && finds(image, patterns::TAG);
    found.unless(!digest, "spec.driverImage", rules::IMAGE_DIGEST);
    found.unless(!tag, "spec.driverImage", rules::IMAGE_TAG);
    found.unless(digest || tag || is(image, &patterns::repository()), "spec.driverImage", rules::IMAGE);
    found.unless(is(&spec.driver_version, patterns::LABEL), "spec.driverVersion", rules::VERSION);
}

fn selection(spec: &Spec, found: &mut Found) {
    found.unless(spec.node_selector.is_some() != spec.all_nodes, "spec.nodeSelector", rules::SELECTOR);
    if let Some(selector) = &spec.node_selector {
        found.unless(!selector.is_empty(), "spec.nodeSelector", rules::SELECTOR_EMPTY);
        labels(selector, "spec.nodeSelector", found);
    }
}

/// Whether a text is a label's key.
fn is_key(text: &str) -> bool {
    text.find('/').unwrap_or_default() <= patterns::PREFIX && is(text, &patterns::label_key())
}

fn labels(labels: &BTreeMap<String, String>, field: &str, found: &mut Found) {
    found.unless(labels.keys().all(|key| is_key(key)), field, rules::LABEL_KEYS);
    let value = |text: &String| text.is_empty() || is(text, patterns::LABEL);
    found.unless(labels.values().all(value), field, rules::LABEL_VALUES);
}

fn modules(names: &[String], field: &str, found: &mut Found) {
    found.unless(names.iter().all(|name| is(name, patterns::MODULE)), field, rules::MODULES);
}

fn folder(folder: Option<&str>, field: &str, found: &mut Found) {
    let Some(text) = folder else { return };
    let (_, last) = field.rsplit_once('.').unwrap_or(("", field));
    let right = is(text, patterns::FOLDER) && !finds(text, patterns::UP);
    found.unless(right, field, format!("{last} {}", rules::FOLDER));
}

/// The kernel module, and how it is loaded.
fn module(spec: &Spec, found: &mut Found) {
    let none = Modprobe::default();
    let modprobe = spec.modprobe.as_ref().unwrap_or(&none);
    match (&spec.module_name, &modprobe.raw_args) {
        (Some(name), raw) => {
            found.unless(is(name, patterns::MODULE), "spec.moduleName", rules::MODULE);
            found.unless(raw.is_none(), "spec.modprobe.rawArgs", rules::RAW_ARGS_ALONE);
        }
        (None, Some(_)) => {}
        (None, None) => {
            let short = spec.kernel_module().is_none_or(|name| name.chars().count() <= 55);
            found.unless(short, "spec.moduleName", rules::MODULE_DEFAULT);
        }
    }
    if let Some(raw) = &modprobe.raw_args {
        let beside = modprobe.args.is_some()
            || !modprobe.parameters.is_empty()
            || !modprobe.modules_loading_order.is_empty();
        found.unless(!beside, "spec.modprobe.rawArgs", rules::RAW_ARGS_BESIDE);
        let both = !raw.load.is_empty() && !raw.unload.is_empty();
        found.unless(both, "spec.modprobe.rawArgs", rules::RAW_ARGS);
    }
    folder(modprobe.dir_name.as_deref(), "spec.modprobe.dirName", found);
    folder(modprobe.firmware_path.as_deref(), "spec.modprobe.firmwarePath", found);
    let order = &modprobe.modules_loading_order;
    if let Some(first) = order.first() {
        let once = order.iter().enumerate().all(|(index, name)| !order[..index].contains(name));
        let field = "spec.modprobe.modulesLoadingOrder";
        found.unless(order.len() >= 2 && once, field, rules::ORDER);
        modules(order, field, found);
        found.unless(spec.module_name.as_ref() == Some(first), field, rules::ORDER_FIRST);
    }
    modules(&spec.in_tree_modules_to_remove, "spec.inTreeModulesToRemove", found);
}

fn kernel_mapping(spec: &Spec, mapping: &KernelMapping, field: &str, found: &mut Found) {
    found.unless(mapping.literal.is_some() != mapping.regexp.is_some(), field, rules::MAPPING);
    if let Some(literal) = &mapping.literal {
        found.unless(is(literal, patterns::KERNEL), format!("{field}.literal"), rules::LITERAL);
    }
    if let Some(regexp) = &mapping.regexp {
        let unread = Regex::new(regexp).err().map(|error| format!(": {error}")).unwrap_or_default();
        let right = unread.is_empty() && !regexp.is_empty();
        found.unless(right, format!("{field}.regexp"), format!("{}{unread}", rules::REGEXP));
    }
    if let Some(image) = &mapping.image {
        found.unless(is(image, patterns::TEMPLATE), format!("{field}.image"), rules::TEMPLATE);
    }
    if let Some(sign) = &mapping.sign {
        let above = spec.sign.as_ref().and_then(|sign| sign.unsigned_image.as_ref());
        let image = sign.unsigned_image.is_some()
            || mapping.build.is_some()
            || spec.build.is_some()
            || above.is_some();
        found.unless(image, format!("{field}.sign.unsignedImage"), rules::SIGN_IMAGE);
        signing(spec, sign, &format!("{field}.sign"), found);
    }
    if let Some(build) = &mapping.build {
        labels(&build.selector, &format!("{field}.build.selector"), found);
    }
    modules(&mapping.in_tree_modules_to_remove, &format!("{field}.inTreeModulesToRemove"), found);
}

fn signing(spec: &Spec, sign: &Sign, field: &str, found: &mut Found) {
    if let Some(image) = &sign.unsigned_image {
        found.unless(is(image, patterns::TEMPLATE), format!("{field}.unsignedImage"), rules::TEMPLATE);
    }
    let folder = format!("{}/", spec.dir_name());
    let files = &sign.files_to_sign;
    found.unless(!files.is_empty(), format!("{field}.filesToSign"), rules::SIGN_FILES);
    let below = files.iter().all(|file| file.starts_with(&folder));
    found.unless(below, format!("{field}.filesToSign"), rules::SIGN_FOLDER);
}

fn tolerated(toleration: &Toleration, field: &str, found: &mut Found) {
    fn given(text: Option<&String>) -> &str {
        text.map_or("", String::as_str)
    }
    let operator = given(toleration.operator.as_ref());
    let exists = operator == "Exists";
    let key = given(toleration.key.as_ref());
    let key_right = if key.is_empty() { exists } else { is_key(key) };
    found.unless(key_right, format!("{field}.key"), rules::TOLERATION_KEY);
    let value = given(toleration.value.as_ref());
    let value_right = value.is_empty() || (!exists && is(value, patterns::LABEL));
    let known = ["", "Equal", "Exists"].contains(&operator);
    found.unless(known && value_right, format!("{field}.operator"), rules::TOLERATION_OPERATOR);
    let effect = given(toleration.effect.as_ref());
    let known = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    found.unless(known, format!("{field}.effect"), rules::TOLERATION_EFFECT);
    let seconds = toleration.toleration_seconds.is_none() || effect == "NoExecute";
    found.unless(seconds, format!("{field}.tolerationSeconds"), rules::TOLERATION_SECONDS);
}

fn device_plugin(plugin: &DevicePlugin, found: &mut Found) {
    let field = "spec.devicePlugin";
    found.unless(plugin.config.is_some() || plugin.image.is_some(), field, rules::PLUGIN);
    let own = plugin.config.is_none() || plugin.command.is_empty();
    found.unless(own, format!("{field}.command"), rules::PLUGIN_COMMAND);
    if let Some(config) = &plugin.config {
        plugin_config(config, &format!("{field}.config"), found);
    }
    let right = plugin.resource_names.iter().all(|name| is_resource(name));
    found.unless(right, format!("{field}.resourceNames"), rules::RESOURCES);
    let right = plugin.driver_names.iter().all(|name| is(name, &patterns::driver()));
    found.unless(right, format!("{field}.driverNames"), rules::DRIVERS);
    let init = plugin.init_container.as_ref().map(|container| container.volume_mounts.as_slice());
    let mounts = [Some(plugin.volume_mounts.as_slice()), init];
    are_of_volumes(&plugin.volumes, mounts, (field, rules::MOUNT_NAME), found);
    for (index, mount) in plugin.volume_mounts.iter().enumerate() {
        let right = plugin.config.is_none() || !finds(&mount.mount_path, &patterns::reserved());
        found.unless(right, format!("{field}.volumeMounts[{index}].mountPath"), rules::MOUNT_RESERVED);
    }
}

/// Checks the parts of the device plugin's configuration that the operator reads.
fn plugin_config(config: &Map<String, Value>, field: &str, found: &mut Found) {
    let version = config.get("version").and_then(Value::as_str);
    let right = version == Some(PLUGIN_CONFIG_VERSION);
    found.unless(right, format!("{field}.version"), rules::CONFIG_VERSION);
    let resources = config.get("resources").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let named = resources.iter().all(|resource| resource["name"].as_str().is_some_and(is_resource));
    found.unless(!resources.is_empty() && named, format!("{field}.resources"), rules::CONFIG_RESOURCES);
}

/// Whether a text is the name of an extended resource.
fn is_resource(name: &str) -> bool {
    is(name, &patterns::resource()) && !finds(name, patterns::NATIVE) && !name.starts_with("requests.")
}

fn dra(driver: &Dra, found: &mut Found) {
    let field = "spec.dra";
    let right = is(&driver.driver_name, &patterns::subdomain());
    found.unless(right, format!("{field}.driverName"), rules::DRA_DRIVER);
    let init = driver.init_container.as_ref().map(|container| container.volume_mounts.as_slice());
    let mounts = [Some(driver.volume_mounts.as_slice()), init];
    are_of_volumes(&driver.volumes, mounts, (field, rules::DRA_MOUNT), found);
    let classes = &driver.device_classes;
    for (index, class) in classes.iter().enumerate() {
        let once = classes[..index].iter().all(|other| other.name != class.name);
        let right = once && is(&class.name, &patterns::subdomain());
        found.unless(right, format!("{field}.deviceClasses[{index}].name"), rules::DEVICE_CLASS);
    }
}

/// Checks volumes, and mounts of them in a container and its init container. Only a device plugin has a volume `cdi`.
fn are_of_volumes(
    volumes: &[Volume],
    mounts: [Option<&[VolumeMount]>; 2],
    (field, rule): (&str, &'static str),
    found: &mut Found,
) {
    for (index, volume) in volumes.iter().enumerate() {
        mounted(volume, &format!("{field}.volumes[{index}]"), found);
    }
    let is_there = |name: &str| {
        rule == rules::MOUNT_NAME && name == CDI_VOLUME || volumes.iter().any(|volume| volume.name == name)
    };
    for (mounts, at) in mounts.into_iter().zip(["volumeMounts", "initContainer.volumeMounts"]) {
        for (index, mount) in mounts.unwrap_or_default().iter().enumerate() {
            found.unless(is_there(&mount.name), format!("{field}.{at}[{index}].name"), rule);
        }
    }
}

fn mounted(volume: &Volume, field: &str, found: &mut Found) {
    let kinds = [
        volume.host_path.is_some(),
        volume.config_map.is_some(),
        volume.secret.is_some(),
        volume.empty_dir.is_some(),
    ];
    found.unless(kinds.iter().filter(|there| **there).count() == 1, field, rules::VOLUME);
    if let Some(host) = &volume.host_path {
        let right = finds(&host.path, patterns::HOST_PATH) && !finds(&host.path, patterns::UP);
        found.unless(right, format!("{field}.hostPath.path"), rules::HOST_PATH);
    }
}
