//! One kubelet of a simulation: it admits, holds and releases pods on one machine, and reports what is free.
//!
//! In: pods in the order in which the kubelet sees them. Out: admissions, rejections and reports. Never: time, or a
//! decision of its own: admission is `topology::kubelet`, id by id, and the check of totals is the one of
//! kube-scheduler, which the kubelet runs as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler::node::{Node, NodeView};
use scheduler::pod::Spec;
use topology::admit::{self, Grant, Placement};
use topology::fingerprint::{Fingerprint, Method, PodHash};
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::memory_manager::ZoneMemory;
use topology::kubelet::pod::{Pod, PodUid};
use topology::kubelet::report::{KubeletReport, ReportedPod};
use topology::kubelet::resize;
use topology::kubelet::{self as model, Allocation, NodeState};
use topology::placement::holdings::HashKey;
use topology::request::{ContainerKind, PodRequest};
use topology::resource::{ResourceKind, ResourceName};
use topology::zone::{Free, NodeTopology};

use crate::machine::{Machine, cpu_milli};
use crate::simulation;
use crate::workload::Workload;

use topology::kubelet::alignment::HeldResources;

pub use topology::kubelet::alignment::Alignment;

/// Why the kubelet rejects a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// `TopologyAffinityError`.
    Topology,
    /// `SMTAlignmentError`.
    Smt,
    /// `UnexpectedAdmissionError` and the like: a manager has too little.
    Unexpected,
    /// `OutOfcpu` and the like: the node as a whole has too little.
    OutOf(ResourceName),
}

impl From<model::rejection::Rejection> for Rejection {
    fn from(rejection: model::rejection::Rejection) -> Self {
        use model::rejection::Rejection as Of;
        match rejection {
            Of::TopologyAffinity | Of::PodTopologyAffinity { .. } => Self::Topology,
            Of::NotWholeCores { .. } | Of::TooFewCores { .. } => Self::Smt,
            Of::Cpus(_) | Of::Memory(_) | Of::Devices(_) | Of::EmptyPodSharedPool(_) => Self::Unexpected,
            Of::OutOf { resource, .. } => Self::OutOf(resource),
        }
    }
}

/// The kubelet of one machine.
#[derive(Debug)]
pub struct Kubelet {
    view: NodeView,
    topology: Arc<NodeTopology>,
    model: Arc<model::Kubelet>,
    state: NodeState,
    /// Amounts that the resource managers can still allocate.
    free: Free,
    /// Amounts that podresources shows as free: more than `free` while finished init containers keep resources.
    visible: Free,
    totals: Node,
    pods: BTreeMap<usize, AdmittedPod>,
    residents: Vec<FingerprintedPod>,
    /// Number of changes, for the exporter.
    changes: u64,
}

/// The kubelet's answer to a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resized {
    /// The pod has what it desires.
    Done,
    /// It waits until another pod goes.
    Deferred,
    /// It keeps what it has for good.
    Infeasible,
}

/// A pod that the kubelet has admitted.
#[derive(Clone, Debug)]
struct AdmittedPod {
    spec: Arc<Spec>,
    request: Arc<PodRequest>,
    uid: PodUid,
    placement: Placement,
    signed: FingerprintedPod,
}

/// The part of a pod that fingerprints cover.
#[derive(Clone, Copy, Debug)]
struct FingerprintedPod {
    hash: PodHash,
    /// Whether podresources shows exclusive resources of the pod.
    exclusive: bool,
}

impl Clone for Kubelet {
    fn clone(&self) -> Self {
        Self {
            view: self.view.clone(),
            topology: Arc::clone(&self.topology),
            model: Arc::clone(&self.model),
            state: self.state.clone(),
            free: self.free.clone(),
            visible: self.visible.clone(),
            totals: self.totals.totals(),
            pods: self.pods.clone(),
            residents: self.residents.clone(),
            changes: self.changes,
        }
    }
}

