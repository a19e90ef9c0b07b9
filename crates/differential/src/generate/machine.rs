//! Random machines and devices: zones, sockets, caches and threads in every relation that hardware has.

use node::kubelet::machine::{Cache, Core, HugePages, MachineInfo, Node};

use super::Dice;
use crate::respondent::RespondentKind;
use sim::admit::session::{Plugin, PluginDevice, Preferred};

const GIB: u64 = 1 << 30;

/// How a machine is laid out.
struct Shape {
    zones: u64,
    /// Zones of a socket; 0: a zone has two sockets.
    zones_per_socket: u64,
    threads: u64,
    cores: Vec<u64>,
    /// Cores of a last-level cache; 0: none is reported.
    cores_per_cache: u64,
}

pub(super) fn machine(dice: &mut Dice, respondent: RespondentKind) -> MachineInfo {
    let zones = match dice.between(0, 99) {
        0 => dice.pick(&[10, 12]).min(respondent.last_zone() + 1),
        _ => dice.pick(&[1, 2, 2, 2, 2, 3, 4, 4, 4, 6, 8]),
    };
    let usual = dice.between(1, if zones > 4 { 5 } else { 10 });
    let uneven = dice.percent(10);
    let cores: Vec<u64> = (0..zones).map(|_| if uneven { dice.between(1, 8) } else { usual }).collect();
    let shape = Shape {
        zones,
        zones_per_socket: if uneven { 1 } else { dice.pick(&[1, 1, 1, 2, 2, 4, 0]) },
        threads: dice.pick(&[1, 2, 2, 2, 2, 4]),
        cores_per_cache: if dice.percent(45) { dice.between(1, 4) } else { 0 },
        cores,
    };
    let ids = thread_ids(dice, &shape);
    let sparse = dice.percent(8) && zones * 2 <= respondent.last_zone();
    let mut topology = nodes(dice, respondent, &shape, &ids, if sparse { 2 } else { 1 });
    if respondent == RespondentKind::Kubelets {
        topology.iter_mut().for_each(without_zone_caches);
    }
    let sum = |size| {
        let pages = topology.iter().flat_map(|node| node.hugepages.iter().flatten());
        HugePages {
            page_size: size,
            num_pages: pages.filter(|p| p.page_size == size).map(|p| p.num_pages).sum(),
        }
    };
    let sizes: Vec<u64> = topology[0].hugepages.iter().flatten().map(|pages| pages.page_size).collect();
    let sockets: std::collections::BTreeSet<u32> =
        topology.iter().flat_map(|node| node.cores.iter().flatten()).map(|core| core.socket_id).collect();
    MachineInfo {
        num_cores: ids.iter().flatten().map(Vec::len).sum(),
        num_physical_cores: ids.iter().map(Vec::len).sum(),
        num_sockets: sockets.len(),
        memory_capacity: topology.iter().map(|node| node.memory).sum(),
        hugepages: Some(sizes.into_iter().map(sum).collect()),
        topology,
    }
}

/// The threads of each core, by zone: siblings far apart or side by side, zones one after the other or in turn.
fn thread_ids(dice: &mut Dice, shape: &Shape) -> Vec<Vec<Vec<u32>>> {
    let all: u64 = shape.cores.iter().sum();
    let mut order: Vec<(usize, usize)> = Vec::new();
    if dice.percent(25) {
        let most = shape.cores.iter().max().copied().unwrap_or(0);
        for core in 0..most {
            let zones = shape.cores.iter().enumerate().filter(|(_, cores)| core < **cores);
            order.extend(zones.map(|(zone, _)| (zone, usize::try_from(core).unwrap_or(0))));
        }
    } else {
        let cores = shape.cores.iter().enumerate();
        order.extend(
            cores.flat_map(|(zone, cores)| (0..usize::try_from(*cores).unwrap_or(0)).map(move |c| (zone, c))),
        );
    }
    let adjacent = dice.percent(35);
    let offset = if dice.percent(8) { dice.pick(&[1, 1, 61, 500]) } else { 0 };
    let mut ids: Vec<Vec<Vec<u32>>> =
        shape.cores.iter().map(|cores| vec![Vec::new(); usize::try_from(*cores).unwrap_or(0)]).collect();
    for (position, (zone, core)) in (0_u64..).zip(order) {
        for thread in 0..shape.threads {
            let id = if adjacent { position * shape.threads + thread } else { position + thread * all };
            ids[zone][core].push(u32::try_from(id + offset).unwrap_or(0));
        }
    }
    // A thread that is offline.
    if shape.threads > 1 && dice.percent(4) {
        ids[0][0].pop();
    }
    ids
}

