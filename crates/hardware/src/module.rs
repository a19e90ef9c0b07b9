//! What is made for a DeviceConfig: the Module, and what its pods stand on.
//!
//! In: a DeviceConfig, names, where we run. Out: objects, complete. Never: a look at what is there, or a field that KMM's webhook refuses.
//!
//! Nothing of it names the DeviceConfig as its owner: foreground deletion would take all of that at once, the Module while pods still use the
//! devices, the rest before KMM has unloaded the driver, and unloading needs it. It bears our labels, and we delete it when its time has come.

use std::collections::BTreeMap;

use api::hardware::{self, CDI_VOLUME, DeviceConfig, PLUGIN_CONFIG, Spec, keys};
use api::kmm;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, EnvVar, EnvVarSource, HostPathVolumeSource, ObjectFieldSelector,
    ServiceAccount, Toleration, Volume, VolumeMount,
};
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::object::Error;
use objects::{Object, ObjectKind};
use topology::fingerprint::PodHash;

use super::claim::Id;
use super::facts::Called;
use super::taints::FENCE;
use super::world::{Config, Place};

/// OpenShift's role for pods that may do everything: what loading a module takes.
pub const SCC_ROLE: &str = "system:openshift:scc:privileged";
/// Where CDI files are on a node; KMM's webhook refuses `/etc/cdi`.
pub const CDI: &str = "/var/run/cdi";
/// Where device nodes are. A privileged container has copies of those that were there when it was started, and nothing of what came or
/// went since.
const DEV: &str = "/dev";
/// The variable that says which configuration a pod was started for: another one makes another pod.
const HASH: &str = "THOLEPIN_CONFIG_HASH";

/// The file there for this version of the driver. A plugin reads its own again when it changes, so those of other versions are other files: a
/// node that waits for its turn keeps offering what it has.
#[must_use]
pub fn plugin_file(version: &str) -> String {
    format!("{version}.yaml")
}

/// What its pods stand on, in the order in which it is made. `unloads` says that KMM will unload a driver with the account that we made, be another
/// asked for by now.
///
/// # Errors
/// Never in practice.
pub fn grounds(config: &Config, called: &Called, place: &Place, unloads: bool) -> Result<Vec<Object>, Error> {
    let (object, module) = (&config.object, called.module.name.as_str());
    let (mut all, mut accounts) = (Vec::new(), Vec::new());
    if object.spec.service_account_name.is_none() || unloads {
        accounts.push(hardware::loader_account(module));
    }
    let plugin = object.spec.device_plugin.as_ref();
    if plugin.is_some_and(|plugin| plugin.service_account_name.is_none()) {
        accounts.push(hardware::plugin_account(module));
    }
    for name in &accounts {
        all.push(Object::new(&ServiceAccount { metadata: meta(config, name), ..ServiceAccount::default() })?);
    }
    if place.openshift && !accounts.is_empty() {
        all.push(Object::new(&binding(config, called, &accounts))?);
    }
    if let Some(text) = plugin_config(object) {
        all.push(Object::new(&ConfigMap {
            metadata: meta(config, &hardware::plugin_config_map(module)),
            data: Some(BTreeMap::from([(plugin_file(&object.spec.driver_version), text)])),
            ..ConfigMap::default()
        })?);
    }
    Ok(all)
}

/// What [`grounds`] may have made before and nobody needs any more. An account that the user names is his, whoever made it.
#[must_use]
pub fn leftovers(
    config: &Config,
    called: &Called,
    place: &Place,
    grounds: &[Object],
) -> Vec<(ObjectKind, Id)> {
    let spec = &config.object.spec;
    let plugin = spec.device_plugin.as_ref().and_then(|plugin| plugin.service_account_name.as_ref());
    let is_named = |id: &Id| [spec.service_account_name.as_ref(), plugin].contains(&Some(&id.name));
    let stays = |kind: &ObjectKind, id: &Id| {
        let is_needed = grounds.iter().any(|object| object.kind() == kind && object.name() == id.name);
        is_needed || *kind == ObjectKind::of::<ServiceAccount>() && is_named(id)
    };
    may_be_there(called, place).into_iter().filter(|(kind, id)| !stays(kind, id)).collect()
}

