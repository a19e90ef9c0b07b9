//! The reasons for which nodes refuse a pod, and the message in kube-scheduler's words.
//!
//! In: one [`Reason`] for each node. Out: the text `0/4 nodes are available: ...` of events and of the condition
//! PodScheduled. Never: a judgement of nodes.

use std::collections::BTreeMap;
use std::fmt;

use api::schedulerconfig::NUMA_PLUGIN;
use topology::reason::{Constraint, Misfit};
use topology::request::PodNeeds;
use topology::resource::ResourceName;

use crate::ledger::{Doubt, Refusal};
use crate::plugins::volume_binding::Conflicts;

/// The first reason for which a node refuses a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// `spec.unschedulable`.
    Unschedulable,
    /// A taint is not tolerated.
    Taint,
    /// The pod's node affinity names other nodes.
    OtherNode,
    /// The affinity that the profile adds to every pod.
    AddedAffinity,
    /// Node selector or required node affinity.
    Affinity,
    /// A port of the host is taken.
    HostPort,
    /// No room for another pod.
    TooManyPods,
    /// Too little of a resource on the whole node.
    Insufficient(ResourceName),
    /// The pod has to wait for its volumes, as this plugin says before it looks at nodes.
    VolumesNotReady(&'static str),
    /// A pod of the node has a disk that only one may have.
    DiskConflict,
    /// A pod has a claim that only one may have.
    ClaimInUse,
    /// More volumes than a driver attaches to the node.
    TooManyVolumes,
    /// The node does not reach the pod's volumes, or none can be made for it.
    VolumeBinding(Conflicts),
    /// The node is not in the zones of the pod's volumes.
    VolumeZone,
    /// A volume of the pod or of the node's pods is not what it says. kube-scheduler has errors instead.
    VolumeUnreadable,
    /// A spread constraint names a label that the node does not have.
    NoSpreadLabel,
    /// The node's domain has too many pods for a spread constraint.
    Spread,
    /// The node's domain has no pod that the pod must be near.
    PodAffinity,
    /// The node's domain has a pod that the pod must not be near.
    PodAntiAffinity,
    /// Pods in the node's domain keep the pod away.
    ExistingAntiAffinity,
    /// The pod has to wait for its claims, whatever the node.
    ClaimsNotReady,
    /// The node does not reach the devices of a claim.
    ClaimElsewhere,
    /// Too few devices for the claims are free.
    DevicesUnavailable,
    /// The same, and slices of a pool contradict each other.
    InvalidPools,
    /// Something is wrong with a claim or its class, on whatever node.
    ClaimError,
    /// The node's kubelet does not declare a feature that the pod needs.
    MissingFeatures,
    /// The claim that an earlier attempt has made for extended resources has to go first.
    StaleClaim,
    /// Neither a device plugin of the node nor a class has an extended resource.
    NotServed,
    /// The kubelet would reject the pod for what it gets in zones.
    Misaligned(Misfit),
    /// The node does not report its zones, and the profile wants it to.
    NoTopology,
    /// The pod requires alignment, and the kubelet would give it resources of more zones than needed.
    WouldSpread,
    /// The pod requires alignment, and nothing tells that the kubelet would align it.
    AlignmentUnknown,
    /// The kubelet aligns pods with pod-level resources as a whole, which is not modelled.
    PodLevelManagers,
    /// The state of the node's zones is not known for certain.
    StaleTopology(Doubt),
    /// An extender refuses the node; in its own words ([`Refusals::add_text`]).
    Extender,
    /// The node is held for a pod that comes first.
    Held,
    /// No pod of the node is less important than the pod.
    NoVictims,
    /// The departure of pods does not help.
    NotHelpful,
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Misfit(misfit) => Self::Misaligned(misfit),
            Refusal::Stale(doubt) => Self::StaleTopology(doubt),
        }
    }
}

impl Reason {
    /// The reason for a resource that is short on the whole node.
    #[must_use]
    pub fn short_of(resource: ResourceName) -> Self {
        if resource == ResourceName::PODS { Self::TooManyPods } else { Self::Insufficient(resource) }
    }

    /// The text with the name of the container that it is about. `needs`: the pod that is refused.
    #[must_use]
    pub fn text(self, needs: &PodNeeds) -> String {
        match self {
            Self::Misaligned(misfit) => misfit.text(needs),
            _ => self.to_string(),
        }
    }

