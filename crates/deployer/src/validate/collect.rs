//! Collecting [`Evidence`] from Kubernetes objects.
//!
//! In: objects in any order, from any source. Out: the same evidence for the same objects. Never: an error; an
//! unreadable object becomes a note. Only the needed fields are kept.

use std::collections::{BTreeMap, BTreeSet};

use ::scheduler::config::default_settings;
use ::scheduler::shell::snapshot::Snapshot;
use api::nrt::{self, NodeResourceTopology};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as wire;
use k8s_openapi::apimachinery::pkg::api::resource as wire_quantity;
use objects::managed_fields::entries;
use serde_json::Value;
use topology::quantity::Quantity;
use topology::resource::ResourceName;
use view::cluster::ClusterView;

use super::evidence::{
    Area, ConfigSource, Definition, Event, Evidence, Lease, Node, Report, Settings, Workload, text,
};
use crate::install::ready::condition;
use crate::platform::Platform;

mod openshift;
mod pod;
pub mod role;
mod scheduler;

pub(super) use openshift::selects;
pub use openshift::{NODE_POOL, Pools};

/// Collects evidence.
#[derive(Debug, Default)]
pub struct Collector {
    /// The evidence so far.
    pub(super) evidence: Evidence,
    /// Settings of kubelets by node; they can arrive before the node.
    kubelets: BTreeMap<String, Result<Settings, String>>,
    pools: Pools,
    schedulers: scheduler::Schedulers,
    /// The objects for a scheduler's core, if its view of them is wanted.
    snapshot: Option<Snapshot>,
    /// Areas with evidence, perhaps an empty list.
    pub(super) seen: BTreeSet<Area>,
    /// The newest time in the objects.
    newest: Option<Timestamp>,
    /// Notes about objects that were left out.
    pub(super) notes: Vec<String>,
    /// Resource versions of the objects; the newer of two states counts.
    versions: BTreeMap<(String, String, String), u64>,
}

/// The kinds that are read, each with its area.
const KINDS: [(&str, Area); 11] = [
    ("Node", Area::Nodes),
    ("Pod", Area::Pods),
    ("Event", Area::Events),
    ("DaemonSet", Area::Workloads),
    ("Deployment", Area::Workloads),
    ("Lease", Area::Leases),
    ("CustomResourceDefinition", Area::Definition),
    (nrt::KIND, Area::Reports),
    ("ConfigMap", Area::Workloads),
    ("KubeletConfig", Area::KubeletConfig),
    ("MachineConfigPool", Area::KubeletConfig),
];
/// Reasons of rejections by kubelets; only events with these reasons are kept.
pub use topology::kubelet::rejection::REASONS as REJECTIONS;
/// The kinds that a scheduler needs to know what is free in zones.
const COUNTS_IN_ZONES: [&str; 3] = ["Node", "Pod", nrt::KIND];
/// The greatest number of notes.
const MAX_NOTES: usize = 50;

impl Collector {
    /// Collects what a scheduler makes of the objects as well ([`Evidence::cluster`]).
    pub(super) fn with_cluster() -> Self {
        Self { snapshot: Some(Snapshot::default()), ..Self::default() }
    }

    /// Records that all objects of a kind were listed, even if there are none.
    pub(super) fn saw_kind(&mut self, kind: &str) {
        let area = KINDS.iter().find(|(known, _)| *known == kind).map(|(_, area)| *area);
        // These kinds alone do not complete their area.
        if !matches!(kind, "ConfigMap" | "KubeletConfig" | "MachineConfigPool") {
            self.seen.extend(area);
        }
    }

    /// Reads one object, which must have its `kind`.
    pub(super) fn object(&mut self, object: Value) {
        let kind = text(&object, "/kind").to_owned();
        if !self.is_newer(&object, &kind) {
            return;
        }
        self.saw_kind(&kind);
        self.note_time(&object);
        if let Some(snapshot) = self.snapshot.as_mut().filter(|_| COUNTS_IN_ZONES.contains(&&*kind)) {
            snapshot.take(object.clone());
        }
        let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
        let title = format!("{kind} {namespace}{}{name}", if namespace.is_empty() { "" } else { "/" });
        let result = match kind.as_str() {
            "Node" => self.node(object),
            "Pod" => self.pod(object),
            "DaemonSet" | "Deployment" => self.workload(&object),
            nrt::KIND => self.report(object),
            "ConfigMap" => {
                self.schedulers.config_map(&object);
                self.pools.config_map(&object)
            }
            kind => {
                self.untyped(kind, &object);
                Ok(())
            }
        };
        if let Err(reason) = result {
            self.note(format!("{title}: {reason}"));
        }
    }

