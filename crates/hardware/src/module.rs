//! The objects of a DeviceConfig: the Module and its dependencies.
//!
//! In: a DeviceConfig, names, the environment. Out: complete objects. Never: a look at observed objects, or a field
//! that KMM's webhook refuses.
//!
//! The objects have no owner. Foreground deletion of an owner would delete all of them at once: the Module while pods
//! still use the devices, the dependencies while KMM still needs them to unload the driver. The objects have labels, by
//! which the controller deletes them in order.

use std::collections::BTreeMap;

use api::hardware::{self, keys};
use api::kmm;
use deployer::manifests::access::{self, ServiceAccountRef};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount, Toleration};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::{Object, ObjectKind};

use super::claim::Id;
use super::cluster_state::CORDON_TAINT;
use super::cluster_state::{Config, Environment, marks};
use super::node_states::ObjectNames;

pub mod container;
mod device_plugin;
mod dra;

use container::container;
pub use device_plugin::CDI;
use device_plugin::{device_plugin, plugin_config};
use dra::dra;

/// OpenShift's role for privileged pods, which loading a module needs.
pub const SCC_ROLE: &str = "system:openshift:scc:privileged";

/// The file of the plugin's configuration for this version of the driver. A plugin reads its file again when it
/// changes, so each version has a file of its own: a node with an old version keeps the old configuration.
#[must_use]
pub fn plugin_file(version: &str) -> String {
    format!("{version}.yaml")
}

/// The desired objects of a DeviceConfig.
#[derive(Clone, Copy, Debug)]
pub struct Desired<'a> {
    /// The DeviceConfig.
    pub config: &'a Config,
    /// Names of objects and labels.
    pub names: &'a ObjectNames,
    /// The environment of the process.
    pub environment: &'a Environment,
}

impl Desired<'_> {
    /// The dependencies of the Module: accounts, a role binding, a ConfigMap. `unloads`: KMM will unload a driver with
    /// the account that we made, though the spec names another one now.
    #[must_use]
    pub fn dependencies(&self, unloads: bool) -> Vec<Object> {
        let (spec, module) = (&self.config.object.spec, self.names.module.name.as_str());
        let mut accounts = Vec::new();
        if spec.service_account_name.is_none() || unloads {
            accounts.push(hardware::loader_account(module));
        }
        if spec.offers_devices() && spec.plugin_service_account().is_none() {
            accounts.push(hardware::plugin_account(module));
        }
        let account = |name| {
            Object::new(&ServiceAccount { metadata: self.metadata(name), ..ServiceAccount::default() })
        };
        let mut all: Vec<Object> = accounts.iter().map(|name| account(name)).collect();
        if self.environment.openshift && !accounts.is_empty() {
            all.push(Object::new(&self.binding(&accounts)));
        }
        if let Some(text) = plugin_config(&self.config.object) {
            all.push(Object::new(&ConfigMap {
                metadata: self.metadata(&hardware::plugin_config_map(module)),
                data: Some(BTreeMap::from([(plugin_file(&spec.driver_version), text)])),
                ..ConfigMap::default()
            }));
        }
        all
    }

    /// Dependencies of earlier specs that are not among the current ones. An account that the user names stays, even if
    /// we made it.
    #[must_use]
    pub fn obsolete_dependencies(&self, current: &[Object]) -> Vec<(ObjectKind, Id)> {
        let spec = &self.config.object.spec;
        let named = [spec.service_account_name.as_ref(), spec.plugin_service_account()];
        let mut all = possible_dependencies(self.names, self.environment);
        all.retain(|(kind, id)| {
            let is_needed = current.iter().any(|object| object.kind() == kind && object.name() == id.name);
            !(is_needed || *kind == ObjectKind::of::<ServiceAccount>() && named.contains(&Some(&id.name)))
        });
        all
    }

    /// The Module in this version of KMM's API.
    #[must_use]
    pub fn module(&self, version: &str) -> Object {
        let spec = &self.config.object.spec;
        let mut tolerations = spec.tolerations.clone();
        tolerations.push(Toleration {
            key: Some(CORDON_TAINT.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Toleration::default()
        });
        let module = &self.names.module.name;
        let account = spec.service_account_name.clone().unwrap_or_else(|| hardware::loader_account(module));
        let module = kmm::Module {
            metadata: self.metadata(module),
            spec: kmm::ModuleSpec {
                selector: BTreeMap::from([(keys::LABEL_DRIVER.to_owned(), self.names.claim.clone())]),
                tolerations,
                image_repo_secret: spec.image_pull_secret.clone(),
                image_rebuild_trigger_generation: spec.image_rebuild_trigger_generation,
                module_loader: Some(kmm::ModuleLoader {
                    service_account_name: Some(account),
                    container: container(spec),
                }),
                device_plugin: device_plugin(&self.config.object, self.names, self.environment),
                dra: dra(&self.config.object, self.names),
            },
            ..kmm::Module::default()
        };
        Object::typed(object_kind(version), &module)
    }

    fn metadata(&self, name: &str) -> ObjectMeta {
        let labels = marks(&self.config.id().name).map(|(key, value)| (key.to_owned(), value.to_owned()));
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: self.config.object.metadata.namespace.clone(),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        }
    }

    fn binding(&self, accounts: &[String]) -> RoleBinding {
        let namespace = self.names.module.namespace.as_str();
        let subject = |name: &String| ServiceAccountRef { namespace, name }.subject();
        RoleBinding {
            metadata: self.metadata(&binding_name(&self.names.module.name)),
            role_ref: access::reference("ClusterRole", SCC_ROLE),
            subjects: Some(accounts.iter().map(subject).collect()),
        }
    }
}

/// All dependencies that any spec may have: kind and name.
#[must_use]
pub fn possible_dependencies(names: &ObjectNames, environment: &Environment) -> Vec<(ObjectKind, Id)> {
    let Id { namespace, name: module } = &names.module;
    let mut all = vec![
        (ObjectKind::of::<ServiceAccount>(), hardware::loader_account(module)),
        (ObjectKind::of::<ServiceAccount>(), hardware::plugin_account(module)),
        (ObjectKind::of::<ConfigMap>(), hardware::plugin_config_map(module)),
    ];
    if environment.openshift {
        all.push((ObjectKind::of::<RoleBinding>(), binding_name(module)));
    }
    all.into_iter().map(|(kind, name)| (kind, Id::new(namespace, &name))).collect()
}

/// The kind of Modules in a version of KMM's API.
#[must_use]
pub fn object_kind(version: &str) -> ObjectKind {
    ObjectKind::new(kmm::GROUP, version, kmm::MODULE, kmm::MODULES)
}

fn binding_name(module: &str) -> String {
    format!("{module}-scc")
}

#[cfg(test)]
mod tests;
