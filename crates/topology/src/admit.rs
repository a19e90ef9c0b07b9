//! Would the kubelet admit this pod, and where would it put it?
//!
//! In: a node's [`Rules`], its [`Free`] table and a pod's [`PodNeeds`]. Out: a [`Placement`], or the [`Misfit`] for
//! which the kubelet would reject the pod. Never: a choice between nodes.
//!
//! This is the Topology Manager's `single-numa-node` admission (kubelet 1.36 `topologymanager`, `cpumanager`,
//! `memorymanager`, `devicemanager`): containers in order, each on the lowest zone that holds everything it aligns,
//! with the resources of init containers reused by later containers. `restricted` is decided by the same rule: what
//! fits one zone is always a preferred hint, so the answer is never too generous; pods that would need two zones there
//! are refused for now.

use smallvec::SmallVec;

use crate::kubelet::hint::ZoneMask;
use crate::policy::{Manager, Rules, Scope};
use crate::reason::{Constraint, Misfit, Part};
use crate::request::{ContainerKind, ContainerNeeds, Need, PodNeeds, Qos};
use crate::resource::{ResourceKind, ResourceName};
use crate::zone::Free;

/// The amount a pod holds in one cell of the node's [`Free`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The index into [`Free::cells`].
    pub cell: u32,
    /// The amount that the kubelet cannot give to other pods while this one lives. An upper bound for CPUs with several
    /// threads to a core, if the pod has init containers.
    pub held: i64,
    /// The part of `held` that podresources, and so an exporter, reports. Init containers that ran to completion keep,
    /// unreported, what later containers did not reuse.
    pub visible: i64,
}

/// Where the kubelet puts a pod. Empty for a pod that aligns nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// One grant per cell, ascending by cell.
    pub grants: SmallVec<[Grant; 2]>,
}

/// Working memory of an admission. The caller keeps it, so that a hot loop does not allocate.
#[derive(Debug, Default)]
pub struct Scratch {
    taken: Vec<i64>,
    reuse: Vec<i64>,
    visible: Vec<i64>,
    /// By zone.
    threads: Vec<Threads>,
    /// By cell of CPUs; empty while as many are reused as there are.
    least: Vec<CpuReuse>,
}

/// CPUs of a pod in one zone, reused as little as may be: all that became free meanwhile is taken first.
#[derive(Clone, Copy, Debug, Default)]
struct CpuReuse {
    /// By all containers.
    held: i64,
    /// Left over of init containers.
    reusable: i64,
    /// Of those that became free meanwhile, not taken so far.
    fresh: i64,
}

/// CPUs of a pod in one zone, whole cores apart from single threads, in thousandths.
///
/// The CPU manager gives whole cores first, and single threads of cores that are in use before others (kubelet 1.36
/// `takeByTopologyNUMAPacked`). So of two sets of CPUs the whole cores are nested, and the single threads are, but the
/// larger set need not contain the smaller one: an init container's single thread stays unused beside an app
/// container's cores. The union has at most the larger part of each kind. A single thread may also be one of an init
/// container's cores, of which the other threads then stay unused.
#[derive(Clone, Copy, Debug, Default)]
struct Threads {
    /// Of the containers that keep running.
    running: [i64; 2],
    /// The largest of the init containers, each with those that run beside it.
    peak: [i64; 2],
    /// Threads beside the single ones of containers that keep running, on the same cores.
    beside: i64,
    has_init: bool,
}

/// Whether and how the kubelet aligns one need.
enum Aligned {
    /// The need is not aligned.
    No,
    /// The need is aligned, in this column; `charge` is false when the amount is only checked.
    Yes { column: usize, charge: bool },
    /// The need would be aligned, but no zone lists the resource.
    NotListed,
}

/// The node and QoS class for which needs are aligned.
struct AlignmentQuery<'a> {
    rules: Rules,
    qos: Qos,
    free: &'a Free,
}

impl Placement {
    /// Subtracts the placement's amounts from `free`.
    pub fn charge(&self, free: &mut Free) {
        self.grants.iter().for_each(|grant| free.add(grant.cell as usize, -grant.held));
    }

    /// Adds the placement's amounts back to `free`.
    pub fn release(&self, free: &mut Free) {
        self.grants.iter().for_each(|grant| free.add(grant.cell as usize, grant.held));
    }
}

