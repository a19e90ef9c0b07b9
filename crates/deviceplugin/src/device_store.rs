//! What is known of a resource's devices over time: the last scan, and the health of each.
//!
//! In: scans, and when they were made. Out: the resource for the inventory, and the longest time until the next scan.
//! Never: a clock, or a device that disappears because it was missing for a moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{self, CdiMode, MAX_DEVICES, Resource};
use crate::discovery::{FoundDevice, Scan, list};
use crate::health::Health;
use crate::inventory::{self, Device, DeviceId, DeviceNode, Injection, Mount};

/// The devices of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStore {
    devices: BTreeMap<DeviceId, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    found: FoundDevice,
    health: Health,
    /// Since when the device has been missing, if it is.
    gone: Option<Duration>,
    /// The device has been missing for so long that it is no longer listed. Its health is still remembered, since a
    /// device may come and go slowly.
    forgotten: bool,
}

impl DeviceStore {
    /// Records a scan. Cost: the devices known and found, each looked up once in a tree.
    pub fn update(&mut self, now: Duration, scan: Scan, policy: &config::HealthPolicy) {
        let volatile = scan.volatile;
        let mut found = scan.devices;
        self.devices.retain(|id, known| match found.remove(id) {
            Some(found) => {
                known.health.observe(now, found.problem.as_deref(), policy);
                (known.gone, known.forgotten) = (None, false);
                // Equal hardware keeps its shared value.
                if known.found != found {
                    known.found = found;
                }
                true
            }
            None => {
                known.health.observe(now, Some("missing"), policy);
                let missing = now.saturating_sub(*known.gone.get_or_insert(now));
                known.forgotten = missing >= policy.forget_after;
                volatile && missing < policy.forget_after.saturating_add(policy.recover_at_most)
            }
        });
        if self.devices.len() > MAX_DEVICES {
            self.devices.retain(|_, known| !known.forgotten);
        }
        let new_entry = |found: FoundDevice| {
            let health = Health::new(found.problem.as_deref(), policy);
            Entry { found, health, gone: None, forgotten: false }
        };
        // One append: single insertions would leave the tree half empty.
        self.devices.append(&mut found.into_iter().map(|(id, found)| (id, new_entry(found))).collect());
    }

    /// Records that a scan would find the same devices as the last one; only the health files are read again.
    pub fn update_health(&mut self, now: Duration, policy: &config::HealthPolicy) {
        for known in self.devices.values_mut().filter(|known| known.gone.is_none()) {
            let problem = match &known.found.health_file {
                Some(file) => list::health_problem(file),
                None => known.found.problem.clone(),
            };
            known.health.observe(now, problem.as_deref(), policy);
        }
    }

    /// Reads the health files again when no scan is possible.
    pub fn update_health_files(&mut self, now: Duration, policy: &config::HealthPolicy) {
        for known in self.devices.values_mut() {
            if let Some(file) = known.found.health_file.as_ref().filter(|_| known.gone.is_none()) {
                known.health.observe(now, list::health_problem(file).as_deref(), policy);
            }
        }
    }

    /// How long the next scan may wait: until a device may recover, at most `policy.check_every`.
    #[must_use]
    pub fn next_scan_in(&self, now: Duration, policy: &config::HealthPolicy) -> Duration {
        let due = self.devices.values().filter_map(|known| known.health.due()).min();
        due.map_or(policy.check_every, |due| due.saturating_sub(now).min(policy.check_every))
    }

    /// The resource for the inventory. Cost: a copy of each device's id and a pointer to its hardware.
    #[must_use]
    pub fn resource(&self, config: &Resource) -> inventory::Resource {
        let device = |known: &Entry| {
            let stated = known.found.stated_unhealthy.then(|| "listed as unhealthy".to_owned());
            let unhealthy_reason = stated.or_else(|| known.health.unhealthy_reason());
            Device { hardware: Arc::clone(&known.found.hardware), unhealthy_reason }
        };
        let on = config.cdi.mode != CdiMode::Off;
        let listed = self.devices.iter().filter(|(_, known)| !known.forgotten);
        inventory::Resource {
            cdi_kind: on.then(|| config.cdi_kind().to_owned()),
            devices: listed.map(|(id, known)| (Arc::clone(id), device(known))).collect(),
            common: common(&config.container),
        }
    }
}

/// What every container with a device gets in addition.
fn common(container: &config::Container) -> Injection {
    let permissions = container.permissions.clone().unwrap_or_else(|| "rw".to_owned());
    let node = |path: &std::path::PathBuf| DeviceNode {
        host_path: path.clone(),
        container_path: path.clone(),
        permissions: permissions.clone(),
    };
    let mount = |mount: &config::Mount| Mount {
        host_path: mount.host_path.clone(),
        container_path: mount.container_path.clone().unwrap_or_else(|| mount.host_path.clone()),
        read_only: mount.read_only,
    };
    Injection {
        nodes: container.device_nodes.iter().map(node).collect(),
        mounts: container.mounts.iter().map(mount).collect(),
        envs: container.envs.clone(),
    }
}

#[cfg(test)]
mod tests;
