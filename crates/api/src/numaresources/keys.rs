//! Names that the operator, its users and the Go operator share: objects, annotations, labels.
//!
//! In and out: constants only.

/// The name of the only NUMAResourcesOperator allowed.
pub const OPERATOR: &str = "numaresourcesoperator";
/// The name of the only NUMAResourcesScheduler allowed.
pub const SCHEDULER: &str = "numaresourcesscheduler";

/// Annotation of a node group: [`CUSTOM`] gives RTE its own SELinux policy by a MachineConfig.
pub const SELINUX_POLICY: &str = "config.node.openshift-kni.io/selinux-policy";
/// Value of [`SELINUX_POLICY`].
pub const CUSTOM: &str = "custom";
/// Annotation of a NUMAResourcesOperator: [`ENABLED`] allows a group's selector to match several MachineConfigPools.
pub const MULTIPLE_POOLS: &str = "config.node.openshift-kni.io/multiple-pools-per-tree";
/// Annotation of either kind: [`ENABLED`] stops changes by the operator.
pub const PAUSE: &str = "config.numa-operator.openshift.io/pause-reconciliation";
/// Value of [`MULTIPLE_POOLS`] and [`PAUSE`].
pub const ENABLED: &str = "enabled";
/// Annotation of a NUMAResourcesOperator: with [`CLUSTER`] the operator does not manage the NodeResourceTopology CRD.
pub const NRT_API: &str = "config.numa-operator.openshift.io/nrt-api-definition";
/// Value of [`NRT_API`].
pub const CLUSTER: &str = "cluster";
/// Annotation of a NUMAResourcesScheduler: [`GUARANTEED`] runs the scheduler's pods in the Guaranteed QoS class.
pub const SCHEDULER_QOS: &str = "config.numa-operator.openshift.io/scheduler-qos-request";
/// Value of [`SCHEDULER_QOS`].
pub const GUARANTEED: &str = "guaranteed";

/// Annotation of pod templates: the digest of the configuration, so that a change replaces the pods.
pub const CONFIG_HASH: &str = "configmap.hash";
/// Label of an exporter's configuration: its NUMAResourcesOperator.
pub const LABEL_OPERATOR: &str = "numaresourcesoperator.nodetopology.openshift.io/name";
/// Label of an exporter's configuration and pods: their pool.
pub const LABEL_POOL: &str = "nodegroup.nodetopology.openshift.io/machineconfigpool";
/// Label of a MachineConfig: the role of the pool that takes it.
pub const LABEL_ROLE: &str = "machineconfiguration.openshift.io/role";
/// Annotation of a KubeletConfig: the suffix of the name of its MachineConfig.
pub const MACHINE_CONFIG_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
/// HyperShift: label of ConfigMaps that contain a KubeletConfig.
pub const LABEL_KUBELET_CONFIG: &str = "hypershift.openshift.io/kubeletconfig-config";
/// HyperShift: label of nodes and of those ConfigMaps, the NodePool.
pub const LABEL_NODE_POOL: &str = "hypershift.openshift.io/nodePool";

/// The lease for leader election of schedulers.
pub const SCHEDULER_LEASE: &str = "numa-scheduler-leader";
/// The lease for leader election of operators.
pub const OPERATOR_LEASE: &str = "0e2a6bd3.openshift-kni.io";