/// The column that a need is charged to, if the kubelet hands the resource out exclusively from a zone.
#[must_use]
pub fn charged_column(rules: Rules, free: &Free, qos: Qos, need: Need) -> Option<usize> {
    match (AlignmentQuery { rules, qos, free }).aligned(need) {
        Aligned::Yes { column, charge: true } => Some(column),
        _ => None,
    }
}

/// Whether the kubelet hands out something for the pod that podresources reports with a zone. Exporters with the
/// fingerprint method `with-exclusive-resources` count exactly these pods.
#[must_use]
pub fn is_exclusive(rules: Rules, free: &Free, needs: &PodNeeds) -> bool {
    needs
        .containers
        .iter()
        .filter(|container| container.kind.keeps_running())
        .flat_map(|container| &container.needs)
        .any(|need| charged_column(rules, free, needs.qos, *need).is_some())
}

/// Whether the kubelet aligns anything of the pod on a node with these rules and zones, or would if a zone listed it.
#[must_use]
pub fn needs_alignment(rules: Rules, free: &Free, needs: &PodNeeds) -> bool {
    let query = AlignmentQuery { rules, qos: needs.qos, free };
    rules.policy.enforces()
        && needs
            .containers
            .iter()
            .flat_map(|container| &container.needs)
            .any(|need| !matches!(query.aligned(*need), Aligned::No))
}

/// Decides whether the kubelet admits a pod, and where it puts it. `free` is not changed; see [`Placement::charge`].
///
/// Cost: containers x zones x aligned needs; no allocation once `scratch` has grown to the node's number of cells.
///
/// # Errors
/// The [`Misfit`] when the kubelet would reject the pod. A node whose policy does not reject admits everything; the
/// placement is then empty, since where the kubelet put the pod is unknown.
///
/// # Example
/// ```
/// use topology::admit::{Scratch, admit};
/// use topology::policy::{Policy, Rules};
/// use topology::request::{ContainerKind, ContainerRequest, PodRequest};
/// use topology::resource::ResourceName;
/// use topology::zone::{NodeTopology, Zone, ZoneId, ZoneResource};
///
/// let nic = ResourceName::new("vendor.com/nic").unwrap();
/// let zone = |id, count| Zone {
///     id: ZoneId(id),
///     resources: vec![ZoneResource { name: nic, capacity: count, allocatable: count, available: count }],
///     distances: vec![],
/// };
/// let free = NodeTopology { zones: vec![zone(0, 1), zone(1, 2)], ..NodeTopology::default() }.available();
/// let rules = Rules { policy: Policy::SingleNumaNode, ..Rules::default() };
/// let pod = |count: &str| {
///     let requests = vec![(nic, count.parse().unwrap())];
///     let main = ContainerRequest { name: "main".into(), kind: ContainerKind::App, requests, limits: vec![] };
///     PodRequest { containers: vec![main], ..PodRequest::default() }.needs()
/// };
///
/// let mut scratch = Scratch::default();
/// let placement = admit(rules, &free, &pod("2"), &mut scratch).unwrap();
/// assert_eq!((placement.grants[0].cell, placement.grants[0].held), (1, 2));
///
/// let misfit = admit(rules, &free, &pod("3"), &mut scratch).unwrap_err();
/// assert_eq!(misfit.constraint.to_string(), "vendor.com/nic: requested 3, most in one zone 2 (zone 1)");
/// ```
pub fn admit(
    rules: Rules,
    free: &Free,
    needs: &PodNeeds,
    scratch: &mut Scratch,
) -> Result<Placement, Misfit> {
    let none = MidAdmissionRelease { later: free, before: usize::MAX, sparing_until: 0 };
    admit_with_release(rules, free, none, needs, scratch)
}

/// Other pods that leave during an admission, as [`crate::kubelet::MidAdmissionRelease`] by ids.
#[derive(Clone, Copy, Debug)]
pub struct MidAdmissionRelease<'a> {
    /// What is free without pods that leave meanwhile, in a table of the same layout.
    pub later: &'a Free,
    /// The number of the container before which these are gone, at least 1.
    pub before: usize,
    /// Containers before this number, from `before` on, reuse as few CPUs of init containers as may be, the others as
    /// many. A container takes from all that is free by then (kubelet 1.36 cpumanager `allocateCPUs`), and CPUs that
    /// are left over keep the next one in their zone.
    pub sparing_until: usize,
}

