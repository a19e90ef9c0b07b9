//! The machines of a simulation: nodes with NUMA zones and the settings of a kubelet.
//!
//! In: a shape such as `2x16+gpu`, or objects of a real cluster ([`dump`]). Out: [`Machine`]s, each with the model of
//! its kubelet ([`topology::kubelet::start`]). Never: what happens to them.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use scheduler::node::NodeView;
use scheduler::pod::PodView;
use topology::kubelet::start::{KubeletStart, PolicyOptions};
use topology::policy::{Manager, Policy, Rules, Scope};
use topology::request::Need;
use topology::resource::ResourceName;
use topology::zone::{MAX_ZONES, NodeTopology, Zone, ZoneId, ZoneResource};

pub mod dump;

/// A node of the simulation.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The Node object.
    pub view: NodeView,
    /// The zones and the kubelet's settings. `available` is what [`Machine::residents`] leave.
    pub topology: Arc<NodeTopology>,
    /// Pods that run from the start and stay.
    pub residents: Vec<PodView>,
    /// The kubelet, and what its managers have handed out to residents. Machines of one shape share it.
    pub start: Arc<KubeletStart>,
}

/// One zone of a [`Shape`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneShape {
    /// Zone id; ids need not be consecutive.
    pub id: u32,
    /// CPUs, reserved ones included.
    pub cpus: u32,
    /// Memory in MiB, reserved included.
    pub memory_mib: u64,
    /// Devices by resource name.
    pub devices: BTreeMap<ResourceName, u32>,
}

/// The shape of generated machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The zones, in any order.
    pub zones: Vec<ZoneShape>,
    /// CPUs reserved for the system, taken from the first zones.
    pub reserved_cpus: u32,
    /// Memory reserved in each zone, in MiB.
    pub reserved_mib_per_zone: u64,
    /// The kubelet's `maxPods`.
    pub max_pods: u32,
    /// The kubelet's managers and policies.
    pub rules: Rules,
    /// Options of those policies.
    pub options: PolicyOptions,
    /// Threads of each core. A zone's last core may have fewer.
    pub threads_per_core: u8,
}

/// A shape that is not understood, or out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The text does not have the form of a shape.
    #[error(
        "{0:?} is not a machine: expected ZONESxCPUS, optionally with +NAME or +NAME COUNT for devices in each zone, \
         such as 2x16, 8x16 or 2x64+gpu4"
    )]
    Form(String),
    /// A number is out of range.
    #[error("{what} is {value}: allowed are {low} to {high}")]
    Range {
        /// The noun, such as `the number of zones`.
        what: &'static str,
        /// The value given.
        value: u64,
        /// The smallest value allowed.
        low: u64,
        /// The largest value allowed.
        high: u64,
    },
    /// There is no such machine, or its kubelet does not start.
    #[error("{0}")]
    Kubelet(String),
}

/// Memory per CPU, in MiB; far more than the pods of the benchmark request.
pub const MEMORY_MIB_PER_CPU: u64 = 4096;
/// Domain of the devices in shapes: `+gpu` is `example.com/gpu`.
const DEVICE_DOMAIN: &str = "example.com";
/// Devices in each zone when the shape gives no number.
const DEFAULT_DEVICES: u32 = 4;
/// Most CPUs or devices of a zone, more than any real one has.
const MAX_CPUS: u64 = 4096;
/// Most machines of a simulation; bounds the cost of a typing error.
pub const MAX_MACHINES: usize = 20_000;
/// Most zones of all machines together; a zone takes about 1 KB.
const MAX_ALL_ZONES: u64 = 200_000;
/// Most threads of a core; no processor of today has more.
const MAX_THREADS: u64 = 8;
/// Most kinds of devices in a shape.
const MAX_KINDS: usize = 16;

