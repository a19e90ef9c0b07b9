//! Pods that come and go, as plain data.
//!
//! In: a file, or the few numbers of [`Open`] arrivals. Out: a [`Plan`]: when each pod is created, what it asks for, how long it
//! runs and how it ends. Never: a dependence on anything else, so the same plan can drive the simulation and a real cluster.
//!
//! Whoever carries out a plan creates pod `i` at `at_ms`, but not before pod `i - 1`, nor while [`Plan::max_pending`] pods are
//! pending (created, and neither Running nor lost). `life_ms` after the pod is seen Running it is ended as [`Arrival::end`]
//! says. A pod its kubelet rejects is lost; nobody replaces it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use runtime::yaml::{self, Mode};
use scheduler::affinity::NodeAffinity;
use scheduler::pod::Spec;
use serde::{Deserialize, Serialize};
use topology::quantity::{Format, Quantity};
use topology::request::{ContainerKind, ContainerRequest, PodRequest};
use topology::resource::{ResourceKind, ResourceName};

mod open;

pub use open::{Open, SIZES};

/// What one container asks for. Requests are limits, so a pod of containers with CPUs and memory is Guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u64,
    /// Devices by resource name, such as `example.com/gpu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Somebody deletes it, and the kubelet ends it gracefully.
    #[default]
    Deleted,
    /// Somebody deletes it by force: the object is gone before the kubelet hears of it.
    Forced,
    /// It ends by itself, unannounced; the object stays.
    Finished,
}

/// A pod to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// When it is created, milliseconds after the start.
    pub at_ms: u64,
    /// How long it runs, milliseconds; without it, for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_ms: Option<u64>,
    /// How it ends.
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
    pub beside: Vec<Ask>,
    /// Init containers, which run to completion one after the other before the rest starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init: Vec<Ask>,
}

/// Pods to come, by time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// At most this many pods are pending at a time; later arrivals are held back. Without it, they come when they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pending: Option<usize>,
    /// The pods, ascending by `at_ms`.
    pub arrivals: Vec<Arrival>,
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read, or is not a plan.
    #[error(transparent)]
    File(#[from] yaml::Error),
    /// A number is out of range.
    #[error("{field} is {value}: allowed are {allowed}")]
    Range {
        /// The field, such as `arrivals[3].cpus`.
        field: String,
        /// What it says.
        value: String,
        /// What it may say.
        allowed: String,
    },
    /// A device that cannot be one.
    #[error("{field}: {name:?} is not a device: allowed are names with a domain, such as example.com/gpu")]
    Device {
        /// The field.
        field: String,
        /// The name.
        name: String,
    },
    /// A problem of a file that could be read.
    #[error("{file}: {problem}")]
    In {
        /// The file.
        file: String,
        /// The problem.
        problem: Box<PlanError>,
    },
}

/// What an ask has when it does not say how much memory it wants. Small beside any zone, so CPUs decide.
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

impl Plan {
    /// Reads a plan from a YAML or JSON file; arrivals may stand in any order.
    ///
    /// # Errors
    /// When the file cannot be read or is no plan (the field is named), or [`Plan::check`] finds something.
    pub fn read(file: &Path) -> Result<Self, PlanError> {
        Self::sorted(yaml::read_file(file, Mode::Strict, MAX_FILE_BYTES)?)
            .map_err(|problem| PlanError::In { file: file.display().to_string(), problem: Box::new(problem) })
    }