/// The same if other pods leave meanwhile. The placement counts the most reuse; CPUs that init containers may
/// keep beside it are in [`kept_after_release`].
///
/// # Errors
/// As [`admit`].
pub fn admit_with_release(
    rules: Rules,
    free: &Free,
    release: MidAdmissionRelease<'_>,
    needs: &PodNeeds,
    scratch: &mut Scratch,
) -> Result<Placement, Misfit> {
    if !rules.policy.enforces() {
        return Ok(Placement::default());
    }
    let mut query = AlignmentQuery { rules, qos: needs.qos, free };
    scratch.reset(free);
    let core = i64::from(free.layout().threads_per_core()) * ResourceName::CPU.base_units();
    let pod_zone = match rules.scope {
        Scope::Pod => query.pod_zone(needs, scratch)?,
        Scope::Container => None,
    };
    for (at, container) in needs.containers.iter().enumerate() {
        if at == release.before {
            query.free = release.later;
        }
        scratch.spare(free, release, at);
        let part = Part::of(container.kind);
        let zone = match pod_zone {
            Some(zone) => Some(zone),
            None => query.zone_for(&container.needs, part, at, scratch)?,
        };
        if let Some(row) = zone {
            for need in &container.needs {
                if let Aligned::Yes { column, charge: true } = query.aligned(*need) {
                    scratch.take(free.index(row, column), *need, container.kind);
                    if need.name == ResourceName::CPU {
                        scratch.threads[row].take(need.amount, core, container.kind);
                    }
                }
            }
        }
    }
    scratch.hold_threads(query.free);
    Ok(scratch.placement())
}

/// The CPUs, in thousandths, that the init containers of an admitted pod may keep beside those of its [`Placement`],
/// if other pods give back `freed` ones of its zone between two of its containers: a later container takes from all
/// that is free by then, and so may reuse fewer (kubelet 1.36 cpumanager `allocateCPUs`). A bound: on cores of several
/// threads, each free thread may make a core whole. Cost: the square of its containers.
#[must_use]
pub fn kept_after_release(rules: Rules, free: &Free, needs: &PodNeeds, freed: i64) -> i64 {
    let query = AlignmentQuery { rules, qos: needs.qos, free };
    let freed = fresh(free, freed);
    let cpus = |container: &ContainerNeeds| {
        let charged = |need: &&Need| {
            need.name == ResourceName::CPU
                && matches!(query.aligned(**need), Aligned::Yes { charge: true, .. })
        };
        container.needs.iter().find(charged).map_or(0, |need| need.amount)
    };
    let containers: SmallVec<[(ContainerKind, i64); 8]> =
        needs.containers.iter().map(|container| (container.kind, cpus(container))).collect();
    let held = |before: usize, freed: i64| {
        let mut cpus = CpuReuse::default();
        for (at, (kind, amount)) in containers.iter().enumerate() {
            if at == before {
                cpus.fresh = freed;
            }
            cpus.take(*amount, *kind);
        }
        cpus.held
    };
    let most = (1..containers.len()).map(|before| held(before, freed)).max();
    most.map_or(0, |most| most - held(0, 0))
}

/// The CPUs that containers may take instead of those of init containers, when so many become free. Where that makes
/// cores whole, these are preferred to all others.
fn fresh(free: &Free, freed: i64) -> i64 {
    match free.layout().threads_per_core() {
        _ if freed <= 0 => 0,
        1 => freed,
        _ => i64::MAX,
    }
}

