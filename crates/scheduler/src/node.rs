//! A node as the scheduler keeps it, with the requests of its pods.
//!
//! In: `Node` objects, and pods as they are placed and released. Out: whether a pod fits the node's totals. Never: a
//! score, which the plugins give, or zones; those are in the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as wire;
use topology::quantity::Quantity;
use topology::request::{Need, PodNeeds};
use topology::resource::ResourceName;
use topology::zone::MAX_COUNTED;

use crate::affinity::{Labels, Taint};
use crate::ledger::{Ledger, PodId};
use crate::over_reserve::OverReserve;
use crate::plugins::image_locality::{self, ImageName, NodeImage};
use crate::plugins::node_declared_features::Features;
use crate::plugins::node_ports::UsedPorts;
use crate::pod::Spec;
use crate::volumes::reference::UsedVolumes;

/// The fields of a Node object that the scheduler uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.creationTimestamp`, milliseconds since the epoch.
    pub created_ms: u64,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `status.allocatable` in base units, rounded down, in name order.
    pub allocatable: Vec<Need>,
    /// `status.declaredFeatures`.
    pub features: Features,
    /// `status.images` by name. The core takes it out: no list of images makes a node a changed one.
    pub images: Vec<NodeImage>,
}

/// A node: its object, its pods' totals and its ledger.
#[derive(Debug, Default)]
pub struct Node {
    /// The object; `None` while only pods or a report of the node are known.
    pub view: Option<NodeView>,
    /// The node's name.
    pub name: Arc<str>,
    /// Sum of the pods' requests, in name order.
    pub used: Vec<Need>,
    /// CPU (thousandths) and memory (bytes) requests, with kube-scheduler's defaults for containers that request
    /// nothing.
    pub used_nonzero: (i64, i64),
    /// Number of pods.
    pub pods: i64,
    /// Their host ports.
    pub ports: UsedPorts,
    /// Their volumes.
    pub volumes: UsedVolumes,
    /// The names of the images there, in order.
    pub images: Box<[ImageName]>,
    /// The object with the report about it.
    pub report_object: ReportObject,
    /// The free amounts of the zones.
    pub ledger: Ledger,
    /// The free amounts by upstream's accounting, where a profile counts that way.
    pub over_reserve: OverReserve,
    /// Pods that the kubelet may hold, the least important first.
    pub residents: BTreeSet<(i32, PodId)>,
}

/// A NodeResourceTopology object, as last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportObject {
    /// There is none.
    #[default]
    Absent,
    /// It cannot be read.
    Unreadable,
    /// The ledger has read it.
    Readable,
}

/// CPU of a container without a request in scores, in thousandths (kube-scheduler 1.36 `util.DefaultMilliCPURequest`).
const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory of a container without a request in scores, in bytes (`util.DefaultMemoryRequest`).
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

impl NodeView {
    /// Reads a node. Amounts that are not quantities count as 0.
    #[must_use]
    pub fn read(node: &wire::Node) -> Self {
        let meta = &node.metadata;
        let text = |value: Option<&String>| -> Arc<str> { value.map_or("", String::as_str).into() };
        let spec = node.spec.as_ref();
        let mut allocatable: Vec<Need> = node
            .status
            .iter()
            .flat_map(|status| status.allocatable.iter().flatten())
            .filter_map(|(name, quantity)| {
                let name = ResourceName::new(name).ok()?;
                let quantity = Quantity::parse(quantity.0.trim()).ok();
                let amount = quantity
                    .map_or(0, |q| if name == ResourceName::CPU { q.floor_milli() } else { q.floor_value() });
                Some(Need { name, amount: amount.max(0) })
            })
            .collect();
        allocatable.sort_unstable_by_key(|need| need.name);
        let created = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
        Self {
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            created_ms: u64::try_from(created).unwrap_or(0),
            labels: meta.labels.clone().unwrap_or_default(),
            taints: spec.iter().flat_map(|s| s.taints.iter().flatten()).filter_map(Taint::read).collect(),
            unschedulable: spec.is_some_and(|s| s.unschedulable == Some(true)),
            allocatable,
            features: Features::declared(node.status.as_ref()),
            images: image_locality::of_node(node.status.as_ref()),
        }
    }

    /// The allocatable amount of a resource; 0 if the node lacks it.
    #[must_use]
    pub fn allocatable(&self, name: ResourceName) -> i64 {
        amount(&self.allocatable, name)
    }
}

impl Node {
    /// CPU (thousandths) and memory (bytes) that no pod has asked for.
    #[must_use]
    pub fn left(&self, view: &NodeView) -> (i64, i64) {
        (self.left_of(view, ResourceName::CPU), self.left_of(view, ResourceName::MEMORY))
    }

    /// What no pod has asked for of a resource, in base units.
    #[must_use]
    pub fn left_of(&self, view: &NodeView, name: ResourceName) -> i64 {
        view.allocatable(name).saturating_sub(amount(&self.used, name))
    }