    /// Reads a plan from text; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn parse(name: &str, text: &str) -> Result<Self, PlanError> {
        Self::sorted(yaml::read_str(name, text, Mode::Strict)?)
            .map_err(|problem| PlanError::In { file: name.to_owned(), problem: Box::new(problem) })
    }

    fn sorted(mut plan: Self) -> Result<Self, PlanError> {
        plan.check()?;
        plan.arrivals.sort_by_key(|arrival| arrival.at_ms);
        Ok(plan)
    }

    /// Whether all numbers are in range.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), PlanError> {
        within("max_pending", self.max_pending.map_or(1, |n| n as u64), 1, MAX_ARRIVALS as u64)?;
        within("the number of arrivals", self.arrivals.len() as u64, 0, MAX_ARRIVALS as u64)?;
        for (i, arrival) in self.arrivals.iter().enumerate() {
            let at = |field: &str| format!("arrivals[{i}].{field}");
            within(&at("at_ms"), arrival.at_ms, 0, MAX_TIME_MS)?;
            within(&at("life_ms"), arrival.life_ms.unwrap_or(0), 0, MAX_TIME_MS)?;
            let containers = 1 + arrival.beside.len() + arrival.init.len();
            within(&at("beside and init"), containers as u64, 1, MAX_CONTAINERS as u64)?;
            check_ask(&format!("arrivals[{i}]"), &arrival.first())?;
            for (j, ask) in arrival.beside.iter().enumerate() {
                check_ask(&at(&format!("beside[{j}]")), ask)?;
            }
            for (j, ask) in arrival.init.iter().enumerate() {
                check_ask(&at(&format!("init[{j}]")), ask)?;
            }
        }
        Ok(())
    }

    /// What each pod asks of a node, in the order of the arrivals; pods that ask for the same share it. Devices that are not
    /// valid names ([`Plan::check`]) are left out.
    #[must_use]
    pub fn specs(&self) -> Vec<Arc<Spec>> {
        let mut known: BTreeMap<_, Arc<Spec>> = BTreeMap::new();
        let shared = self.arrivals.iter().map(|arrival| {
            let key = (arrival.first(), &arrival.beside, &arrival.init, arrival.end == End::Finished);
            Arc::clone(known.entry(key).or_insert_with(|| Arc::new(arrival.spec())))
        });
        shared.collect()
    }

    /// The name of a pod.
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
        }
    }

    /// What its first container asks for.
    #[must_use]
    pub fn first(&self) -> Ask {
        Ask { cpus: self.cpus, memory_mib: self.memory_mib, devices: self.devices.clone() }
    }

    fn spec(&self) -> Spec {
        let init = self.init.iter().map(|ask| (ContainerKind::Init, ask.clone()));
        let beside = self.beside.iter().map(|ask| (ContainerKind::App, ask.clone()));
        let all = init.chain([(ContainerKind::App, self.first())]).chain(beside);
        let containers = all.enumerate().map(|(at, (kind, ask))| container(at, kind, &ask)).collect();
        let request = PodRequest { containers, ..PodRequest::default() };
        Spec {
            needs: Arc::new(request.needs()),
            affinity: NodeAffinity::default(),
            tolerations: Vec::new(),
            gates: Vec::new(),
            unsupported: Vec::new(),
            finishes: self.end == End::Finished,
        }
    }
}

fn container(at: usize, kind: ContainerKind, ask: &Ask) -> ContainerRequest {
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

fn check_ask(path: &str, ask: &Ask) -> Result<(), PlanError> {
    within(&format!("{path}.cpus"), u64::from(ask.cpus), 0, u64::from(MAX_CPUS))?;
    within(&format!("{path}.memory_mib"), ask.memory_mib, 0, MAX_MEMORY_MIB)?;
    for (name, count) in &ask.devices {
        let field = format!("{path}.devices");
        match ResourceName::new(name) {
            Ok(known) if known.kind() == ResourceKind::Device => {}
            _ => return Err(PlanError::Device { field, name: name.chars().take(64).collect() }),
        }
        within(&format!("{field}[{name}]"), u64::from(*count), 0, u64::from(MAX_CPUS))?;
    }
    Ok(())
}

fn within(field: &str, value: u64, low: u64, high: u64) -> Result<(), PlanError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let allowed = format!("{low} to {high}");
    Err(PlanError::Range { field: field.to_owned(), value: value.to_string(), allowed })
}

fn default_memory_mib() -> u64 {
    DEFAULT_MEMORY_MIB
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
