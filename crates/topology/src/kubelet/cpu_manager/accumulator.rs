//! Which CPUs a container gets out of those it may have, packed.
//!
//! In: a machine, the CPUs on offer, a number. Out: that many CPUs, always the same for the same input. Never: an
//! alignment; the caller offers the aligned CPUs only.
//!
//! Source: kubelet 1.34 to 1.37 `cpumanager/cpu_assignment.go` (`cpuAccumulator`, `takeByTopologyNUMAPacked`): whole
//! zones and sockets, then caches if asked for, then whole cores, then single threads; the fullest of each kind first.

use crate::cpuset::CpuSet;
use crate::kubelet::machine::{CpuGroup, Machine};

/// How CPUs are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strategy {
    /// One thread of each core first (`distribute-cpus-across-cores`).
    pub spread: bool,
    /// Whole caches first (`prefer-align-cpus-by-uncorecache`).
    pub by_cache: bool,
}

/// Why CPUs cannot be taken, in the kubelet's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// There are fewer CPUs on offer than asked for.
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    NotEnough {
        /// CPUs asked for.
        requested: usize,
        /// CPUs on offer.
        available: usize,
    },
    /// The CPUs on offer were used up all the same.
    #[error("failed to allocate cpus")]
    UsedUp,
    /// Zones gave fewer CPUs than they were to give.
    #[error("accounting error, not enough CPUs allocated, remaining: {0}")]
    TooFew(isize),
    /// Zones gave more CPUs than they were to give.
    #[error("accounting error, too many CPUs allocated, remaining: {0}")]
    TooMany(isize),
    /// The kubelet says nothing: it goes round for ever, and admits no pod until it is restarted.
    #[error("a search for CPUs that never ends")]
    Endless,
}

/// CPUs on offer, and those taken of them.
pub(crate) struct Accumulator<'a> {
    machine: &'a Machine,
    free: CpuSet,
    taken: CpuSet,
    /// CPUs still to take. Negative if the kubelet's arithmetic on odd machines takes a group twice.
    needed: isize,
    spread: bool,
}

/// Takes `count` CPUs out of `available`. Cost: groups of CPUs of the machine x words of a set, sorted.
pub(crate) fn take_packed(
    machine: &Machine,
    available: &CpuSet,
    count: usize,
    strategy: Strategy,
) -> Result<CpuSet, TakeError> {
    let mut acc = Accumulator::new(machine, available, count, strategy);
    if acc.is_satisfied() {
        return Ok(acc.taken);
    }
    if acc.free.len() < count {
        return Err(TakeError::NotEnough { requested: count, available: available.len() });
    }
    acc.take_whole_zones_and_sockets();
    if strategy.by_cache && !acc.is_satisfied() {
        acc.take_caches();
    }
    if !strategy.spread && !acc.is_satisfied() {
        acc.take_whole_cores();
    }
    if !acc.is_satisfied() {
        acc.take_threads();
    }
    if acc.is_satisfied() { Ok(acc.taken) } else { Err(TakeError::UsedUp) }
}

impl<'a> Accumulator<'a> {
    pub(crate) fn new(machine: &'a Machine, available: &CpuSet, count: usize, strategy: Strategy) -> Self {
        Self {
            machine,
            free: available.intersection(machine.cpus()),
            taken: CpuSet::new(),
            needed: count.cast_signed(),
            spread: strategy.spread,
        }
    }

    pub(crate) fn is_satisfied(&self) -> bool {
        self.needed < 1
    }

    pub(crate) fn free(&self) -> &CpuSet {
        &self.free
    }

    pub(crate) fn needed(&self) -> isize {
        self.needed
    }

    pub(crate) fn taken(self) -> CpuSet {
        self.taken
    }

    pub(crate) fn take(&mut self, cpus: &CpuSet) {
        self.taken.insert_all(cpus);
        self.free.remove_all(cpus);
        self.needed -= cpus.len().cast_signed();
    }

    fn needs(&self, cpus: usize) -> bool {
        self.needed >= cpus.cast_signed()
    }

    /// The larger of zones and sockets comes first.
    fn zones_contain_sockets(&self) -> bool {
        self.machine.sockets().len() >= self.machine.cpu_zones().len()
    }

    fn take_whole_zones_and_sockets(&mut self) {
        let zones_first = self.zones_contain_sockets();
        for zones in [zones_first, !zones_first] {
            let groups = if zones { self.zones() } else { self.sockets() };
            let whole =
                |group: &CpuGroup| if zones { group.cpus.len() } else { self.machine.cpus_per_socket() };
            let free: Vec<_> = groups
                .into_iter()
                .filter(|group| self.free.count_shared(&group.cpus) == whole(group))
                .collect();
            for group in free {
                if self.needs(group.cpus.len()) {
                    self.take(&group.cpus);
                }
            }
            if self.is_satisfied() {
                return;
            }
        }
    }

