//! Keys of attributes, annotations and labels that several programs share, and their fixed values.
//!
//! In and out: constants only. Each key is defined once, with the programs that write it. "Us" is tholepin's exporter,
//! RTE resource-topology-exporter, NFD nfd-topology-updater.

/// Node attribute: Topology Manager policy in the kubelet's spelling. Written by RTE, NFD and us.
pub const ATTRIBUTE_POLICY: &str = "topologyManagerPolicy";
/// Node attribute: Topology Manager scope in the kubelet's spelling. Written by RTE, NFD and us.
pub const ATTRIBUTE_SCOPE: &str = "topologyManagerScope";
/// Node attribute: the most zones the kubelet considers. Read by the Go scheduler plugin, not written by any program
/// yet.
pub const ATTRIBUTE_MAX_NUMA_NODES: &str = "topologyManagerMaxNUMANodes";
/// Node attribute: CPU manager policy in the kubelet's spelling. Written by us.
pub const ATTRIBUTE_CPU_MANAGER: &str = "cpuManagerPolicy";
/// Node attribute: memory manager policy in the kubelet's spelling. Written by us.
pub const ATTRIBUTE_MEMORY_MANAGER: &str = "memoryManagerPolicy";
/// Node attribute: Topology Manager policy options, as `name=value` joined by commas, by name. Written by us.
pub const ATTRIBUTE_POLICY_OPTIONS: &str = "topologyManagerPolicyOptions";
/// Node attribute: CPU manager policy options, as `name=value` joined by commas, by name. Written by us.
pub const ATTRIBUTE_CPU_MANAGER_OPTIONS: &str = "cpuManagerPolicyOptions";
/// Node attribute: the CPUs the kubelet keeps for the system, as a Linux CPU list, whether it was told which or has
/// chosen them. Written by us.
pub const ATTRIBUTE_RESERVED_CPUS: &str = "reservedSystemCPUs";
/// Node attribute: the memory the kubelet keeps for the system in each zone, as its flag has it:
/// `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Gi`. Written by us.
pub const ATTRIBUTE_RESERVED_MEMORY: &str = "reservedMemory";
/// Node attribute: hardware threads of a core, such as `2`. Absent when cores differ. Written by us.
pub const ATTRIBUTE_THREADS_PER_CORE: &str = "threadsPerCore";
/// Node attribute: the hardware threads of each core ([`topology::siblings`] describes the text). Written by us.
pub const ATTRIBUTE_THREAD_SIBLINGS: &str = "threadSiblings";
/// Node attribute: feature gates of the kubelet that change what its managers do and are set, as `name=true` joined by
/// commas, by name. Written by us.
pub const ATTRIBUTE_FEATURE_GATES: &str = "kubeletFeatureGates";
/// Node attribute: the kubelet's version, such as `v1.36.3`. Written by us.
pub const ATTRIBUTE_KUBELET_VERSION: &str = "kubeletVersion";
/// Node attribute: devices that are close to no zone, as `name:allocatable:available` joined by commas. Written by us.
pub const ATTRIBUTE_UNALIGNED_DEVICES: &str = "unalignedDevices";
/// Node attribute: devices that are close to several zones, as `name@zones:allocatable:available` joined by semicolons,
/// zones as ids with commas. Written by us.
pub const ATTRIBUTE_DEVICE_GROUPS: &str = "deviceGroups";
/// Node attribute: what each container holds by ids ([`topology::placement::holdings`] describes the text). Written by
/// us.
pub const ATTRIBUTE_HOLDINGS: &str = "containerHoldings";
/// Node attribute: where containers sit when some span zones ([`topology::placement`] describes the text). Written by
/// us.
pub const ATTRIBUTE_MULTI_ZONE_PLACEMENTS: &str = "multiNUMAPlacements";
/// Node attribute: CPUs of the performance cores of a hybrid processor, as a Linux CPU list. Meant by NFD, written by
/// us.
pub const ATTRIBUTE_PERFORMANCE_CORES: &str = "cpu_core";
/// Node attribute: CPUs of the efficiency cores of a hybrid processor, as a Linux CPU list. Meant by NFD, written by
/// us.
pub const ATTRIBUTE_EFFICIENCY_CORES: &str = "cpu_atom";
/// Node attribute: what the vectors of the zones are about. Written by RTE (0.25) and us, read by the Go scheduler
/// plugin.
pub const ATTRIBUTE_PLACEMENT_METADATA: &str = "topology.node.k8s.io/numaplacement-metadata";
/// Zone attribute: which containers sit in the zone. Written by RTE (0.25) and us, read by the Go scheduler plugin.
pub const ZONE_ATTRIBUTE_PLACEMENT: &str = "topology.node.k8s.io/numaplacement-vector";
/// Zone attribute: the zone's online CPUs, as a Linux CPU list. Written by us.
pub const ZONE_ATTRIBUTE_CPUS: &str = "cpus";
/// Zone attribute: the zone's CPUs by last-level cache, as Linux CPU lists joined by semicolons. Absent where
/// no socket has several caches, or the kernel does not say. Written by us.
pub const ZONE_ATTRIBUTE_CACHES: &str = "lastLevelCaches";
/// Zone attribute: the id of the zone's socket, or `id:cpus` joined by semicolons where it has several, CPUs as a Linux
/// list. Written by us.
pub const ZONE_ATTRIBUTE_SOCKETS: &str = "sockets";
/// Zone attribute: CPUs of the zone that no container holds and that are not reserved, as a Linux CPU list, empty if
/// there are none. Absent where the CPU manager hands out none. Written by us.
pub const ZONE_ATTRIBUTE_FREE_CPUS: &str = "freeCPUs";
/// Zone attribute: the zones that the zone's memory is handed out with, itself included, as ids with commas. Absent
/// where it is handed out alone. Written by us.
pub const ZONE_ATTRIBUTE_MEMORY_GROUP: &str = "memoryGroup";
/// Node attribute: pod fingerprint. Written by RTE, NFD and us.
pub const ATTRIBUTE_FINGERPRINT: &str = "nodeTopologyPodsFingerprint";
/// Node attribute: which pods the fingerprint covers. Written by RTE and us; absent means all.
pub const ATTRIBUTE_FINGERPRINT_METHOD: &str = "nodeTopologyPodsFingerprintMethod";