fn nodes(
    dice: &mut Dice,
    respondent: RespondentKind,
    shape: &Shape,
    ids: &[Vec<Vec<u32>>],
    step: u32,
) -> Vec<Node> {
    let memory = dice.between(2, 8);
    let uneven = dice.percent(15);
    let sizes: &[(u64, u64)] = match dice.between(0, 4) {
        0 => &[(2048, 512)],
        1 => &[(2048, 256), (1 << 20, 1)],
        _ => &[],
    };
    let memory_only = if dice.percent(4) { 1 } else { 0 };
    let count = shape.zones + memory_only;
    let distances = distances(dice, count);
    let mut next_cache = 0;
    (0..count)
        .map(|zone| {
            let at = usize::try_from(zone).unwrap_or(0);
            let cores = ids.get(at).map(|threads| cores(shape, zone, threads, &mut next_cache));
            Node {
                node_id: u32::try_from(zone).unwrap_or(0) * step,
                memory: respondent.memory_unit() * GIB * if uneven { dice.between(1, 8) } else { memory },
                hugepages: Some(
                    sizes
                        .iter()
                        .map(|(size, pages)| HugePages {
                            page_size: *size,
                            num_pages: if uneven { dice.between(0, *pages) } else { *pages },
                        })
                        .collect(),
                ),
                cores,
                distances: Some(distances[at].clone()),
            }
        })
        .collect()
}

fn cores(shape: &Shape, zone: u64, threads: &[Vec<u32>], next_cache: &mut u32) -> Vec<Core> {
    let half = threads.len() / 2;
    let mut cores = Vec::new();
    for (at, thread_ids) in threads.iter().enumerate() {
        let socket = match shape.zones_per_socket {
            0 => zone * 2 + u64::from(at >= half && half > 0),
            zones => zone / zones,
        };
        let per_cache = usize::try_from(shape.cores_per_cache).unwrap_or(0);
        if per_cache > 0 && at % per_cache == 0 {
            *next_cache += 1;
        }
        cores.push(Core {
            core_id: u32::try_from(at).unwrap_or(0),
            thread_ids: thread_ids.clone(),
            socket_id: u32::try_from(socket).unwrap_or(0),
            uncore_caches: (per_cache > 0).then(|| vec![Cache { id: *next_cache - 1 }]),
        });
    }
    cores
}

/// cAdvisor counts a cache with as many threads as the zone's cores seem to have as the zone's own, and reports it for
/// no core (cAdvisor `addCacheInfo`).
fn without_zone_caches(node: &mut Node) {
    let id = |core: &Core| core.uncore_caches.iter().flatten().next().map(|cache| cache.id);
    let cores = node.cores.iter().flatten();
    let mut threads = std::collections::BTreeMap::<u32, usize>::new();
    for core in cores {
        if let Some(id) = id(core) {
            *threads.entry(id).or_default() += core.thread_ids.len();
        }
    }
    let count = node.cores.iter().flatten().count();
    for core in node.cores.iter_mut().flatten() {
        let of_zone = |id| threads.get(&id) == Some(&(count * core.thread_ids.len()));
        if id(core).is_some_and(of_zone) {
            core.uncore_caches = None;
        }
    }
}

/// Symmetric, 10 to itself.
fn distances(dice: &mut Dice, zones: u64) -> Vec<Vec<u64>> {
    let zones = usize::try_from(zones).unwrap_or(0);
    let mut distances = vec![vec![10; zones]; zones];
    let levels: &[u64] = if dice.percent(50) { &[21] } else { &[11, 12, 21, 28, 32] };
    let pairs = (0..zones).flat_map(|from| (0..from).map(move |to| (from, to)));
    for (from, to) in pairs {
        let distance = dice.pick(levels);
        distances[from][to] = distance;
        distances[to][from] = distance;
    }
    distances
}

/// The resources of device plugins.
pub(super) fn plugins(dice: &mut Dice, respondent: RespondentKind, machine: &MachineInfo) -> Vec<Plugin> {
    let zones: Vec<u32> = machine.topology.iter().map(|node| node.node_id).collect();
    let count = dice.pick(&[0, 0, 1, 1, 2]);
    ["vendor.example/gpu", "vendor.example/nic"]
        .into_iter()
        .take(count)
        .map(|name| plugin(dice, respondent, name, &zones))
        .collect()
}

fn plugin(dice: &mut Dice, respondent: RespondentKind, name: &str, zones: &[u32]) -> Plugin {
    // One zone each, several zones some, no zones at all.
    let kind = dice.between(0, 9);
    let device = |dice: &mut Dice, at: u64| PluginDevice {
        id: format!("d{at:02}"),
        nodes: match kind {
            0 => Vec::new(),
            1 if dice.percent(40) => Vec::new(),
            2 | 3 if dice.percent(40) => {
                let (one, other) = (dice.pick(zones), dice.pick(zones));
                if one == other { vec![one] } else { vec![one.min(other), one.max(other)] }
            }
            _ => vec![dice.pick(zones)],
        },
        healthy: !dice.percent(4),
    };
    let count = dice.between(1, 8);
    let mut devices: Vec<PluginDevice> = (0..count).map(|at| device(dice, at)).collect();
    let mut preferred =
        dice.pick(&[Some(Preferred::First), Some(Preferred::First), Some(Preferred::Last), None]);
    if respondent == RespondentKind::Kubelets {
        preferred = Some(Preferred::Own);
        // One that the kubelet can be seen to know.
        devices[0].healthy = true;
    }
    Plugin { resource: name.to_owned(), devices, preferred }
}
