//! What the model of the kubelet costs: `fits` on counts, `admit` on ids, by zones and CPUs.
//!
//! Prints a JSON object a line. Each figure is the least of many rounds, so other load on the machine counts little.
//! `cargo xtask bench model` runs it and draws the chart.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use topology::kubelet::device_manager::{Device, Lowest, Preference, Resource};
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::machine::{Cpu, Machine, MachineZone};
use topology::kubelet::pod::Pod;
use topology::kubelet::profile::{
    CpuManager, CpuOptions, KubeletProfile, MaxNumaNodes, MemoryManager, ReservedCpus,
};
use topology::kubelet::zone_table::{Fit, Scratch, ZoneTable, fits};
use topology::kubelet::{Kubelet, NodeState, admit};
use topology::policy::{Policy, Scope};
use topology::quantity::{Format, Quantity};
use topology::request::{ContainerKind, ContainerRequest, PodRequest, Qos};
use topology::resource::ResourceName;

const GIB: u64 = 1 << 30;
/// Memory of a zone.
const ZONE_GIB: u64 = 64;
const NIC: &str = "vendor.example/nic";

/// A machine and its kubelet's policy.
#[derive(Clone, Copy)]
struct Case {
    zones: u32,
    cpus: u32,
    policy: Policy,
}

/// A container: CPUs, GiB of memory, and whether it wants a huge page and a device.
type Ask = (u32, u64, bool);

fn name(text: &str) -> ResourceName {
    ResourceName::new(text).unwrap_or(ResourceName::CPU)
}

fn hugepages() -> ResourceName {
    name("hugepages-1Gi")
}

impl Case {
    fn kubelet(self) -> Option<Kubelet> {
        let (cores, per_zone) = (self.cpus / 2, self.cpus / 2 / self.zones);
        let cpu = |id: u32| {
            let core = id % cores;
            let zone = core / per_zone;
            Cpu { id, core, socket: zone / self.zones.div_ceil(2), zone, cache: core / 4 }
        };
        let zone = |id| MachineZone {
            id,
            memory: ZONE_GIB * GIB,
            hugepages: vec![(hugepages(), 8 * GIB)],
            distances: (0..self.zones).map(|other| if other == id { 10 } else { 21 }).collect(),
        };
        let cpus: Vec<Cpu> = (0..self.cpus).map(cpu).collect();
        let machine = Machine::new((0..self.zones).map(zone).collect(), &cpus).ok()?;
        let profile = KubeletProfile {
            policy: self.policy,
            scope: Scope::Container,
            max_numa_nodes: MaxNumaNodes(64),
            cpu_manager: CpuManager::Static { options: CpuOptions::NONE, reserved: ReservedCpus::Count(2) },
            memory_manager: MemoryManager::Static { reserved: vec![(0, ResourceName::MEMORY, GIB)] },
            allocatable: Some(vec![
                (ResourceName::CPU, i64::from(self.cpus) * 1000),
                (ResourceName::MEMORY, i64::MAX),
                (hugepages(), i64::MAX),
                (ResourceName::PODS, 110),
            ]),
            ..KubeletProfile::default()
        };
        Kubelet::new(Arc::new(machine), profile).ok()
    }

    /// About half of all CPUs are in use, differently by zone.
    fn state(self, kubelet: &Kubelet) -> NodeState {
        let mut state = kubelet.empty_state();
        let devices = (0..self.zones * 4).map(|at| {
            let device = Device { zones: Some(ZoneMask::of(at / 4)), healthy: true };
            (format!("d{at:03}").into(), device)
        });
        let resource = Resource { devices: devices.collect(), preference: Preference::None };
        state.devices.resources.insert(name(NIC), resource);
        let per_zone = self.cpus / self.zones;
        for at in 0..self.zones {
            let (more, device) = (at % 3, at % 2 == 0);
            let ask = ((per_zone / 2 + more).saturating_sub(1).max(1), 8 + u64::from(more), device);
            let _ = admit(kubelet, &mut state, &pod(kubelet, &format!("held-{at}"), &[ask]), &Lowest);
        }
        state
    }
}

