//! A capability that a spec needs of the cluster.
//!
//! In: the facts about a cluster. Out: the first need that it does not meet, in words. Never: a failure of the suite: a
//! missing capability skips one spec.

use topology::policy::{Policy, Scope};

use crate::facts::{Facts, NodeFacts};

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
}

impl Need {
    /// The nodes that a spec with these needs may use.
    #[must_use]
    pub fn nodes<'f>(needs: &[Self], facts: &'f Facts) -> Vec<&'f NodeFacts> {
        let scope = needs.iter().find_map(|need| match need {
            Self::Scope(scope) => Some(*scope),
            _ => None,
        });
        let aligning = facts.nodes.iter().filter(|node| node.aligns());
        // Without a wish, the scope that most nodes have: one rule for all nodes of a spec.
        let scope = scope.or_else(|| facts.usual_scope());
        aligning.filter(|node| Some(node.rules().scope) == scope).collect()
    }

    /// Why the cluster does not meet the need; `None` if it does.
    #[must_use]
    pub fn missing(self, nodes: &[&NodeFacts], facts: &Facts) -> Option<String> {
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
            Self::Operator => unless(facts.operator.is_some(), "a NUMAResourcesOperator object"),
            Self::SchedulerObject => {
                unless(facts.scheduler_object.is_some(), "a NUMAResourcesScheduler object")
            }
            Self::Kind(kind) => unless(facts.kinds.contains(kind), &format!("kind {kind}")),
            Self::Exec => unless(facts.exec, "the right to run commands in containers (nodes/proxy)"),
            Self::Fingerprint => nodes
                .iter()
                .find(|node| node.topology.fingerprint.is_none())
                .map(|node| format!("a pod fingerprint in the report of node {}", node.name)),
        }
    }
}