impl Shape {
    /// Zones `0..zones` with `cpus_per_zone` CPUs each, and the settings of the benchmark's kubelets: single-numa-node
    /// in container scope, static managers, one reserved CPU, 256 MiB reserved in each zone.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn even(zones: u32, cpus_per_zone: u32) -> Result<Self, ShapeError> {
        check_zones(zones)?;
        within("the number of CPUs in a zone", u64::from(cpus_per_zone), 1, MAX_CPUS)?;
        let zone = |id| ZoneShape {
            id,
            cpus: cpus_per_zone,
            memory_mib: u64::from(cpus_per_zone) * MEMORY_MIB_PER_CPU,
            devices: BTreeMap::new(),
        };
        Ok(Self {
            zones: (0..zones).map(zone).collect(),
            reserved_cpus: 1,
            reserved_mib_per_zone: 256,
            max_pods: 250,
            rules: Rules {
                policy: Policy::SingleNumaNode,
                scope: Scope::Container,
                cpu_manager: Manager::Static,
                memory_manager: Manager::Static,
            },
            options: PolicyOptions::default(),
            threads_per_core: 1,
        })
    }

    /// Makes `count` machines of this shape, named `node-0` and so on.
    ///
    /// # Errors
    /// When `count` is 0 or above [`MAX_MACHINES`], no CPU is left unreserved, or the kubelet refuses to start.
    pub fn machines(&self, count: usize) -> Result<Vec<Machine>, ShapeError> {
        within("the number of machines", count as u64, 1, MAX_MACHINES as u64)?;
        let zones = count as u64 * self.zones.len() as u64;
        within("the number of zones of all machines", zones, 1, MAX_ALL_ZONES)?;
        let cpus: u64 = self.zones.iter().map(|zone| u64::from(zone.cpus)).sum();
        within("the number of reserved CPUs", u64::from(self.reserved_cpus), 0, cpus.saturating_sub(1))?;
        let topology = Arc::new(self.topology());
        let totals = self.totals(&topology);
        within("the number of threads of a core", u64::from(self.threads_per_core), 1, MAX_THREADS)?;
        let start = KubeletStart::new(&topology, self.options).map_err(ShapeError::Kubelet)?;
        let start = Arc::new(start);
        let machine = |number: usize| Machine {
            view: NodeView {
                name: format!("node-{number}").into(),
                uid: format!("node-{number}").into(),
                allocatable: totals.clone(),
                ..NodeView::default()
            },
            topology: Arc::clone(&topology),
            residents: Vec::new(),
            start: Arc::clone(&start),
        };
        Ok((0..count).map(machine).collect())
    }

    fn topology(&self) -> NodeTopology {
        let mut to_reserve = self.reserved_cpus;
        let ids: Vec<u32> = self.zones.iter().map(|zone| zone.id).collect();
        let mut zones: Vec<Zone> = Vec::with_capacity(self.zones.len());
        for shape in &self.zones {
            let reserved = to_reserve.min(shape.cpus);
            to_reserve -= reserved;
            let mib = |mib: u64| i64::try_from(mib.saturating_mul(1 << 20)).unwrap_or(i64::MAX / 128);
            let devices = shape
                .devices
                .iter()
                .map(|(name, count)| resource(*name, i64::from(*count), i64::from(*count)));
            let milli = |cpus: u32| i64::from(cpus) * ResourceName::CPU.base_units();
            let free_mib = shape.memory_mib.saturating_sub(self.reserved_mib_per_zone);
            let mut resources: Vec<_> = [
                resource(ResourceName::CPU, milli(shape.cpus), milli(shape.cpus - reserved)),
                resource(ResourceName::MEMORY, mib(shape.memory_mib), mib(free_mib)),
            ]
            .into_iter()
            .chain(devices)
            .collect();
            resources.sort_unstable_by_key(|resource| resource.name);
            let distance = |id: &u32| (ZoneId(*id), if *id == shape.id { 10 } else { 20 });
            let distances = ids.iter().map(distance).collect();
            zones.push(Zone { id: ZoneId(shape.id), resources, distances });
        }
        zones.sort_unstable_by_key(|zone| zone.id);
        NodeTopology {
            rules: self.rules,
            zones,
            threads_per_core: Some(self.threads_per_core),
            ..NodeTopology::default()
        }
    }

    fn totals(&self, topology: &NodeTopology) -> Vec<Need> {
        let mut sums: BTreeMap<ResourceName, i64> = BTreeMap::new();
        for resource in topology.zones.iter().flat_map(|zone| &zone.resources) {
            let sum = sums.entry(resource.name).or_default();
            *sum = sum.saturating_add(resource.allocatable);
        }
        sums.insert(ResourceName::PODS, i64::from(self.max_pods));
        sums.into_iter().map(|(name, amount)| Need { name, amount }).collect()
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    /// Reads `ZONESxCPUS`, with devices as `+NAME` (4 in each zone) or `+NAMECOUNT`.
    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let form = || ShapeError::Form(text.chars().take(64).collect());
        let mut parts = text.split('+');
        let (zones, cpus) = parts.next().and_then(|size| size.split_once('x')).ok_or_else(form)?;
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| form()),
            false => Err(form()),
        };
        let mut shape = Self::even(number(zones)?, number(cpus)?)?;
        for part in parts {
            let digits = part.bytes().rev().take_while(u8::is_ascii_digit).count();
            let (name, count) = part.split_at(part.len() - digits);
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') {
                return Err(form());
            }
            let count = if count.is_empty() { DEFAULT_DEVICES } else { number(count)? };
            within("the number of devices in a zone", u64::from(count), 1, MAX_CPUS)?;
            let device = ResourceName::new(&format!("{DEVICE_DOMAIN}/{name}")).map_err(|_| form())?;
            shape.zones.iter_mut().for_each(|zone| {
                zone.devices.insert(device, count);
            });
            let kinds = shape.zones.first().map_or(0, |zone| zone.devices.len());
            within("the number of kinds of devices", kinds as u64, 0, MAX_KINDS as u64)?;
        }
        Ok(shape)
    }
}