impl AlignmentQuery<'_> {
    /// How the kubelet's managers treat one need. With unknown managers (RTE, NFD) a fractional CPU is checked but not
    /// charged: the peer's plugin checks it, the kubelet never pins it.
    fn aligned(&self, need: Need) -> Aligned {
        let guaranteed = self.qos == Qos::Guaranteed;
        let column = self.free.layout().column(need.name);
        let charge = match need.name.kind() {
            ResourceKind::Host => return Aligned::No,
            ResourceKind::Device if column.is_none() => return Aligned::No,
            ResourceKind::Device => true,
            ResourceKind::Cpu => match self.rules.cpu_manager {
                _ if !guaranteed => return Aligned::No,
                Manager::Off => return Aligned::No,
                Manager::Static if !need.is_whole() => return Aligned::No,
                Manager::Static | Manager::Unknown => need.is_whole(),
            },
            ResourceKind::Memory => match self.rules.memory_manager {
                _ if !guaranteed => return Aligned::No,
                Manager::Off => return Aligned::No,
                Manager::Static | Manager::Unknown => true,
            },
        };
        column.map_or(Aligned::NotListed, |column| Aligned::Yes { column, charge })
    }

    /// Pod scope: one zone for the sum (kubelet 1.36 `GetPodTopologyHints`).
    fn pod_zone(&self, needs: &PodNeeds, scratch: &Scratch) -> Result<Option<usize>, Misfit> {
        let mut sum: SmallVec<[Need; 8]> = needs.pod_scope.iter().copied().collect();
        if self.rules.cpu_manager == Manager::Static {
            for need in &mut sum {
                if need.name == ResourceName::CPU {
                    need.amount = needs.pod_scope_whole_cpu;
                }
            }
            sum.retain(|need| need.amount > 0);
        }
        self.zone_for(&sum, Part::Pod, 0, scratch)
    }

    /// The lowest zone that holds all aligned needs at once; `None` when nothing is aligned.
    fn zone_for(
        &self,
        needs: &[Need],
        part: Part,
        container: usize,
        scratch: &Scratch,
    ) -> Result<Option<usize>, Misfit> {
        let misfit = |constraint| Misfit { part, container, constraint };
        let mut columns: SmallVec<[(usize, Need); 8]> = SmallVec::new();
        for need in needs {
            match self.aligned(*need) {
                Aligned::No => {}
                Aligned::Yes { column, .. } => columns.push((column, *need)),
                Aligned::NotListed => return Err(misfit(Constraint::NotListed { resource: need.name })),
            }
        }
        if columns.is_empty() {
            return Ok(None);
        }
        let rows = self.free.layout().zones().len();
        (0..rows)
            .find(|row| columns.iter().all(|(column, need)| self.holds(*row, *column, *need, scratch)))
            .map(Some)
            .ok_or_else(|| misfit(self.first_shortage(&columns, scratch)))
    }

    /// Whether a zone can hold `need`. Exclusive CPUs and devices of an init container must be in the zone of the
    /// containers that may reuse them (kubelet 1.36 `generateCPUTopologyHints`, `generateDeviceTopologyHints`); memory
    /// need not.
    fn holds(&self, row: usize, column: usize, need: Need, scratch: &Scratch) -> bool {
        let index = self.free.index(row, column);
        let reusable = scratch.reuse[index];
        if need.name.kind() != ResourceKind::Memory && need.is_whole() {
            let rows = self.free.layout().zones().len();
            let elsewhere = (0..rows).any(|r| r != row && scratch.is_reusable(self.free.index(r, column)));
            if elsewhere {
                return false;
            }
        }
        self.left(index, scratch) + reusable >= need.amount
    }

    fn left(&self, index: usize, scratch: &Scratch) -> i64 {
        self.free.cells()[index].saturating_sub(scratch.taken[index])
    }

    fn first_shortage(&self, columns: &[(usize, Need)], scratch: &Scratch) -> Constraint {
        let rows = self.free.layout().zones().len();
        for (column, need) in columns {
            let left = |row: usize| {
                let index = self.free.index(row, *column);
                self.left(index, scratch) + scratch.reuse[index]
            };
            // The lowest of equal zones, as the kubelet looks at them.
            let most = (0..rows).map(|row| (left(row), std::cmp::Reverse(row))).max();
            let (most, zones) = most.map_or((0, ZoneMask::EMPTY), |(most, row)| {
                (most, ZoneMask::of(self.free.layout().zones()[row.0].0))
            });
            if most < need.amount {
                return Constraint::Short { resource: need.name, requested: need.amount, most, zones };
            }
        }
        Constraint::NoCommonZone
    }
}