/// Everything that [`grounds`] may ever have made: kind and name, to be deleted.
#[must_use]
pub fn may_be_there(called: &Called, place: &Place) -> Vec<(ObjectKind, Id)> {
    let module = called.module.name.as_str();
    let named = |kind: ObjectKind, name: String| (kind, Id::new(&called.module.namespace, &name));
    let mut all = vec![
        named(ObjectKind::of::<ServiceAccount>(), hardware::loader_account(module)),
        named(ObjectKind::of::<ServiceAccount>(), hardware::plugin_account(module)),
        named(ObjectKind::of::<ConfigMap>(), hardware::plugin_config_map(module)),
    ];
    if place.openshift {
        all.push(named(ObjectKind::of::<RoleBinding>(), binding_name(module)));
    }
    all
}

/// The Module. `version` is the version of KMM's API.
///
/// # Errors
/// Never in practice.
pub fn module(config: &Config, called: &Called, place: &Place, version: &str) -> Result<Object, Error> {
    let module = kmm::Module {
        metadata: meta(config, &called.module.name),
        spec: spec(&config.object, called, place),
        ..kmm::Module::default()
    };
    let kind = object_kind(version);
    let body = serde_json::to_value(&module);
    let body = body.map_err(|error| Error::NotJson(kind.kind.clone(), error.to_string()))?;
    Object::from_value(kind, body)
}

/// The kind of Modules in a version of KMM's API.
#[must_use]
pub fn object_kind(version: &str) -> ObjectKind {
    ObjectKind::new(kmm::GROUP, version, kmm::MODULE, kmm::MODULES)
}

fn meta(config: &Config, name: &str) -> ObjectMeta {
    let labels =
        [(keys::LABEL_MANAGED_BY, keys::MANAGED_BY), (keys::LABEL_DEVICE_CONFIG, &*config.id().name)];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: config.object.metadata.namespace.clone(),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..ObjectMeta::default()
    }
}

fn binding_name(module: &str) -> String {
    format!("{module}-scc")
}

fn binding(config: &Config, called: &Called, accounts: &[String]) -> RoleBinding {
    let subject = |name: &String| Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.clone(),
        namespace: Some(called.module.namespace.clone()),
        ..Subject::default()
    };
    RoleBinding {
        metadata: meta(config, &binding_name(&called.module.name)),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: SCC_ROLE.to_owned(),
        },
        subjects: Some(accounts.iter().map(subject).collect()),
    }
}