fn pod(kubelet: &Kubelet, uid: &str, asks: &[Ask]) -> Pod {
    let amount = |value: u64| Quantity::from_i64(value.cast_signed(), Format::DecimalSI);
    let containers = asks.iter().enumerate().map(|(at, (cpus, gib, device))| {
        let mut requests =
            vec![(ResourceName::CPU, amount(u64::from(*cpus))), (ResourceName::MEMORY, amount(gib * GIB))];
        if *device {
            requests.push((hugepages(), amount(GIB)));
            requests.push((name(NIC), amount(1)));
        }
        ContainerRequest {
            name: format!("c{at}").into(),
            kind: ContainerKind::App,
            limits: requests.clone(),
            requests,
        }
    });
    let request = PodRequest {
        containers: containers.collect(),
        stated_qos: Some(Qos::Guaranteed),
        ..PodRequest::default()
    };
    Pod::new(kubelet.profile(), uid.into(), &request)
}

/// The least time of one call, over rounds of many.
fn least(mut call: impl FnMut()) -> f64 {
    let (mut least, mut calls) = (f64::MAX, 1_u32);
    let deadline = Instant::now() + Duration::from_millis(150);
    while Instant::now() < deadline {
        let began = Instant::now();
        (0..calls).for_each(|_| call());
        let took = began.elapsed();
        if took < Duration::from_micros(100) {
            calls *= 2;
            continue;
        }
        least = least.min(took.as_secs_f64() * 1e9 / f64::from(calls));
    }
    least
}

fn print(what: &str, case: Case, pod: &str, answer: &str, ns: f64) {
    println!(
        "{{\"what\": \"{what}\", \"zones\": {}, \"cpus\": {}, \"policy\": \"{}\", \"pod\": \"{pod}\", \"answer\": \
         \"{answer}\", \"ns\": {ns:.0}}}",
        case.zones,
        case.cpus,
        case.policy.as_str()
    );
}

fn measure_fits(case: Case) {
    let Some(kubelet) = case.kubelet() else { return };
    let state = case.state(&kubelet);
    let table = ZoneTable::new(&kubelet, &state);
    let mut scratch = Scratch::default();
    let (zone, zones) = (case.cpus / case.zones, case.zones.min(3));
    let asks: [(&str, Vec<Ask>); 5] = [
        ("small", vec![(2, 4, false)]),
        ("small, huge page, device", vec![(2, 4, true)]),
        ("more than a zone has left", vec![(zone, 4, true)]),
        ("several zones", vec![(zone * zones - zone / 2, ZONE_GIB * u64::from(zones - 1) + 4, false)]),
        ("two containers", vec![(2, 4, true), (2, 4, false)]),
    ];
    for (what, asks) in asks {
        let pod = pod(&kubelet, "new", &asks);
        let answer = match fits(&kubelet, &table, &pod, &mut scratch) {
            Fit::Yes => "yes",
            Fit::No(_) => "no",
            Fit::Undetermined => "undetermined",
        };
        let ns = least(|| {
            black_box(fits(black_box(&kubelet), black_box(&table), black_box(&pod), &mut scratch));
        });
        print("fits", case, what, answer, ns);
    }
    let mut table = table;
    print("update", case, "", "", least(|| table.update(black_box(&kubelet), black_box(&state))));
}

fn measure_admit(case: Case) {
    let Some(kubelet) = case.kubelet() else { return };
    let state = case.state(&kubelet);
    let zone = case.cpus / case.zones;
    for (what, asks) in
        [("small", vec![(2, 4, true)]), ("half a zone", vec![((zone / 2).max(2) - 1, 4, true)])]
    {
        let pod = pod(&kubelet, "new", &asks);
        let (mut least, mut answer) = (Duration::MAX, "");
        for _ in 0..300 {
            let mut state = state.clone();
            let began = Instant::now();
            let result = black_box(admit(&kubelet, &mut state, &pod, &Lowest));
            least = least.min(began.elapsed());
            answer = if result.is_ok() { "yes" } else { "no" };
        }
        print("admit", case, what, answer, least.as_secs_f64() * 1e9);
    }
}

fn main() {
    let policies = [Policy::SingleNumaNode, Policy::Restricted, Policy::BestEffort, Policy::None];
    for zones in [1, 2, 4, 8, 16, 32] {
        policies.into_iter().for_each(|policy| measure_fits(Case { zones, cpus: zones * 16, policy }));
    }
    let policies = [Policy::SingleNumaNode, Policy::Restricted];
    for cpus in [16, 32, 64, 128, 256, 512] {
        policies.into_iter().for_each(|policy| measure_admit(Case { zones: 2, cpus, policy }));
    }
    for zones in [1, 2, 4, 8, 16, 32] {
        policies.into_iter().for_each(|policy| measure_admit(Case { zones, cpus: 512, policy }));
    }
}
