//! The kinds of nodes that sequences run on.

use testkit::machine::Machine;
use topology::policy::{Policy, Scope};

use super::plan::Menu;

/// A kind of node.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) menu: Menu,
    pub(super) machine: fn() -> Machine,
    pub(super) policy: Policy,
    pub(super) scope: Scope,
    pub(super) static_memory: bool,
    /// Resource, then each device's zones.
    pub(super) devices: &'static [(&'static str, &'static [&'static [u32]])],
}

const NIC: &str = "example.com/nic";
const GPU: &str = "example.com/gpu";
const FREE: &str = "example.com/free";

/// All of these have 32 GiB and more: how much is in use is what the kernel says of the real machine, and a kubelet
/// that believes to have less than that refuses pods without memory requests and evicts others.
const PLAIN: Kind = Kind {
    name: "2 zones of 8, container scope",
    menu: Menu { cpus: 9, devices: &[], hugepages: false },
    machine: || Machine::new().zones(2).cpus_per_zone(8).memory_mib_per_zone(16 << 10),
    policy: Policy::SingleNumaNode,
    scope: Scope::Container,
    static_memory: true,
    devices: &[],
};

pub(super) const KINDS: [Kind; 8] = [
    PLAIN,
    Kind {
        name: "2 zones of 8 threads, pod scope, devices",
        menu: Menu { cpus: 9, devices: &[(NIC, 2), (FREE, 1)], hugepages: false },
        machine: || Machine::new().zones(2).cpus_per_zone(8).smt(true).memory_mib_per_zone(16 << 10),
        scope: Scope::Pod,
        devices: &[(NIC, &[&[0], &[1], &[1], &[1]]), (FREE, &[&[], &[]])],
        ..PLAIN
    },
    Kind {
        name: "4 zones, container scope, devices",
        menu: Menu { cpus: 7, devices: &[(NIC, 3), (GPU, 2), (FREE, 2)], hugepages: false },
        machine: || Machine::new().zones(4).cpus_per_zone(6).memory_mib_per_zone(12 << 10).sockets(2),
        devices: &[
            (NIC, &[&[0], &[0], &[1], &[2], &[2], &[3]]),
            (GPU, &[&[1], &[2], &[2]]),
            (FREE, &[&[], &[], &[]]),
        ],
        ..PLAIN
    },
    Kind {
        name: "4 zones, pod scope, hugepages",
        menu: Menu { cpus: 7, devices: &[], hugepages: true },
        machine: || {
            Machine::new()
                .zones(4)
                .cpus_per_zone(6)
                .memory_mib_per_zone(12 << 10)
                .hugepages_per_zone(2048, 512)
        },
        scope: Scope::Pod,
        ..PLAIN
    },
    Kind {
        name: "zones 0, 3 and 7 without CPUs, hugepages, devices",
        menu: Menu { cpus: 9, devices: &[(NIC, 1)], hugepages: true },
        machine: || {
            let two = Machine::new().zones(2).cpus_per_zone(8).memory_mib_per_zone(16 << 10);
            // In all zones: kubelet 1.36.3 ends itself over a pod that asks for a page size that some zone does not
            // have (memorymanager `calculateHints`).
            two.zone_ids([0, 3]).unwrap().zone(7, 0, 8 << 10).hugepages_per_zone(2048, 512)
        },
        devices: &[(NIC, &[&[0], &[3], &[3]])],
        ..PLAIN
    },
    Kind { name: "2 zones of 8, no memory manager", static_memory: false, ..PLAIN },
    Kind {
        name: "2 zones of 8, restricted, devices",
        menu: Menu { cpus: 12, devices: &[(NIC, 2)], hugepages: false },
        policy: Policy::Restricted,
        devices: &[(NIC, &[&[0], &[1], &[0], &[1]])],
        ..PLAIN
    },
    Kind {
        name: "3 zones, best-effort, devices over several",
        menu: Menu { cpus: 14, devices: &[(NIC, 3), (GPU, 2)], hugepages: false },
        machine: || Machine::new().zones(3).cpus_per_zone(6).memory_mib_per_zone(12 << 10),
        policy: Policy::BestEffort,
        devices: &[(NIC, &[&[0], &[0, 1], &[1, 2], &[2]]), (GPU, &[&[0, 1, 2], &[2]])],
        ..PLAIN
    },
];