impl Kubelet {
    /// A kubelet that already runs the machine's residents.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let free = machine.topology.available();
        let rules = machine.topology.rules;
        let mut totals = Node::default();
        machine.residents.iter().for_each(|pod| totals.add(&pod.spec.needs));
        let signed = machine.residents.iter().map(|pod| FingerprintedPod {
            hash: pod.hash,
            exclusive: admit::is_exclusive(rules, &free, &pod.spec.needs),
        });
        Self {
            view: machine.view.clone(),
            topology: Arc::clone(&machine.topology),
            model: Arc::clone(&machine.start.kubelet),
            state: machine.start.state(),
            visible: free.clone(),
            residents: signed.collect(),
            free,
            totals,
            pods: BTreeMap::new(),
            changes: 0,
        }
    }

    /// Admits a pod: the resource managers first, then the totals, as the kubelet does. Cost: that of
    /// [`topology::kubelet::admit`], and zones x resources.
    ///
    /// # Errors
    /// The [`Rejection`].
    pub fn admit(
        &mut self,
        pod: usize,
        spec: &Arc<Spec>,
        request: &Arc<PodRequest>,
        hash: PodHash,
    ) -> Result<Alignment, Rejection> {
        let uid: PodUid = pod.to_string().into();
        let asked = Pod::new(self.model.profile(), Arc::clone(&uid), request);
        let before = self.state.memory.counts.zones.clone();
        let allocation = model::admit(&self.model, &mut self.state, &asked, &Lowest);
        let allocation = allocation.inspect_err(|_| self.state.sweep())?;
        if let Some(resource) = self.totals.shortages(&self.view, &spec.needs).next() {
            self.state.remove(&uid);
            self.state.sweep();
            return Err(Rejection::OutOf(resource));
        }
        let alignment = Alignment::of(&self.model, &self.state, &allocation);
        let placement = self.placement(&asked, &allocation, &before);
        placement.charge(&mut self.free);
        adjust(&mut self.visible, &placement, -1);
        self.count_memory();
        self.totals.add(&spec.needs);
        let exclusive = admit::is_exclusive(self.topology.rules, &self.free, &spec.needs);
        let signed = FingerprintedPod { hash, exclusive };
        let (spec, request) = (Arc::clone(spec), Arc::clone(request));
        let twice = self.pods.insert(pod, AdmittedPod { spec, request, uid, placement, signed });
        debug_assert!(twice.is_none(), "pod {pod} is admitted twice");
        debug_assert!(!self.free.has_debt(), "more is handed out than there is");
        self.changes += 1;
        Ok(alignment)
    }

    /// Resizes a pod that does not wait for an earlier resize; an unknown one keeps what it has. Cost: as
    /// [`Kubelet::admit`].
    pub fn resize(&mut self, pod: usize, spec: &Arc<Spec>, request: &Arc<PodRequest>) -> Resized {
        let Some(held) = self.pods.get_mut(&pod) else { return Resized::Infeasible };
        let profile = self.model.profile();
        let [before, after] =
            [&held.request, request].map(|request| Pod::new(profile, Arc::clone(&held.uid), request));
        self.totals.remove(&held.spec.needs);
        let is_short = self.totals.shortages(&self.view, &spec.needs).next().is_some();
        let mut state = self.state.clone();
        let resized = match resize::resize(&self.model, &mut state, &before, &after, &Lowest) {
            Err(pending) if !pending.is_deferred() => Resized::Infeasible,
            Ok(()) if !is_short => Resized::Done,
            Ok(()) | Err(_) => Resized::Deferred,
        };
        if resized == Resized::Done {
            self.state = state;
            (held.spec, held.request) = (Arc::clone(spec), Arc::clone(request));
        }
        self.totals.add(&held.spec.needs);
        resized
    }

    /// The amounts of an allocation by zone: what the pod holds, and what podresources shows of it, which leaves out
    /// init containers that have ended.
    fn placement(&self, pod: &Pod, allocation: &Allocation, before: &[ZoneMemory]) -> Placement {
        let mut placement = Placement::default();
        // Both are in the order of admission.
        let shown = allocation.containers.iter().zip(&pod.containers);
        let shown = shown.filter(|(_, asked)| asked.kind != ContainerKind::Init).map(|(held, _)| held);
        let all = HeldResources::of(&self.model, &self.state, &allocation.containers);
        let shown = HeldResources::of(&self.model, &self.state, shown);
        for (row, zone) in self.free.layout().zones().iter().enumerate() {
            for (column, name) in self.free.layout().resources().iter().enumerate() {
                let amount = |held: &HeldResources<'_>| match name.kind() {
                    ResourceKind::Memory => self.memory_taken(zone.0, *name, before),
                    _ if *name == ResourceName::CPU => {
                        amount(held.cpus_in(zone.0)).saturating_mul(ResourceName::CPU.base_units())
                    }
                    _ => amount(held.devices_in(zone.0, *name)),
                };
                let (held, visible) = (amount(&all), amount(&shown));
                if let (Ok(cell), true) = (u32::try_from(self.free.index(row, column)), held > 0) {
                    placement.grants.push(Grant { cell, held, visible });
                }
            }
        }
        placement
    }

    /// Of memory that spans zones, no pod gives back to a zone what it took there: the kubelet fills the lowest first.
    fn count_memory(&mut self) {
        let counts = &self.state.memory.counts;
        for (row, zone) in self.free.layout().zones().to_vec().into_iter().enumerate() {
            for table in
                counts.zones.iter().filter(|memory| memory.id == zone.0).flat_map(|memory| &memory.tables)
            {
                let Some(column) = self.free.layout().column(table.name) else { continue };
                for amounts in [&mut self.free, &mut self.visible] {
                    let cell = amounts.index(row, column);
                    let free = i64::try_from(table.free).unwrap_or(i64::MAX);
                    amounts.add(cell, free - amounts.cells()[cell]);
                }
            }
        }
    }

    /// Bytes that a zone has less than before.
    fn memory_taken(&self, zone: u32, name: ResourceName, before: &[ZoneMemory]) -> i64 {
        let free = |zones: &[ZoneMemory]| {
            let zone = zones.iter().find(|memory| memory.id == zone);
            let table = zone.and_then(|zone| zone.tables.iter().find(|table| table.name == name));
            table.map_or(0, |table| i64::try_from(table.free).unwrap_or(i64::MAX))
        };
        free(before).saturating_sub(free(&self.state.memory.counts.zones))
    }

    /// Releases a pod's resources. Unknown pods change nothing.
    pub fn release(&mut self, pod: usize) {
        let Some(held) = self.pods.remove(&pod) else { return };
        self.state.remove(&held.uid);
        self.state.sweep();
        held.placement.release(&mut self.free);
        adjust(&mut self.visible, &held.placement, 1);
        self.count_memory();
        self.totals.remove(&held.spec.needs);
        self.changes += 1;
    }

    /// The report that an exporter would make now. `method` selects the pods that the fingerprint covers; `None`: no
    /// fingerprint. With `ids` it is tholepin's. It says nothing by ids where there were pods at the start, since
    /// what each of them holds is not known.
    #[must_use]
    pub fn report(&self, method: Option<Method>, ids: Option<HashKey>) -> NodeTopology {
        let mut report = NodeTopology::clone(&self.topology);
        let ids = ids.filter(|_| self.residents.is_empty());
        report.kubelet = ids.map(|key| {
            let names: Vec<_> =
                self.pods.keys().map(|pod| (simulation::uid_of(*pod), Workload::pod_name(*pod))).collect();
            let pods = self.pods.values().zip(&names).map(|(held, (uid, name))| ReportedPod {
                key: &held.uid,
                uid,
                namespace: simulation::NAMESPACE,
                name,
                containers: &held.spec.needs.pod.containers,
            });
            Box::new(KubeletReport::of(&self.model, &self.state, key, pods))
        });
        for zone in &mut report.zones {
            for resource in &mut zone.resources {
                resource.available = self.visible.amount(zone.id, resource.name);
            }
        }
        report.fingerprint = method.map(|method| {
            let all = self.residents.iter().chain(self.pods.values().map(|held| &held.signed));
            let counted = all.filter(|pod| method == Method::All || pod.exclusive);
            (Fingerprint::of(&mut counted.map(|pod| pod.hash).collect::<Vec<_>>()), method)
        });
        report
    }

    /// Number of changes so far; a report is new when the number has grown.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Amounts that the resource managers can still allocate, by zone.
    #[must_use]
    pub fn free(&self) -> &Free {
        &self.free
    }

    /// Pods of the workload on this kubelet, with their placements; residents are not among them.
    pub fn placements(&self) -> impl Iterator<Item = (usize, &Placement)> + '_ {
        self.pods.iter().map(|(pod, held)| (*pod, &held.placement))
    }

    /// CPU requests of all its pods, in thousandths.
    #[must_use]
    pub fn used_milli(&self) -> i64 {
        cpu_milli(&self.totals.used)
    }

    /// Allocatable CPU of the node, in thousandths.
    #[must_use]
    pub fn allocatable_milli(&self) -> i64 {
        self.view.allocatable(ResourceName::CPU)
    }

    /// Free CPU, in thousandths, that is out of reach of a pod with `milli` because it is scattered over zones: all of
    /// it while the zones together have enough and no single zone has; else 0.
    #[must_use]
    pub fn stranded_milli(&self, milli: i64) -> i64 {
        if !self.topology.rules.policy.enforces() {
            return 0;
        }
        let Some(column) = self.free.layout().column(ResourceName::CPU) else { return 0 };
        let zones = (0..self.free.layout().zones().len()).map(|row| self.free.get(row, column).max(0));
        let (sum, most) =
            zones.fold((0_i64, 0), |(sum, most), free| (sum.saturating_add(free), most.max(free)));
        if sum >= milli && most < milli { sum } else { 0 }
    }
}

