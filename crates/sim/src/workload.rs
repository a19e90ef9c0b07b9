//! Workloads: pods that arrive and end, as plain data.
//!
//! In: a file, or the numbers of [`OpenArrivals`]. Out: a [`Workload`]: for each pod its creation time, requests,
//! lifetime and end. Never: a dependence on anything else, so that one workload can drive the simulation and a real
//! cluster.
//!
//! The driver of a workload creates pod `i` at `at_ms`, but not before pod `i - 1`, nor while [`Workload::max_pending`]
//! pods are pending: created, and neither Running nor lost. `life_ms` after the pod is seen Running, the driver ends
//! the pod as [`Arrival::end`] says. A pod rejected by its kubelet is lost and not replaced.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use runtime::yaml::{self, Mode};
use scheduler::affinity::NodeAffinity;
use scheduler::plugins::inter_pod_affinity::PodAffinity;
use scheduler::plugins::node_declared_features::Features;
use scheduler::pod::{AlignmentIntent, Spec};
use serde::{Deserialize, Serialize};
use topology::quantity::{Format, Quantity};
use topology::request::{ContainerKind, ContainerRequest, PodRequest};
use topology::resource::{ResourceKind, ResourceName};

mod open;

pub use open::{OpenArrivals, SIZES};

/// Resources of one container. Requests equal limits, so a pod whose containers have CPUs and memory is Guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContainerResources {
    /// CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u64,
    /// Devices by resource name, such as `example.com/gpu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
}

impl ContainerResources {
    /// So many CPUs, and little memory.
    #[must_use]
    pub fn of_cpus(cpus: u32) -> Self {
        Self { cpus, memory_mib: DEFAULT_MEMORY_MIB, devices: BTreeMap::new() }
    }
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// A user deletes the pod, and the kubelet terminates it gracefully.
    #[default]
    Deleted,
    /// A user deletes the pod by force: the object is gone before the kubelet knows.
    Forced,
    /// The pod finishes by itself, unannounced; the object stays.
    Finished,
}

/// A resize in place: other CPUs for the first container of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// When it is asked for, in milliseconds from Running on.
    pub after_ms: u64,
    /// The CPUs that are desired then.
    pub cpus: u32,
}

/// The arrival of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Creation time, in milliseconds after the start.
    pub at_ms: u64,
    /// Lifetime from Running on, in milliseconds; `None`: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_ms: Option<u64>,
    /// How the pod ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub end: End,
    /// CPUs of its first container.
    pub cpus: u32,
    /// Memory of its first container, in MiB.
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u64,
    /// Devices of its first container, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
    /// Further containers beside the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<ContainerResources>,
    /// Init containers, which run to completion one after the other before the rest starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init: Vec<ContainerResources>,
    /// A resize in place. The kubelet refuses it for exclusive CPUs, and lets it wait while the node has too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// A pod of a real cluster, in place of the resources above.
    #[serde(skip)]
    pub pod: Option<Arc<NamedPod>>,
}

/// A pod of a real cluster that is on no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `spec.priority`.
    pub priority: i32,
    /// Its constraints.
    pub spec: Arc<Spec>,
    /// What it asks of its kubelet.
    pub request: Arc<PodRequest>,
}

/// The pods of a run, in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Most pods pending at a time; later arrivals are held back. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pending: Option<usize>,
    /// The pods, ascending by `at_ms`.
    pub arrivals: Vec<Arrival>,
}

/// A workload that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The file cannot be read, or does not hold a workload.
    #[error(transparent)]
    File(#[from] yaml::Error),
    /// A number is out of range.
    #[error("{field} is {value}: allowed are {allowed}")]
    Range {
        /// The field, such as `arrivals[3].cpus`.
        field: String,
        /// The value given.
        value: String,
        /// The values allowed.
        allowed: String,
    },
    /// A device name that is not a device.
    #[error("{field}: {name:?} is not a device: allowed are names with a domain, such as example.com/gpu")]
    Device {
        /// The field.
        field: String,
        /// The name.
        name: String,
    },
    /// A problem in a file that could be read.
    #[error("{file}: {problem}")]
    InFile {
        /// The file.
        file: String,
        /// The problem.
        problem: Box<WorkloadError>,
    },
}

/// Memory of a container without `memory_mib`. Small beside any zone, so that CPUs decide.
pub const DEFAULT_MEMORY_MIB: u64 = 256;
/// More pods than any simulation needs.
pub const MAX_ARRIVALS: usize = 1_000_000;
/// Ten years.
pub const MAX_TIME_MS: u64 = 315_360_000_000;
/// More than any machine has; also the limit for devices.
const MAX_CPUS: u32 = 65_536;
/// 1 PiB.
const MAX_MEMORY_MIB: u64 = 1 << 30;
/// More than the API server lets through in practice.
const MAX_CONTAINERS: usize = 256;
/// Enough for [`MAX_ARRIVALS`] of ordinary size.
const MAX_FILE_BYTES: u64 = 512 << 20;

