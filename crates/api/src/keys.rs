//! Every name two programs must agree on: attribute, annotation and label keys, and their fixed values.
//!
//! In and out: nothing but constants. Each name stands here once; who writes it is said beside it.

/// Node attribute: Topology Manager policy in the kubelet's spelling. Written by RTE, NFD and us.
pub const ATTRIBUTE_POLICY: &str = "topologyManagerPolicy";
/// Node attribute: Topology Manager scope in the kubelet's spelling. Written by RTE, NFD and us.
pub const ATTRIBUTE_SCOPE: &str = "topologyManagerScope";
/// Node attribute: the most zones the kubelet considers. Read by the Go scheduler plugin, written by nobody yet.
pub const ATTRIBUTE_MAX_NUMA_NODES: &str = "topologyManagerMaxNUMANodes";
/// Node attribute: CPU manager policy in the kubelet's spelling. Written by us.
pub const ATTRIBUTE_CPU_MANAGER: &str = "cpuManagerPolicy";
/// Node attribute: memory manager policy in the kubelet's spelling. Written by us.
pub const ATTRIBUTE_MEMORY_MANAGER: &str = "memoryManagerPolicy";
/// Node attribute: pod fingerprint. Written by RTE, NFD and us.
pub const ATTRIBUTE_FINGERPRINT: &str = "nodeTopologyPodsFingerprint";
/// Node attribute: which pods the fingerprint covers. Written by RTE and us; absent means all.
pub const ATTRIBUTE_FINGERPRINT_METHOD: &str = "nodeTopologyPodsFingerprintMethod";

/// NRT annotation: the fingerprint's older place, read only when the attribute is absent. Written by RTE.
pub const ANNOTATION_FINGERPRINT: &str = "topology.node.k8s.io/fingerprint";
/// NRT annotation: what caused the update, [`UPDATE_PERIODIC`] or [`UPDATE_REACTIVE`]. The prefix is spelled so by RTE.
pub const ANNOTATION_UPDATE: &str = "k8stopoawareschedwg/rte-update";
/// NRT annotation: time between this wake-up and the last, in Go's duration text. Written by RTE on request.
pub const ANNOTATION_SLEEP_DURATION: &str = "k8stopoawareschedwg/sleep-duration";
/// NRT annotation: the configured interval, in Go's duration text. Written by RTE on request.
pub const ANNOTATION_UPDATE_INTERVAL: &str = "k8stopoawareschedwg/update-interval";
/// [`ANNOTATION_UPDATE`] of an update made by the timer.
pub const UPDATE_PERIODIC: &str = "periodic";
/// [`ANNOTATION_UPDATE`] of an update made because something happened.
pub const UPDATE_REACTIVE: &str = "reactive";

/// CRD annotation the API server wants for groups under `k8s.io`.
pub const ANNOTATION_API_APPROVED: &str = "api-approved.kubernetes.io";
