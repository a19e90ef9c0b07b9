//! The defaults of a DeviceConfig: what holds where a field is absent.
//!
//! In: a [`Spec`] as the user wrote it. Out: values. Never: a change of the object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{
    ANY_KERNEL, DIR_NAME, EVICTION_TIMEOUT_SECONDS, KernelMapping, PodsUsingDevices, Spec, UpgradePolicy,
};

impl Spec {
    /// Whether the object selects a node with these labels: by `nodeSelector`, or all nodes by `allNodes`.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        match &self.node_selector {
            Some(wanted) if !wanted.is_empty() => {
                wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
            }
            _ => self.all_nodes,
        }
    }

    /// The kernel module's name: `moduleName`, or the last part of the image's repository. `None` with
    /// `modprobe.rawArgs`, which contain the name.
    #[must_use]
    pub fn kernel_module(&self) -> Option<Cow<'_, str>> {
        if let Some(name) = &self.module_name {
            return Some(name.into());
        }
        if self.modprobe.as_ref().is_some_and(|modprobe| modprobe.raw_args.is_some()) {
            return None;
        }
        let (_, last) = self.driver_image.rsplit_once('/').unwrap_or(("", &self.driver_image));
        Some(last.replace(['-', '.'], "_").into())
    }

    /// The default image of a kernel mapping, with a variable for the kernel's version.
    #[must_use]
    pub fn image_template(&self) -> String {
        format!("{}:{}-${{KERNEL_FULL_VERSION}}", self.driver_image, self.driver_version)
    }

    /// The kernel mappings, each with an image. Without mappings in the object, one that matches every kernel.
    #[must_use]
    pub fn mappings(&self) -> Vec<KernelMapping> {
        let mut mappings = self.kernel_mappings.clone();
        if mappings.is_empty() {
            mappings.push(KernelMapping { regexp: Some(ANY_KERNEL.to_owned()), ..KernelMapping::default() });
        }
        for mapping in &mut mappings {
            mapping.image.get_or_insert_with(|| self.image_template());
        }
        mappings
    }

    /// The directory of modules in the image.
    #[must_use]
    pub fn dir_name(&self) -> &str {
        let given = self.modprobe.as_ref().and_then(|modprobe| modprobe.dir_name.as_deref());
        given.unwrap_or(DIR_NAME)
    }

    /// Whether the devices are offered, by a device plugin or by a DRA driver.
    #[must_use]
    pub fn offers_devices(&self) -> bool {
        self.device_plugin.is_some() || self.dra.is_some()
    }

    /// The service account that the object names for the pods that offer the devices.
    #[must_use]
    pub fn plugin_service_account(&self) -> Option<&String> {
        let plugin = self.device_plugin.as_ref().and_then(|plugin| plugin.service_account_name.as_ref());
        plugin.or_else(|| self.dra.as_ref()?.service_account_name.as_ref())
    }

    /// The treatment of nodes whose pods use the devices.
    #[must_use]
    pub fn pods_using_devices(&self) -> PodsUsingDevices {
        self.upgrade_policy.as_ref().and_then(|policy| policy.pods_using_devices).unwrap_or_default()
    }
}

impl UpgradePolicy {
    /// The time after which evicted pods that still run are a problem.
    #[must_use]
    pub fn eviction_timeout(&self) -> Duration {
        let seconds = self.eviction_timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Duration::from_secs(seconds.unwrap_or(EVICTION_TIMEOUT_SECONDS).max(1))
    }

    /// The number of nodes, out of `nodes`, that may be without a working driver during an upgrade: at least one. An
    /// invalid value means one.
    #[must_use]
    pub fn unavailable_of(&self, nodes: usize) -> usize {
        let most = match &self.max_unavailable {
            None => 1,
            Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(1),
            Some(IntOrString::String(text)) => {
                let percent: usize = text.strip_suffix('%').and_then(|text| text.parse().ok()).unwrap_or(0);
                nodes.saturating_mul(percent.min(100)) / 100
            }
        };
        most.max(1)
    }
}
