//go:build !k134 && !k135

package main

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
)

// podResources are the CPUs and the memory that a pod has as a whole, where managers know such.
func podResources(k *kubelet, uid string) (string, []memorystate.Block, bool) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.PodLevelResourceManagers) {
		return "", nil, false
	}
	cpus, _ := k.cpus.State().GetPodCPUSet(uid)
	return cpus.String(), k.memory.State().GetPodMemoryBlocks(uid), true
}

func allPodResources(k *kubelet) (map[string]string, map[string][]memoryReport) {
	cpus, memory := map[string]string{}, map[string][]memoryReport{}
	for uid, entry := range k.cpus.State().GetPodCPUAssignments() {
		cpus[uid] = entry.CPUSet.String()
	}
	for uid, entry := range k.memory.State().GetPodMemoryAssignments() {
		memory[uid] = blocks(entry.MemoryBlocks)
	}
	return cpus, memory
}