    fn take_caches(&mut self) {
        let usual = self.machine.cpus_per_cache();
        for cache in self.caches() {
            if self.needs(usual) {
                self.take_whole_caches();
            }
            if self.is_satisfied() {
                return;
            }
            self.take_part_of_cache(cache);
            if self.is_satisfied() {
                return;
            }
        }
    }

    fn take_whole_caches(&mut self) {
        let free: Vec<_> =
            self.caches().into_iter().filter(|cache| cache.cpus.is_subset(&self.free)).collect();
        for cache in free {
            if self.needs(cache.cpus.len()) {
                self.take(&cache.cpus);
            }
        }
    }

    /// Takes what is still needed from one cache, or nothing of it (kubelet `takePartialUncore`).
    fn take_part_of_cache(&mut self, cache: &CpuGroup) {
        let threads = self.machine.cpus_per_core().max(1);
        let needed = usize::try_from(self.needed).unwrap_or(0);
        let offered = cache.cpus.intersection(&self.free);
        let cores = self.machine.cores().iter().filter(|core| !core.cpus.is_disjoint(&offered));
        let mut cpus = CpuSet::new();
        cores
            .take(needed.div_ceil(threads))
            .for_each(|core| cpus.insert_all(&core.cpus.intersection(&self.free)));
        // Of an odd number the last core gives one thread.
        if !needed.is_multiple_of(2) && threads > 1 && cpus.len() > needed {
            cpus.pop_last();
        }
        if cpus.len() == needed {
            self.take(&cpus);
        }
    }

    fn take_whole_cores(&mut self) {
        let threads = self.machine.cpus_per_core();
        let free: Vec<_> =
            self.cores().into_iter().filter(|core| self.free.count_shared(&core.cpus) == threads).collect();
        for core in free {
            if self.needs(core.cpus.len()) {
                self.take(&core.cpus);
            }
        }
    }

    fn take_threads(&mut self) {
        let groups = if self.spread { self.sockets() } else { self.cores() };
        let free: Vec<CpuSet> = groups.iter().map(|group| group.cpus.intersection(&self.free)).collect();
        for cpu in free.iter().flat_map(CpuSet::iter) {
            self.take(&CpuSet::from_ids([cpu]).unwrap_or_default());
            if self.is_satisfied() {
                return;
            }
        }
    }

    /// Zones with a free CPU, the fullest first (kubelet `sortAvailableNUMANodes`).
    pub(crate) fn zones(&self) -> Vec<&'a CpuGroup> {
        if self.zones_contain_sockets() {
            return self.fullest_first(self.machine.cpu_zones(), None);
        }
        let sockets = self.fullest_first(self.machine.sockets(), None);
        self.within(&sockets, self.machine.cpu_zones())
    }

    fn sockets(&self) -> Vec<&'a CpuGroup> {
        if !self.zones_contain_sockets() {
            return self.fullest_first(self.machine.sockets(), None);
        }
        let zones = self.fullest_first(self.machine.cpu_zones(), None);
        self.within(&zones, self.machine.sockets())
    }

    fn cores(&self) -> Vec<&'a CpuGroup> {
        let parents = if self.zones_contain_sockets() { self.sockets() } else { self.zones() };
        self.within(&parents, self.machine.cores())
    }

    fn caches(&self) -> Vec<&'a CpuGroup> {
        self.within(&self.zones(), self.machine.caches())
    }

    /// The groups with a free CPU in each parent, in the order of the parents. A group in two parents comes twice.
    fn within(&self, parents: &[&CpuGroup], groups: &'a [CpuGroup]) -> Vec<&'a CpuGroup> {
        parents.iter().flat_map(|parent| self.fullest_first(groups, Some(&parent.cpus))).collect()
    }

    /// The groups with a free CPU, within `parent` if given, those with the fewest free CPUs first, then by id.
    fn fullest_first(&self, groups: &'a [CpuGroup], parent: Option<&CpuSet>) -> Vec<&'a CpuGroup> {
        let mut free: Vec<(usize, &CpuGroup)> = groups
            .iter()
            .filter(|group| match parent {
                Some(parent) => group.cpus.meets_both(parent, &self.free),
                None => true,
            })
            .map(|group| (self.free.count_shared(&group.cpus), group))
            .filter(|(count, _)| *count > 0)
            .collect();
        // Groups ascend by id, and the sort is stable.
        free.sort_by_key(|(count, _)| *count);
        free.into_iter().map(|(_, group)| group).collect()
    }
}
