//! The objects of a DeviceConfig: the Module and its dependencies.
//!
//! In: a DeviceConfig, names, the environment. Out: complete objects. Never: a look at observed objects, or a field
//! that KMM's webhook refuses.
//!
//! The objects have no owner. Foreground deletion of an owner would delete all of them at once: the Module while pods
//! still use the devices, the dependencies while KMM still needs them to unload the driver. The objects have labels, by
//! which the controller deletes them in order.

use std::collections::BTreeMap;

use api::hardware::{self, DeviceConfig, keys};
use api::kmm;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount, Toleration};
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::{Object, ObjectKind};

use super::claim::Id;
use super::cluster_state::CORDON_TAINT;
use super::cluster_state::{Config, Environment, marks};
use super::node_states::ObjectNames;

pub mod container;
mod device_plugin;

use container::container;
pub use device_plugin::CDI;
use device_plugin::{device_plugin, plugin_config};

/// OpenShift's role for privileged pods, which loading a module needs.
pub const SCC_ROLE: &str = "system:openshift:scc:privileged";

/// The file of the plugin's configuration for this version of the driver. A plugin reads its file again when it
/// changes, so each version has a file of its own: a node with an old version keeps the old configuration.
#[must_use]
pub fn plugin_file(version: &str) -> String {
    format!("{version}.yaml")
}

/// The dependencies of the Module: accounts, a role binding, a ConfigMap. `unloads`: KMM will unload a driver with the
/// account that we made, though the spec names another one now.
#[must_use]
pub fn dependencies(
    config: &Config,
    object_names: &ObjectNames,
    environment: &Environment,
    unloads: bool,
) -> Vec<Object> {
    let (object, module) = (&config.object, object_names.module.name.as_str());
    let (mut all, mut accounts) = (Vec::new(), Vec::new());
    if object.spec.service_account_name.is_none() || unloads {
        accounts.push(hardware::loader_account(module));
    }
    let plugin = object.spec.device_plugin.as_ref();
    if plugin.is_some_and(|plugin| plugin.service_account_name.is_none()) {
        accounts.push(hardware::plugin_account(module));
    }
    for name in &accounts {
        all.push(Object::new(&ServiceAccount { metadata: meta(config, name), ..ServiceAccount::default() }));
    }
    if environment.openshift && !accounts.is_empty() {
        all.push(Object::new(&binding(config, object_names, &accounts)));
    }
    if let Some(text) = plugin_config(object) {
        all.push(Object::new(&ConfigMap {
            metadata: meta(config, &hardware::plugin_config_map(module)),
            data: Some(BTreeMap::from([(plugin_file(&object.spec.driver_version), text)])),
            ..ConfigMap::default()
        }));
    }
    all
}

/// Dependencies of earlier specs that are obsolete. An account that the user names stays, even if we made it.
#[must_use]
pub fn obsolete_dependencies(
    config: &Config,
    object_names: &ObjectNames,
    environment: &Environment,
    current: &[Object],
) -> Vec<(ObjectKind, Id)> {
    let spec = &config.object.spec;
    let plugin = spec.device_plugin.as_ref().and_then(|plugin| plugin.service_account_name.as_ref());
    let is_named = |id: &Id| [spec.service_account_name.as_ref(), plugin].contains(&Some(&id.name));
    let stays = |kind: &ObjectKind, id: &Id| {
        let is_needed = current.iter().any(|object| object.kind() == kind && object.name() == id.name);
        is_needed || *kind == ObjectKind::of::<ServiceAccount>() && is_named(id)
    };
    possible_dependencies(object_names, environment)
        .into_iter()
        .filter(|(kind, id)| !stays(kind, id))
        .collect()
}

/// All dependencies that any spec may have: kind and name.
#[must_use]
pub fn possible_dependencies(object_names: &ObjectNames, environment: &Environment) -> Vec<(ObjectKind, Id)> {
    let module = object_names.module.name.as_str();
    let named = |kind: ObjectKind, name: String| (kind, Id::new(&object_names.module.namespace, &name));
    let mut all = vec![
        named(ObjectKind::of::<ServiceAccount>(), hardware::loader_account(module)),
        named(ObjectKind::of::<ServiceAccount>(), hardware::plugin_account(module)),
        named(ObjectKind::of::<ConfigMap>(), hardware::plugin_config_map(module)),
    ];
    if environment.openshift {
        all.push(named(ObjectKind::of::<RoleBinding>(), binding_name(module)));
    }
    all
}

/// The Module in this version of KMM's API.
#[must_use]
pub fn module(
    config: &Config,
    object_names: &ObjectNames,
    environment: &Environment,
    version: &str,
) -> Object {
    let module = kmm::Module {
        metadata: meta(config, &object_names.module.name),
        spec: spec(&config.object, object_names, environment),
        ..kmm::Module::default()
    };
    Object::typed(object_kind(version), &module)
}

/// The kind of Modules in a version of KMM's API.
#[must_use]
pub fn object_kind(version: &str) -> ObjectKind {
    ObjectKind::new(kmm::GROUP, version, kmm::MODULE, kmm::MODULES)
}

fn meta(config: &Config, name: &str) -> ObjectMeta {
    let name_of_config = config.id().name;
    let labels = marks(&name_of_config);
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

fn binding(config: &Config, object_names: &ObjectNames, accounts: &[String]) -> RoleBinding {
    let subject = |name: &String| Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.clone(),
        namespace: Some(object_names.module.namespace.clone()),
        ..Subject::default()
    };
    RoleBinding {
        metadata: meta(config, &binding_name(&object_names.module.name)),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: SCC_ROLE.to_owned(),
        },
        subjects: Some(accounts.iter().map(subject).collect()),
    }
}

fn spec(object: &DeviceConfig, object_names: &ObjectNames, environment: &Environment) -> kmm::ModuleSpec {
    let spec = &object.spec;
    let mut tolerations = spec.tolerations.clone();
    tolerations.push(Toleration {
        key: Some(CORDON_TAINT.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoSchedule".to_owned()),
        ..Toleration::default()
    });
    kmm::ModuleSpec {
        selector: BTreeMap::from([(keys::LABEL_DRIVER.to_owned(), object_names.claim.clone())]),
        tolerations,
        image_repo_secret: spec.image_pull_secret.clone(),
        module_loader: Some(loader(object, object_names)),
        device_plugin: device_plugin(object, object_names, environment),
    }
}

fn loader(object: &DeviceConfig, object_names: &ObjectNames) -> kmm::ModuleLoader {
    let account = object.spec.service_account_name.clone();
    let account = account.unwrap_or_else(|| hardware::loader_account(&object_names.module.name));
    kmm::ModuleLoader { service_account_name: Some(account), container: container(&object.spec) }
}

#[cfg(test)]
mod tests;
