//! A kubelet by ids whose exporter reports amounts.

use topology::cpuset::CpuSet;
use topology::kubelet::device_manager::Lowest;
use topology::kubelet::hint::ZoneMask;
use topology::kubelet::machine::{Cpu, Machine, MachineZone};
use topology::kubelet::pod::Pod;
use topology::kubelet::profile::{CpuManager, CpuOptions, KubeletProfile, MemoryManager, ReservedCpus};
use topology::kubelet::{Allocation, Kubelet, MidAdmissionRelease, NodeState};

use super::*;

const ZONES: [u32; 2] = [0, 5];

/// The managers of a node of two zones, and what its pods hold.
#[derive(Debug)]
pub(super) struct TestKubelet {
    kubelet: Kubelet,
    state: NodeState,
    running: BTreeMap<PodId, (Pod, Allocation)>,
}

impl TestKubelet {
    /// Cores have one thread. CPU 0 is reserved.
    pub(super) fn new(rules: Rules) -> Self {
        let per_zone = u32::try_from(CPUS / 1_000).unwrap();
        let cpu = |id| {
            let zone = ZONES[usize::from(id > per_zone)];
            Cpu { id, core: id, socket: zone, zone, cache: zone }
        };
        let zones = ZONES.map(|id| MachineZone {
            id,
            memory: u64::try_from(MEMORY + 1).unwrap(),
            ..MachineZone::default()
        });
        let cpus: Vec<Cpu> = (0..=2 * per_zone).map(cpu).collect();
        let machine = Machine::new(zones.to_vec(), &cpus).unwrap();
        let profile = KubeletProfile {
            policy: rules.policy,
            scope: rules.scope,
            cpu_manager: CpuManager::Static {
                options: CpuOptions::default(),
                reserved: ReservedCpus::Named("0".parse().unwrap()),
            },
            memory_manager: MemoryManager::Static {
                reserved: ZONES.map(|zone| (zone, ResourceName::MEMORY, 1)).to_vec(),
            },
            ..KubeletProfile::default()
        };
        let kubelet = Kubelet::new(Arc::new(machine), profile).unwrap();
        let state = kubelet.empty_state();
        Self { kubelet, state, running: BTreeMap::new() }
    }

    /// Admits a pod. `leaving`: a pod that it releases before the container of this number.
    pub(super) fn admit(&mut self, id: PodId, needs: &PodNeeds, leaving: Option<(PodId, usize)>) -> bool {
        let pod = Pod { uid: uid(id), ..Pod::clone(&needs.pod) };
        let ended = leaving.map(|(id, _)| [uid(id)]);
        let release = leaving.zip(ended.as_ref());
        let release = release.map(|((_, before), pods)| MidAdmissionRelease { before, pods });
        let allocation =
            topology::kubelet::admit_with_release(&self.kubelet, &mut self.state, &pod, &Lowest, release);
        self.state.sweep();
        if let Some((id, _)) = leaving {
            self.release(id);
        }
        allocation.map(|allocation| self.running.insert(id, (pod, allocation))).is_ok()
    }

    pub(super) fn release(&mut self, id: PodId) {
        if self.running.remove(&id).is_some() {
            self.state.remove(&uid(id));
            self.state.sweep();
        }
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = PodId> {
        self.running.keys().copied()
    }

    /// What the kubelet can still hand out.
    pub(super) fn free(&self) -> Free {
        let cpus = self.kubelet.free_cpus(&self.state).unwrap();
        let memory = |zone| self.state.memory.counts.free(zone, ResourceName::MEMORY);
        self.table(|zone| self.cpus_in(zone, &cpus), |zone| i64::try_from(memory(zone)).unwrap())
    }

    /// What podresources shows as free: finished init containers are not in it.
    pub(super) fn visible(&self) -> Free {
        let shown = || {
            self.running.values().flat_map(|(pod, allocation)| {
                let containers = allocation.containers.iter().zip(&pod.containers);
                containers.filter(|(_, asked)| asked.kind.keeps_running()).map(|(held, _)| held)
            })
        };
        let cpus = |zone| shown().map(|held| self.cpus_in(zone, &held.cpus)).sum::<i64>();
        let memory = |zone| {
            let blocks = shown().flat_map(|held| &held.memory).filter(|block| block.zones == zone);
            blocks.map(|block| i64::try_from(block.bytes).unwrap()).sum::<i64>()
        };
        self.table(|zone| CPUS - cpus(zone), |zone| MEMORY - memory(zone))
    }

    fn cpus_in(&self, zone: ZoneMask, cpus: &CpuSet) -> i64 {
        i64::try_from(self.kubelet.machine().cpus_of(zone).count_shared(cpus)).unwrap() * 1_000
    }

    fn table(&self, cpus: impl Fn(ZoneMask) -> i64, memory: impl Fn(ZoneMask) -> i64) -> Free {
        let profile = self.kubelet.profile();
        let mut topology = topology(profile.scope, None, None);
        for zone in &mut topology.zones {
            let mask = ZoneMask::of(zone.id.0);
            for resource in &mut zone.resources {
                resource.available =
                    if resource.name == ResourceName::CPU { cpus(mask) } else { memory(mask) };
            }
        }
        topology.available()
    }
}

fn uid(id: PodId) -> Arc<str> {
    id.0.to_string().into()
}
