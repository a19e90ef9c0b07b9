//! The device manager: devices of plugins, by zone.
//!
//! In: the devices that plugins list, and what containers hold. Out: hints for the Topology Manager, and the devices
//! that a container gets. Never: a look at CPUs or memory, or a plugin.
//!
//! The kubelet takes any of the devices that are equally good, unless the plugin prefers some. So the caller may say
//! which ([`Choice`]); what it says decides only where the kubelet has a choice.
//!
//! Source: kubelet 1.34 to 1.37 `devicemanager/manager.go`, `devicemanager/topology_hints.go`.

mod hints;

pub use hints::DeviceGroup;
pub(crate) use hints::{DeviceGroups, DeviceHints};

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kubelet::hint::ZoneMask;
use crate::kubelet::hint_source::{HintList, Source};
use crate::kubelet::pod::{Container, DeviceCounts, Pod, PodUid};
use crate::kubelet::profile::Minor;
use crate::kubelet::rejection::{DeviceError, Rejection};
use crate::kubelet::topology_manager::Hints;
use crate::request::ContainerKind;
use crate::resource::ResourceName;

/// The id of a device, unique within its resource.
pub type DeviceId = Arc<str>;

/// Devices of one resource, by id.
pub type DeviceIds = BTreeSet<DeviceId>;

/// One device as its plugin lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its zones: `None` if the plugin says nothing of zones, empty if it says that there are none.
    pub zones: Option<ZoneMask>,
    /// Whether it can be handed out.
    pub healthy: bool,
}

/// Which devices a plugin prefers (`GetPreferredAllocation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preference {
    /// The plugin has no preference.
    #[default]
    None,
    /// Those it must include, then the lowest ids.
    First,
    /// Those it must include, then the highest ids.
    Last,
    /// Others, by a rule that is not known here: those that [`Choice`] names.
    Own,
}

/// When plugins register with a kubelet that restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Before the kubelet admits its pods again.
    BeforePods,
    /// After that. Meanwhile the kubelet knows the resources, but no device of them (kubelet `readCheckpoint`).
    AfterPods,
}

/// The devices of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Devices by id.
    pub devices: BTreeMap<DeviceId, Device>,
    /// Which of them the plugin prefers.
    pub preference: Preference,
}

/// Devices that the caller knows to have been chosen.
pub trait Choice {
    /// The devices of this container, if they are known.
    fn devices(&self, container: &str, resource: ResourceName) -> Option<&DeviceIds>;
}

/// Nothing is known: the lowest ids are taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lowest;

impl Choice for Lowest {
    fn devices(&self, _: &str, _: ResourceName) -> Option<&DeviceIds> {
        None
    }
}

/// Devices by resource.
pub type HeldDevices = BTreeMap<ResourceName, DeviceIds>;

/// What the device manager knows and has handed out (`kubelet_internal_checkpoint`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceState {
    /// What plugins list.
    pub resources: BTreeMap<ResourceName, Resource>,
    /// What the containers of each pod hold, in the order of admission.
    pub pods: Vec<PodDevices>,
    /// Devices of init containers that the next containers of this pod may use.
    reusable: Option<(PodUid, HeldDevices)>,
    /// Pods that have ended and still hold what they held.
    pub(crate) stale: Vec<PodUid>,
}

/// The devices of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodDevices {
    /// The pod.
    pub uid: PodUid,
    /// Devices by container, in the order of admission.
    pub containers: Vec<(Box<str>, HeldDevices)>,
}

