//go:build k135

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// What is 1.35's alone: the allocation manager decides about resizes itself.

func newAllocationManager(k *kubelet, folder string) allocation.Manager {
	absolute := containerManager{kubelet: k}.GetNodeAllocatableAbsolute()
	manager := allocation.NewManager(folder, *k.settings, absolute, k.statuses, func(*v1.Pod) {}, k.pods.active,
		k.pods.GetPodByUID, k, recorder)
	manager.SetContainerRuntime(containerRuntime{})
	return manager
}

// addHandlers adds the handlers of admission in the kubelet's order, without those that ask the host.
func addHandlers(k *kubelet) {
	predicates := lifecycle.NewPredicateAdmitHandler(k.getNode, k.criticalPods(), k.devices.UpdatePluginResources)
	k.allocation.AddPodAdmitHandlers(lifecycle.PodAdmitHandlers{
		k.topology, totalsHandler{predicates, k}, lifecycle.NewPodFeaturesAdmitHandler(),
	})
}