impl Workload {
    /// Reads a workload from a YAML or JSON file; arrivals may stand in any order.
    ///
    /// # Errors
    /// When the file cannot be read or holds no workload (the field is named), or [`Workload::check`] fails.
    pub fn read(file: &Path) -> Result<Self, WorkloadError> {
        Self::sorted(yaml::read_file(file, Mode::Strict, MAX_FILE_BYTES)?).map_err(|problem| {
            WorkloadError::InFile { file: file.display().to_string(), problem: Box::new(problem) }
        })
    }

    /// Reads a workload from text; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Workload::read`].
    pub fn parse(name: &str, text: &str) -> Result<Self, WorkloadError> {
        Self::sorted(yaml::read_str(name, text, Mode::Strict)?)
            .map_err(|problem| WorkloadError::InFile { file: name.to_owned(), problem: Box::new(problem) })
    }

    fn sorted(mut workload: Self) -> Result<Self, WorkloadError> {
        workload.check()?;
        workload.arrivals.sort_by_key(|arrival| arrival.at_ms);
        Ok(workload)
    }

    /// Checks that all numbers are in range, all devices are names of devices, and each resize keeps the QoS class of
    /// its pod, as the API server demands.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), WorkloadError> {
        within("max_pending", self.max_pending.map_or(1, |n| n as u64), 1, MAX_ARRIVALS as u64)?;
        within("the number of arrivals", self.arrivals.len() as u64, 0, MAX_ARRIVALS as u64)?;
        for (i, arrival) in self.arrivals.iter().enumerate() {
            let at = |field: &str| format!("arrivals[{i}].{field}");
            within(&at("at_ms"), arrival.at_ms, 0, MAX_TIME_MS)?;
            within(&at("life_ms"), arrival.life_ms.unwrap_or(0), 0, MAX_TIME_MS)?;
            let containers = 1 + arrival.beside.len() + arrival.init.len();
            within(&at("beside and init"), containers as u64, 1, MAX_CONTAINERS as u64)?;
            check_container(&format!("arrivals[{i}]"), &arrival.first())?;
            if let Some(resize) = arrival.resize {
                within(&at("resize.after_ms"), resize.after_ms, 0, MAX_TIME_MS)?;
                within(&at("resize.cpus"), u64::from(resize.cpus), 0, u64::from(MAX_CPUS))?;
                let class = arrival.request().needs().qos;
                if arrival.resized().is_some_and(|(request, _)| request.needs().qos != class) {
                    let allowed = format!("those that leave the pod {class:?}");
                    let (field, value) = (at("resize.cpus"), resize.cpus.to_string());
                    return Err(WorkloadError::Range { field, value, allowed });
                }
            }
            for (j, ask) in arrival.beside.iter().enumerate() {
                check_container(&at(&format!("beside[{j}]")), ask)?;
            }
            for (j, ask) in arrival.init.iter().enumerate() {
                check_container(&at(&format!("init[{j}]")), ask)?;
            }
        }
        Ok(())
    }

    /// The scheduling constraints of each pod, in the order of arrivals; equal pods share one value. Invalid device
    /// names (see [`Workload::check`]) are left out.
    #[must_use]
    pub fn specs(&self) -> Vec<Arc<Spec>> {
        self.shared(|pod| &pod.spec, Arrival::spec)
    }

    /// What each pod asks of its kubelet, in the order of arrivals; equal pods share one value.
    #[must_use]
    pub fn requests(&self) -> Vec<Arc<PodRequest>> {
        self.shared(|pod| &pod.request, Arrival::request)
    }

    /// A value of each pod: that of a pod of a real cluster, or one made for all equal arrivals.
    fn shared<T>(&self, of: fn(&NamedPod) -> &Arc<T>, make: fn(&Arrival) -> T) -> Vec<Arc<T>> {
        let mut known: BTreeMap<_, Arc<T>> = BTreeMap::new();
        let shared = self.arrivals.iter().map(|arrival| {
            if let Some(pod) = &arrival.pod {
                return Arc::clone(of(pod));
            }
            let key = (arrival.first(), &arrival.beside, &arrival.init, arrival.end == End::Finished);
            Arc::clone(known.entry(key).or_insert_with(|| Arc::new(make(arrival))))
        });
        shared.collect()
    }

    /// The name of the pod with this number.
    #[must_use]
    pub fn pod_name(number: usize) -> String {
        format!("pod-{number:05}")
    }
}

