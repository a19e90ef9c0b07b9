//! Clusters and their pods by name.
//!
//! In: a name. Out: [`Defaults`] of the flags of `tholepin simulate`. Never: a machine or a workload.

use std::collections::BTreeMap;

use topology::policy::Policy;

use crate::workload::{ContainerResources, OpenArrivals};

/// A cluster and its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// Pods of 2 to 12 CPUs on nodes of two zones with 16 CPUs each
    #[default]
    Small,
    /// Jobs of 1, 2, 4 and 8 GPUs on nodes of 8 GPUs, under restricted
    CiInference,
    /// Packet processing: pods of 2 to 16 CPUs, most of them with virtual functions, on nodes of two zones
    Telco,
    /// Jobs of one zone to all eight of a node, under restricted
    Hpc,
}

/// What the flags of `tholepin simulate` are unless they are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    /// Shape of the nodes.
    pub machine: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// Topology manager policy of the kubelets.
    pub policy: Policy,
    /// Number of pods.
    pub pods: usize,
    /// Pods a second.
    pub rate: f64,
    /// Average share of the CPUs in use if no pod ever waited.
    pub load: f64,
    /// Resources of the pods, each as likely as the others.
    pub kinds: Vec<ContainerResources>,
}

/// So many GPUs, with their part of a node's CPUs and memory.
fn gpus(count: u32) -> ContainerResources {
    with_devices(11 * count, 40 * 1024 * u64::from(count), "example.com/gpu", count)
}

fn with_devices(cpus: u32, memory_mib: u64, device: &str, count: u32) -> ContainerResources {
    let devices = (count > 0).then(|| (device.to_owned(), count));
    ContainerResources { cpus, memory_mib, devices: BTreeMap::from_iter(devices) }
}

impl Preset {
    /// What it sets.
    #[must_use]
    pub fn defaults(self) -> Defaults {
        match self {
            Self::Small => {
                let OpenArrivals { pods, rate, load, kinds, .. } = OpenArrivals::default();
                let (machine, policy) = ("2x16", Policy::SingleNumaNode);
                Defaults { machine, nodes: 4, policy, pods, rate, load, kinds }
            }
            // Half an hour each on average.
            Self::CiInference => Defaults {
                machine: "2x48+gpu4",
                nodes: 8,
                policy: Policy::Restricted,
                pods: 240,
                rate: 0.015,
                load: 0.9,
                kinds: [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8].map(gpus).to_vec(),
            },
            Self::Telco => Defaults {
                machine: "2x32+vf8",
                nodes: 6,
                policy: Policy::SingleNumaNode,
                pods: 200,
                rate: 0.5,
                load: 0.85,
                kinds: [(2, 0), (4, 1), (4, 2), (6, 1), (8, 2), (8, 2), (12, 2), (16, 4)]
                    .map(|(cpus, vfs)| with_devices(cpus, 2048 * u64::from(cpus), "example.com/vf", vfs))
                    .to_vec(),
            },
            // CPUs and memory of a job need the same number of zones: restricted rejects others.
            Self::Hpc => Defaults {
                machine: "8x16",
                nodes: 16,
                policy: Policy::Restricted,
                pods: 200,
                rate: 0.2,
                load: 0.9,
                kinds: [15, 15, 15, 30, 30, 60, 60, 120]
                    .map(|cpus| ContainerResources {
                        memory_mib: 3840 * u64::from(cpus),
                        ..ContainerResources::of_cpus(cpus)
                    })
                    .to_vec(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // failing loudly is what a test is for

    use clap::ValueEnum as _;

    use super::*;
    use crate::comparison::{Contender, Impairments};
    use crate::machine::{Shape, open_cpus};
    use crate::record::Summary;

    fn run(preset: Preset, contender: Contender, seed: u64) -> Summary {
        let Defaults { machine, nodes, policy, pods, rate, load, kinds } = preset.defaults();
        let mut shape: Shape = machine.parse().unwrap();
        shape.rules.policy = policy;
        let machines = shape.machines(nodes).unwrap();
        let cpus = open_cpus(&machines);
        let open = OpenArrivals { pods, rate, load, cpus, max_pending: None, kinds, seed };
        contender.run(&open.workload().unwrap(), &machines, Impairments::healthy(), seed, &mut |_| {}).summary
    }

    /// Each pod of each preset runs, and the machines are used as with perfect knowledge.
    #[test]
    fn no_pod_of_a_preset_is_lost_or_left_over() {
        for preset in Preset::value_variants() {
            for seed in 1..=2 {
                let ours = run(*preset, Contender::Tholepin, seed);
                let ideal = run(*preset, Contender::Ideal, seed);
                let lost = (ours.rejected, ours.unplaced, ours.misaligned);
                assert_eq!(lost, (0, 0, 0), "{preset:?}, seed {seed}: {ours:?}");
                assert!(
                    ours.allocated_share >= 0.95 * ideal.allocated_share,
                    "{preset:?}, seed {seed}: {} of {}",
                    ours.allocated_share,
                    ideal.allocated_share
                );
            }
        }
    }

    /// Without a look at zones the same jobs are rejected, so the test above can fail.
    #[test]
    fn a_blind_scheduler_loses_jobs_of_gpus() {
        let blind = run(Preset::CiInference, Contender::Blind, 1);
        assert!(blind.rejected > 0, "{blind:?}");
    }
}