/// NRT annotation: the fingerprint in its older form, read only when the attribute is absent. Written by RTE.
pub const ANNOTATION_FINGERPRINT: &str = "topology.node.k8s.io/fingerprint";
/// NRT annotation: the cause of the update, [`UPDATE_PERIODIC`] or [`UPDATE_REACTIVE`]. The prefix is spelled so by
/// RTE.
pub const ANNOTATION_UPDATE: &str = "k8stopoawareschedwg/rte-update";
/// NRT annotation: time between this wake-up and the last, in Go's duration text. Written by RTE on request.
pub const ANNOTATION_SLEEP_DURATION: &str = "k8stopoawareschedwg/sleep-duration";
/// NRT annotation: the configured interval, in Go's duration text. Written by RTE on request.
pub const ANNOTATION_UPDATE_INTERVAL: &str = "k8stopoawareschedwg/update-interval";
/// [`ANNOTATION_UPDATE`] of an update made by the timer.
pub const UPDATE_PERIODIC: &str = "periodic";
/// [`ANNOTATION_UPDATE`] of an update caused by a change on the node.
pub const UPDATE_REACTIVE: &str = "reactive";

/// CRD annotation that the API server requires for groups under `k8s.io`.
pub const ANNOTATION_API_APPROVED: &str = "api-approved.kubernetes.io";

/// Pod annotation: what the pod wants of zones beyond what kubelets enforce, `require`, `prefer` or `ignore`. Read by
/// our scheduler.
pub const POD_ALIGNMENT: &str = "tholepin.dev/alignment";
/// Annotation of mirror pods: the uid of the static pod. Written by the kubelet.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