    /// Reads an object of a kind whose fields are read one by one.
    fn untyped(&mut self, kind: &str, object: &Value) {
        match kind {
            "Event" => self.event(object),
            "Lease" => self.lease(object),
            "CustomResourceDefinition" => self.definition(object),
            "KubeletConfig" | "MachineConfigPool" | "ClusterVersion" => {
                self.evidence.platform.get_or_insert(Platform::OpenShift);
                if kind != "ClusterVersion" {
                    self.pools.object(object);
                }
            }
            "Infrastructure" if text(object, "/status/controlPlaneTopology") == "External" => {
                self.evidence.platform = Some(Platform::HyperShift);
            }
            _ => {}
        }
    }

    /// Reads a kubelet's answer on `/configz`, or the reason of its absence.
    pub(super) fn configz(&mut self, node: &str, answer: Result<&str, String>) {
        let settings = answer.and_then(|text| {
            let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
            let document = value.get("kubeletconfig").filter(|document| document.is_object());
            let document = document.ok_or("has no object \"kubeletconfig\"")?;
            Ok(Settings::new(ConfigSource::Kubelet, document, "configz"))
        });
        self.kubelets.insert(node.to_owned(), settings);
    }

    /// Records the API server's `gitVersion`.
    pub(super) fn server_version(&mut self, version: &str) {
        self.evidence.server_version = Some(version.chars().take(100).collect());
        self.seen.insert(Area::Version);
    }

    /// Records why an area has no evidence.
    pub(super) fn gap(&mut self, area: Area, reason: impl Into<String>) {
        self.evidence.gaps.entry(area).or_insert_with(|| reason.into());
    }