fn amount(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn adjust(visible: &mut Free, placement: &Placement, sign: i64) {
    placement.grants.iter().for_each(|grant| visible.add(grant.cell as usize, sign * grant.visible));
}

#[cfg(test)]
mod tests {
    use topology::policy::Policy;

    use super::*;
    use crate::machine::Shape;
    use crate::workload::{Arrival, ContainerResources, Resize, Workload};

    fn kubelet(shape: &str) -> Kubelet {
        let shape: Shape = shape.parse().unwrap();
        Kubelet::new(&shape.machines(1).unwrap()[0])
    }

    fn admit(kubelet: &mut Kubelet, pod: usize, arrival: Arrival) -> Result<Alignment, String> {
        let workload = Workload { max_pending: None, arrivals: vec![arrival] };
        let name = Workload::pod_name(pod);
        kubelet
            .admit(pod, &workload.specs()[0], &workload.requests()[0], PodHash::of("sim", &name))
            .map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn rejects_what_fits_the_node_but_no_zone() {
        let mut kubelet = kubelet("2x4");
        admit(&mut kubelet, 0, Arrival::new(0, 2, 0)).unwrap();
        admit(&mut kubelet, 1, Arrival::new(0, 2, 0)).unwrap();
        assert_eq!(kubelet.used_milli(), 4_000);
        assert_eq!((kubelet.stranded_milli(3_000), kubelet.stranded_milli(2_000)), (3_000, 0));
        let error = admit(&mut kubelet, 2, Arrival::new(0, 3, 0)).unwrap_err();
        assert_eq!(error, "Topology");
        kubelet.release(0);
        kubelet.release(0);
        admit(&mut kubelet, 2, Arrival::new(0, 3, 0)).unwrap();
        assert_eq!((kubelet.used_milli(), kubelet.changes()), (5_000, 4));
    }

    #[test]
    fn best_effort_takes_several_zones_if_none_has_enough() {
        let mut shape: Shape = "2x4".parse().unwrap();
        (shape.rules.policy, shape.reserved_cpus) = (Policy::BestEffort, 0);
        let mut kubelet = Kubelet::new(&shape.machines(1).unwrap()[0]);
        assert_eq!(admit(&mut kubelet, 0, Arrival::new(0, 3, 0)), Ok(Alignment::Aligned));
        assert_eq!(admit(&mut kubelet, 1, Arrival::new(0, 3, 0)), Ok(Alignment::Aligned));
        assert_eq!(admit(&mut kubelet, 2, Arrival::new(0, 2, 0)), Ok(Alignment::Misaligned));
        assert_eq!(kubelet.free().cells()[0], 0);
        kubelet.release(2);
        assert_eq!(kubelet.free().cells()[0], 1_000);
    }

    /// A kubelet that keeps no CPU for itself.
    fn with(shape: &str, change: impl FnOnce(&mut Shape)) -> Kubelet {
        let mut shape: Shape = shape.parse().unwrap();
        shape.reserved_cpus = 0;
        change(&mut shape);
        Kubelet::new(&shape.machines(1).unwrap()[0])
    }

    #[test]
    fn policies_admit_as_the_kubelet_does() {
        use Alignment::{Aligned, Misaligned};
        // Memory for each CPU in MiB; CPUs of pods in their order, and what becomes of each, on two zones of four.
        for (policy, memory, pods) in [
            (
                Policy::SingleNumaNode,
                64,
                [(3, Ok(Aligned)), (6, Err("Topology")), (3, Ok(Aligned)), (2, Err("Topology"))],
            ),
            // Its CPUs need two zones, its memory one.
            (
                Policy::Restricted,
                64,
                [(6, Err("Topology")), (3, Ok(Aligned)), (3, Ok(Aligned)), (2, Err("Topology"))],
            ),
            // Both need two, and memory of both belongs to one group then.
            (
                Policy::Restricted,
                3_600,
                [(6, Ok(Aligned)), (6, Err("Topology")), (2, Err("Topology")), (1, Err("Topology"))],
            ),
            (
                Policy::BestEffort,
                64,
                [(3, Ok(Aligned)), (3, Ok(Aligned)), (2, Ok(Misaligned)), (1, Err("Unexpected"))],
            ),
            (
                Policy::None,
                64,
                [(3, Ok(Aligned)), (3, Ok(Misaligned)), (2, Ok(Misaligned)), (1, Err("Unexpected"))],
            ),
        ] {
            let mut kubelet = with("2x4", |shape| shape.rules.policy = policy);
            for (at, (cpus, expected)) in pods.into_iter().enumerate() {
                let pod = Arrival { memory_mib: u64::from(cpus) * memory, ..Arrival::new(0, cpus, 0) };
                let found = admit(&mut kubelet, at, pod);
                assert_eq!(found, expected.map_err(str::to_owned), "{policy:?}: pod {at} of {cpus}");
            }
        }
    }

    #[test]
    fn whole_cores_are_kept_whole() {
        let mut kubelet = with("2x8", |shape| {
            shape.threads_per_core = 2;
            shape.options.cpus = [topology::policy::CpuOption::FullPcpusOnly].into_iter().collect();
        });
        let error = admit(&mut kubelet, 0, Arrival::new(0, 3, 0)).unwrap_err();
        assert_eq!(error, "Smt");
        admit(&mut kubelet, 1, Arrival::new(0, 4, 0)).unwrap();
        assert_eq!(kubelet.free().cells()[0], 4_000);
    }

    /// Three pods of two CPUs, the first of them Guaranteed, on seven that pods may have.
    #[test]
    fn resizes_as_the_kubelet_does() {
        let mut kubelet = kubelet("2x4");
        let shared = Arrival { memory_mib: 0, ..Arrival::new(0, 2, 0) };
        let pods = [Arrival::new(0, 2, 0), shared.clone(), shared];
        for (at, pod) in pods.iter().enumerate() {
            admit(&mut kubelet, at, pod.clone()).unwrap();
        }
        let mut resize = |at: usize, cpus| {
            let resize = Some(Resize { after_ms: 0, cpus });
            let pod = pods.get(at).unwrap_or(&pods[0]);
            let (request, spec) = Arrival { resize, ..pod.clone() }.resized().unwrap();
            (kubelet.resize(at, &spec, &request), kubelet.used_milli())
        };
        assert_eq!(resize(0, 1), (Resized::Infeasible, 6_000));
        assert_eq!(resize(1, 4), (Resized::Deferred, 6_000));
        assert_eq!(resize(2, 1), (Resized::Done, 5_000));
        assert_eq!(resize(1, 4), (Resized::Done, 7_000));
        assert_eq!(resize(7, 3), (Resized::Infeasible, 7_000));
    }

    #[test]
    fn rejects_too_many_pods() {
        let mut shape: Shape = "2x8".parse().unwrap();
        shape.max_pods = 1;
        let mut kubelet = Kubelet::new(&shape.machines(1).unwrap()[0]);
        admit(&mut kubelet, 0, Arrival::new(0, 1, 0)).unwrap();
        let error = admit(&mut kubelet, 1, Arrival::new(0, 1, 0)).unwrap_err();
        assert!(error.contains("OutOf") && error.contains("pods"), "{error}");
    }

    #[test]
    fn reports_hide_what_init_containers_keep() {
        let mut kubelet = kubelet("1x8");
        let mut arrival = Arrival::new(0, 1, 0);
        arrival.init.push(ContainerResources { cpus: 3, memory_mib: 16, devices: BTreeMap::new() });
        admit(&mut kubelet, 0, arrival).unwrap();
        let report = kubelet.report(Some(Method::WithExclusiveResources), None);
        assert_eq!(report.zones[0].resources[0].available, 6_000);
        let hash = PodHash::of("sim", "pod-00000");
        assert_eq!(report.fingerprint.unwrap().0, Fingerprint::of(&mut [hash]));
        assert_eq!(kubelet.free().cells()[0], 4_000);
    }
}