    /// A copy of the totals, ports and volumes, without the rest.
    #[must_use]
    pub fn totals(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            used: self.used.clone(),
            used_nonzero: self.used_nonzero,
            pods: self.pods,
            ports: self.ports.clone(),
            volumes: self.volumes.clone(),
            ..Self::default()
        }
    }

    /// Counts that a pod with this spec takes its ports and volumes.
    pub fn occupy(&mut self, spec: &Spec) {
        self.ports.add(&spec.host_ports);
        self.volumes.add(&spec.volumes);
    }

    /// Takes [`Self::occupy`] back.
    pub fn vacate(&mut self, spec: &Spec) {
        self.ports.remove(&spec.host_ports);
        self.volumes.remove(&spec.volumes);
    }

    /// Adds a pod's needs to the totals.
    pub fn add(&mut self, needs: &PodNeeds) {
        self.shift(needs, 1);
    }

    /// Takes a pod's needs off the totals.
    pub fn remove(&mut self, needs: &PodNeeds) {
        self.shift(needs, -1);
    }

    /// The API server lets a pod ask for more than any node has, and binds it where its `nodeName` says. So no amount
    /// counts for more than [`MAX_COUNTED`], and sums wrap: what a pod adds it takes away again, whatever others ask
    /// for.
    fn shift(&mut self, needs: &PodNeeds, sign: i64) {
        let shifted = |sum: i64, amount: i64| sum.wrapping_add(sign * amount.min(MAX_COUNTED));
        for need in &needs.totals {
            match self.used.binary_search_by_key(&need.name, |n| n.name) {
                Ok(at) => self.used[at].amount = shifted(self.used[at].amount, need.amount),
                Err(at) => self.used.insert(at, Need { name: need.name, amount: shifted(0, need.amount) }),
            }
        }
        let (cpu, memory) = nonzero(needs);
        self.used_nonzero = (shifted(self.used_nonzero.0, cpu), shifted(self.used_nonzero.1, memory));
        self.pods += sign;
    }

    /// The resources that are short on the node, in kube-scheduler's order: pods, then the pod's resources.
    pub fn shortages<'a>(
        &'a self,
        view: &'a NodeView,
        needs: &'a PodNeeds,
    ) -> impl Iterator<Item = ResourceName> + 'a {
        let pods = (self.pods + 1 > view.allocatable(ResourceName::PODS)).then_some(ResourceName::PODS);
        let short = |need: &&Need| {
            need.amount > view.allocatable(need.name).saturating_sub(amount(&self.used, need.name))
        };
        pods.into_iter().chain(needs.totals.iter().filter(short).map(|need| need.name))
    }
}

/// The amount of a resource in a list; 0 if it is not there. Lists are short, and equality is that of addresses.
pub(crate) fn amount(list: &[Need], name: ResourceName) -> i64 {
    list.iter().find(|need| need.name == name).map_or(0, |need| need.amount)
}

/// CPU (thousandths) and memory (bytes) of a pod in scores: the larger of init phase and running phase, in which
/// containers that request none count the defaults, plus overhead (1.36 `PodRequests` with
/// `NonMissingContainerRequests`). Requests of the pod as a whole replace those of its containers.
pub(crate) fn nonzero(needs: &PodNeeds) -> (i64, i64) {
    let of_containers = nonzero_of_containers(needs);
    let of = |name, of_containers| {
        let total = amount(&needs.totals, name);
        if needs.pod.pod_level && total > 0 { total } else { of_containers }
    };
    (of(ResourceName::CPU, of_containers.0), of(ResourceName::MEMORY, of_containers.1))
}

/// As [`nonzero`], without requests of the pod as a whole.
pub(crate) fn nonzero_of_containers(needs: &PodNeeds) -> (i64, i64) {
    let of = |name, default: i64| {
        let (mut running, mut peak) = (0_i64, 0_i64);
        for container in &needs.containers {
            let own = Some(amount(&container.needs, name)).filter(|own| *own > 0).unwrap_or(default);
            if container.kind.keeps_running() {
                running = running.saturating_add(own);
            } else {
                peak = peak.max(running.saturating_add(own));
            }
        }
        peak.max(running).saturating_add(amount(&needs.overhead, name))
    };
    (of(ResourceName::CPU, DEFAULT_MILLI_CPU), of(ResourceName::MEMORY, DEFAULT_MEMORY))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn requests_in_scores_are_kube_schedulers() {
        const MI: i64 = 1 << 20;
        let container = |cpu: &str, memory: &str| {
            let amounts =
                [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
            let requests: std::collections::BTreeMap<_, _> = amounts.collect();
            json!({"name": "c", "resources": {"requests": requests}})
        };
        let sidecar = |mut container: Value| {
            container["restartPolicy"] = "Always".into();
            container
        };
        for (spec, wanted) in [
            (json!({"containers": [container("", "")]}), (100, 200 * MI)),
            (json!({"containers": [container("1", ""), container("", "1Mi")]}), (1_100, 201 * MI)),
            // The init phase needs more CPU and less memory.
            (
                json!({"containers": [container("1", "300Mi")], "initContainers": [container("2", "")]}),
                (2_000, 300 * MI),
            ),
            // A sidecar runs beside the init container after it: 1 + 2 CPUs, 200 + 200 MiB.
            (
                json!({
                    "containers": [container("1", "1Mi")],
                    "initContainers": [sidecar(container("1", "")), container("2", "")],
                }),
                (3_000, 400 * MI),
            ),
            (
                json!({"containers": [container("1", "1Mi")], "overhead": {"cpu": "250m", "memory": "2Mi"}}),
                (1_250, 3 * MI),
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            let needs = api::convert::pod_request(&pod).unwrap().needs();
            assert_eq!(nonzero(&needs), wanted, "{spec}");
        }
    }
}
