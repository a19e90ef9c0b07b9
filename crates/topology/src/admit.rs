//! Would the kubelet admit this pod, and where would it put it?
//!
//! In: a node's [`Rules`], its [`Free`] table and a pod's [`PodNeeds`]. Out: a [`Placement`] or the [`Misfit`] the kubelet
//! would reject the pod with. Never: a choice between nodes.
//!
//! This is the Topology Manager's `single-numa-node` admission (kubelet 1.36 `topologymanager`, `cpumanager`,
//! `memorymanager`, `devicemanager`): containers in order, each on the lowest zone that holds all it aligns, init containers'
//! resources reused by later containers. `restricted` is decided by the same rule: what fits one zone is always a
//! preferred hint, so the answer is never too generous; pods that would need two zones there are refused for now.
//! Cost: containers x zones x needs, no allocation once the [`Scratch`] has grown.

use smallvec::SmallVec;

use crate::policy::{Manager, Rules, Scope};
use crate::reason::{Constraint, Misfit, Part};
use crate::request::{ContainerKind, Need, PodNeeds, Qos};
use crate::resource::{ResourceKind, ResourceName};
use crate::zone::Free;

/// What a pod holds in one cell of the node's [`Free`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Index into [`Free::cells`].
    pub cell: u32,
    /// What the kubelet cannot give to others while the pod lives.
    pub held: i64,
    /// The part of it that podresources (and so an exporter) reports: init containers that ran to completion keep
    /// what later containers did not reuse, unseen.
    pub visible: i64,
}

/// Where the kubelet puts a pod: its grants, ascending by cell. Empty for a pod that aligns nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Ascending by cell, each cell once.
    pub grants: SmallVec<[Grant; 2]>,
}

/// Working memory of an admission, kept by the caller so that a hot loop does not allocate.
#[derive(Debug, Default)]
pub struct Scratch {
    taken: Vec<i64>,
    reuse: Vec<i64>,
    visible: Vec<i64>,
}

/// Whether, and how, the kubelet aligns one need.
enum Aligned {
    /// Not at all.
    No,
    /// In this column; `charge` is false when it is only checked.
    Yes { column: usize, charge: bool },
    /// It would, but no zone lists the resource.
    NotListed,
}

/// The needs one alignment decision covers, with the kubelet's view of which of them it aligns.
struct Question<'a> {
    rules: Rules,
    qos: Qos,
    free: &'a Free,
}

impl Placement {
    /// Takes the placement's amounts out of `free`.
    pub fn charge(&self, free: &mut Free) {
        self.grants.iter().for_each(|grant| free.add(grant.cell as usize, -grant.held));
    }

    /// Gives the placement's amounts back to `free`.
    pub fn release(&self, free: &mut Free) {
        self.grants.iter().for_each(|grant| free.add(grant.cell as usize, grant.held));
    }
}

/// The column a need is charged to, if the kubelet hands it out exclusively from a zone.
#[must_use]
pub fn charged_column(rules: Rules, free: &Free, qos: Qos, need: Need) -> Option<usize> {
    match (Question { rules, qos, free }).aligned(need) {
        Aligned::Yes { column, charge: true } => Some(column),
        _ => None,
    }
}

/// Whether a pod makes the kubelet hand out something that podresources reports with a zone, on a node with these rules
/// and zones. Exporters with fingerprint method `with-exclusive-resources` count exactly these pods.
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
    let question = Question { rules, qos: needs.qos, free };
    rules.policy.enforces()
        && needs
            .containers
            .iter()
            .flat_map(|container| &container.needs)
            .any(|need| !matches!(question.aligned(*need), Aligned::No))
}

/// Decides admission.
///
/// # Errors
/// The [`Misfit`] when the kubelet would reject the pod. A node whose policy does not reject admits everything, and then the
/// placement is empty: where the kubelet put the pod is not known.
pub fn admit(
    rules: Rules,
    free: &Free,
    needs: &PodNeeds,
    scratch: &mut Scratch,
) -> Result<Placement, Misfit> {
    if !rules.policy.enforces() {
        return Ok(Placement::default());
    }
    let question = Question { rules, qos: needs.qos, free };
    scratch.reset(free.cells().len());
    let pod_zone = match rules.scope {
        Scope::Pod => question.pod_zone(needs, scratch)?,
        Scope::Container => None,
    };
    for (at, container) in needs.containers.iter().enumerate() {
        let part = Part::of(container.kind);
        let zone = match pod_zone {
            Some(zone) => Some(zone),
            None => question.zone_for(&container.needs, part, at, scratch)?,
        };
        if let Some(row) = zone {
            for need in &container.needs {
                if let Aligned::Yes { column, charge: true } = question.aligned(*need) {
                    scratch.take(free.index(row, column), *need, container.kind);
                }
            }
        }
    }
    Ok(scratch.placement())
}

// === impl Question ===

impl Question<'_> {
    /// What the kubelet's managers make of one need. With unknown managers (RTE, NFD) a fractional cpu is checked but not
    /// charged: the peer plugin checks it, the kubelet never pins it.
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

    /// Whether a zone can give `need`. Exclusive CPUs and devices of an init container must be in the zone of the containers
    /// that may reuse them (kubelet 1.36 `generateCPUTopologyHints`, `generateDeviceTopologyHints`); memory need not.
    fn holds(&self, row: usize, column: usize, need: Need, scratch: &Scratch) -> bool {
        let index = self.free.index(row, column);
        let reusable = scratch.reuse[index];
        if need.name.kind() != ResourceKind::Memory && need.is_whole() {
            let rows = self.free.layout().zones().len();
            let elsewhere = (0..rows).any(|r| r != row && scratch.reuse[self.free.index(r, column)] > 0);
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
            let most = (0..rows)
                .map(|row| self.free.index(row, *column))
                .map(|index| self.left(index, scratch) + scratch.reuse[index])
                .max()
                .unwrap_or(0);
            if most < need.amount {
                return Constraint::Short { resource: need.name, requested: need.amount, most };
            }
        }
        Constraint::NoCommonZone
    }
}

// === impl Scratch ===

impl Scratch {
    fn reset(&mut self, cells: usize) {
        for table in [&mut self.taken, &mut self.reuse, &mut self.visible] {
            table.clear();
            table.resize(cells, 0);
        }
    }

    /// Allocates one container's need in a cell. Which of the reusable CPUs the kubelet picks is its own affair; the
    /// count is what matters: it prefers those of the same zone, and takes no more than asked.
    fn take(&mut self, index: usize, need: Need, kind: ContainerKind) {
        let reusable = self.reuse[index];
        let reused = reusable.min(need.amount);
        self.taken[index] += need.amount - reused;
        match kind {
            // The set of reusable CPUs and devices is a union; for memory the larger block. Both come to the maximum.
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
