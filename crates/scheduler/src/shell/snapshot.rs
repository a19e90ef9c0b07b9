//! The objects of a cluster at one moment, as events for a core.
//!
//! In: objects as JSON, from files or lists of an API server, in any order. Out: events in the order of the watches'
//! first lists, reports last. Never: a failure because of one object that cannot be read; it counts as it does in the
//! watches, and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::nrt::{self, NodeResourceTopology};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::Client;
use runtime::client::{self, pages};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::wire_pod::{Warnings, WirePod};
use super::wire_selecting::{Selecting, WireSelecting};
use crate::affinity;
use crate::budget::BudgetView;
use crate::core::{Core, Event, Settings};
use crate::defrag::eviction_blocker::EvictionBlocker;
use crate::devices::Change as DeviceChange;
use crate::devices::views::claim::ClaimView as DeviceClaimView;
use crate::devices::views::{ClassView as DeviceClassView, SliceView};
use crate::interner::Interned;
use crate::namespace::NamespaceView;
use crate::node::NodeView;
use crate::pod::PodView;
use crate::pod_group::PodGroupView;
use crate::volumes::Change;
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};

/// Makes an event of an object.
type Read = fn(Value) -> Result<Event, String>;

/// A kind that counts: its name, the path of its list, and how it is read.
struct Kind {
    name: &'static str,
    path: &'static str,
    read: Read,
}

/// The kinds, in the order of their events: reports last, because the ledger explains them by the pods.
const KINDS: [Kind; 20] = [
    Kind {
        name: "Node",
        path: "/api/v1/nodes",
        read: |v| plain(v, |it: &Node| Event::Node(NodeView::read(it))),
    },
    Kind {
        name: "Namespace",
        path: "/api/v1/namespaces",
        read: |v| plain(v, |it: &Namespace| Event::Namespace(NamespaceView::read(it))),
    },
    Kind { name: "Service", path: "/api/v1/services", read: selecting::<Service> },
    Kind {
        name: "ReplicationController",
        path: "/api/v1/replicationcontrollers",
        read: selecting::<ReplicationController>,
    },
    Kind { name: "ReplicaSet", path: "/apis/apps/v1/replicasets", read: selecting::<ReplicaSet> },
    Kind { name: "StatefulSet", path: "/apis/apps/v1/statefulsets", read: selecting::<StatefulSet> },
    Kind {
        name: "PodGroup",
        path: "/apis/scheduling.k8s.io/v1alpha2/podgroups",
        read: |v| plain(v, |it: &PodGroup| Event::PodGroup(PodGroupView::read(it))),
    },
    Kind { name: "Pod", path: "/api/v1/pods", read: pod },
    Kind {
        name: "PodDisruptionBudget",
        path: "/apis/policy/v1/poddisruptionbudgets",
        read: |v| plain(v, |it: &PodDisruptionBudget| Event::Budget(BudgetView::read(it))),
    },
    Kind {
        name: "PersistentVolumeClaim",
        path: "/api/v1/persistentvolumeclaims",
        read: |v| stored(v, |it: &PersistentVolumeClaim| Change::Claim(ClaimView::read(it))),
    },
    Kind {
        name: "PersistentVolume",
        path: "/api/v1/persistentvolumes",
        read: |v| stored(v, |it: &PersistentVolume| Change::Volume(Box::new(VolumeView::read(it)))),
    },
    Kind {
        name: "StorageClass",
        path: "/apis/storage.k8s.io/v1/storageclasses",
        read: |v| stored(v, |it: &StorageClass| Change::Class(ClassView::read(it))),
    },
    Kind {
        name: "CSINode",
        path: "/apis/storage.k8s.io/v1/csinodes",
        read: |v| stored(v, |it: &CSINode| Change::CsiNode(CsiNodeView::read(it))),
    },
    Kind {
        name: "CSIDriver",
        path: "/apis/storage.k8s.io/v1/csidrivers",
        read: |v| stored(v, |it: &CSIDriver| Change::Driver(DriverView::read(it))),
    },
    Kind {
        name: "CSIStorageCapacity",
        path: "/apis/storage.k8s.io/v1/csistoragecapacities",
        read: |v| stored(v, |it: &CSIStorageCapacity| Change::Capacity(CapacityView::read(it))),
    },
    Kind {
        name: "VolumeAttachment",
        path: "/apis/storage.k8s.io/v1/volumeattachments",
        read: |v| stored(v, |it: &VolumeAttachment| Change::Attachment(AttachmentView::read(it))),
    },
    Kind {
        name: "ResourceClaim",
        path: "/apis/resource.k8s.io/v1/resourceclaims",
        read: |v| devices(v, |it: &ResourceClaim| DeviceChange::Claim(Box::new(DeviceClaimView::read(it)))),
    },
    Kind {
        name: "ResourceSlice",
        path: "/apis/resource.k8s.io/v1/resourceslices",
        read: |v| devices(v, |it: &ResourceSlice| DeviceChange::Slice(Box::new(SliceView::read(it)))),
    },
    Kind {
        name: "DeviceClass",
        path: "/apis/resource.k8s.io/v1/deviceclasses",
        read: |v| devices(v, |it: &DeviceClass| DeviceChange::Class(Box::new(DeviceClassView::read(it)))),
    },
    Kind {
        name: nrt::KIND,
        path: "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
        read: report,
    },
];

