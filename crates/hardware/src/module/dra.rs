//! The DRA driver of a Module.
//!
//! In: the specification of a DeviceConfig. Out: KMM's `dra`. Never: volumes or variables that KMM adds itself.

use api::hardware::{self, DeviceConfig};
use api::kmm;

use super::device_plugin::init_container;
use crate::node_states::ObjectNames;

pub(super) fn dra(object: &DeviceConfig, object_names: &ObjectNames) -> Option<kmm::Dra> {
    let driver = object.spec.dra.as_ref()?;
    let account = driver.service_account_name.clone();
    let container = kmm::PluginContainer {
        image: driver.image.clone(),
        image_pull_policy: driver.image_pull_policy,
        command: driver.command.clone(),
        args: driver.args.clone(),
        env: driver.env.clone(),
        resources: driver.resources.clone(),
        volume_mounts: driver.volume_mounts.clone(),
    };
    let pods = kmm::DevicePlugin {
        service_account_name: account.or_else(|| Some(hardware::plugin_account(&object_names.module.name))),
        container,
        init_container: driver.init_container.as_ref().map(init_container),
        volumes: driver.volumes.clone(),
        automount_service_account_token: driver.automount_service_account_token,
    };
    Some(kmm::Dra {
        driver_name: driver.driver_name.clone(),
        pods,
        device_classes: driver.device_classes.clone(),
    })
}