    /// kube-scheduler's plugin for this check, for metrics; it has none that holds nodes.
    #[must_use]
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Unschedulable => "NodeUnschedulable",
            Self::Taint => "TaintToleration",
            Self::OtherNode | Self::AddedAffinity | Self::Affinity => "NodeAffinity",
            Self::HostPort => "NodePorts",
            Self::TooManyPods | Self::Insufficient(_) => "NodeResourcesFit",
            Self::VolumesNotReady(plugin) => plugin,
            Self::DiskConflict | Self::ClaimInUse => "VolumeRestrictions",
            Self::TooManyVolumes => "NodeVolumeLimits",
            Self::VolumeBinding(_) | Self::VolumeUnreadable => "VolumeBinding",
            Self::VolumeZone => "VolumeZone",
            Self::NoSpreadLabel | Self::Spread => "PodTopologySpread",
            Self::PodAffinity | Self::PodAntiAffinity | Self::ExistingAntiAffinity => "InterPodAffinity",
            Self::ClaimsNotReady
            | Self::ClaimElsewhere
            | Self::DevicesUnavailable
            | Self::InvalidPools
            | Self::ClaimError
            | Self::StaleClaim
            | Self::NotServed => "DynamicResources",
            Self::MissingFeatures => "NodeDeclaredFeatures",
            Self::Misaligned(_)
            | Self::NoTopology
            | Self::WouldSpread
            | Self::AlignmentUnknown
            | Self::PodLevelManagers
            | Self::StaleTopology(_) => NUMA_PLUGIN,
            Self::Extender => EXTENDER,
            Self::Held => "NodeHold",
            Self::NoVictims | Self::NotHelpful => "DefaultPreemption",
        }
    }
}

impl Reason {
    /// The largest amount in zones, if that is what is short.
    fn most(self) -> Option<i64> {
        let Self::Misaligned(Misfit { constraint: Constraint::Short { most, .. }, .. }) = self else {
            return None;
        };
        Some(most)
    }

    /// The same for zones that have another amount; `None` if no amount is short.
    fn without_amounts(self) -> Option<Self> {
        let Self::Misaligned(misfit) = self else { return None };
        let Constraint::Short { resource, requested, zones, .. } = misfit.constraint else { return None };
        // How many zones are meant is part of the text.
        let zones = (0..zones.len().max(1)).collect();
        let constraint = Constraint::Short { resource, requested, most: 0, zones };
        Some(Self::Misaligned(Misfit { constraint, ..misfit }))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Taint => f.write_str("node(s) had untolerated taint(s)"),
            // kube-scheduler does not even look at nodes that the plugin has left out, and says so.
            Self::OtherNode => f.write_str("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            Self::AddedAffinity => f.write_str("node(s) didn't match scheduler-enforced node affinity"),
            Self::Affinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::HostPort => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::VolumesNotReady(_) => f.write_str("volumes of the pod are not ready"),
            Self::ClaimsNotReady => f.write_str("claims of the pod are not ready"),
            Self::ClaimElsewhere => f.write_str("resourceclaim not available on the node"),
            Self::DevicesUnavailable => f.write_str("cannot allocate all claims"),
            Self::InvalidPools => f.write_str("invalid resource pools were encountered"),
            Self::ClaimError => f.write_str("claims of the pod are in error"),
            Self::MissingFeatures => f.write_str("node(s) didn't match Pod's required features"),
            Self::StaleClaim => f.write_str("cannot schedule extended resource claim"),
            Self::NotServed => f.write_str("cannot fit resource"),
            Self::DiskConflict => f.write_str("node(s) had no available disk"),
            Self::ClaimInUse => f.write_str(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            ),
            Self::TooManyVolumes => f.write_str("node(s) exceed max volume count"),
            Self::VolumeBinding(conflicts) => conflicts.fmt(f),
            Self::VolumeZone => f.write_str("node(s) had no available volume zone"),
            Self::VolumeUnreadable => f.write_str("node(s) had a volume that cannot be read"),
            Self::NoSpreadLabel => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::Spread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingAntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
            Self::Misaligned(misfit) => misfit.fmt(f),
            Self::NoTopology => f.write_str("node(s) had no NodeResourceTopology"),
            Self::WouldSpread => f.write_str("node(s) would spread the pod over more zones than it needs"),
            Self::AlignmentUnknown => f.write_str("node(s) were not known to align the pod, as it requires"),
            Self::PodLevelManagers => f.write_str("node(s) had PodLevelResourceManagers enabled"),
            Self::StaleTopology(doubt) => write!(f, "invalid node topology data: {doubt}"),
            Self::Extender => f.write_str("node(s) were refused by an extender"),
            Self::Held => f.write_str("node(s) were held for a pod that waits longer or is more important"),
            Self::NoVictims => f.write_str("No preemption victims found for incoming pod"),
            Self::NotHelpful => f.write_str("Preemption is not helpful for scheduling"),
        }
    }
}