/// The path of reports in the older version, for API servers that have no other.
const OLD_REPORTS: &str = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies";

/// An object: its kind, as the place in [`KINDS`], its namespace and its name.
type ObjectKey = (usize, String, String);

/// An object at a version. A folder may have an object several times; the newest counts.
#[derive(Debug)]
struct Versioned {
    version: u64,
    /// `None`: it cannot be read.
    event: Option<Event>,
    /// Why it cannot be read.
    warning: Option<String>,
}

/// The objects.
#[derive(Debug, Default)]
pub struct Snapshot {
    events: BTreeMap<ObjectKey, Versioned>,
    /// What pods have in common, once.
    interned: Interned,
    /// Namespace and name of the pod whose object is kept.
    wanted: Option<(String, String)>,
    /// That object. Of all others only what counts is kept.
    pub(crate) pod: Option<Value>,
    /// Whether the objects of pods without a node are kept as well.
    keeps_waiting: bool,
    /// Those, by namespace and name.
    pub(crate) waiting: BTreeMap<(String, String), Value>,
    /// Whether an API server was asked for all kinds.
    is_complete: bool,
    /// Whether it is looked at what keeps pods on their nodes.
    finds_blockers: bool,
    /// What does, by uid, for all pods with a node.
    pub(crate) blockers: BTreeMap<String, Vec<EvictionBlocker>>,
}

impl Snapshot {
    /// Nothing yet. `wanted`: namespace and name of a pod whose object is needed as well.
    pub(crate) fn new(wanted: Option<(String, String)>) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Nothing yet. The objects of pods without a node will be kept.
    pub(crate) fn keeping_waiting() -> Self {
        Self { keeps_waiting: true, ..Self::default() }
    }

    /// Nothing yet. It will be told what keeps each pod on its node.
    pub(crate) fn finding_blockers() -> Self {
        Self { finds_blockers: true, ..Self::default() }
    }

    /// Takes an object, unless its kind does not count or it is there already and as new.
    pub fn take(&mut self, mut object: Value) {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        let Some(at) = KINDS.iter().position(|known| known.name == kind) else { return };
        let version = text("/metadata/resourceVersion").parse().unwrap_or(0);
        let key = (at, namespace.clone(), name.clone());
        if self.events.get(&key).is_some_and(|known| known.version >= version) {
            return;
        }
        if kind == "Pod" {
            // A pod that was written by hand has no uid.
            if text("/metadata/uid").is_empty() {
                object["metadata"]["uid"] = format!("{namespace}/{name}").into();
            }
            let is_wanted = |wanted: &(String, String)| wanted.0 == namespace && wanted.1 == name;
            if self.wanted.as_ref().is_some_and(is_wanted) {
                self.pod = Some(object.clone());
            }
            let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
            if self.finds_blockers && !node.is_empty() {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                self.blockers.insert(uid, EvictionBlocker::all_of(&object));
            }
            if self.keeps_waiting {
                let place = (namespace.clone(), name.clone());
                match node {
                    "" => self.waiting.insert(place, object.clone()),
                    _ => self.waiting.remove(&place),
                };
            }
        }
        let (event, warning) = match (KINDS[at].read)(object) {
            Ok(mut event) => {
                if let Event::Pod(pod) = &mut event {
                    self.interned.share(pod);
                }
                (Some(event), None)
            }
            Err(reason) => {
                let place = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
                let event = (kind == nrt::KIND).then(|| Event::ReportUnreadable(name.into()));
                (event, Some(format!("{kind} {place}: {reason}")))
            }
        };
        self.events.insert(key, Versioned { version, event, warning });
    }

