//! The device plugin of a Module.
//!
//! In: the specification of a DeviceConfig. Out: KMM's `devicePlugin`, and our device plugin's configuration. Never: a
//! field that KMM's webhook refuses.

use api::hardware::{self, CDI_VOLUME, DeviceConfig, PLUGIN_CONFIG};
use api::kmm;
use deployer::manifests::pod;
use k8s_openapi::api::core::v1::{EnvVar, Volume};
use topology::fingerprint::PodHash;

use super::plugin_file;
use crate::cluster_state::Environment;
use crate::node_states::ObjectNames;

/// The folder of CDI files on a node; KMM's webhook refuses `/etc/cdi`.
pub const CDI: &str = "/var/run/cdi";
/// The folder of device nodes. A privileged container without it has copies of the device nodes at its start, and sees
/// no change.
const DEV: &str = "/dev";
/// The variable with the hash of the configuration, so that another configuration restarts the pod.
pub(super) const HASH: &str = "THOLEPIN_CONFIG_HASH";

/// The text of our device plugin's configuration, as JSON, which is YAML too; `None` for a vendor's plugin.
pub(super) fn plugin_config(object: &DeviceConfig) -> Option<String> {
    let config = object.spec.device_plugin.as_ref()?.config.as_ref()?;
    serde_json::to_string_pretty(config).ok()
}

pub(super) fn device_plugin(
    object: &DeviceConfig,
    object_names: &ObjectNames,
    environment: &Environment,
) -> Option<kmm::DevicePlugin> {
    let plugin = object.spec.device_plugin.as_ref()?;
    let module = object_names.module.name.as_str();
    let config = plugin_config(object);
    let ours = config.is_some();
    let account = plugin.service_account_name.clone();
    let mut container = kmm::PluginContainer {
        image: plugin.image.clone().unwrap_or_else(|| environment.image.clone()),
        image_pull_policy: plugin.image_pull_policy,
        command: plugin.command.clone(),
        args: plugin.args.clone(),
        env: with_node_name(&plugin.env),
        resources: plugin.resources.clone(),
        volume_mounts: plugin.volume_mounts.clone(),
    };
    let mut volumes = plugin.volumes.clone();
    let is_mounted = |path: &str| plugin.volume_mounts.iter().any(|mount| mount.mount_path == path);
    if !volumes.iter().any(|volume| volume.name == CDI_VOLUME) {
        volumes.push(pod::node_path(CDI_VOLUME, CDI, Some("DirectoryOrCreate")));
        if !is_mounted(CDI) {
            container.volume_mounts.push(pod::mount(CDI_VOLUME, CDI));
        }
    }
    if let Some(text) = config {
        if !is_mounted(DEV) {
            let volume = unused("dev", &volumes);
            container.volume_mounts.push(pod::mount(&volume, DEV));
            volumes.push(pod::node_path(&volume, DEV, Some("Directory")));
        }
        let volume = unused("config", &volumes);
        container.volume_mounts.push(pod::mount_read_only(&volume, PLUGIN_CONFIG));
        volumes.push(pod::config_directory(&volume, &hardware::plugin_config_map(module), None));
        container.command = ["/tholepin", "device-plugin"].map(str::to_owned).into();
        let file = plugin_file(&object.spec.driver_version);
        let ours = ["--config".to_owned(), format!("{PLUGIN_CONFIG}/{file}")];
        container.args = ours.into_iter().chain(plugin.args.clone()).collect();
        let hash = format!("{:016x}", PodHash::of("", &text).0);
        container.env.push(pod::variable(HASH, &hash));
    }
    Some(kmm::DevicePlugin {
        service_account_name: Some(account.unwrap_or_else(|| hardware::plugin_account(module))),
        container,
        init_container: plugin.init_container.as_ref().map(init_container),
        volumes,
        // Of our plugin's functions only resource claims need the API server.
        automount_service_account_token: plugin
            .automount_service_account_token
            .or((ours && !serves_claims(&plugin.args)).then_some(false)),
    })
}

/// Whether arguments of our plugin turn on resource claims.
fn serves_claims(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "--dra" || arg.starts_with("--dra="))
}

pub(super) fn init_container(given: &hardware::InitContainer) -> kmm::PluginContainer {
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

/// Adds the variable with the node's name, unless it is given.
fn with_node_name(given: &[EnvVar]) -> Vec<EnvVar> {
    let is_there = given.iter().any(|one| one.name == "NODE_NAME");
    let node_name = || pod::field("NODE_NAME", "spec.nodeName");
    given.iter().cloned().chain((!is_there).then(node_name)).collect()
}

/// This name, with a number if one of the user's volumes has it already.
fn unused(name: &str, volumes: &[Volume]) -> String {
    let numbered = (1..=volumes.len()).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| volumes.iter().all(|volume| volume.name != *name)).unwrap_or_default()
}