impl DeviceState {
    /// kubelet `GetTopologyHints`: one item for each resource that a plugin serves.
    pub(crate) fn container_hints<'h>(
        &self,
        minor: Minor,
        all_zones: ZoneMask,
        pod: &Pod,
        container: &Container,
        hints: &mut HintList<'h>,
    ) {
        hints.extend(self.served(&container.devices).map(|(name, resource, request)| {
            if !resource.has_zones() {
                return Hints::Any;
            }
            let held = self.held(&pod.uid, &container.name, name).filter(|held| !held.is_empty());
            if let Some(held) = held {
                return resource.regenerated(minor, all_zones, held, request);
            }
            let reusable = self.reusable(&pod.uid, name);
            let available = self.available(name, resource);
            if available.union(&reusable).count() < request {
                return Hints::Impossible;
            }
            resource.hints(minor, all_zones, &available, &reusable, request)
        }));
    }

    /// kubelet `GetPodTopologyHints`.
    pub(crate) fn pod_hints<'h>(
        &self,
        minor: Minor,
        all_zones: ZoneMask,
        pod: &Pod,
        hints: &mut HintList<'h>,
    ) {
        hints.extend(self.served(&pod.devices).map(|(name, resource, request)| {
            if !resource.has_zones() {
                return Hints::Any;
            }
            let held = self.held_by_pod(&pod.uid, name);
            if !held.is_empty() {
                return resource.regenerated(minor, all_zones, &held, request);
            }
            let available = self.available(name, resource);
            if available.len() < request {
                return Hints::Impossible;
            }
            resource.hints(minor, all_zones, &available, &DeviceIds::new(), request)
        }));
    }

    /// Hands out the devices of one container (kubelet `Allocate`).
    ///
    /// # Errors
    /// [`Rejection`] with the kubelet's reason.
    pub(crate) fn allocate(
        &mut self,
        pod: &Pod,
        container: &Container,
        zones: Option<ZoneMask>,
        choice: &dyn Choice,
    ) -> Result<(), Rejection> {
        for (name, count) in &container.devices {
            if self.is_served(*name) {
                self.allocate_resource(pod, container, (*name, *count), zones, choice)?;
            }
        }
        self.count_reusable(pod, container);
        Ok(())
    }

    /// What the container holds can be used by the next containers of its pod if it is an init container, and no longer
    /// if it is another.
    pub(crate) fn count_reusable(&mut self, pod: &Pod, container: &Container) {
        if self.reusable.as_ref().is_none_or(|(uid, _)| *uid != pod.uid) {
            self.reusable = Some((pod.uid.clone(), HeldDevices::new()));
        }
        let held = self.held_by_container(&pod.uid, &container.name);
        if let Some((_, reusable)) = &mut self.reusable {
            for (name, devices) in held {
                let entry = reusable.entry(name).or_default();
                match container.kind {
                    ContainerKind::Init => entry.extend(devices),
                    ContainerKind::Sidecar | ContainerKind::App => entry.retain(|id| !devices.contains(id)),
                }
            }
        }
    }

    /// kubelet `devicesToAllocate`.
    fn allocate_resource(
        &mut self,
        pod: &Pod,
        container: &Container,
        (name, count): (ResourceName, usize),
        zones: Option<ZoneMask>,
        choice: &dyn Choice,
    ) -> Result<(), DeviceError> {
        let held = self.held(&pod.uid, &container.name, name).cloned();
        if let Some(held) = &held
            && held.len() != count
        {
            return Err(DeviceError::Changed {
                pod: (&*pod.uid).into(),
                container: container.name.clone(),
                resource: name.as_str(),
                held: held.len(),
                requested: count,
            });
        }
        let resource = self.resources.get(&name).ok_or(DeviceError::Unregistered(name))?;
        let is_healthy = |id: &DeviceId| resource.devices.get(id).is_some_and(|device| device.healthy);
        if !resource.devices.values().any(|device| device.healthy) {
            return Err(DeviceError::NoneHealthy(name));
        }
        if !held.iter().flatten().all(is_healthy) {
            return Err(DeviceError::Unhealthy(name));
        }
        if held.is_some() || count == 0 {
            return Ok(());
        }
        let picked = Picker {
            resource,
            wanted: choice.devices(&container.name, name),
            taken: DeviceIds::new(),
            needed: count,
        };
        let taken =
            picked.pick(name, &self.reusable(&pod.uid, name), &self.available(name, resource), zones)?;
        self.hold(&pod.uid, &container.name, name, taken);
        Ok(())
    }

    /// The resources asked for that a plugin serves, or of which devices are handed out (kubelet
    /// `isDevicePluginResource`).
    fn served<'a>(
        &'a self,
        counts: &'a DeviceCounts,
    ) -> impl Iterator<Item = (ResourceName, &'a Resource, usize)> {
        static NONE: Resource = Resource { devices: BTreeMap::new(), preference: Preference::None };
        counts
            .iter()
            .filter(|(name, _)| self.is_served(*name))
            .map(|(name, count)| (*name, self.resources.get(name).unwrap_or(&NONE), *count))
    }

    /// Whether a plugin serves any of the resources.
    pub(crate) fn serves_any(&self, counts: &DeviceCounts) -> bool {
        counts.iter().any(|(name, _)| self.is_served(*name))
    }

    fn is_served(&self, name: ResourceName) -> bool {
        let mut held = self.pods.iter().flat_map(|pod| &pod.containers);
        self.resources.contains_key(&name) || held.any(|(_, devices)| devices.contains_key(&name))
    }

    /// The devices of a container.
    #[must_use]
    pub fn held(&self, uid: &str, container: &str, name: ResourceName) -> Option<&DeviceIds> {
        let pod = self.pods.iter().find(|pod| &*pod.uid == uid)?;
        pod.containers.iter().find(|(of, _)| &**of == container)?.1.get(&name)
    }

    pub(crate) fn held_by_container(&self, uid: &str, container: &str) -> HeldDevices {
        let pod = self.pods.iter().find(|pod| &*pod.uid == uid);
        let own = pod.and_then(|pod| pod.containers.iter().find(|(of, _)| &**of == container));
        own.map(|(_, devices)| devices.clone()).unwrap_or_default()
    }

    fn held_by_pod(&self, uid: &str, name: ResourceName) -> DeviceIds {
        let pods = self.pods.iter().filter(|pod| &*pod.uid == uid);
        pods.flat_map(|pod| &pod.containers)
            .filter_map(|(_, devices)| devices.get(&name))
            .flatten()
            .cloned()
            .collect()
    }

    /// Devices of the resource that containers hold.
    #[must_use]
    pub fn in_use(&self, name: ResourceName) -> DeviceIds {
        let containers = self.pods.iter().flat_map(|pod| &pod.containers);
        containers.filter_map(|(_, devices)| devices.get(&name)).flatten().cloned().collect()
    }

    fn available(&self, name: ResourceName, resource: &Resource) -> DeviceIds {
        let used = self.in_use(name);
        let healthy = resource.devices.iter().filter(|(_, device)| device.healthy);
        healthy.map(|(id, _)| id).filter(|id| !used.contains(*id)).cloned().collect()
    }

    fn reusable(&self, uid: &PodUid, name: ResourceName) -> DeviceIds {
        let own = self.reusable.as_ref().filter(|(of, _)| of == uid);
        own.and_then(|(_, devices)| devices.get(&name)).cloned().unwrap_or_default()
    }

    pub(crate) fn hold(&mut self, uid: &PodUid, container: &str, name: ResourceName, devices: DeviceIds) {
        let at = self.pods.iter().position(|pod| pod.uid == *uid).unwrap_or_else(|| {
            self.pods.push(PodDevices { uid: uid.clone(), containers: Vec::new() });
            self.pods.len() - 1
        });
        let containers = &mut self.pods[at].containers;
        match containers.iter_mut().find(|(of, _)| &**of == container) {
            Some((_, held)) => drop(held.insert(name, devices)),
            None => containers.push((container.into(), HeldDevices::from([(name, devices)]))),
        }
    }

    /// Gives back what a pod holds (kubelet `UpdateAllocatedDevices`).
    fn release(&mut self, uid: &str) {
        self.pods.retain(|pod| &*pod.uid != uid);
    }

    /// Gives back what ended pods hold.
    pub(crate) fn sweep(&mut self) {
        for uid in std::mem::take(&mut self.stale) {
            self.release(&uid);
        }
    }

    /// Whether a restarted kubelet leaves the container its devices without a further look: it held some and runs
    /// (kubelet `isContainerAlreadyRunning`). Init containers have ended.
    pub(crate) fn is_kept(&self, pod: &Pod, container: &Container) -> bool {
        container.kind != ContainerKind::Init && !self.held_by_container(&pod.uid, &container.name).is_empty()
    }

    /// Forgets the devices that plugins have listed, and returns the lists.
    pub(crate) fn forget_lists(&mut self) -> BTreeMap<ResourceName, Resource> {
        let lists = self.resources.clone();
        self.resources.values_mut().for_each(|resource| resource.devices.clear());
        lists
    }

    /// Forgets what a kubelet keeps in memory only.
    pub(crate) fn restart(&mut self) {
        self.reusable = None;
    }
}

