//go:build !k134 && !k135 && !k137

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// What is 1.36's alone.

func newAllocationManager(k *kubelet, folder string) allocation.Manager {
	manager := allocation.NewManager(folder, k.statuses, func(*v1.Pod) {}, k.pods.active, k.pods.GetPodByUID, k, recorder)
	manager.SetContainerRuntime(containerRuntime{})
	return manager
}

// addHandlers adds the handlers of admission in the kubelet's order, without those that ask the host.
func addHandlers(k *kubelet) {
	predicates := lifecycle.NewPredicateAdmitHandler(k.getNode, k.criticalPods(), k.devices.UpdatePluginResources)
	k.allocation.AddPodAdmitHandlers(lifecycle.PodAdmitHandlers{
		allocation.NewPodResizesAdmitHandler(containerManager{kubelet: k}, containerRuntime{}, k.allocation, silent),
		k.topology,
		totalsHandler{predicates, k},
		lifecycle.NewPodFeaturesAdmitHandler(),
	})
}
