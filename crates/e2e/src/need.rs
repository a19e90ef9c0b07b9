//! A capability that a spec needs of the cluster.
//!
//! In: the facts about a cluster. Out: the first need that it does not meet, in words. Never: a failure of the suite: a
//! missing capability skips one spec.

use topology::policy::{Policy, Scope};

use crate::facts::{DEFAULT_SCHEDULER, Facts, NodeFacts};
use crate::machines::MASTER;
use crate::platform::Platform;

/// A capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// So many nodes whose kubelets align to a single zone, with two zones or more each.
    Aligning(usize),
    /// The aligning nodes are those of this scope.
    Scope(Scope),
    /// Every aligning node has some of this resource in a zone.
    Resource(&'static str),
    /// The suite's devices.
    Devices,
    /// A scheduler to test.
    Scheduler,
    /// The default scheduler.
    DefaultScheduler,
    /// A scheduler to test that evicts pods for others of higher priority.
    Preemption,
    /// A scheduler to test that knows zones.
    ZoneScheduler,
    /// A NUMAResourcesOperator object.
    Operator,
    /// A NUMAResourcesScheduler object.
    SchedulerObject,
    /// A kind, as `machineconfigpools.machineconfiguration.openshift.io`.
    Kind(&'static str),
    /// Commands in containers, for accounts that may ask for them.
    Exec,
    /// Reports with a fingerprint.
    Fingerprint,
    /// This platform.
    Platform(Platform),
    /// A KubeletConfig and a MachineConfigPool of the aligning nodes, with which a controller changes their kubelets.
    Reconfigurable,
    /// An aligning node that a controller moves to another MachineConfigPool.
    Movable,
    /// Nodes of the control plane in a MachineConfigPool of their own.
    Masters,
}

impl Need {
    /// Whether nodes reboot for a spec with this need.
    #[must_use]
    pub fn reboots(self) -> bool {
        matches!(self, Self::Reconfigurable | Self::Movable)
    }

    /// The groups of nodes with which a spec with these needs can be tried, the usual one first. All nodes of a group
    /// have one scope. A spec about one node has that one.
    ///
    /// # Errors
    /// The first need that the cluster does not meet.
    pub fn groups<'f>(
        needs: &[Self],
        node: Option<&str>,
        facts: &'f Facts,
    ) -> Result<Vec<Vec<&'f NodeFacts>>, String> {
        let wished = needs.iter().find_map(|need| match need {
            Self::Scope(scope) => Some(*scope),
            _ => None,
        });
        let scopes = wished.map_or_else(|| facts.scopes(), |scope| vec![scope]);
        let group = |scope: &Scope| facts.nodes.iter().filter(|node| node.aligns_by(*scope)).collect();
        let groups: Vec<Vec<&NodeFacts>> = match node {
            Some(name) => vec![facts.nodes.iter().filter(|node| node.name == name).collect()],
            None => scopes.iter().map(group).collect(),
        };
        let unmet = |group: &[&NodeFacts]| needs.iter().find_map(|need| need.missing(group, facts));
        let first = unmet(groups.first().map_or(&[], Vec::as_slice));
        let usable: Vec<_> = groups.into_iter().filter(|group| unmet(group).is_none()).collect();
        match first {
            Some(missing) if usable.is_empty() => Err(missing),
            _ => Ok(usable),
        }
    }

    /// Whether a spec with this need may change more than its own nodes.
    #[must_use]
    pub fn is_of_the_cluster(self) -> bool {
        match self {
            // Classes of priority are known by the same names to all.
            Self::Operator | Self::SchedulerObject | Self::Kind(_) | Self::Preemption => true,
            need => need.reboots(),
        }
    }

    /// Why the cluster does not meet the need; `None` if it does.
    fn missing(self, nodes: &[&NodeFacts], facts: &Facts) -> Option<String> {
        let unless = |is_there: bool, missing: &str| (!is_there).then(|| missing.to_owned());
        match self {
            Self::Aligning(count) => (nodes.len() < count).then(|| {
                let policy = Policy::SingleNumaNode.as_str();
                format!("{count} nodes with policy {policy} and two zones or more; there are {}", nodes.len())
            }),
            Self::Scope(scope) => {
                unless(!nodes.is_empty(), &format!("nodes with topology manager scope {}", scope.as_str()))
            }
            Self::Resource(name) => nodes
                .iter()
                .find(|node| !node.has(name))
                .map(|node| format!("resource {name} on node {}", node.name)),
            Self::Devices => facts.devices.as_ref().err().map(|reason| format!("devices: {reason}")),
            Self::Scheduler => unless(facts.scheduler.is_some(), "a scheduler to test (--scheduler-name)"),
            Self::DefaultScheduler => unless(facts.default_scheduler, "the default scheduler"),
            Self::Preemption => {
                unless(facts.preempts(), "a scheduler with preemption (preemptionMode: Enabled)")
            }
            Self::ZoneScheduler => {
                let is_stock = facts.scheduler.as_deref() == Some(DEFAULT_SCHEDULER);
                unless(!is_stock, "a scheduler that knows zones")
            }
            Self::Operator => unless(facts.operator.is_some(), "a NUMAResourcesOperator object"),
            Self::SchedulerObject => {
                unless(facts.scheduler_object.is_some(), "a NUMAResourcesScheduler object")
            }
            Self::Kind(kind) => unless(facts.kinds.contains(kind), &format!("kind {kind}")),
            Self::Exec => unless(facts.exec, "the right to run commands in containers (nodes/proxy)"),
            Self::Platform(platform) => unless(facts.platform == platform, &format!("platform {platform}")),
            Self::Reconfigurable => facts.reconfigurable(nodes).err(),
            Self::Movable => facts.movable(nodes).err(),
            Self::Masters => unless(facts.pool(MASTER).is_some(), "nodes in MachineConfigPool master"),
            Self::Fingerprint => nodes
                .iter()
                .find(|node| node.topology.fingerprint.is_none())
                .map(|node| format!("a pod fingerprint in the report of node {}", node.name)),
        }
    }
}