fn spec(object: &DeviceConfig, called: &Called, place: &Place) -> kmm::ModuleSpec {
    let spec = &object.spec;
    let mut tolerations = spec.tolerations.clone();
    tolerations.push(Toleration {
        key: Some(FENCE.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    });
    kmm::ModuleSpec {
        selector: BTreeMap::from([(keys::LABEL_DRIVER.to_owned(), called.claim.clone())]),
        tolerations,
        image_repo_secret: spec.image_pull_secret.clone(),
        module_loader: Some(loader(object, called)),
        device_plugin: device_plugin(object, called, place),
    }
}

fn loader(object: &DeviceConfig, called: &Called) -> kmm::ModuleLoader {
    let account = object.spec.service_account_name.clone();
    let account = account.unwrap_or_else(|| hardware::loader_account(&called.module.name));
    kmm::ModuleLoader { service_account_name: Some(account), container: container(&object.spec) }
}

/// What is loaded, and how.
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

/// The text of our device plugin's configuration, if it is ours: JSON, which is YAML too.
fn plugin_config(object: &DeviceConfig) -> Option<String> {
    let config = object.spec.device_plugin.as_ref()?.config.as_ref()?;
    serde_json::to_string_pretty(config).ok()
}

fn device_plugin(object: &DeviceConfig, called: &Called, place: &Place) -> Option<kmm::DevicePlugin> {
    let plugin = object.spec.device_plugin.as_ref()?;
    let module = called.module.name.as_str();
    let config = plugin_config(object);
    let account = plugin.service_account_name.clone();
    let mut container = kmm::PluginContainer {
        image: plugin.image.clone().unwrap_or_else(|| place.image.clone()),
        image_pull_policy: plugin.image_pull_policy,
        command: plugin.command.clone(),
        args: plugin.args.clone(),
        env: plugin.env.clone(),
        resources: plugin.resources.clone(),
        volume_mounts: plugin.volume_mounts.clone(),
    };
    let mut volumes = plugin.volumes.clone();
    container.env = with_node_name(&container.env);
    let is_mounted = |path: &str| plugin.volume_mounts.iter().any(|mount| mount.mount_path == path);
    if !volumes.iter().any(|volume| volume.name == CDI_VOLUME) {
        volumes.push(host(CDI_VOLUME, CDI, "DirectoryOrCreate"));
        if !is_mounted(CDI) {
            container.volume_mounts.push(mount(CDI_VOLUME, CDI));
        }
    }
    if let Some(text) = config {
        if !is_mounted(DEV) {
            let volume = unused("dev", &volumes);
            container.volume_mounts.push(mount(&volume, DEV));
            volumes.push(host(&volume, DEV, "Directory"));
        }
        let name = hardware::plugin_config_map(module);
        let source = ConfigMapVolumeSource { name, ..ConfigMapVolumeSource::default() };
        let volume = unused("config", &volumes);
        container.volume_mounts.push(VolumeMount { read_only: Some(true), ..mount(&volume, PLUGIN_CONFIG) });
        volumes.push(Volume { name: volume, config_map: Some(source), ..Volume::default() });
        container.command = ["/tholepin", "device-plugin"].map(str::to_owned).into();
        let file = plugin_file(&object.spec.driver_version);
        let ours = ["--config".to_owned(), format!("{PLUGIN_CONFIG}/{file}")];
        container.args = ours.into_iter().chain(plugin.args.clone()).collect();
        let hash = format!("{:016x}", PodHash::of("", &text).0);
        container.env.push(EnvVar { name: HASH.to_owned(), value: Some(hash), ..EnvVar::default() });
    }
    Some(kmm::DevicePlugin {
        service_account_name: Some(account.unwrap_or_else(|| hardware::plugin_account(module))),
        container,
        init_container: plugin.init_container.as_ref().map(init_container),
        volumes,
        automount_service_account_token: plugin.automount_service_account_token,
    })
}

fn init_container(given: &hardware::InitContainer) -> kmm::PluginContainer {
    kmm::PluginContainer {
        image: given.image.clone(),
        image_pull_policy: given.image_pull_policy,
        command: given.command.clone(),
        args: given.args.clone(),
        env: with_node_name(&given.env),
        resources: given.resources.clone(),
        volume_mounts: given.volume_mounts.clone(),
    }
}

/// Variables with the node's name among them.
fn with_node_name(given: &[EnvVar]) -> Vec<EnvVar> {
    let is_there = given.iter().any(|one| one.name == "NODE_NAME");
    given.iter().cloned().chain((!is_there).then(node_name)).collect()
}

fn node_name() -> EnvVar {
    let field =
        ObjectFieldSelector { field_path: "spec.nodeName".to_owned(), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: "NODE_NAME".to_owned(), value_from: Some(source), ..EnvVar::default() }
}

/// This name, or one like it that none of the user's volumes has.
fn unused(name: &str, volumes: &[Volume]) -> String {
    let numbered = (1..=volumes.len()).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| volumes.iter().all(|volume| volume.name != *name)).unwrap_or_default()
}

/// A folder of the node.
fn host(name: &str, path: &str, kind: &str) -> Volume {
    let path = HostPathVolumeSource { path: path.to_owned(), type_: Some(kind.to_owned()) };
    Volume { name: name.to_owned(), host_path: Some(path), ..Volume::default() }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

#[cfg(test)]
mod tests;
