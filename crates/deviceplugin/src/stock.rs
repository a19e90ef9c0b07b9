//! What is known of a resource's devices: what was found, through health, over time.
//!
//! In: looks, and when they were made. Out: the resource for the inventory, and when to look again at the latest. Never: a clock, a file, or
//! a device that disappears because it was missing for a moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{self, CdiMode, MAX_DEVICES, Resource};
use crate::discovery::{Found, Look, list};
use crate::health::Health;
use crate::inventory::{self, Device, DeviceNode, Gives, Id, Mount};

/// The devices of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    devices: BTreeMap<Id, Known>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    found: Found,
    health: Health,
    /// Since when it has been missing, if it is.
    gone: Option<Duration>,
    /// Missing for so long that nobody is told of it any more. Its health is remembered: who comes and goes slowly flaps too.
    forgotten: bool,
}

impl Stock {
    /// Takes in a look.
    pub fn take(&mut self, now: Duration, look: Look, policy: &config::Health) {
        let volatile = look.volatile;
        let mut found = look.devices;
        self.devices.retain(|id, known| match found.remove(id) {
            Some(found) => {
                known.health.observe(now, found.seen.as_deref(), policy);
                (known.gone, known.forgotten) = (None, false);
                // What is the same stays the one value that others have too.
                if known.found != found {
                    known.found = found;
                }
                true
            }
            None => {
                known.health.observe(now, Some("it is gone"), policy);
                let missing = now.saturating_sub(*known.gone.get_or_insert(now));
                known.forgotten = missing >= policy.forget_after;
                volatile && missing < policy.forget_after.saturating_add(policy.recover_at_most)
            }
        });
        if self.devices.len() > MAX_DEVICES {
            self.devices.retain(|_, known| !known.forgotten);
        }
        let new = |found: Found| {
            let health = Health::new(found.seen.as_deref(), policy);
            Known { found, health, gone: None, forgotten: false }
        };
        // At once: one after the other would leave the tree half empty.
        self.devices.append(&mut found.into_iter().map(|(id, found)| (id, new(found))).collect());
    }

    /// Takes in that a look would find what the last one found, but for what files tell about health.
    pub fn take_again(&mut self, now: Duration, policy: &config::Health) {
        for known in self.devices.values_mut().filter(|known| known.gone.is_none()) {
            let seen = match &known.found.health_file {
                Some(file) => list::ask(file),
                None => known.found.seen.clone(),
            };
            known.health.observe(now, seen.as_deref(), policy);
        }
    }

    /// Asks the files that tell about health, when nothing else can be looked at.
    pub fn ask_health_files(&mut self, now: Duration, policy: &config::Health) {
        for known in self.devices.values_mut() {
            if let Some(file) = known.found.health_file.as_ref().filter(|_| known.gone.is_none()) {
                known.health.observe(now, list::ask(file).as_deref(), policy);
            }
        }
    }

    /// How long the next look may wait.
    #[must_use]
    pub fn patience(&self, now: Duration, policy: &config::Health) -> Duration {
        let due = self.devices.values().filter_map(|known| known.health.due()).min();
        due.map_or(policy.check_every, |due| due.saturating_sub(now).min(policy.check_every))
    }

    /// As others see it.
    #[must_use]
    pub fn resource(&self, config: &Resource) -> inventory::Resource {
        let device = |known: &Known| {
            let stated = known.found.stated_unhealthy.then(|| "it is listed as unhealthy".to_owned());
            let trouble = stated.or_else(|| known.health.trouble());
            Device { hardware: Arc::clone(&known.found.hardware), trouble }
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

/// What every container with a device gets besides.
fn common(container: &config::Container) -> Gives {
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
    Gives {
        nodes: container.device_nodes.iter().map(node).collect(),
        mounts: container.mounts.iter().map(mount).collect(),
        envs: container.envs.clone(),
    }
}

#[cfg(test)]
mod tests;
