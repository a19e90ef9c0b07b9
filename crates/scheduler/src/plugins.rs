//! kube-scheduler's plugins, as far as they are here: which run in a profile, and their arguments.
//!
//! In: the choices of a configuration file (`config`). Out: [`Plugins`], which a cycle reads field by field. Never: a
//! name that is looked up, or a call through a table, while a pod is placed. Each plugin with arithmetic of its own has
//! one file here; taints, cordons and node affinity are in [`crate::affinity`].
//!
//! Filters run in kube-scheduler's default order (1.36 `default_plugins.go`), whatever the order in a file: the order
//! decides which reason a node gives, and never whether it fits.

use crate::affinity::NodeAffinity;

pub mod balanced_allocation;
pub mod default_preemption;
pub mod dynamic_resources;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod node_declared_features;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_volume_limits;
pub mod pod_topology_spread;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

/// The plugins of a profile. The default is that of kube-scheduler 1.36.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugins {
    /// Those that refuse nodes.
    pub filters: Filters,
    /// Those that refuse pods before they look at nodes, also where they refuse no nodes.
    pub pre_filters: PreFilters,
    /// Those that rank nodes.
    pub scores: Scores,
    /// `NodeAffinityArgs.addedAffinity`, which counts for every pod in addition to its own.
    pub added_affinity: NodeAffinity,
    /// `NodeResourcesFitArgs`.
    pub fit: node_resources_fit::Args,
    /// `InterPodAffinityArgs`.
    pub pod_affinity: inter_pod_affinity::Args,
    /// `PodTopologySpreadArgs`.
    pub spread: pod_topology_spread::Args,
    /// `NodeResourcesBalancedAllocationArgs`.
    pub balanced: balanced_allocation::Args,
    /// `VolumeBindingArgs`; `None`: pods are bound without volumes for their claims.
    pub volume_binding: Option<volume_binding::Args>,
    /// `DefaultPreemptionArgs`; `None`: nothing is evicted.
    pub preemption: Option<default_preemption::Args>,
    /// `DynamicResourcesArgs`; `None`: pods are bound without devices for their claims.
    pub dynamic_resources: Option<dynamic_resources::Args>,
    /// DynamicResources' PostFilter, which gives back devices that are of no use to a pod that fits nowhere.
    pub deallocates: bool,
    /// GangScheduling: pods of a PodGroup with the gang policy are placed together or not at all.
    pub gang_scheduling: bool,
}

/// Filters that run. NodeName has no entry: a pod with `spec.nodeName` is never placed, so it has nothing to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filters {
    /// NodeUnschedulable.
    pub node_unschedulable: bool,
    /// TaintToleration.
    pub taint_toleration: bool,
    /// NodeAffinity.
    pub node_affinity: bool,
    /// NodeAffinity's PreFilter, which leaves out nodes that the pod does not name.
    pub node_names: bool,
    /// NodePorts.
    pub node_ports: bool,
    /// NodeDeclaredFeatures, with its PreFilter.
    pub node_declared_features: bool,
    /// NodeResourcesFit.
    pub node_resources_fit: bool,
    /// VolumeRestrictions.
    pub volume_restrictions: bool,
    /// NodeVolumeLimits.
    pub node_volume_limits: bool,
    /// VolumeBinding.
    pub volume_binding: bool,
    /// VolumeZone.
    pub volume_zone: bool,
    /// PodTopologySpread.
    pub pod_topology_spread: bool,
    /// InterPodAffinity.
    pub inter_pod_affinity: bool,
    /// DynamicResources.
    pub dynamic_resources: bool,
}

/// The volume plugins' PreFilter, which refuses pods whose claims are not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreFilters {
    /// VolumeRestrictions.
    pub volume_restrictions: bool,
    /// VolumeBinding.
    pub volume_binding: bool,
    /// VolumeZone.
    pub volume_zone: bool,
}

/// Weights of the scores; 0: the plugin does not score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scores {
    /// TaintToleration.
    pub taint_toleration: i64,
    /// NodeAffinity.
    pub node_affinity: i64,
    /// NodeResourcesFit.
    pub node_resources_fit: i64,
    /// NodeResourcesBalancedAllocation.
    pub balanced_allocation: i64,
    /// ImageLocality.
    pub image_locality: i64,
    /// PodTopologySpread.
    pub pod_topology_spread: i64,
    /// InterPodAffinity.
    pub inter_pod_affinity: i64,
    /// DynamicResources.
    pub dynamic_resources: i64,
}

impl Default for Plugins {
    fn default() -> Self {
        Self {
            filters: Filters::default(),
            pre_filters: PreFilters::default(),
            scores: Scores::default(),
            added_affinity: NodeAffinity::default(),
            fit: node_resources_fit::Args::default(),
            balanced: balanced_allocation::Args::default(),
            pod_affinity: inter_pod_affinity::Args::default(),
            spread: pod_topology_spread::Args::default(),
            volume_binding: Some(volume_binding::Args::default()),
            preemption: Some(default_preemption::Args::default()),
            dynamic_resources: Some(dynamic_resources::Args::default()),
            deallocates: true,
            gang_scheduling: false,
        }
    }
}

impl Default for Filters {
    fn default() -> Self {
        Self {
            node_unschedulable: true,
            taint_toleration: true,
            node_affinity: true,
            node_names: true,
            node_ports: true,
            node_declared_features: true,
            node_resources_fit: true,
            volume_restrictions: true,
            node_volume_limits: true,
            volume_binding: true,
            volume_zone: true,
            pod_topology_spread: true,
            inter_pod_affinity: true,
            dynamic_resources: true,
        }
    }
}

impl Default for PreFilters {
    fn default() -> Self {
        Self { volume_restrictions: true, volume_binding: true, volume_zone: true }
    }
}

impl Default for Scores {
    fn default() -> Self {
        Self {
            taint_toleration: 3,
            node_affinity: 2,
            node_resources_fit: 1,
            balanced_allocation: 1,
            image_locality: 1,
            pod_topology_spread: 2,
            inter_pod_affinity: 2,
            dynamic_resources: 2,
        }
    }
}

impl Scores {
    /// All weights, in the order of the fields.
    #[must_use]
    pub fn all(self) -> [i64; 8] {
        [
            self.taint_toleration,
            self.node_affinity,
            self.node_resources_fit,
            self.balanced_allocation,
            self.image_locality,
            self.pod_topology_spread,
            self.inter_pod_affinity,
            self.dynamic_resources,
        ]
    }

    /// Whether nothing scores. Then the first node that fits is taken, as in kube-scheduler.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.all() == [0; 8]
    }
}