impl Resource {
    /// kubelet `deviceHasTopologyAlignment`.
    pub(crate) fn has_zones(&self) -> bool {
        self.devices.values().any(|device| device.zones.is_some_and(|zones| !zones.is_empty()))
    }

    /// Hints for devices that are held already.
    fn regenerated<'h>(
        &self,
        minor: Minor,
        all_zones: ZoneMask,
        held: &DeviceIds,
        request: usize,
    ) -> Hints<Source<'h>> {
        if held.len() == request {
            self.hints(minor, all_zones, held, &DeviceIds::new(), request)
        } else {
            Hints::Impossible
        }
    }

    /// kubelet `generateDeviceTopologyHints`.
    fn hints<'h>(
        &self,
        minor: Minor,
        all_zones: ZoneMask,
        available: &DeviceIds,
        reusable: &DeviceIds,
        request: usize,
    ) -> Hints<Source<'h>> {
        let zones_of = |id: &DeviceId| self.devices.get(id).and_then(|device| device.zones);
        let groups = self.groups(|id| available.contains(id)).into_vec();
        let reusable = reusable.iter().filter_map(zones_of).collect();
        let hints = DeviceHints::new(minor, all_zones, Cow::Owned(groups), reusable, request);
        Hints::Of(Source::Devices(hints))
    }

    /// Devices by their zones, ascending, with the number of free ones.
    pub(crate) fn groups(&self, is_free: impl Fn(&DeviceId) -> bool) -> DeviceGroups {
        let mut groups = DeviceGroups::new();
        for (id, device) in &self.devices {
            let at = groups.binary_search_by_key(&device.zones, |group| group.zones).unwrap_or_else(|at| {
                groups.insert(at, DeviceGroup { zones: device.zones, all: 0, free: 0 });
                at
            });
            groups[at].all += 1;
            groups[at].free += usize::from(is_free(id));
        }
        groups
    }
}