/// Whole CPUs that the residents leave on all schedulable machines together.
#[must_use]
pub fn open_cpus(machines: &[Machine]) -> u32 {
    let milli: i64 = machines
        .iter()
        .filter(|machine| !machine.view.unschedulable)
        .map(|machine| {
            let held = machine
                .residents
                .iter()
                .map(|pod| cpu_milli(&pod.spec.needs.totals))
                .fold(0, i64::saturating_add);
            machine.view.allocatable(ResourceName::CPU).saturating_sub(held).max(0)
        })
        .fold(0, i64::saturating_add);
    u32::try_from(milli / ResourceName::CPU.base_units()).unwrap_or(u32::MAX)
}

/// The CPU amount of a list, in thousandths.
pub(crate) fn cpu_milli(list: &[Need]) -> i64 {
    list.iter().find(|need| need.name == ResourceName::CPU).map_or(0, |need| need.amount)
}

fn resource(name: ResourceName, capacity: i64, allocatable: i64) -> ZoneResource {
    ZoneResource { name, capacity, allocatable, available: allocatable }
}

fn check_zones(zones: u32) -> Result<(), ShapeError> {
    within("the number of zones", u64::from(zones), 1, MAX_ZONES as u64)
}

fn within(what: &'static str, value: u64, low: u64, high: u64) -> Result<(), ShapeError> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(ShapeError::Range { what, value, low, high }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(machine: &Machine) -> Vec<(u32, i64)> {
        let cpu =
            |zone: &Zone| zone.resources.iter().find(|r| r.name == ResourceName::CPU).unwrap().allocatable;
        machine.topology.zones.iter().map(|zone| (zone.id.0, cpu(zone) / 1000)).collect()
    }

    #[test]
    fn shapes_are_read() {
        for (text, expected) in [
            ("2x16", vec![(0, 15), (1, 16)]),
            ("1x1+gpu", vec![(0, 1)]),
            ("4x32", vec![(0, 31), (1, 32), (2, 32), (3, 32)]),
        ] {
            let mut shape: Shape = text.parse().unwrap();
            if text.starts_with("1x1") {
                shape.reserved_cpus = 0;
            }
            assert_eq!(cpus(&shape.machines(1).unwrap()[0]), expected, "{text}");
        }
        let machine = &"2x64+gpu+nic16".parse::<Shape>().unwrap().machines(1).unwrap()[0];
        let amount = |name| machine.view.allocatable(ResourceName::new(name).unwrap());
        assert_eq!((amount("example.com/gpu"), amount("example.com/nic"), amount("cpu")), (8, 32, 127_000));
    }

    #[test]
    fn bad_shapes_say_what_is_allowed() {
        let many: String =
            std::iter::once("2x16".to_owned()).chain(('a'..='q').map(|name| format!("+{name}"))).collect();
        for (text, words) in [
            ("", "expected ZONESxCPUS"),
            ("2", "expected ZONESxCPUS"),
            ("2x", "expected ZONESxCPUS"),
            ("x16", "expected ZONESxCPUS"),
            ("+2x-16", "expected ZONESxCPUS"),
            ("2x16+", "expected ZONESxCPUS"),
            ("2x16+4", "expected ZONESxCPUS"),
            ("2x16+GPU", "expected ZONESxCPUS"),
            ("99999999999x16", "expected ZONESxCPUS"),
            ("65x16", "the number of zones is 65: allowed are 1 to 64"),
            ("2x0", "the number of CPUs in a zone is 0: allowed are 1 to 4096"),
            ("2x16+gpu0", "the number of devices in a zone is 0"),
            (&many, "the number of kinds of devices is 17: allowed are 0 to 16"),
        ] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let mut shape = Shape::even(1, 4).unwrap();
        shape.reserved_cpus = 4;
        for (count, words) in
            [(1, "reserved CPUs is 4: allowed are 0 to 3"), (0, "machines is 0"), (20_001, "20001")]
        {
            assert!(shape.machines(count).unwrap_err().to_string().contains(words));
        }
        let error = Shape::even(64, 1).unwrap().machines(4_000).unwrap_err().to_string();
        assert!(error.contains("zones of all machines is 256000: allowed are 1 to 200000"), "{error}");
    }

    #[test]
    fn reserved_cpus_come_from_the_first_zones() {
        let mut shape = Shape::even(2, 4).unwrap();
        shape.reserved_cpus = 5;
        (shape.zones[0].id, shape.zones[1].id) = (3, 11);
        let machines = shape.machines(2).unwrap();
        assert_eq!(cpus(&machines[1]), [(3, 0), (11, 3)]);
        assert_eq!(open_cpus(&machines), 6);
    }
}
