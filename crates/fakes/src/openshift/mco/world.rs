//! What the operator sees: the objects of its kinds.
//!
//! In: lists and watches of an API server. Out: a [`World`], whose objects are never older than what was known before.
//! Never: a write.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt as _};

/// A kind that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    ApiServer,
    KubeletConfig,
    MachineConfig,
    Node,
    Pool,
    Scheduler,
}

/// Objects by kind and name.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    objects: BTreeMap<Kind, BTreeMap<String, DynamicObject>>,
    listed: BTreeSet<Kind>,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::ApiServer, Self::KubeletConfig, Self::MachineConfig, Self::Node, Self::Pool, Self::Scheduler];

    pub(super) fn api(self, client: &Client) -> Api<DynamicObject> {
        let (machines, config) = ("machineconfiguration.openshift.io", "config.openshift.io");
        let (group, kind, plural) = match self {
            Self::ApiServer => (config, "APIServer", "apiservers"),
            Self::KubeletConfig => (machines, "KubeletConfig", "kubeletconfigs"),
            Self::MachineConfig => (machines, "MachineConfig", "machineconfigs"),
            Self::Node => ("", "Node", "nodes"),
            Self::Pool => (machines, "MachineConfigPool", "machineconfigpools"),
            Self::Scheduler => (config, "Scheduler", "schedulers"),
        };
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
    }
}

impl World {
    /// What an API server has now.
    pub(super) async fn list(client: &Client) -> kube::Result<Self> {
        let mut world = Self::default();
        for kind in Kind::ALL {
            let list = kind.api(client).list(&ListParams::default()).await?;
            list.into_iter().for_each(|object| world.put(kind, object));
        }
        Ok(world)
    }

    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = &DynamicObject> {
        self.objects.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// The object of a kind that has only one.
    pub(super) fn only(&self, kind: Kind) -> Option<&DynamicObject> {
        self.objects.get(&kind)?.get("cluster")
    }

    /// Notes an object, unless it is older than what is known.
    pub(super) fn put(&mut self, kind: Kind, object: DynamicObject) {
        let known = self.objects.entry(kind).or_default();
        let name = object.name_any();
        if known.get(&name).is_none_or(|known| version(known) <= version(&object)) {
            known.insert(name, object);
        }
    }

    /// Notes an event; says whether every kind is known.
    pub(super) fn note(&mut self, kind: Kind, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Init => {
                self.objects.remove(&kind);
                self.listed.remove(&kind);
            }
            Event::InitDone => drop(self.listed.insert(kind)),
            Event::Apply(object) | Event::InitApply(object) => self.put(kind, object),
            Event::Delete(object) => {
                let known = self.objects.entry(kind).or_default();
                let name = object.name_any();
                if known.get(&name).is_some_and(|known| version(known) <= version(&object)) {
                    known.remove(&name);
                }
            }
        }
        self.listed.len() == Kind::ALL.len()
    }
}

/// Which of two states of an object is newer; an API server counts in numbers.
fn version(object: &DynamicObject) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