    /// Adds a note.
    pub(super) fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note.chars().take(300).collect());
        }
    }

    /// ConfigMaps (namespace, name) that schedulers read their configuration from.
    pub(super) fn config_maps(&self) -> BTreeSet<(String, String)> {
        self.schedulers.config_maps()
    }

    /// The evidence, as of `now`; `None`: as of the newest time in the objects.
    pub(super) fn finish(mut self, now: Option<Timestamp>) -> Evidence {
        self.evidence.now = now.or(self.newest);
        self.evidence.cluster = self.cluster();
        self.schedulers.settle(&mut self.evidence.workloads, &self.evidence.pods);
        self.evidence.workloads.sort_by_key(Workload::title);
        self.evidence.events.sort();
        self.evidence.events.dedup();
        for (name, node) in &mut self.evidence.nodes {
            node.kubelet = match self.kubelets.remove(name) {
                Some(Ok(settings)) => Some(Ok(settings)),
                known => self.pools.settings(&node.labels).map(Ok).or(known),
            };
        }
        self.evidence
    }

    /// What a scheduler makes of the objects; `None` without pods.
    fn cluster(&mut self) -> Option<ClusterView> {
        let snapshot = self.snapshot.take().filter(|_| !self.evidence.gaps.contains_key(&Area::Pods))?;
        let now_ms = self.evidence.now.map_or(0, |now| u64::try_from(now.as_millisecond()).unwrap_or(0));
        Some(ClusterView::with_all_waiting(&snapshot.into_core(default_settings(0), now_ms), now_ms))
    }

    /// Whether this state of an object is newer than the one already read.
    fn is_newer(&mut self, object: &Value, kind: &str) -> bool {
        let meta = |field: &str| text(object, &format!("/metadata/{field}")).to_owned();
        let version = meta("resourceVersion").parse().unwrap_or(0);
        let key = (kind.to_owned(), meta("namespace"), meta("name"));
        let known = self.versions.get(&key).copied();
        let newer = known.is_none_or(|known| known < version);
        if newer {
            self.versions.insert(key, version);
        }
        newer
    }

    fn note_time(&mut self, object: &Value) {
        let managed = entries(object).iter().map(|entry| text(entry, "/time"));
        let single =
            ["/metadata/creationTimestamp", "/spec/renewTime", "/lastTimestamp", "/status/startTime"];
        let times = single.iter().map(|path| text(object, path)).chain(managed);
        let newest = times.filter_map(|time| time.parse().ok()).max();
        self.newest = self.newest.max(newest);
    }

    fn node(&mut self, object: Value) -> Result<(), String> {
        let node: wire::Node = typed(object)?;
        let name = node.metadata.name.unwrap_or_default();
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let amount = |(name, amount): (String, wire_quantity::Quantity)| {
            let (name, amount) = (ResourceName::new(&name).ok()?, Quantity::parse(amount.0.trim()).ok()?);
            Some((name, api::convert::amount_available(name, amount)))
        };
        let amounts = |list: Option<BTreeMap<_, _>>| list.into_iter().flatten().filter_map(amount).collect();
        let node = Node {
            name: name.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            labels: node.metadata.labels.unwrap_or_default(),
            ready,
            kubelet_version: status.node_info.map(|info| info.kubelet_version).unwrap_or_default(),
            capacity: amounts(status.capacity),
            allocatable: amounts(status.allocatable),
            kubelet: None,
        };
        self.evidence.nodes.insert(name, node);
        Ok(())
    }

    fn pod(&mut self, object: Value) -> Result<(), String> {
        let (pod, scheduler) = pod::read(typed(object)?);
        if let Some(scheduler) = scheduler {
            self.schedulers.pod(scheduler);
        }
        self.evidence.pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
        Ok(())
    }

    fn event(&mut self, object: &Value) {
        let reason = text(object, "/reason");
        if !REJECTIONS.contains(&reason) || text(object, "/involvedObject/kind") != "Pod" {
            return;
        }
        let about = |field: &str| text(object, &format!("/involvedObject/{field}")).to_owned();
        self.evidence.events.push(Event {
            namespace: about("namespace"),
            name: about("name"),
            uid: about("uid"),
            reason: reason.to_owned(),
        });
    }

    fn workload(&mut self, object: &Value) -> Result<(), String> {
        let kind = if text(object, "/kind") == "DaemonSet" { "DaemonSet" } else { "Deployment" };
        let spec = object.pointer("/spec/template/spec").cloned().unwrap_or_default();
        let spec: wire::PodSpec = typed(spec)?;
        let Some(role) = role::of(&spec) else { return Ok(()) };
        let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
        let (desired, ready) = match kind {
            "DaemonSet" => ("/status/desiredNumberScheduled", "/status/numberReady"),
            _ => ("/spec/replicas", "/status/readyReplicas"),
        };
        let desired = number(desired).unwrap_or(i64::from(kind == "Deployment"));
        let [namespace, name] =
            ["/metadata/namespace", "/metadata/name"].map(|path| text(object, path).to_owned());
        let workload = Workload {
            kind,
            namespace,
            name,
            role,
            desired,
            ready: number(ready).unwrap_or(0),
            scheduler: None,
        };
        self.schedulers.workload(&workload, &spec);
        self.evidence.workloads.push(workload);
        Ok(())
    }

    fn lease(&mut self, object: &Value) {
        let key = (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned());
        // The leases of nodes are not needed.
        if key.0 == "kube-node-lease" {
            return;
        }
        let lease = Lease {
            holder: text(object, "/spec/holderIdentity").to_owned(),
            renewed: text(object, "/spec/renewTime").parse().ok(),
            duration_s: object.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(15),
        };
        self.evidence.leases.insert(key, lease);
    }

    fn definition(&mut self, object: &Value) {
        if text(object, "/spec/group") != nrt::GROUP || text(object, "/spec/names/kind") != nrt::KIND {
            return;
        }
        let versions = object["spec"]["versions"].as_array().into_iter().flatten();
        let versions = versions
            .map(|v| (text(v, "/name").to_owned(), v["served"] == true, v["storage"] == true))
            .collect();
        let established = condition(object, "Established", "True").is_some();
        self.evidence.definition = Some(Definition { versions, established });
    }

    fn report(&mut self, object: Value) -> Result<(), String> {
        let writers = writers(&object);
        let mut object = NodeResourceTopology::from_json(object).map_err(|error| error.to_string())?;
        object.metadata.managed_fields = None;
        let read = api::convert::node_topology(&object);
        let read = read.map(|(topology, warnings)| {
            (topology, warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        let reported = Report { read: read.map_err(|error| error.to_string()), object, writers };
        let name = reported.object.metadata.name.clone().unwrap_or_default();
        self.evidence.reports.insert(name, reported);
        Ok(())
    }
}

/// The field managers of the zones, attributes or policies of a report.
fn writers(object: &Value) -> BTreeSet<String> {
    let fields = ["f:zones", "f:attributes", "f:topologyPolicies"];
    let writes = |entry: &&Value| fields.iter().any(|field| entry["fieldsV1"].get(field).is_some());
    entries(object).iter().filter(writes).map(|entry| text(entry, "/manager").to_owned()).collect()
}

fn typed<T: serde::de::DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}