impl Threads {
    fn take(&mut self, amount: i64, core: i64, kind: ContainerKind) {
        let parts = [amount - amount % core, amount % core];
        if kind != ContainerKind::Init && parts[1] > 0 {
            self.beside += core - parts[1];
        }
        for (part, (running, peak)) in parts.iter().zip(self.running.iter_mut().zip(&mut self.peak)) {
            match kind {
                ContainerKind::Init => *peak = (*peak).max(*running + part),
                ContainerKind::Sidecar | ContainerKind::App => *running += part,
            }
        }
        self.has_init |= kind == ContainerKind::Init;
    }

    /// The most CPUs that the pod can hold.
    fn bound(&self) -> i64 {
        let nested: i64 = self.running.iter().zip(&self.peak).map(|(running, peak)| running.max(peak)).sum();
        let apart = self.running.iter().chain(&self.peak).sum();
        (nested + self.beside).min(apart)
    }
}

impl CpuReuse {
    fn take(&mut self, amount: i64, kind: ContainerKind) {
        let unshared = self.fresh.min(amount);
        self.fresh -= unshared;
        let reused = self.reusable.min(amount - unshared);
        self.held += amount - reused;
        self.reusable = match kind {
            ContainerKind::Init => self.reusable + amount - reused,
            ContainerKind::Sidecar | ContainerKind::App => self.reusable - reused,
        };
    }
}

impl Scratch {
    fn reset(&mut self, free: &Free) {
        self.least.clear();
        for table in [&mut self.taken, &mut self.reuse, &mut self.visible] {
            table.clear();
            table.resize(free.cells().len(), 0);
        }
        self.threads.clear();
        self.threads.resize(free.layout().zones().len(), Threads::default());
    }

    /// Prepares for the container of this number.
    fn spare(&mut self, free: &Free, release: MidAdmissionRelease<'_>, container: usize) {
        let Some(column) = free.layout().column(ResourceName::CPU) else { return };
        if container >= release.sparing_until {
            return self.least.clear();
        }
        if container != release.before {
            return;
        }
        self.least.resize(free.cells().len(), CpuReuse::default());
        for row in 0..free.layout().zones().len() {
            let index = free.index(row, column);
            let freed = release.later.cells()[index].saturating_sub(free.cells()[index]);
            let (held, reusable) = (0, self.reuse[index]);
            self.least[index] = CpuReuse { held, reusable, fresh: fresh(free, freed) };
        }
    }

    /// Whether a container has left something in this cell that a later one has to reuse, or to be near.
    fn is_reusable(&self, index: usize) -> bool {
        self.reuse[index] > 0 || self.least.get(index).is_some_and(|least| least.reusable > 0)
    }

    /// Raises held CPUs to their bound, as far as the zone has them.
    fn hold_threads(&mut self, free: &Free) {
        let Some(column) = free.layout().column(ResourceName::CPU) else { return };
        for (row, threads) in self.threads.iter().enumerate().filter(|(_, threads)| threads.has_init) {
            let index = free.index(row, column);
            self.taken[index] = self.taken[index].max(threads.bound().min(free.cells()[index]));
        }
    }

    /// Allocates one container's need in a cell. The count is exact but for CPUs with several threads to a core, whose
    /// bound is in [`Threads`].
    fn take(&mut self, index: usize, need: Need, kind: ContainerKind) {
        if let Some(least) = self.least.get_mut(index) {
            least.take(need.amount, kind);
        }
        let reusable = self.reuse[index];
        let reused = reusable.min(need.amount);
        self.taken[index] += need.amount - reused;
        match kind {
            // Reusable CPUs and devices are a union, reusable memory is the larger block. Both come to the maximum.
            ContainerKind::Init => self.reuse[index] = reusable.max(need.amount),
            ContainerKind::Sidecar | ContainerKind::App => {
                self.reuse[index] = reusable - reused;
                self.visible[index] += need.amount;
            }
        }
    }

    fn placement(&self) -> Placement {
        let grants = self
            .taken
            .iter()
            .zip(&self.visible)
            .enumerate()
            .filter(|(_, (taken, _))| **taken > 0)
            .filter_map(|(cell, (held, visible))| {
                Some(Grant { cell: u32::try_from(cell).ok()?, held: *held, visible: *visible })
            })
            .collect();
        Placement { grants }
    }
}

#[cfg(test)]
mod tests;
