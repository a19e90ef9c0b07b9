//! Names the operator, its users and the Go operator agree on: objects, annotations, labels.
//!
//! In and out: nothing but constants.

/// The only NUMAResourcesOperator there may be.
pub const OPERATOR: &str = "numaresourcesoperator";
/// The only NUMAResourcesScheduler there may be.
pub const SCHEDULER: &str = "numaresourcesscheduler";

/// On a node group: [`CUSTOM`] gives RTE a SELinux policy of its own, by a MachineConfig.
pub const SELINUX_POLICY: &str = "config.node.openshift-kni.io/selinux-policy";
/// Value of [`SELINUX_POLICY`].
pub const CUSTOM: &str = "custom";
/// On a NUMAResourcesOperator: [`ENABLED`] lets a group's selector match several MachineConfigPools.
pub const MULTIPLE_POOLS: &str = "config.node.openshift-kni.io/multiple-pools-per-tree";
/// On either: [`ENABLED`] leaves everything as it is.
pub const PAUSE: &str = "config.numa-operator.openshift.io/pause-reconciliation";
/// Value of [`MULTIPLE_POOLS`] and [`PAUSE`].
pub const ENABLED: &str = "enabled";
/// On a NUMAResourcesOperator: [`CLUSTER`] leaves the NodeResourceTopology definition to others.
pub const NRT_API: &str = "config.numa-operator.openshift.io/nrt-api-definition";
/// Value of [`NRT_API`].
pub const CLUSTER: &str = "cluster";
/// On a NUMAResourcesScheduler: [`GUARANTEED`] gives the scheduler CPUs and memory of its own.
pub const SCHEDULER_QOS: &str = "config.numa-operator.openshift.io/scheduler-qos-request";
/// Value of [`SCHEDULER_QOS`].
pub const GUARANTEED: &str = "guaranteed";

/// On pod templates: the digest of the configuration, so that a change of it replaces the pods.
pub const CONFIG_HASH: &str = "configmap.hash";
/// On an exporter's configuration: the NUMAResourcesOperator it belongs to.
pub const LABEL_OPERATOR: &str = "numaresourcesoperator.nodetopology.openshift.io/name";
/// On an exporter's configuration and pods: the pool they are for.
pub const LABEL_POOL: &str = "nodegroup.nodetopology.openshift.io/machineconfigpool";
/// On a MachineConfig: the role of the pool that takes it.
pub const LABEL_ROLE: &str = "machineconfiguration.openshift.io/role";
/// On a KubeletConfig: what the name of the MachineConfig it was rolled out with ends in.
pub const MACHINE_CONFIG_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
/// HyperShift, on ConfigMaps that hold a KubeletConfig.
pub const LABEL_KUBELET_CONFIG: &str = "hypershift.openshift.io/kubeletconfig-config";
/// HyperShift, on nodes and on those ConfigMaps: the NodePool.
pub const LABEL_NODE_POOL: &str = "hypershift.openshift.io/nodePool";

/// The lease by which one of several schedulers leads.
pub const SCHEDULER_LEASE: &str = "numa-scheduler-leader";
/// The lease by which one of several operators leads.
pub const OPERATOR_LEASE: &str = "0e2a6bd3.openshift-kni.io";