/// The choice among devices.
struct Picker<'a> {
    resource: &'a Resource,
    wanted: Option<&'a DeviceIds>,
    taken: DeviceIds,
    needed: usize,
}

impl Picker<'_> {
    /// Reusable devices first, then aligned ones, then those that the plugin prefers, then any (kubelet
    /// `devicesToAllocate`).
    fn pick(
        mut self,
        name: ResourceName,
        reusable: &DeviceIds,
        available: &DeviceIds,
        zones: Option<ZoneMask>,
    ) -> Result<DeviceIds, DeviceError> {
        if self.take(reusable) {
            return Ok(self.taken);
        }
        if available.len() < self.needed {
            let (requested, available) = (self.needed, available.len());
            return Err(DeviceError::Unavailable { resource: name, requested, available });
        }
        let [aligned, elsewhere, anywhere] = self.by_alignment(available, zones);
        if self.needed < aligned.len() {
            let preferred = self.preferred(&aligned);
            if !self.take(&preferred) {
                self.take(&aligned);
            }
        } else if !self.take(&aligned) {
            let preferred: DeviceIds = self.preferred(available);
            let _ = self.take(&preferred) || self.take(&elsewhere) || self.take(&anywhere);
        }
        Ok(self.taken)
    }

    /// Takes devices until there are enough. Returns whether there are.
    fn take(&mut self, devices: &DeviceIds) -> bool {
        let wanted = |id: &&DeviceId| self.wanted.is_some_and(|wanted| wanted.contains(*id));
        let new = devices.difference(&self.taken);
        let (first, then): (Vec<_>, Vec<_>) = new.partition(wanted);
        let chosen: Vec<DeviceId> = first.into_iter().chain(then).take(self.needed).cloned().collect();
        self.needed -= chosen.len();
        self.taken.extend(chosen);
        self.needed == 0
    }

    /// What the plugin would answer, as far as it can be had.
    fn preferred(&self, offered: &DeviceIds) -> DeviceIds {
        let ids = offered.iter().filter(|id| !self.taken.contains(*id)).cloned();
        match self.resource.preference {
            Preference::None => DeviceIds::new(),
            Preference::First => ids.take(self.needed).collect(),
            Preference::Last => ids.rev().take(self.needed).collect(),
            Preference::Own => ids
                .filter(|id| self.wanted.is_some_and(|wanted| wanted.contains(id)))
                .take(self.needed)
                .collect(),
        }
    }

    /// Devices in the zones, in other zones, and without a zone (kubelet `filterByAffinity`).
    fn by_alignment(&self, available: &DeviceIds, zones: Option<ZoneMask>) -> [DeviceIds; 3] {
        let mut lists = [DeviceIds::new(), DeviceIds::new(), DeviceIds::new()];
        let aligned = zones.filter(|_| self.resource.has_zones());
        for id in available {
            let own = self.resource.devices.get(id).and_then(|device| device.zones);
            let list = match (aligned, own.filter(|own| !own.is_empty())) {
                (Some(zones), Some(own)) => usize::from(!own.meets(zones)),
                _ => 2,
            };
            lists[list].insert(id.clone());
        }
        lists
    }
}