impl Arrival {
    /// A pod of one container.
    #[must_use]
    pub fn new(at_ms: u64, cpus: u32, life_ms: u64) -> Self {
        Self {
            at_ms,
            life_ms: Some(life_ms),
            end: End::Deleted,
            cpus,
            memory_mib: DEFAULT_MEMORY_MIB,
            devices: BTreeMap::new(),
            beside: Vec::new(),
            init: Vec::new(),
            resize: None,
            pod: None,
        }
    }

    /// The arrival of a pod of a real cluster at the start; it stays for ever.
    #[must_use]
    pub fn of(pod: NamedPod) -> Self {
        Self { life_ms: None, pod: Some(Arc::new(pod)), ..Self::new(0, 0, 0) }
    }

    /// The pod as its resize leaves it: what it asks for, and its constraints. `None`: it is not resized.
    #[must_use]
    pub fn resized(&self) -> Option<(Arc<PodRequest>, Arc<Spec>)> {
        let cpus = self.resize.filter(|_| self.pod.is_none())?.cpus;
        let after = Self { cpus, ..self.clone() };
        Some((Arc::new(after.request()), Arc::new(after.spec())))
    }

    /// The resources of the first container.
    #[must_use]
    pub fn first(&self) -> ContainerResources {
        ContainerResources { cpus: self.cpus, memory_mib: self.memory_mib, devices: self.devices.clone() }
    }

    fn request(&self) -> PodRequest {
        let init = self.init.iter().map(|ask| (ContainerKind::Init, ask.clone()));
        let beside = self.beside.iter().map(|ask| (ContainerKind::App, ask.clone()));
        let all = init.chain([(ContainerKind::App, self.first())]).chain(beside);
        let containers = all.enumerate().map(|(at, (kind, ask))| container(at, kind, &ask)).collect();
        PodRequest { containers, ..PodRequest::default() }
    }

    fn spec(&self) -> Spec {
        Spec {
            needs: Arc::new(self.request().needs()),
            affinity: NodeAffinity::default(),
            host_ports: Vec::new(),
            volumes: Vec::new(),
            claims: Vec::new(),
            features: Features::default(),
            spread: Vec::new(),
            pod_affinity: PodAffinity::default(),
            tolerations: Vec::new(),
            gates: Vec::new(),
            unsupported: Vec::new(),
            finishes: self.end == End::Finished,
            preempts: true,
            intent: AlignmentIntent::Unstated,
            in_group: false,
        }
    }
}

fn container(at: usize, kind: ContainerKind, ask: &ContainerResources) -> ContainerRequest {
    let bytes = i64::try_from(ask.memory_mib.saturating_mul(1 << 20)).unwrap_or(i64::MAX);
    let devices = ask.devices.iter().filter_map(|(name, count)| {
        Some((ResourceName::new(name).ok()?, Quantity::from_i64(i64::from(*count), Format::DecimalSI)))
    });
    let mut list: Vec<_> = [
        (ResourceName::CPU, Quantity::from_i64(i64::from(ask.cpus), Format::DecimalSI)),
        (ResourceName::MEMORY, Quantity::from_i64(bytes, Format::BinarySI)),
    ]
    .into_iter()
    .chain(devices)
    .filter(|(_, amount)| !amount.is_zero())
    .collect();
    list.sort_unstable_by_key(|(name, _)| *name);
    ContainerRequest { name: format!("c{at}").into(), kind, requests: list.clone(), limits: list }
}

fn check_container(path: &str, ask: &ContainerResources) -> Result<(), WorkloadError> {
    within(&format!("{path}.cpus"), u64::from(ask.cpus), 0, u64::from(MAX_CPUS))?;
    within(&format!("{path}.memory_mib"), ask.memory_mib, 0, MAX_MEMORY_MIB)?;
    for (name, count) in &ask.devices {
        let field = format!("{path}.devices");
        match ResourceName::new(name) {
            Ok(known) if known.kind() == ResourceKind::Device => {}
            _ => return Err(WorkloadError::Device { field, name: name.chars().take(64).collect() }),
        }
        within(&format!("{field}[{name}]"), u64::from(*count), 0, u64::from(MAX_CPUS))?;
    }
    Ok(())
}

fn within(field: &str, value: u64, low: u64, high: u64) -> Result<(), WorkloadError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let allowed = format!("{low} to {high}");
    Err(WorkloadError::Range { field: field.to_owned(), value: value.to_string(), allowed })
}

fn default_memory_mib() -> u64 {
    DEFAULT_MEMORY_MIB
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