    /// Takes all objects of a cluster. Kinds that are not served have none.
    ///
    /// # Errors
    /// When a list cannot be read, with its path.
    pub(crate) async fn take_cluster(&mut self, client: &Client) -> anyhow::Result<()> {
        self.is_complete = true;
        for kind in &KINDS {
            let mut read = pages::each(client, kind.path, "", |object| self.take(object)).await;
            if kind.name == nrt::KIND && read.as_ref().is_err_and(client::is_not_found) {
                read = pages::each(client, OLD_REPORTS, "", |object| self.take(object)).await;
            }
            match read {
                Err(error) if !client::is_not_found(&error) => {
                    anyhow::bail!("listing {}: {}", kind.path, client::brief(&error))
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether there is a node that can be read.
    pub(crate) fn has_nodes(&self) -> bool {
        self.of_kind("Node").any(|(_, node)| node.event.is_some())
    }

    /// What cannot be read, for people.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &str> {
        self.events.values().filter_map(|it| it.warning.as_deref())
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&ObjectKey, &Versioned)> {
        self.events.iter().filter(move |((at, ..), _)| KINDS[*at].name == kind)
    }

    /// Whether this is a dump without any object of a kind: there may be some in the cluster.
    pub(crate) fn leaves_out(&self, kind: &str) -> bool {
        !self.is_complete && self.of_kind(kind).next().is_none()
    }

    /// Namespaces and names of all pods.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&str, &str)> {
        self.of_kind("Pod").map(|((_, namespace, name), _)| (namespace.as_str(), name.as_str()))
    }

    /// All pods.
    pub(crate) fn pod_views(&self) -> impl Iterator<Item = &PodView> {
        self.of_kind("Pod").filter_map(|(_, object)| match &object.event {
            Some(Event::Pod(pod)) => Some(pod),
            _ => None,
        })
    }

    /// Takes these nodes as open to new pods.
    pub(crate) fn uncordon(&mut self, nodes: &BTreeSet<String>) {
        for object in self.events.values_mut() {
            if let Some(Event::Node(node)) = &mut object.event
                && nodes.contains(&*node.name)
            {
                node.unschedulable = false;
                node.taints.retain(|taint| taint.key != affinity::CORDON);
            }
        }
    }

    /// A core that has the objects, as if they had been read at this time.
    #[must_use]
    pub fn into_core(self, settings: Settings, now_ms: u64) -> Core {
        let mut core = Core::new(settings);
        self.into_events().for_each(|event| core.handle(event, now_ms));
        core
    }

    /// The events, in the order in which a core has to take them.
    pub(crate) fn into_events(self) -> impl Iterator<Item = Event> {
        let served = self.of_kind(nrt::KIND).next().is_some();
        let events = self.events.into_values().filter_map(|object| object.event);
        std::iter::once(Event::ReportsServed(served)).chain(events)
    }
}

fn typed<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(object).map_err(|error| error.to_string())
}

fn plain<K: DeserializeOwned>(object: Value, event: fn(&K) -> Event) -> Result<Event, String> {
    typed(object).map(|object| event(&object))
}

fn stored<K: DeserializeOwned>(object: Value, change: fn(&K) -> Change) -> Result<Event, String> {
    typed(object).map(|object| Event::Volumes(change(&object)))
}

fn devices<K: DeserializeOwned>(object: Value, change: fn(&K) -> DeviceChange) -> Result<Event, String> {
    typed(object).map(|object| Event::Devices(change(&object)))
}

fn selecting<K: Selecting>(object: Value) -> Result<Event, String> {
    typed(object).map(|object: WireSelecting<K>| Event::Selecting(object.into_view()))
}

fn pod(object: Value) -> Result<Event, String> {
    typed(object).map(|pod: WirePod| Event::Pod(Warnings::default().view(pod)))
}

fn report(object: Value) -> Result<Event, String> {
    let report = NodeResourceTopology::from_json(object).map_err(|error| error.to_string())?;
    let name = report.metadata.name.as_deref().unwrap_or_default().into();
    let (topology, _) = api::convert::node_topology(&report).map_err(|error| error.to_string())?;
    Ok(Event::Report(name, Arc::new(topology)))
}

/// A pod as its object says it.
///
/// # Errors
/// The field that cannot be read.
pub(crate) fn pod_of(object: Value) -> Result<Pod, String> {
    typed(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_of_several_states_counts() {
        let pod = |version: &str, node: &str| {
            json!({ "kind": "Pod", "metadata": { "namespace": "a", "name": "p", "uid": "u", "resourceVersion": version },
                "spec": { "nodeName": node, "containers": [{ "name": "c" }] } })
        };
        for order in [[("9", ""), ("10", "n")], [("10", "n"), ("9", "")]] {
            let mut snapshot = Snapshot::keeping_waiting();
            order.into_iter().for_each(|(version, node)| snapshot.take(pod(version, node)));
            assert_eq!(snapshot.pod_views().map(|pod| pod.node.as_deref()).collect::<Vec<_>>(), [Some("n")]);
            assert_eq!(snapshot.waiting, BTreeMap::new());
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_of_the_newest_state() {
        let node = |version: &str, capacity: Value| {
            json!({ "kind": "Node", "metadata": { "name": "n", "resourceVersion": version },
                "status": { "allocatable": capacity } })
        };
        let (wrong, right) = (json!("16"), json!({ "cpu": "16" }));
        let mut snapshot = Snapshot::default();
        snapshot.take(node("1", wrong.clone()));
        let told = snapshot.warnings().collect::<Vec<_>>().join("; ");
        assert!(told.starts_with("Node n: status.allocatable") && !snapshot.has_nodes(), "{told}");
        snapshot.take(node("2", right));
        snapshot.take(node("1", wrong));
        assert!(snapshot.warnings().next().is_none() && snapshot.has_nodes());
    }
}