/// The name of all extenders, where plugins are named.
pub const EXTENDER: &str = "Extender";

/// The number of refusing nodes by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    reasons: BTreeMap<Reason, usize>,
    /// Reasons of extenders.
    texts: BTreeMap<String, usize>,
    /// Whether extenders refuse a node, with or without a reason.
    pub by_extenders: bool,
}

impl Refusals {
    /// Counts one node that refuses for `reason`.
    pub fn add(&mut self, reason: Reason) {
        self.add_all(reason, 1);
    }

    /// Counts so many nodes that refuse for `reason`.
    pub fn add_all(&mut self, reason: Reason, nodes: usize) {
        if nodes > 0 {
            *self.reasons.entry(reason).or_default() += nodes;
        }
    }

    /// Counts one node that an extender refuses in these words.
    pub fn add_text(&mut self, text: &str) {
        *self.texts.entry(text.to_owned()).or_default() += 1;
        self.by_extenders = true;
    }

    /// The reasons and their counts, but for those of extenders, in the order of reasons.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, usize)> + '_ {
        self.reasons.iter().map(|(reason, count)| (*reason, *count))
    }

    /// kube-scheduler's FitError text for a cluster of `nodes` nodes; reasons are sorted as strings, as there. Of nodes
    /// whose zones have too little of the same thing, the one with most of it tells how much. `needs`: the pod.
    #[must_use]
    pub fn message(&self, nodes: usize, needs: &PodNeeds) -> String {
        let mut short: BTreeMap<Reason, (usize, Reason)> = BTreeMap::new();
        let mut reasons = Vec::new();
        for (reason, count) in &self.reasons {
            match reason.without_amounts() {
                Some(alike) => {
                    let (nodes, fullest) = short.entry(alike).or_insert((0, *reason));
                    *nodes += count;
                    if reason.most() > fullest.most() {
                        *fullest = *reason;
                    }
                }
                None => reasons.push((*count, *reason)),
            }
        }
        let reasons = reasons.into_iter().chain(short.into_values());
        let reasons = reasons.map(|(count, reason)| format!("{count} {}", reason.text(needs)));
        let texts = self.texts.iter().map(|(text, count)| format!("{count} {text}"));
        let mut parts: Vec<String> = reasons.chain(texts).collect();
        parts.sort_unstable();
        format!("0/{nodes} nodes are available: {}.", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use topology::kubelet::hint::ZoneMask;
    use topology::reason::Part;
    use topology::request::{ContainerKind, ContainerNeeds, PodRequest};

    use super::*;

    #[test]
    fn messages_read_as_kube_schedulers() {
        let mut refusals = Refusals::default();
        let short = |most, zone| Constraint::Short {
            resource: ResourceName::CPU,
            requested: 9_000,
            most,
            zones: ZoneMask::of(zone),
        };
        let misfit = |part, constraint| {
            Reason::Misaligned(Misfit { part, container: usize::from(part == Part::Container), constraint })
        };
        for reason in [
            Reason::Insufficient(ResourceName::CPU),
            misfit(Part::Container, short(4_000, 3)),
            misfit(Part::Container, short(8_000, 1)),
            misfit(Part::Container, short(8_000, 2)),
            misfit(Part::InitContainer, short(8_000, 1)),
            misfit(Part::Pod, Constraint::NoCommonZone),
            Reason::Insufficient(ResourceName::CPU),
            Reason::StaleTopology(Doubt::Awaited),
        ] {
            refusals.add(reason);
        }
        let container =
            |name: &str| ContainerNeeds { name: name.into(), kind: ContainerKind::App, needs: vec![] };
        let needs =
            PodNeeds { containers: vec![container("a"), container("b")], ..PodRequest::default().needs() };
        assert_eq!(
            refusals.message(8, &needs),
            "0/8 nodes are available: 1 cannot align init container \"a\": cpu: requested 9, most in one zone 8 (zone 1), \
             1 cannot align pod: no zone has all resources at once, \
             1 invalid node topology data: the first report is awaited, 2 Insufficient cpu, \
             3 cannot align container \"b\": cpu: requested 9, most in one zone 8 (zone 1)."
        );
    }
}
